"""Commands of the command line that have actions, such as ``fegsam data check``."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Action(NamedTuple):
    """One action of a command."""

    line: str
    """its help in one line"""
    about: str
    """its help in one paragraph"""
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_all(parser: argparse.ArgumentParser, command: str, actions: Mapping[str, Action]) -> None:
    """Add the actions of `command` to its parser, which stores the chosen name in `action`."""
    added = parser.add_subparsers(dest="action", metavar="action", required=True)
    for name, action in actions.items():
        one = added.add_parser(
            name,
            help=action.line,
            description=textwrap.fill(action.about, 98),
            epilog=f"example:\n  fegsam {command} {action.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        action.add_arguments(one)
