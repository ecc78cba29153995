"""Estimates from histories: plateaus, speed-ups and times to reach an accuracy, with intervals.

Estimates from plain samples (`sample_estimates`) can be imported from here too. A time to reach an
accuracy is not a smooth function of means; its interval is that of the percentile bootstrap over
seeds, widened to Student's quantiles.

A run that diverged gives NaN, and no verdict is based on NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from fegsam.errors import ProblemError, shown
from fegsam.experiments.sample_estimates import (
    CurveEstimate,
    Estimate,
    curve_estimate,
    mean_estimate,
    ratio_estimate,
    slope_estimate,
)
from fegsam.history.intervals import Method, checked, draw_counts, percentiles
from fegsam.problem import checks

if TYPE_CHECKING:
    from fegsam.history import History

__all__ = [
    "ERROR",
    "CurveEstimate",
    "Estimate",
    "communications_to_reach",
    "curve_estimate",
    "error_at_budget",
    "mean_estimate",
    "plateau",
    "plateau_ratio",
    "ratio_estimate",
    "slope_estimate",
    "speed_up",
    "time_to_reach",
]

ERROR = "squared_error_2"
"""The squared error in the 2-norm, which `fegsam.exact` also computes."""


def plateau(history: History, fraction: float = 0.5, *, error: str = ERROR) -> np.ndarray:
    """The mean error of each seed, (seeds,), over the last `fraction` of the run.

    It is NaN for a seed that diverged; the run has warned about it.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> history = fg.run(
    ...     fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=1000, seeds=range(20)
    ... )
    >>> mean_estimate(plateau(history)).value < 0.1 * float(history.data.squared_error_2[0, 0])
    True
    """
    curves = _recorded(history, error)
    begin = history.settings.num_steps * (1.0 - checks.fraction(fraction, "fraction", closed=True))
    return curves.sel(time=slice(begin, None)).mean("time", skipna=False).transpose("seed").values


def plateau_ratio(
    one: History,
    many: History,
    fraction: float = 0.5,
    *,
    error: str = ERROR,
    method: Method = "t",
    level: float = 0.95,
) -> Estimate:
    """The ratio of the plateau of `one` to that of `many`; shared seeds are compared in pairs.

    Examples
    --------
    >>> import fegsam as fg
    >>> def run(agents):
    ...     fed = fg.Federation(
    ...         fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=agents
    ...     )
    ...     return fg.run(
    ...         fed, fg.QLearning(), step_size=0.05, sync_period=5, num_steps=2000, seeds=range(20)
    ...     )
    >>> 2 < plateau_ratio(run(1), run(4)).value < 8
    True
    """
    samples = (plateau(history, fraction, error=error) for history in (one, many))
    return ratio_estimate(
        *samples, paired=one.settings.seeds == many.settings.seeds, method=method, level=level
    )


def time_to_reach(
    curves: xr.DataArray, accuracy: float, *, level: float = 0.95, seed: int = 0
) -> Estimate:
    """The time at which the mean over seeds falls to `accuracy`; infinite if it never does.

    Isotonic regression first makes the mean decreasing, so that noise neither hastens nor delays
    the crossing. Between recorded times the mean is interpolated on a logarithmic scale.

    Parameters
    ----------
    curves : (seed, time) DataArray
        Such as ``history.data.squared_error_2``; at least 5 seeds.
    accuracy : float

    Examples
    --------
    >>> times = np.arange(0, 101, 10)
    >>> curves = xr.DataArray(
    ...     np.tile(np.exp(-times / 20), (5, 1)), dims=("seed", "time"), coords={"time": times}
    ... )
    >>> print(time_to_reach(curves, 0.1))
    46.1
    """
    value, resampled, seeds = _times((curves,), (_counts(curves, seed),), accuracy)
    low, high = percentiles(resampled[0], seeds, level)
    return Estimate(value[0], low, high, level)


def speed_up(
    one: History,
    many: History,
    accuracy: float,
    *,
    error: str = ERROR,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """The ratio of the times that `one` and `many` take to reach `accuracy`.

    Shared seeds are compared in pairs. The ratio is infinite if only `many` reaches the accuracy,
    and NaN if neither does.

    Examples
    --------
    >>> import fegsam as fg
    >>> def run(agents, step_size):
    ...     fed = fg.Federation(
    ...         fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=agents
    ...     )
    ...     return fg.run(
    ...         fed,
    ...         fg.QLearning(),
    ...         step_size=step_size,
    ...         sync_period=5,
    ...         num_steps=4000,
    ...         seeds=range(20),
    ...     )
    >>> speed_up(run(1, 0.02), run(8, 0.16), accuracy=0.01).value > 4
    True
    """
    curves = (_recorded(one, error), _recorded(many, error))
    shared = one.settings.seeds == many.settings.seeds
    counts = (_counts(curves[0], seed), _counts(curves[1], seed if shared else seed + 1))
    times, resampled, seeds = _times(curves, counts, accuracy)
    with np.errstate(invalid="ignore", divide="ignore"):
        value, ratios = np.float64(times[0]) / times[1], resampled[0] / resampled[1]
    low, high = (0.0, math.inf) if np.isnan(ratios).any() else percentiles(ratios, seeds, level)
    return Estimate(float(value), low, high, level)


def error_at_budget(
    history: History,
    communications: int,
    *,
    error: str = ERROR,
    method: Method = "t",
    level: float = 0.95,
) -> Estimate:
    """The mean error after `communications` synchronisations, at the last time recorded by then.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> history = fg.run(
    ...     fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=1000, seeds=range(20)
    ... )
    >>> error_at_budget(history, 2).value > error_at_budget(history, 200).value
    True
    """
    curves, settings = _recorded(history, error), history.settings
    if checks.integer(communications, "communications", 0) > settings.communications:
        raise ProblemError(
            f"communications is {communications}, but this run synchronised "
            f"{settings.communications} times: "
            "give at most that number, or run for longer."
        )
    times = history.data.time.values
    reached = settings.rounds.start(np.asarray(communications // settings.exchanges))
    last = int(np.searchsorted(times, reached, side="right")) - 1
    if last < 0:
        raise ProblemError(
            f"Nothing was recorded up to communication {communications}; record earlier times too."
        )
    return mean_estimate(curves.isel(time=last).values, method=method, level=level)


def communications_to_reach(
    history: History, accuracy: float, *, error: str = ERROR, level: float = 0.95, seed: int = 0
) -> Estimate:
    """The number of synchronisations until the mean error falls to `accuracy`.

    It is a whole number, or infinite if the error never falls to it.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> history = fg.run(
    ...     fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=1000, seeds=range(20)
    ... )
    >>> 1 < communications_to_reach(history, 0.1).value < 200
    True
    """
    time = time_to_reach(_recorded(history, error), accuracy, level=level, seed=seed)
    settings = history.settings

    def communications(bound: float) -> float:
        """The communications up to the first synchronisation at or after `bound`."""
        if not math.isfinite(bound):
            return bound
        before = settings.rounds.containing(np.asarray(math.ceil(bound) - 1))
        return float(max(before + 1, 0) * settings.exchanges)

    value, low, high = map(communications, (time.value, time.low, time.high))
    return Estimate(value, low, high, level)


def _times(
    curves: Sequence[xr.DataArray], counts: Sequence[np.ndarray], accuracy: float
) -> tuple[list[float], list[np.ndarray], int]:
    """The crossings of the mean and of every resampled mean of each set of curves.

    The last result is the smallest number of seeds in a set.
    """
    target, values, resampled = checks.positive(accuracy, "accuracy"), [], []
    for curve, count in zip(curves, counts, strict=True):
        table, times = curve.transpose("seed", "time").values, curve.time.values.astype(float)
        values.append(_crossing(times, table.mean(axis=0), target))
        resampled.append(
            np.array([_crossing(times, row, target) for row in count @ table / len(table)])
        )
    return values, resampled, min(len(count[0]) for count in counts)


def _crossing(times: np.ndarray, curve: np.ndarray, accuracy: float) -> float:
    from scipy.optimize import isotonic_regression

    lost = np.flatnonzero(~np.isfinite(curve))
    curve = curve[: lost[0]] if lost.size else curve
    if not curve.size:
        return math.inf
    falling = isotonic_regression(curve, increasing=False).x
    # Allow for rounding: the accuracy may itself be a recorded error.
    reached = np.flatnonzero(falling <= accuracy * (1 + 1e-12))
    if not reached.size:
        return math.inf
    first = int(reached[0])
    if first == 0 or falling[first] <= 0.0:
        return float(times[first])
    before, after = math.log(falling[first - 1]), math.log(falling[first])
    part = (before - math.log(accuracy)) / (before - after)
    return float(times[first - 1] + min(part, 1.0) * (times[first] - times[first - 1]))


def _counts(curves: xr.DataArray, seed: int) -> np.ndarray:
    checked("bootstrap", curves.sizes["seed"])
    return draw_counts(curves.sizes["seed"], seed)


def _recorded(history: History, error: str) -> xr.DataArray:
    """One of a history's errors, (seed, time)."""
    known = getattr(getattr(history, "data", None), "data_vars", None)
    if known is None:
        raise ProblemError(
            f"history is {shown(history)}; give a History, such as fegsam.run returns."
        )
    if not isinstance(error, str) or error not in known or "time" not in known[error].dims:
        raise ProblemError(
            f"error is {shown(error)}; give the name of a recorded error, such as {ERROR!r}."
        )
    return known[error]
