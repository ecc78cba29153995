"""What a command of the command line is, and the arguments that several have."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fegsam.federation.command import TRUST


class Command(NamedTuple):
    """A command of the command line."""

    line: str
    """its help in one line"""
    about: str
    """its help text above the options"""
    examples: str
    """its help text below the options"""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add ``--trust``, which runs code that a study names."""
    parser.add_argument("--trust", action="store_true", help=TRUST)


def add_depth(parser: argparse.ArgumentParser) -> None:
    """Add how deep a command that judges claims goes, and what it prints."""
    parser.add_argument(
        "--more-seeds",
        type=count,
        default=1,
        metavar="TIMES",
        help="run this many times the seeds, to decide what cannot be told with fewer",
    )
    parser.add_argument("--verbose", action="store_true", help="print every number too")


def print_page(page: Path, verbose: bool) -> None:
    """Say where the report of a command that judges claims is."""
    print("A claim that does not hold is a finding, not a failure of the run.")
    if not verbose:
        print("Every number: the same command with --verbose, or the report.")
    print(f"report: {page}")


def positive(text: str) -> float:
    """A positive number, for argparse."""
    if not 0 < float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return float(text)


def count(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)
