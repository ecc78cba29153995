"""Whether a run was long enough for its error to reach a plateau.

The level of a history is its mean error over the last half of the run. It approximates the plateau
only if little of the initial error is left in it. With m_2, m_3, m_4 the mean errors over the
second, third and last quarter, an error that falls geometrically, floor + C q^(4t/T), has

    q = (m_3 - m_4) / (m_2 - m_3),     level - floor = (m_3 - m_4) (1 + q) / (2 (1 - q)),

where the factor (1 + q) / (2 (1 - q)) is called the carry below. The ratio m_3 / m_4 has an
interval over the seeds, and the limit of the error inherits it. One rule then decides:

- the plateau was not reached if the intervals of the limit and of the level do not overlap: the run
  is too short, and the interval in a figure would exclude the limit of the error;
- the answer is unknown if the interval of the limit reaches down to 0: the seeds do not show that
  there is a floor;
- otherwise the plateau was reached: the remaining initial error is smaller than the interval of the
  level.

No tolerance is chosen by hand: the interval that a figure shows is the tolerance. If the seeds show
no fall, the ratio of two falls is no estimate of q. We then assume that half of the run reduces the
distance from the floor at least by the factor e, so q <= e^(-1/2). This gives two bounds on the
excess, and the smaller one counts:

    level - floor  <=  (m_3 - m_4) (1 + q) / (2 (1 - q)),
    level - floor  <=  (m_2 - level) q (1 + q) / (2 - q - q^2).

Where the expected error is known exactly, `excess` replaces the extrapolation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fegsam.experiments.estimates import ERROR, Estimate, mean_estimate, plateau, ratio_estimate

if TYPE_CHECKING:
    from fegsam.history import History

_SLOW = math.exp(-0.5)
"""q of an error whose distance from its floor decays by the factor e in half of the run."""
_ROUNDING = 1e-9
"""Smaller relative differences may be rounding."""


@dataclass(frozen=True)
class Plateau:
    """The error of a run in its last half, and the limit that it approaches.

    Attributes
    ----------
    level : Estimate
        The mean error over the last half of the run.
    limit : Estimate
        The limit of the error; NaN if too few times were recorded.
    num_steps : int

    Examples
    --------
    >>> Plateau(Estimate(1.0, 0.9, 1.1), Estimate(0.5, 0.4, 0.6), 1000).reached
    False
    >>> Plateau(Estimate(1.0, 0.9, 1.1), Estimate(0.98, 0.8, 1.2), 1000).reached
    True
    >>> print(Plateau(Estimate(1.0, 0.2, 5.0), Estimate(0.5, 0.0, 1.0), 1000).reached)
    None
    """

    level: Estimate
    limit: Estimate
    num_steps: int

    @property
    def reached(self) -> bool | None:
        """Whether the run reached its plateau; None if the seeds do not decide it."""
        if not math.isfinite(self.level.value) or math.isnan(self.limit.value):
            return None
        if self.limit.high < self.level.low * (
            1 - _ROUNDING
        ) or self.limit.low > self.level.high * (1 + _ROUNDING):
            return False
        return True if self.limit.low > 0.0 else None


def find_plateau(
    history: History, *, error: str = ERROR, excess: float | None = None, level: float = 0.95
) -> Plateau:
    """The level and the limit of a history, and whether it reached its plateau.

    Parameters
    ----------
    history : History
        A history of at least two seeds.
    error : str
        The name of a variable by (seed, time).
    excess : float, optional
        The distance of the expected error from its limit, averaged over the last half of the run;
        extrapolated by default.
    level : float
        The level of the intervals.

    Examples
    --------
    >>> import fegsam as fg
    >>> def run(num_steps):
    ...     fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    ...     return fg.run(
    ...         fed,
    ...         fg.QLearning(),
    ...         step_size=0.05,
    ...         sync_period=5,
    ...         num_steps=num_steps,
    ...         seeds=range(8),
    ...     )
    >>> find_plateau(run(80)).reached, find_plateau(run(4000)).reached
    (False, True)
    """
    steps = history.settings.num_steps
    late = plateau(history, error=error)
    shown = mean_estimate(late, positive=True, level=level)
    if excess is not None:
        limit = max(shown.value - excess, 0.0)
        return Plateau(shown, Estimate(limit, limit, limit, level), steps)
    second, third, last = (_quarter(history, error, k) for k in (1, 2, 3))
    if not (math.isfinite(second.mean() + third.mean()) and last.mean() > 0.0):
        return Plateau(shown, Estimate(math.nan, math.nan, math.nan, level), steps)
    fall = _fall(third, last, level)
    limit = _bounded(shown.value, fall, _fall(second, late, level))
    if fall.low > _ROUNDING * shown.value or fall.high < -_ROUNDING * shown.value:
        moving = _heading(shown.value, fall, float((second - third).mean()))
        # The ratio of two falls is itself uncertain, so keep the cautious lower bound.
        low = min(moving.low, limit.low) if fall.value > 0 else moving.low
        limit = Estimate(moving.value, low, moving.high, level)
    return Plateau(shown, limit, steps)


def _fall(before: np.ndarray, after: np.ndarray, level: float) -> Estimate:
    """The fall from one mean error, (seeds,), to a later one, by the interval of their ratio."""
    ratio, mean = ratio_estimate(before, after, paired=True, level=level), float(after.mean())
    return Estimate(
        mean * (ratio.value - 1), mean * (ratio.low - 1), mean * (ratio.high - 1), level
    )


def _quarter(history: History, error: str, number: int) -> np.ndarray:
    """The mean error of each seed over quarter `number` (from 0); NaN if nothing was recorded."""
    times = history.data["time"].values
    begin, end = (history.settings.num_steps * k / 4 for k in (number, number + 1))
    inside = (times >= begin) & ((times < end) if number < 3 else (times <= end))
    table = history.data[error].transpose("seed", "time").values
    return table[:, inside].mean(axis=1) if inside.any() else np.full(len(table), math.nan)


def _heading(shown: float, fall: Estimate, before: float) -> Estimate:
    """The limit of an error that certainly falls or rises.

    `before` is the fall one quarter earlier; the ratio of the two falls gives the rate of decay.
    """
    # A curve that changed direction has no ratio of falls.
    ratio = fall.value / before if before * fall.value > 0.0 else _SLOW
    if ratio >= 1.0:
        end = 0.0 if fall.value > 0 else math.inf
        return Estimate(end, end, end, fall.level)
    carry = (1 + ratio) / (2 * (1 - ratio))
    value, low, high = (
        max(shown - carry * part, 0.0) for part in (fall.value, fall.high, fall.low)
    )
    return Estimate(value, low, high, fall.level)


def _bounded(shown: float, fall: Estimate, earlier: Estimate) -> Estimate:
    """The limit of an error without a visible fall or rise.

    `earlier` is the fall from the second quarter to the level.
    """
    from_fall, from_earlier = (
        (1 + _SLOW) / (2 * (1 - _SLOW)),
        _SLOW * (1 + _SLOW) / (2 - _SLOW - _SLOW**2),
    )
    most = max(min(from_fall * fall.high, from_earlier * earlier.high), 0.0)
    least = min(from_fall * fall.low, 0.0)
    excess = min(max(from_fall * fall.value, least), most)
    return Estimate(shown - excess, max(shown - most, 0.0), shown - least, fall.level)
