"""What the seeds of a study say, and how surely: means, ratios, slopes, plateaus and times to reach
an accuracy.

Every answer is an `Estimate`: a value with an interval that holds the truth in a share `level` of
repeated studies. Means, ratios of means and log-log slopes are smooth functions of means, so one
rule serves all: with m_j the mean of column j,

    value = sum_j c_j g(m_j),     variance = that of the mean over seeds of sum_j c_j g'(m_j) y_j,
    g = identity or log,

and the interval takes Student's quantiles (``method="t"``) or those of the studentised bootstrap
over seeds (``method="bootstrap"``), which also follows skewed distributions such as those of
squared errors. Times to reach an accuracy are no smooth functions of means; theirs is the
percentile bootstrap over seeds, widened to Student's quantiles.

A run that left the finite numbers gives NaN, which no verdict takes for an answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from fegsam.errors import ProblemError, shown
from fegsam.history.intervals import (
    Method,
    checked,
    draw_counts,
    log_combination,
    mean_bounds,
    percentiles,
)
from fegsam.problem import checks
from fegsam.text import short

if TYPE_CHECKING:
    from fegsam.history import History

ERROR = "squared_error_2"
"""The error that `fegsam.exact` knows too: in the 2-norm."""


@dataclass(frozen=True)
class Estimate:
    """A value and the interval that holds the truth with probability `level`.

    Examples
    --------
    >>> estimate = Estimate(3.9, 3.6, 4.2)
    >>> print(estimate)
    3.9 [3.6, 4.2]
    >>> estimate.contains(4), round(estimate.half_width, 3)
    (True, 0.3)
    """

    value: float
    low: float
    high: float
    level: float = 0.95

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{short(self.value)} [{short(self.low)}, {short(self.high)}]"


@dataclass(frozen=True, eq=False)
class CurveEstimate:
    """As `Estimate`, at every recorded time: arrays of shape (time,)."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float = 0.95


def mean_estimate(
    samples: ArrayLike,
    *,
    method: Method = "t",
    level: float = 0.95,
    seed: int = 0,
    positive: bool = False,
) -> Estimate:
    """The mean of the distribution that `samples` were drawn from.

    Parameters
    ----------
    samples : (seeds,) array
    method : {"t", "bootstrap"}
        Student's interval, or the studentised bootstrap's (at least 5 samples).
    level : float
    seed : int
        Of the resampling.
    positive : bool
        Whether no sample can be negative, as an error: the interval is then that of the logarithm,
        and stays positive.

    Examples
    --------
    >>> print(mean_estimate([1.0, 2.0, 3.0, 4.0]))
    2.5 [0.446, 4.55]
    >>> print(mean_estimate([1.0, 2.0, 3.0, 4.0], positive=True))
    2.5 [1.1, 5.69]
    """
    table = _samples(samples, "samples", 1)[:, None]
    (value,), (low,), (high,) = mean_bounds(
        table, checked(method, len(table)), level, seed, positive
    )
    return Estimate(float(value), float(low), float(high), level)


def curve_estimate(
    curves: ArrayLike | xr.DataArray,
    *,
    method: Method = "t",
    level: float = 0.95,
    seed: int = 0,
    positive: bool = False,
) -> CurveEstimate:
    """The mean over seeds of `curves`, (seeds, time), with its interval at every time; `positive`
    as in `mean_estimate`.

    Examples
    --------
    >>> curve_estimate([[1.0, 0.5], [3.0, 0.7]]).value
    array([2. , 0.6])
    """
    table = _samples(_by_seed(curves), "curves", 2)
    return CurveEstimate(
        *mean_bounds(table, checked(method, len(table)), level, seed, positive), level
    )


def ratio_estimate(
    numerator: ArrayLike,
    denominator: ArrayLike,
    *,
    paired: bool = False,
    method: Method = "t",
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """The ratio of two positive means; `paired` where entry i of both comes from the same seed.

    Examples
    --------
    >>> print(ratio_estimate([8.0, 7.6, 8.4], [2.0, 1.9, 2.1], paired=True))
    4 [4, 4]
    >>> print(ratio_estimate([8.0, 7.6, 8.4], [2.0, 1.9, 2.1]))
    4 [3.57, 4.48]
    """
    above, below = _samples(numerator, "numerator", 1), _samples(denominator, "denominator", 1)
    if paired and len(above) != len(below):
        raise ProblemError(
            f"A paired ratio has {len(above)} samples over {len(below)}; give as many of both."
        )
    _positive(np.array([above.mean(), below.mean()]), "a mean")
    separate = [(above[:, None], np.ones(1)), (below[:, None], -np.ones(1))]
    blocks = [(np.stack([above, below], axis=1), np.array([1.0, -1.0]))] if paired else separate
    with np.errstate(over="ignore"):
        value, low, high = np.exp(log_combination(blocks, method, level, seed))
    return Estimate(float(value), float(low), float(high), level)


def slope_estimate(
    x: ArrayLike,
    y: ArrayLike | Sequence[ArrayLike],
    *,
    method: Method = "bootstrap",
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """The exponent of the power law y = C x^slope: the slope of log E[y] against log x, by weighted
    least squares.

    Each point weighs by the inverse of the variance of its logarithm, points without spread all the
    same.

    Parameters
    ----------
    x : (points,) array
        Positive.
    y : (seeds, points) array, or a sequence of one array of samples per point, or (points,)
        Positive means. In an array, row i is seed i at every point, and the interval respects what
        they share; arrays of their own are taken for independent; a flat array is taken for exact,
        and its interval has no width.

    Examples
    --------
    >>> print(slope_estimate([1, 2, 4, 8], [1.0, 0.5, 0.25, 0.125]))
    -1 [-1, -1]
    """
    places = np.log(_positive(_samples(x, "x", 1), "x"))
    if len(places) < 2 or np.ptp(places) == 0:
        raise ProblemError(
            f"x holds {len(np.unique(places))} distinct value; a slope needs two or more."
        )
    tables = _columns(y, len(places))
    means = _positive(np.concatenate([table.mean(axis=0) for table in tables]), "the mean of y")
    spread = (
        np.concatenate([table.var(axis=0) / max(len(table) - 1, 1) for table in tables]) / means**2
    )
    weight = 1.0 / spread if (spread > 0).all() else np.ones(len(places))
    centred = places - np.average(places, weights=weight)
    coefficients = weight * centred / np.sum(weight * centred**2)
    if all(len(table) == 1 for table in tables):
        value = float(coefficients @ np.log(means))
        return Estimate(value, value, value, level)
    pieces = [coefficients] if len(tables) == 1 else list(coefficients[:, None])
    return Estimate(
        *log_combination(list(zip(tables, pieces, strict=True)), method, level, seed), level
    )


def plateau(history: History, fraction: float = 0.5, *, error: str = ERROR) -> np.ndarray:
    """(seeds,): each seed's mean error over the last `fraction` of the run, where the start is
    forgotten.

    NaN for a seed that diverged, which its run has warned of.

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
    """How many times lower the plateau of `many` is than that of `one`; seeds that both share are
    compared in pairs.

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
    """The time at which the mean over seeds falls to `accuracy`; infinite where it never does.

    The mean is made decreasing first (isotonic regression), so that noise neither hastens nor
    delays the crossing, and is read between recorded times on a logarithmic scale.

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
    46.1 [46.1, 46.1]
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
    """How many times sooner `many` reaches `accuracy` than `one`; seeds that both share are
    compared in pairs.

    Infinite where only `many` reaches it; NaN where neither does.

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
    """The mean error once the agents have met `communications` times: at the last recorded time up
    to then.

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
            f"communications is {communications}, but the agents of this run met "
            f"{settings.communications} times: "
            "give at most that, or run for longer."
        )
    times = history.data.time.values
    last = int(np.searchsorted(times, communications * settings.sync_period, side="right")) - 1
    if last < 0:
        raise ProblemError(
            f"Nothing was recorded up to communication {communications}; record earlier times as "
            "well."
        )
    return mean_estimate(curves.isel(time=last).values, method=method, level=level)


def communications_to_reach(
    history: History, accuracy: float, *, error: str = ERROR, level: float = 0.95, seed: int = 0
) -> Estimate:
    """How often the agents meet until the mean error is down to `accuracy`: whole numbers, infinite
    where it never is.

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
    period = history.settings.sync_period
    value, low, high = (
        float(np.ceil(bound / period)) for bound in (time.value, time.low, time.high)
    )
    return Estimate(value, low, high, level)


def _times(
    curves: Sequence[xr.DataArray], counts: Sequence[np.ndarray], accuracy: float
) -> tuple[list[float], list[np.ndarray], int]:
    """Per set of curves the crossing of the mean and of every resampled mean; and the fewest
    seeds."""
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
    # Not above up to rounding: the accuracy may itself be a recorded error.
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
            f"history is {shown(history)}; give a History, as fegsam.run returns it."
        )
    if not isinstance(error, str) or error not in known or "time" not in known[error].dims:
        raise ProblemError(
            f"error is {shown(error)}; give the name of an error that was recorded, such as "
            f"{ERROR!r}."
        )
    return known[error]


def _columns(y: ArrayLike | Sequence[ArrayLike], points: int) -> list[np.ndarray]:
    """One (seeds, points) table of shared seeds, or one (seeds, 1) table per point."""
    if isinstance(y, list | tuple) and any(np.ndim(part) > 0 for part in y):
        if len(y) != points:
            raise ProblemError(
                f"y holds {len(y)} arrays of samples, but x holds {points} values; give one array "
                "for each."
            )
        return [_samples(part, f"y[{k}]", 1)[:, None] for k, part in enumerate(y)]
    table = np.atleast_2d(checks.real_array(_by_seed(y), "y", "(seeds, points)"))
    if table.ndim != 2 or table.shape[1] != points:
        raise ProblemError(
            f"y has shape {table.shape}; give (seeds, {points}), a row per seed and a column per "
            "entry of x."
        )
    return [table]


def _by_seed(curves: Any) -> np.ndarray:
    """Labelled curves have their seeds first; others are taken as they come."""
    if isinstance(curves, xr.DataArray):
        return curves.transpose("seed", ...).values
    return checks.real_array(curves, "curves", "(seeds, time)")


def _samples(values: ArrayLike, name: str, axes: int) -> np.ndarray:
    table = checks.real_array(values, name, "(seeds,)" if axes == 1 else "(seeds, time)")
    if table.ndim != axes or not table.size:
        shape = "(seeds,)" if axes == 1 else "(seeds, time)"
        raise ProblemError(f"{name} has shape {table.shape}; give numbers of shape {shape}.")
    return table


def _positive(values: np.ndarray, name: str) -> np.ndarray:
    if (values <= 0).any():
        raise ProblemError(
            f"{name} is {values[values <= 0][0]:.3g}, but ratios and power laws need positive "
            "numbers; leave such samples out."
        )
    return values
