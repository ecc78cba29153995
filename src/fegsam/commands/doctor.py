"""``fegsam doctor``: show what is installed and what is missing."""

from __future__ import annotations

import argparse

from fegsam.commands.command import Command


def _doctor(given: argparse.Namespace) -> int:
    from fegsam.doctor import examine

    print(examine())
    return 0


COMMAND = Command(
    "show what is installed, what is missing and what to do",
    """\
Show which packages, threads, compiler cache and GPU a run would use, and what to do about each
gap.""",
    """\
examples:
  fegsam doctor""",
    lambda parser: None,
    _doctor,
)
