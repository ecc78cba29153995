"""The moments of one run, from synchronisation to synchronisation."""

from __future__ import annotations

import numpy as np

from fegsam.exact.hierarchy import Hierarchy, Laws, Parts
from fegsam.exact.long_run import DENSE_ENTRIES, LongRun, apply_power

_MIXED = 1e-13
"""A law of the modes this close to the stationary one (in L1) is taken for it."""


class Trajectory:
    """Where a run stands after some rounds, of `rounds_ahead` at its start."""

    def __init__(self, hierarchy: Hierarchy, start: np.ndarray, rounds_ahead: int) -> None:
        self.hierarchy = hierarchy
        self._last_round = rounds_ahead
        self.parts: Parts = hierarchy.start(start)
        self.before = [each.moves.initial for each in hierarchy.rounds]
        self.rounds = 0
        self._squares: list[np.ndarray] = []
        self._long_run: LongRun | None = None
        self._settle()

    def _settle(self) -> None:
        """Take the modes for stationary once they are, to rounding."""
        limits = [each.moves.stationary for each in self.hierarchy.rounds]
        gaps = [float(np.abs(p - limit).sum()) for p, limit in zip(self.before, limits, strict=True)]
        self.stationary = max(gaps) <= _MIXED
        if self.stationary:
            self.before = limits
        self._laws: list[Laws] | None = None

    def settle(self, parts: Parts) -> None:
        """Stand where a run stands in the long run."""
        self.parts = parts
        self.before = [each.moves.stationary for each in self.hierarchy.rounds]
        self._settle()

    @property
    def laws(self) -> list[Laws]:
        if self._laws is None:
            self._laws = self.hierarchy.laws(self.before)
        return self._laws

    def step(self) -> None:
        """One round."""
        laws = self.laws
        self.parts = self.hierarchy.advance(self.parts, laws)
        self.rounds += 1
        if not self.stationary:
            # Rows sum to one up to rounding, which would add up over the rounds.
            self.before = [law.after / law.after.sum() for law in laws]
            self._settle()

    def long_run(self) -> LongRun | None:
        """The map of a round, where the rounds ahead are better done by powers of its matrix."""
        if not self.stationary:
            return None
        if self._long_run is None:
            self._long_run = LongRun(self.hierarchy)
        worth = min(DENSE_ENTRIES, (self._last_round - self.rounds) // 2)
        return self._long_run if self._squares or self._long_run.entries <= worth else None

    def advance(self, goal: int) -> None:
        """Go on to the round `goal`."""
        while self.rounds < goal:
            run = self.long_run()
            if run is None:
                self.step()
                continue
            if not self._squares:
                self._squares.append(run.matrix)
            self.parts = run.unpacked(apply_power(self._squares, run.packed(self.parts), goal - self.rounds))
            self.rounds = goal

    def at(self, steps: int) -> tuple[float, np.ndarray, float]:
        """So many steps after the last synchronisation: E||avg - theta*||^2, E avg - theta*, sync error."""
        square, mean, own = self.hierarchy.within(self.parts, self.before, steps)
        return square, mean, max(own - square, 0.0) if steps else 0.0

    def weighted_sum(self, num_steps: int, decay: float) -> float:
        """sum_{t<T} c^(T-1-t) E||avg_t - theta*||^2, from the start."""
        length = self.hierarchy.length
        rounds, rest = divmod(num_steps, length)
        total = 0.0
        while self.rounds < rounds:
            run = self.long_run()
            if run is None:
                total = total * decay**length + self._round_sum(length, decay)
                self.step()
                continue
            # One more entry carries the sum along.
            weights = decay ** np.arange(length - 1, -1, -1.0)
            row = [sum(weight * run.within(unit, k) for k, weight in enumerate(weights)) for unit in np.eye(run.entries)]
            joint = np.block([[run.matrix, np.zeros((run.entries, 1))], [np.array(row), np.array(decay**length)]])
            state = apply_power([joint], np.append(run.packed(self.parts), total), rounds - self.rounds)
            self.parts, total, self.rounds = run.unpacked(state[:-1]), float(state[-1]), rounds
        return total * decay**rest + self._round_sum(rest, decay)

    def _round_sum(self, steps: int, decay: float) -> float:
        return sum(decay ** (steps - 1 - k) * self.at(k)[0] for k in range(steps))
