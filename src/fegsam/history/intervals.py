"""Confidence intervals of smooth functions of means, and percentiles over resampled seeds.

Every estimate and every band is made of these. The interval of a mean m of nonnegative numbers,
with standard error s, is taken on the scale of the logarithm,

    m exp(-t s / m)  to  m exp(t s / m),

which stays positive on a logarithmic axis. Student's interval, m - t s to m + t s, reaches below
zero for few seeds, and covers the mean of a skewed distribution less often: 82 % against 92 % of
the time for the square of a normal variable and four seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.special import ndtr, stdtrit

from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import fraction, integer

Method = Literal["t", "bootstrap"]
Bounds = tuple[float, float, float]
"""value, low, high"""
RESAMPLES = 2000
_FEWEST = {"t": 2, "bootstrap": 5}
"""The fewest samples of each method.

With fewer than 5, a bootstrap resample is too often one sample repeated, whose spread is 0.
"""


def mean_bounds(
    table: np.ndarray, method: Method, level: float, seed: int, positive: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The means of the columns of (seeds, columns), with their low and high bounds.

    With `positive`, the intervals are those of the logarithm.

    >>> [
    ...     bound.round(3).tolist()
    ...     for bound in mean_bounds(np.array([[1.0], [3.0]]), "t", 0.95, 0, positive=True)
    ... ]
    [[2.0], [0.003], [1148.543]]
    """
    seeds, level = len(table), fraction(level, "level")
    value, spread = table.mean(axis=0), table.std(axis=0, ddof=1) / math.sqrt(seeds)
    if positive:
        if (table < 0).any():
            raise ProblemError(
                f"A sample is {table[table < 0][0]:.3g}, but positive=True needs samples of at "
                "least 0; leave out positive=True."
            )
        spread = _relative(spread, value)
    if method == "t":
        half = stdtrit(seeds - 1, (1 + level) / 2) * spread
        low, high = -half, half
    else:
        share = draw_counts(seeds, seed) / seeds
        # Centred, so that the variance is not a difference of large numbers.
        shifts = share @ (table - value)
        spreads = np.sqrt((share @ (table - value) ** 2 - shifts**2).clip(0.0) / (seeds - 1))
        if positive:
            # A resample that is all zeros is infinitely far away.
            means = share @ table
            with np.errstate(divide="ignore"):
                shifts, spreads = np.log(_relative(means, value)), _relative(spreads, means)
        low, high = _studentised(np.zeros_like(value), spread, shifts, spreads, level)
    if not positive:
        return value, value + low, value + high
    with np.errstate(over="ignore"):
        return value, value * np.exp(low), value * np.exp(high)


def _relative(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """``part / whole``, or 0 where the whole is 0: samples that are all 0 have no spread."""
    return np.divide(
        part, whole, out=np.zeros_like(part), where=np.broadcast_to(whole != 0, part.shape)
    )


_Block = tuple[np.ndarray, np.ndarray]
"""Samples (seeds, columns) from the same seeds, and the coefficient of each column."""


def log_combination(blocks: Sequence[_Block], method: Method, level: float, seed: int) -> Bounds:
    """The sum over independent blocks of sum_j c_j log m_j, and its interval."""
    whole = [_log_terms(table, c, np.ones((1, len(table)))) for table, c in blocks]
    method, level = (
        checked(method, min(len(table) for table, _ in blocks)),
        fraction(level, "level"),
    )
    value, variance = (float(sum(part[k][0] for part in whole)) for k in (0, 1))
    if method == "t":
        # Welch and Satterthwaite's degrees of freedom; n - 1 for a single block.
        share = sum(
            part[1][0] ** 2 / (len(table) - 1)
            for part, (table, _) in zip(whole, blocks, strict=True)
        )
        degrees = variance**2 / share if share > 0 else 1.0
        half = float(stdtrit(degrees, (1 + level) / 2)) * math.sqrt(variance)
        return value, value - half, value + half
    drawn = [
        _log_terms(table, c, draw_counts(len(table), seed + k))
        for k, (table, c) in enumerate(blocks)
    ]
    values, variances = (np.sum([part[k] for part in drawn], axis=0) for k in (0, 1))
    low, high = _studentised(
        np.array(value), np.array(math.sqrt(variance)), values - value, np.sqrt(variances), level
    )
    return value, float(low), float(high)


def _log_terms(
    table: np.ndarray, coefficients: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``sum_j c_j log m_j`` and its variance, (resamples,) each.

    Resample r takes seed s ``counts[r, s]`` times.
    """
    seeds = len(table)
    # A resample that is all zeros is infinitely far away.
    with np.errstate(divide="ignore", invalid="ignore"):
        means = counts @ table / seeds
        pulls = (coefficients / means) @ table.T - coefficients.sum()
        return np.log(means) @ coefficients, (counts * pulls**2).sum(axis=1) / (seeds * (seeds - 1))


def _studentised(
    value: np.ndarray, spread: np.ndarray, shifts: np.ndarray, spreads: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """The bootstrap-t interval of `value`, whose standard error is `spread`.

    Along their first axis, `shifts` and `spreads` hold each resample's shift from the value and its
    own standard error.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        units = np.where(shifts == 0.0, 0.0, shifts / spreads)
    # A resample of one sample repeated is infinitely far away, so quantiles are not interpolated.
    below, above = np.quantile(
        units, [(1 - level) / 2, (1 + level) / 2], axis=0, method="inverted_cdf"
    )
    with np.errstate(invalid="ignore"):
        return np.where(spread > 0, value - above * spread, value), np.where(
            spread > 0, value - below * spread, value
        )


def draw_counts(seeds: int, seed: int) -> np.ndarray:
    """(resamples, seeds): how often each resample takes each seed."""
    chance = np.random.default_rng(integer(seed, "seed", least=0, most=None))
    return chance.multinomial(seeds, np.full(seeds, 1.0 / seeds), size=RESAMPLES).astype(float)


def percentiles(values: np.ndarray, seeds: int, level: float) -> tuple[float, float]:
    """The percentile interval, widened for few seeds.

    Its percentiles lie further out than the level asks for, as Student's quantiles lie further out
    than normal ones.
    """
    outside = (1 - fraction(level, "level")) / 2
    tail = float(ndtr(math.sqrt(seeds / (seeds - 1)) * stdtrit(seeds - 1, outside)))
    low, high = np.quantile(values, [tail, 1 - tail], method="inverted_cdf")
    return float(low), float(high)


def checked(method: Method, samples: int) -> Method:
    """`method`, or an error if there is no such method or it needs more samples."""
    if not isinstance(method, str) or method not in _FEWEST:
        raise ProblemError(f"method is {shown(method)}; give 't' or 'bootstrap'.")
    if samples < _FEWEST[method]:
        raise ProblemError(
            f"An interval by {method!r} needs at least {_FEWEST[method]} seeds, but there are "
            f"{samples}: run more."
        )
    return method
