"""``fegsam data``: check a log, describe it, or import a dataset."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fegsam.completion import add_path
from fegsam.data.demands import ALGORITHMS, check_log
from fegsam.data.describe import checked, describe
from fegsam.data.log import LogSource
from fegsam.data.minari import import_minari
from fegsam.data.summary import summarise
from fegsam.data.tally import LogSummary
from fegsam.errors import ProblemError
from fegsam.problem import features, policies
from fegsam.subcommands import Action, add_all

WritePage = Callable[[LogSource, Mapping[Any, LogSummary], Path, float], object]
"""Writes the page of a log; the report, which does, is above this package."""


def add_actions(data: argparse.ArgumentParser) -> None:
    """Add the actions of `fegsam data`."""
    add_all(data, "data", _ACTIONS)


def data(given: argparse.Namespace, write_page: WritePage) -> int:
    """Run one action of `fegsam data`."""
    given.write_page = write_page
    return _ACTIONS[given.action].run(given)


def _check_arguments(parser: argparse.ArgumentParser) -> None:
    _add_log(parser)
    parser.add_argument(
        "--algorithm", choices=ALGORITHMS, help="check what this algorithm demands, too"
    )
    parser.add_argument("--num-steps", type=int, metavar="N", help="steps of each agent")
    parser.add_argument("--step-size", type=float, help="step size of the run")


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    _add_log(parser)
    add_path(parser, "-o", "--output", metavar="PAGE", help="write it as an HTML page, too")


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", help="minari:ID, a dataset that `minari download` fetched")
    add_path(parser, "-o", "--output", required=True, metavar="FILE", help="Parquet file to write")
    parser.add_argument(
        "--probability",
        metavar="KEY",
        help="key of the infos that has the probability of the action",
    )


def _add_log(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "files", nargs="+", metavar="FILE", help=".parquet or .csv files, or a folder")
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="ROLE=NAME",
        help="the file's name of a column, such as action=act; may be repeated, and "
        "observation=x,y names several",
    )
    parser.add_argument("--by", metavar="COLUMN", help="an agent for each value of this column")
    parser.add_argument("--states", type=int, metavar="S", help="number of states")
    parser.add_argument("--actions", type=int, metavar="A", help="number of actions")
    parser.add_argument(
        "--discount", type=float, default=0.99, help="discount of the problem; 0.99 by default"
    )
    parser.add_argument(
        "--target",
        metavar="POLICY",
        help="policy to evaluate: uniform, or a .npy file with an (S, A) array; by default the "
        "column target_probability",
    )
    parser.add_argument(
        "--features",
        metavar="TOML",
        help="""features, such as 'kind="fourier", low=[0], high=[1], order=3'""",
    )
    parser.add_argument(
        "--drop",
        action="store_true",
        help="leave out the last step of a truncated episode without a last observation",
    )


def _source(given: argparse.Namespace) -> LogSource:
    named: dict[str, Any] = {}
    for text in given.column:
        role, equals, name = text.partition("=")
        if not equals:
            raise ProblemError(f"--column {text} has no '=': write --column action=act")
        named[role] = name.split(",")
    files = given.files[0] if len(given.files) == 1 else given.files
    final = "drop" if given.drop else "error"
    return LogSource(files, columns=named, by=given.by, missing_final=final)


def _problem(given: argparse.Namespace, source: LogSource) -> dict[str, Any]:
    """The settings of the problem, as `summarise` takes them."""
    return {
        "discount": given.discount,
        "num_states": given.states,
        "num_actions": given.actions,
        "target_policy": _target(given, source),
        "features": None if given.features is None else features_of_text(given.features),
    }


def _target(given: argparse.Namespace, source: LogSource) -> np.ndarray | None:
    if given.target is None:
        return None
    if given.target == "uniform":
        has_states = source.layouts()[0].width is None
        if given.actions is None or (has_states and given.states is None):
            needed = "--states and --actions" if has_states else "--actions"
            raise ProblemError(f"--target uniform needs {needed}: give their numbers")
        return policies.uniform(given.states if has_states else 1, given.actions)
    try:
        return np.load(Path(given.target), allow_pickle=False)
    except ValueError as error:
        raise ProblemError(
            f"--target {given.target} is no .npy file: write it with numpy.save"
        ) from error


def features_of_text(text: str) -> features.FeatureMap:
    """The features that the option --features describes."""
    try:
        plain = tomllib.loads(f"features = {{{text}}}")["features"]
    except tomllib.TOMLDecodeError as error:
        raise ProblemError(
            f"--features {text} cannot be read ({error}): write kind = ... and its settings"
        ) from error
    return features.from_dict(plain)


def _check(given: argparse.Namespace) -> int:
    source = _source(given)
    demands = {name: getattr(given, name) for name in ("algorithm", "num_steps", "step_size")}
    print(checked(source, check_log(source, **demands, **_problem(given, source))))
    return 0


def _describe(given: argparse.Namespace) -> int:
    page = given.output
    if page is not None and (page.is_dir() or not page.parent.is_dir()):
        raise ProblemError(f"--output {page} is no file in a folder that exists: name one")
    source = _source(given)
    found = summarise(source, **_problem(given, source))
    print(describe(source, found, discount=given.discount))
    if given.output is not None:
        given.write_page(source, found, given.output, given.discount)
        print(f"page: {given.output}")
    return 0


def _import(given: argparse.Namespace) -> int:
    if not given.dataset.startswith("minari:"):
        raise ProblemError(f"{given.dataset} is not a dataset of Minari: write minari:ID")
    count = import_minari(given.dataset, given.output, probability=given.probability)
    print(f"{given.output}: {count} transitions; fegsam data describe {given.output} shows them")
    return 0


_ACTIONS = {
    "check": Action(
        "look for damage in a log",
        "Read every row of a log and look for damage: columns that are missing, empty or "
        "impossible values, episodes in pieces, ends that are not marked, probabilities that do "
        "not fit. The first damage is told in one sentence with its row and a cure.",
        "check log.parquet --states 500 --actions 6",
        _check_arguments,
        _check,
    ),
    "describe": Action(
        "show what is in a log and which algorithms it can feed",
        "Show the episodes and how they end, the states and actions that occur, the importance "
        "ratios and the rows that are left of them, whether truncation endangers linear TD, and "
        "which algorithms the log can feed at which step sizes. With -o the same is a page with "
        "pictures.",
        "describe log.parquet --states 500 --actions 6 --target uniform -o log.html",
        _describe_arguments,
        _describe,
    ),
    "import": Action(
        "write a dataset of Minari as a log",
        "Write a dataset of Minari as a Parquet log. Minari has no field for the probabilities of "
        "actions: --probability names the key of the infos that has them.",
        "import minari:toy/lake-v0 -o lake.parquet --probability probability",
        _import_arguments,
        _import,
    ),
}
