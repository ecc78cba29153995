"""``fegsam compare``: compare the methods, tuned alike."""

from __future__ import annotations

import argparse
from pathlib import Path

from fegsam.commands.command import Command, add_depth, print_page
from fegsam.completion import add_path


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick",
        action="store_true",
        help="shorter runs and fewer seeds: minutes instead of an hour",
    )
    add_depth(parser)
    add_path(
        parser,
        "-o",
        "--output",
        default=Path("comparison"),
        metavar="DIR",
        help="directory of the report",
    )


def _compare(given: argparse.Namespace) -> int:
    from fegsam.comparison import compare
    from fegsam.report import summary

    sections, page = compare(given.output, quick=given.quick, more_seeds=given.more_seeds)
    judged = [section for section in sections if section.verdicts]
    print(summary(judged, verbose=given.verbose))
    print_page(page, given.verbose)
    return 0


COMMAND = Command(
    "compare all methods, tuned alike, and judge their published claims",
    """\
Tune every method with the same trials on every problem of a suite, draw the error that it reaches
against communications and against samples, and judge the published claims about it. Figures (SVG,
PDF, PNG) and report.html are written to the directory. What is finished is kept there: the same
command goes on where it was interrupted.""",
    """\
examples:
  fegsam compare --quick                    minutes; writes to comparison
  fegsam compare -o ~/methods               everything: about an hour on two cores""",
    _add_arguments,
    _compare,
)
