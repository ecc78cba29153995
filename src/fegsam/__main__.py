"""``python -m fegsam``: the command line of a package that runs from its sources."""

from fegsam.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
