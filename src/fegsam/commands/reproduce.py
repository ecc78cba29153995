"""``fegsam reproduce``: check every claim of the paper."""

from __future__ import annotations

import argparse
from pathlib import Path

from fegsam.commands.command import Command, add_depth, print_page
from fegsam.completion import add_path


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one problem per algorithm: minutes instead of half an hour",
    )
    parser.add_argument(
        "--only", metavar="LETTERS", help="check only these claims, such as cd; all by default"
    )
    add_depth(parser)
    add_path(
        parser,
        "-o",
        "--output",
        default=Path("reproduction"),
        metavar="DIR",
        help="directory of the report",
    )


def _reproduce(given: argparse.Namespace) -> int:
    from fegsam.report import summary
    from fegsam.reproduction import reproduce

    sections, page = reproduce(
        given.output, quick=given.quick, only=given.only, more_seeds=given.more_seeds
    )
    print(summary(sections, verbose=given.verbose))
    print_page(page, given.verbose)
    return 0


COMMAND = Command(
    "check and draw every claim of the paper; an HTML report at the end",
    """\
Check every claim of the paper on several problems, draw it, and judge it against thresholds that
were set beforehand: it holds, holds within x %, does not hold, or cannot be told. Figures (SVG,
PDF, PNG) and report.html are written to the directory. Finished claims are kept there: a run that
was interrupted or killed goes on where it was, and the same command again takes seconds.""",
    """\
examples:
  fegsam reproduce --quick                  a few minutes; writes to reproduction
  fegsam reproduce -o ~/claims              everything: half an hour on two cores
  fegsam reproduce --only cd --more-seeds 4  two claims, with four times the seeds""",
    _add_arguments,
    _reproduce,
)
