"""Commands of the command line that have actions, such as ``fegsam data check``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import NamedTuple

from fegsam.help_text import HelpFormatter


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
            description=action.about,
            epilog=f"example:\n  fegsam {command} {action.example}",
            formatter_class=HelpFormatter,
        )
        action.add_arguments(one)
