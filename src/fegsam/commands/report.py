"""``fegsam report``: draw the results of a study."""

from __future__ import annotations

import argparse

from fegsam.commands.command import Command, add_trust
from fegsam.completion import add_path


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "directory", help="the results of fegsam run")
    add_trust(parser)


def _report(given: argparse.Namespace) -> int:
    from fegsam.report.study import report_study

    page = report_study(given.directory, trust=given.trust)
    print(f"report: {page}")
    print(f"each figure as PDF, SVG and PNG: {page.parent / 'figures'}")
    return 0


COMMAND = Command(
    "draw figures and an HTML page from stored results",
    """\
Draw the figures that the stored study asks for, and write report.html: one page that needs no
network.""",
    """\
examples:
  fegsam run study.toml -o results
  fegsam report results""",
    _add_arguments,
    _report,
)
