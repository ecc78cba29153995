"""The runs of the claims: from the fixed point to show only noise, or from another start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fegsam.exact.fixed_points import fixed_point
from fegsam.exact.moments import moments, stationary_error
from fegsam.experiments.estimates import Estimate, mean_estimate
from fegsam.history import History
from fegsam.report import Series
from fegsam.reproduction.problems import Case
from fegsam.reproduction.thresholds import fresh_seeds
from fegsam.run import Engine, run

SHARES = (1.0, 0.5, 0.25)
"""The shares of a case's step size at which claims compare step sizes."""
_ANY_DECAY = 0.5
"""The output time is not used, and its default decay would need the theorem's norm."""


def run_case(
    case: Case,
    agents: int,
    *,
    seeds: int,
    engine: str | Engine | None,
    step_size: float | None = None,
    **settings: Any,
) -> History:
    """`fegsam.run` on a case, with further `settings` of `fegsam.run`.

    The first `seeds` fresh seeds are always the same, so settings are compared on the same paths.
    """
    return run(
        case.federate(agents),
        case.algorithm,
        step_size=case.step_size if step_size is None else step_size,
        seeds=fresh_seeds(seeds),
        engine="cpu" if engine is None else engine,
        output_decay=_ANY_DECAY,
        **settings,
    )


def late_times(num_steps: int, points: int = 100) -> np.ndarray:
    """Times in the last three quarters of a run, over which the plateau is averaged.

    >>> late_times(100, 4)
    array([ 25,  50,  75, 100])
    """
    return np.unique(np.linspace(num_steps / 4, num_steps, points).astype(np.int64))


def plateau_run(case: Case, agents: int, *, relaxations: float, **settings: Any) -> History:
    """A run from the fixed point, over `relaxations` relaxation times at its step size."""
    step = settings.get("step_size") or case.step_size
    steps = settings.pop("num_steps", None) or round(
        relaxations * case.relaxation * case.step_size / step
    )
    start = fixed_point(case.federate(agents), case.algorithm)
    return run_case(
        case, agents, num_steps=steps, record=late_times(steps), initial_params=start, **settings
    )


def levels(history: History) -> np.ndarray:
    """(seeds,): the mean error over all recorded times."""
    return history.data.squared_error_2.mean("time", skipna=False).transpose("seed").values


def exact_plateau(case: Case, history: History) -> float:
    """The expectation of `levels`, up to the remainder e^-8 after four relaxation times."""
    settings, problem = history.settings, case.federate(history.settings.num_agents)
    begin = round(4 * case.relaxation * case.step_size / settings.step_size)
    # Unlike a path, the expectation is smooth, and has the sync period as its period.
    times = begin + np.unique(
        np.linspace(0, min(settings.sync_period - 1, begin), 6).astype(np.int64)
    )
    found = moments(
        problem,
        case.algorithm,
        step_size=settings.step_size,
        sync_period=settings.sync_period,
        times=times,
        initial_params=fixed_point(problem, case.algorithm),
        sampling=settings.sampling,
        order=1,
    )
    return float(found.mse.mean())


ENDLESS = 10**9
"""A number of agents at which the part of the error proportional to 1/N is negligible."""


def exact_level(
    case: Case, agents: int | None, sync_period: int, step_size: float | None = None
) -> float:
    """The exact long-run error right after an averaging.

    If `agents` is None it is the limit of many agents, the floor that does not fall with N.
    """
    problem = case.federate(ENDLESS if agents is None else agents)
    step = case.step_size if step_size is None else step_size
    return stationary_error(
        problem, case.algorithm, step_size=step, sync_period=sync_period, order=1
    )


def sampled(
    name: str, x: Sequence[float], samples: Sequence[np.ndarray], group: str | None = None
) -> Series:
    """Mean errors over seeds with their intervals; `samples` has one array of seeds per x."""
    return estimates(name, x, [mean_estimate(each, positive=True) for each in samples], group)


def estimates(
    name: str, x: Sequence[float], found: Sequence[Estimate], group: str | None = None
) -> Series:
    """A curve of estimates with their intervals."""
    columns = ([getattr(each, key) for each in found] for key in ("value", "low", "high"))
    return Series(name, x, *columns, style="sampled", group=group)
