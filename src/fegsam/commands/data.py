"""``fegsam data``: check, describe and import logs of real data."""

from __future__ import annotations

import argparse
from typing import Any

from fegsam.commands.command import Command
from fegsam.data import command as data_command


def _data(given: argparse.Namespace) -> int:
    return data_command.data(given, _write_log_page)


def _write_log_page(*log: Any) -> None:
    from fegsam.report.log_page import write_log_page

    write_log_page(*log)


COMMAND = Command(
    "check a log of real data, describe it, or import a dataset",
    """\
Look for damage in a log, show what is in it and which algorithms it can feed, or write a dataset
of Minari as a log. A log is a Parquet or a CSV file, or several.""",
    """\
examples:
  fegsam data check log.parquet             look for damage
  fegsam data describe log.parquet          show what is in it; -o log.html as a page
  fegsam data import minari:toy/lake-v0 -o lake.parquet""",
    data_command.add_actions,
    _data,
)
