"""``fegsam export``: write what a run learned to a file."""

from __future__ import annotations

import argparse

from fegsam.commands.command import Command, add_trust
from fegsam.completion import add_path


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "results", help="a history (.nc), or the results of fegsam run")
    add_path(
        parser,
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="file to write: .json, or .py for a Python module",
    )
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="AXIS=VALUE",
        help="which cell of the results, such as step_size=0.1; may be repeated",
    )
    parser.add_argument("--seed", type=int, help="one of the run's seeds; the first by default")
    parser.add_argument("--actions", type=int, metavar="A", help="number of actions of a history")
    parser.add_argument(
        "--features",
        metavar="TOML",
        help="""features of a history, such as 'kind="fourier", low=[0], high=[1], order=3'""",
    )
    add_trust(parser)


def _export(given: argparse.Namespace) -> int:
    from fegsam.export.command import export

    return export(given)


COMMAND = Command(
    "write what a run learned as JSON or as a Python module",
    """\
Write the table or the weights that a run learned, with the features that they belong to. A Python
module has value(observation) and action(observation), and needs neither fegsam nor NumPy.""",
    """\
examples:
  fegsam export results -o learned.py --where step_size=0.1
  fegsam export history.nc -o learned.json --actions 4""",
    _add_arguments,
    _export,
)
