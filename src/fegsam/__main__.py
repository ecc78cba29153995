"""``python -m fegsam``: the command line where the package runs from its sources."""

from fegsam.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
