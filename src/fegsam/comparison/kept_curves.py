"""The frontiers of one contestant on one problem, kept once they are found."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np

from fegsam.comparison.curve import Curve
from fegsam.comparison.frontier import GridPoint
from fegsam.comparison.trials import Trials
from fegsam.report.kept import KeptParts

Curves = tuple[Curve, Curve]
"""The frontiers along communications and along samples."""


class KeptCurves:
    """The frontiers of finished contestants.

    Each is kept under what determines it: the problem, the method and its output, and the sizes of
    the contest.
    """

    def __init__(self, parts: KeptParts) -> None:
        self._parts = parts

    def read(self, trials: Trials, sizes: SimpleNamespace) -> Curves | None:
        """The frontiers, or None if they were not found yet or with other settings."""
        text = self._parts.read(_name(trials), _settings(trials, sizes))
        if text is None:
            return None
        first, second = (_parsed(given) for given in json.loads(text))
        return first, second

    def write(self, trials: Trials, sizes: SimpleNamespace, curves: Curves) -> None:
        text = json.dumps([_plain(curve) for curve in curves])
        self._parts.write(_name(trials), _settings(trials, sizes), text)


def _name(trials: Trials) -> str:
    return f"{trials.entry.key}-{trials.contestant.key}"


def _settings(trials: Trials, sizes: SimpleNamespace) -> dict[str, object]:
    contestant = trials.contestant
    return {
        "problem": trials.problem.fingerprint(),
        "algorithm": repr(trials.entry.algorithm),
        "method": repr(contestant.method(trials.agents)),
        "schedule": repr(contestant.schedule),
        "output": contestant.output,
        "scale": contestant.scale,
        "sizes": sizes,
    }


def _plain(curve: Curve) -> dict[str, object]:
    return {
        "budgets": curve.budgets.tolist(),
        "settings": [(each.step_size, each.sync_period, each.num_steps) for each in curve.settings],
        "errors": curve.errors.tolist(),
        "exact": curve.exact.tolist(),
    }


def _parsed(given: dict[str, list]) -> Curve:
    return Curve(
        np.array(given["budgets"]),
        tuple(GridPoint(*each) for each in given["settings"]),
        np.array(given["errors"]),
        np.array(given["exact"]),
    )
