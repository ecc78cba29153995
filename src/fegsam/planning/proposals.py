"""Settings that should reach an accuracy: by the round law and exact moments, or by pilot runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from fegsam.algorithms.rule import Algorithm
from fegsam.algorithms.structure import Linear, structure_of
from fegsam.methods.method import Method
from fegsam.planning.exact_search import ExactSearch
from fegsam.planning.pilots import PilotSearch
from fegsam.planning.round_law import RoundLaw
from fegsam.planning.search import Search
from fegsam.planning.settings import Goal, Setting
from fegsam.problem.federation import Problem
from fegsam.run import Engine

_LAW_PARAMETERS = 100
"""Up to this many parameters the round law takes milliseconds."""
_SIGMAS = 2.5
"""A plan aims this many standard errors of its verification below the accuracy, so that the
verification seldom fails by chance."""


class Proposal(NamedTuple):
    """A setting that should reach an accuracy, before a run verifies it."""

    chosen: Setting
    source: str
    settings: list[Setting]
    caution: float
    """the least caution that allows the chosen step size"""


def proposer(
    problem: Problem,
    algorithm: Algorithm,
    goal: Goal,
    seeds: int,
    engine: str | Engine,
    method: Method | None,
    tried: Callable[[], None],
) -> Callable[[float, float], Proposal | Setting]:
    """A function that proposes a setting for an accuracy and a caution.

    It calls `tried` for every setting that it looks at. If the accuracy is out of reach, the
    function returns the best setting within reach.
    """
    linear = isinstance(structure_of(algorithm, problem), Linear)
    if method is None and linear and algorithm.dimension(problem) <= _LAW_PARAMETERS:
        law = RoundLaw(problem, algorithm)
        return lambda accuracy, caution: _by_law(
            problem, algorithm, law, accuracy, caution, goal, seeds, tried
        )
    return lambda accuracy, caution: _by_pilots(
        PilotSearch(problem, algorithm, accuracy, engine, caution, method, tried), goal
    )


def _by_pilots(search: PilotSearch, goal: Goal) -> Proposal | Setting:
    settings = search.settings(goal)
    return (
        Proposal(goal.best(settings), "pilot", settings, search.caution)
        if settings
        else search.within_reach(goal)
    )


def _by_law(
    problem: Problem,
    algorithm: Algorithm,
    law: RoundLaw,
    accuracy: float,
    caution: float,
    goal: Goal,
    seeds: int,
    tried: Callable[[], None],
) -> Proposal | Setting:
    """Search by the round law, then near its answer by exact moments if these are fast."""
    deviations = _SIGMAS / math.sqrt(seeds)
    search = Search(law, accuracy, deviations, caution, tried)
    settings = search.settings(goal)
    start = goal.best(settings) if settings else search.within_reach(goal)
    exact = ExactSearch(problem, algorithm, law, accuracy, deviations, tried)
    known = exact.nearest_known(goal, start, search.most_steps)
    chosen = None if known is None else exact.fewest(goal, known, search.most_steps)
    if (
        chosen is None
        and settings
        and (known is None or known.communications < start.communications)
    ):
        share = start.step_size / law.largest_step(start.sync_period)
        bare = law.error(start.step_size, start.sync_period, start.communications)
        return Proposal(replace(start, error=bare), "small_step", settings, share)
    if chosen is None:
        return start if known is None else exact.best_seen()
    # The curve comes from the round law, at an accuracy for which the law agrees with the chosen
    # setting.
    level = (
        accuracy
        * law.error(chosen.step_size, chosen.sync_period, chosen.communications)
        / chosen.error
    )
    curve = Search(law, level, deviations, caution, tried).settings(goal)
    return Proposal(chosen, "exact", curve, chosen.step_size / law.largest_step(chosen.sync_period))
