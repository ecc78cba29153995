"""The commands of the command line, one file each: its arguments, its help, and what it calls."""
