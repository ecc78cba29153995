"""Frontiers: the least error that a method reaches within a budget, each point tuned for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class GridPoint:
    """One point of the grid: a step size, a sync period and the length of the run.

    Examples
    --------
    >>> GridPoint(0.1, 4, 64).communications(exchanges=2)
    32
    """

    step_size: float
    sync_period: int
    num_steps: int

    def communications(self, exchanges: int = 1) -> int:
        return exchanges * (self.num_steps // self.sync_period)

    def __str__(self) -> str:
        return f"α = {self.step_size:g}, K = {self.sync_period}, T = {self.num_steps}"


def grid(step_sizes: ArrayLike, sync_periods: ArrayLike, lengths: ArrayLike) -> list[GridPoint]:
    """Every combination whose run ends at a synchronisation.

    >>> len(grid([0.1, 0.2], [1, 8], [4, 16]))
    6
    """
    return [
        GridPoint(float(size), int(period), int(length))
        for size in np.asarray(step_sizes)
        for period in np.asarray(sync_periods)
        for length in np.asarray(lengths)
        if length % period == 0
    ]


def best_within(costs: ArrayLike, errors: ArrayLike, budgets: ArrayLike) -> np.ndarray:
    """For each budget, the point of the least error among those that cost at most as much.

    Parameters
    ----------
    costs, errors : (points,) arrays
        An error that is not finite, as of a run that diverged, is never chosen.
    budgets : (budgets,) array

    Returns
    -------
    (budgets,) array of int
        -1 where no point is within the budget.

    Examples
    --------
    >>> best_within([1, 2, 2, 8], [4.0, 3.0, 2.0, 2.5], [0, 1, 4, 8])
    array([-1,  0,  2,  2])
    """
    cost = np.asarray(costs, float)
    error = np.where(np.isfinite(errors), errors, np.inf)
    found = []
    for budget in np.asarray(budgets):
        within = np.where(cost <= budget, error, np.inf)
        place = int(within.argmin()) if len(within) else -1
        found.append(place if place >= 0 and np.isfinite(within[place]) else -1)
    return np.array(found, np.int64)
