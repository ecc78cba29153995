"""``fegsam new``: write a commented study to begin with."""

from __future__ import annotations

import argparse

from fegsam.commands.command import Command
from fegsam.completion import add_path


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "directory", metavar="DIR", help="where to write study.toml; created")


def _new(given: argparse.Namespace) -> int:
    from fegsam.experiments.starter import way_on, write_starter

    print(way_on(write_starter(given.directory)))
    return 0


COMMAND = Command(
    "write a commented study to begin with, and show the way on",
    """\
Write DIR/study.toml, a small study with a comment on every line that you may want to change, and
print the commands that check, run and draw it. No file is overwritten.""",
    """\
examples:
  fegsam new mine""",
    _add_arguments,
    _new,
)
