"""``fegsam export``: what a run learned, as JSON or as a Python module."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import fegsam as fg
from fegsam.data.command import features_of_text
from fegsam.errors import ProblemError
from fegsam.experiments.spec.cells import Cell
from fegsam.experiments.spec.data_builds import action_count, build_features
from fegsam.experiments.spec.data_tables import DataTable
from fegsam.experiments.spec.foreign_code import check_trust
from fegsam.experiments.sweep.store import describe
from fegsam.experiments.sweep.sweep import load_results
from fegsam.export.learned import learned_by, write_learned
from fegsam.history.history import History
from fegsam.problem.feature_maps import FeatureMap

_MOST_NAMED = 4
"""Cells that an error names."""


def export(given: argparse.Namespace) -> int:
    """Run `fegsam export`."""
    actions, features = given.actions, None
    if given.features is not None:
        features = features_of_text(given.features)
    if Path(given.results).is_dir():
        history, found_actions, found = _stored(given)
        actions, features = actions or found_actions, features or found
    else:
        history = fg.load_history(given.results)
    model = learned_by(history, features=features, num_actions=actions, seed=given.seed)
    write_learned(model, given.output)
    print(f"{given.output}: {len(model.weights)} {model.learned} of {model.algorithm}")
    return 0


def _stored(given: argparse.Namespace) -> tuple[History, int | None, FeatureMap | None]:
    """The history of a cell, with the number of actions and the features of its problem."""
    results = load_results(given.results, trust=given.trust)
    wanted = dict(_axis(text) for text in given.where)
    unknown = [name for name in wanted if name not in results.study.axes]
    if unknown:
        raise ProblemError(
            f"--where names {unknown[0]!r}, but the axes are {', '.join(results.study.axes)}: use "
            "one of them"
        )
    cells = [
        cell
        for cell in results.cells
        if all(cell.axes.get(name) == value for name, value in wanted.items())
    ]
    if len(cells) != 1:
        every = cells or results.cells
        more = ("...",) if len(every) > _MOST_NAMED else ()
        some = "; ".join((*map(describe, every[:_MOST_NAMED]), *more))
        raise ProblemError(
            f"{len(cells)} cells are meant ({some}): name one with --where AXIS=VALUE"
        )
    return (results.history(cells[0]), *_of_problem(cells[0]))


def _axis(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ProblemError(f"--where {text} has no '=': write --where step_size=0.1")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _of_problem(cell: Cell) -> tuple[int | None, FeatureMap | None]:
    environment, features = cell.problem.environment, cell.problem.features
    if isinstance(environment, DataTable):
        check_trust(cell)
        return action_count(environment), None if features is None else build_features(features)
    problem, _ = cell.build_simulated()
    if isinstance(problem, fg.MarkovNoise):
        return None, None
    phi = problem.features
    return problem.num_actions, None if phi is None else fg.features.table(phi)
