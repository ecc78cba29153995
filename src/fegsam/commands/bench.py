"""``fegsam bench``: compare the speed of the engines with baselines."""

from __future__ import annotations

import argparse

from fegsam.commands.command import Command, count, positive
from fegsam.completion import add_path


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="fewer and smaller cells: a minute")
    parser.add_argument(
        "--axes",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="axes to time, such as agents,threads; all by default",
    )
    parser.add_argument(
        "--contestants",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="contestants to time, such as cpu,JAX; all by default",
    )
    parser.add_argument("--seconds", type=positive, help="duration of one timing")
    parser.add_argument("--repeats", type=count, help="number of timings of each contestant")
    add_path(parser, "--output", metavar="FILE", help="write results as JSON after every cell")
    add_path(
        parser,
        "--show",
        metavar="FILE",
        help="show the results of an earlier run instead of timing",
    )
    add_path(
        parser, "--compare", metavar="FILE", help="print ratios to the results of an earlier run"
    )
    add_path(parser, "--figures", metavar="DIR", help="draw scaling curves")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")


def _bench(given: argparse.Namespace) -> int:
    from fegsam.bench.command import Race, bench

    race = Race(given.axes, given.contestants, given.quick, given.seconds, given.repeats)
    return bench(
        race,
        output=given.output,
        stored=given.show,
        old=given.compare,
        figures=given.figures,
        markdown=given.markdown,
    )


COMMAND = Command(
    "compare the speed of the engines with baselines and the machine's limits",
    """\
Time the engines, plain Python, NumPy, JAX and a hand-written C loop along several axes, and compare
them with the limit of the machine's memory. The contestants take turns in one run, so that a busy
machine slows all of them alike.""",
    """\
examples:
  fegsam bench --quick                      a minute
  fegsam bench --axes agents,threads --output now.json
  fegsam bench --axes scale --contestants cuda,JAX
  fegsam bench --show now.json --compare before.json""",
    _add_arguments,
    _bench,
)
