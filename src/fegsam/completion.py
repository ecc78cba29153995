"""Shell completion: a script that shtab makes from the parser.

The script is static, so that a key press does not import the package, which would take a second.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from fegsam.errors import ProblemError

SHELLS = ("bash", "zsh")


def shell_in_use() -> str:
    """The user's login shell, or bash where there is no script for it."""
    name = Path(os.environ.get("SHELL", "")).name
    return name if name in SHELLS else "bash"


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The completion script for a parser and its subcommands.

    Examples
    --------
    >>> parser = argparse.ArgumentParser(prog="fegsam")
    >>> run = parser.add_subparsers().add_parser("run", help="run a study")
    >>> add_path(run, "--check")
    >>> "--check" in completion_script(parser, "bash")
    True
    """
    try:
        import shtab
    except ImportError:
        raise ProblemError("Shell completion needs shtab; run: pip install shtab") from None
    return shtab.complete(parser, shell)


def add_path(parser: argparse.ArgumentParser, *names: str, **options: Any) -> None:
    """`parser.add_argument` for a path, which the shell completes."""
    argument = parser.add_argument(*names, type=Path, **options)
    argument.complete = "file"  # pyright: ignore[reportAttributeAccessIssue]  read by shtab
