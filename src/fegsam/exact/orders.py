"""The order of truncation: the largest sets of agents whose modes are kept.

It is raised until two orders agree or the next one takes too long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fegsam.errors import ProblemError
from fegsam.exact.moment_system import MomentSystem
from fegsam.problem.checks import integer

AGREEMENT = 1e-9
"""How closely two orders of truncation must agree, relative to the error."""
_CONVERGING = 0.1
"""If two orders differ by more than this fraction of the error, their difference says nothing about
the next order."""
_LEAST_ROUNDS = 20
_LONGEST = 3600.0
"""A computation that takes more seconds starts only if `patience` allows it."""


class Computed(NamedTuple):
    """The result at one order of truncation."""

    mse: np.ndarray
    rounds: int
    """the number of rounds taken one by one, which is expected at the next order too"""
    mean: np.ndarray | None = None
    sync_error: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class TruncationOrders:
    """Computes moments at rising orders of truncation."""

    system: MomentSystem
    length: int
    asked: int | None
    patience: float
    reads: int
    """the number of steps within a round after which moments are read, step by step"""

    def compute(
        self, at_order: Callable[[int], Computed], rounds: int
    ) -> tuple[Computed, int, float, str]:
        """The result, its order, the relative difference to the order below, and a note.

        The note is empty, or says why the difference is unknown.
        """
        highest = self.system.highest_order
        if self.asked is not None:
            order = min(integer(self.asked, "order"), highest)
            self._require_short(order)
            if order == highest:
                return at_order(order), order, 0.0, ""
            return (
                at_order(order),
                order,
                math.nan,
                f"Order {order} was asked for; leave out order= to have orders compared.",
            )
        reached = min(1, highest)
        self._require_short(reached)
        best, gap = at_order(reached), math.nan
        while reached < highest:
            rounds = min(rounds, max(best.rounds, _LEAST_ROUNDS))
            if not self.affords(reached + 1, rounds):
                if gap <= _CONVERGING:
                    return best, reached, gap, ""
                return best, reached, math.nan, self._why_unknown(reached, gap, rounds)
            finer = at_order(reached + 1)
            gap = _relative_gap(finer.mse, best.mse)
            best, reached = finer, reached + 1
            if gap <= AGREEMENT:
                return best, reached, gap, ""
        return best, reached, 0.0, ""

    def _require_short(self, order: int) -> None:
        """Raise `ProblemError` if even a few rounds would take hours and exceed the patience."""
        self.system.require_memory(order)
        seconds = self._seconds(order, _LEAST_ROUNDS)
        if seconds > max(_LONGEST, self.patience):
            raise ProblemError(
                f"Exact moments of order {order} would take about {seconds:.2g} s for "
                f"{_LEAST_ROUNDS} rounds of {self.length} steps; use a smaller sync_period or "
                f"fewer states, or pass patience={seconds:.1e}."
            )

    def _seconds(self, order: int, rounds: int) -> float:
        return self.system.seconds(order, self.length, rounds, self.reads)

    def affords(self, order: int, rounds: int) -> bool:
        return self.system.fits(order) and self._seconds(order, rounds) <= self.patience

    def _why_unknown(self, order: int, gap: float, rounds: int) -> str:
        """Why the truncation error at this order is unknown.

        `gap` is the relative difference to the order below, NaN if there is none.
        """
        known = (
            "No two orders were compared"
            if math.isnan(gap)
            else f"Orders {order - 1} and {order} differ by {gap:.2g}"
        )
        if not self.system.fits(order + 1):
            return f"{known}, and order {order + 1} needs more memory than is allowed."
        seconds = self._seconds(order + 1, rounds)
        return (
            f"{known}, and order {order + 1} takes about {seconds:.2g} s; pass "
            f"patience={seconds:.1e} to run it."
        )

    def label(self, order: int, rounds: int) -> str:
        """What a progress bar shows."""
        return f"exact moments of order {order}, about {self._seconds(order, rounds):.2g} s"


def _relative_gap(finer: np.ndarray, coarser: np.ndarray) -> float:
    """The largest relative difference; infinite if only one of two values is finite."""
    both = np.isfinite(finer) & np.isfinite(coarser)
    if np.any(np.isfinite(finer) != np.isfinite(coarser)) or not both.any():
        return math.inf
    return float(
        np.max(np.abs(finer[both] - coarser[both]) / np.maximum(np.abs(finer[both]), 1e-300))
    )
