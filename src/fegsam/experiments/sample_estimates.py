"""Estimates of means, curves, ratios and slopes from samples over seeds.

Every result is an `Estimate`: a value with an interval that contains the true value in a fraction
`level` of repeated studies. Means, ratios of means and log-log slopes are smooth functions of
means, so one rule covers all of them. With m_j the mean of column j and g the identity or the
logarithm,

    value = sum_j c_j g(m_j),
    variance = the variance of the mean over seeds of sum_j c_j g'(m_j) y_j.

The interval uses Student's quantiles (``method="t"``) or those of the studentised bootstrap over
seeds (``method="bootstrap"``), which also suits skewed distributions such as those of squared
errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from fegsam.errors import ProblemError
from fegsam.history.intervals import Method, checked, log_combination, mean_bounds
from fegsam.problem import checks
from fegsam.text import number, short


@dataclass(frozen=True)
class Estimate:
    """A value and an interval that contains the true value with probability `level`.

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
        """The value and its interval, with as many digits as tell them apart.

        >>> print(Estimate(0.9999, 0.9996, 1.0002), Estimate(1.0, 1.0, 1.0))
        0.9999 [0.9996, 1] 1
        """
        numbers = (self.value, self.low, self.high)
        if len(set(numbers)) == 1:
            return short(self.value)
        written = ([number(each, digits) for each in numbers] for digits in range(3, 8))
        texts = next(
            (texts for texts in written if len(set(texts)) == len(set(numbers))),
            [number(each, 8) for each in numbers],
        )
        return "{} [{}, {}]".format(*texts)


@dataclass(frozen=True, eq=False)
class CurveEstimate:
    """An `Estimate` at every recorded time: arrays of shape (time,)."""

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
        The seed of the resampling.
    positive : bool
        Whether samples cannot be negative, as errors cannot; the interval is then computed for the
        logarithm of the mean, and stays positive.

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
    """The mean over seeds of `curves`, (seeds, time), with its interval at every time.

    `positive` is as in `mean_estimate`.

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
    """The ratio of two positive means; `paired` if entry i of both comes from the same seed.

    Examples
    --------
    >>> print(ratio_estimate([8.0, 7.6, 8.4], [2.0, 1.9, 2.1], paired=True))
    4
    >>> print(ratio_estimate([8.0, 7.6, 8.4], [2.0, 1.9, 2.1]))
    4 [3.57, 4.48]
    """
    above, below = _samples(numerator, "numerator", 1), _samples(denominator, "denominator", 1)
    if paired and len(above) != len(below):
        raise ProblemError(
            f"A paired ratio has {len(above)} samples in the numerator and {len(below)} in the "
            "denominator; give as many of both."
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
    """The exponent of the power law y = C x^slope, by weighted least squares.

    It is the slope of log E[y] against log x. Each point is weighted by the inverse of the variance
    of its logarithm; if some point has no spread, all points have equal weights.

    Parameters
    ----------
    x : (points,) array
        Positive.
    y : (seeds, points) array, or a sequence of one array of samples per point, or (points,)
        Samples with positive means. In an array, row i is seed i at every point, and the interval
        accounts for the correlation between points. Separate arrays are taken as independent. A
        flat array is taken as exact, and its interval has no width.

    Examples
    --------
    >>> print(slope_estimate([1, 2, 4, 8], [1.0, 0.5, 0.25, 0.125]))
    -1
    """
    places = np.log(_positive(_samples(x, "x", 1), "x"))
    if len(places) < 2 or np.ptp(places) == 0:
        raise ProblemError(
            f"x holds {len(np.unique(places))} distinct value; give at least two for a slope."
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


def _columns(y: ArrayLike | Sequence[ArrayLike], points: int) -> list[np.ndarray]:
    """One (seeds, points) table of shared seeds, or one (seeds, 1) table per point."""
    if isinstance(y, list | tuple) and any(np.ndim(part) > 0 for part in y):
        if len(y) != points:
            raise ProblemError(
                f"y holds {len(y)} arrays of samples, but x holds {points} values; give one array "
                "per value of x."
            )
        return [_samples(part, f"y[{k}]", 1)[:, None] for k, part in enumerate(y)]
    table = np.atleast_2d(checks.real_array(_by_seed(y), "y", "(seeds, points)"))
    if table.ndim != 2 or table.shape[1] != points:
        raise ProblemError(
            f"y has shape {table.shape}; give shape (seeds, {points}): a row per seed and a column "
            "per value of x."
        )
    return [table]


def _by_seed(curves: Any) -> np.ndarray:
    """Curves as an array; labelled curves are transposed so that seeds come first."""
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
