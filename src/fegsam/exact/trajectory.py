"""The moments of one run, from synchronisation to synchronisation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fegsam.exact.hierarchy import Hierarchy
from fegsam.exact.long_run import DENSE_ENTRIES, LongRun, apply_power
from fegsam.exact.parts import Parts, Reading, RoundMeans

_MIXED = 1e-13
"""A distribution of the modes this close to the stationary one (in L1) counts as stationary."""
_KEPT_BYTES = 1 << 26
_SETTLED = 1e-12
"""The moments count as settled if all remaining rounds change them by less than this fraction."""


class Trajectory:
    """The moments of a run of `num_rounds` equal rounds, at its current round.

    `report` is called with the number of rounds after each advance. A run that has `begun` goes on
    from the given parts and distribution of the modes.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        start: np.ndarray,
        num_rounds: int,
        report: Callable[[int], None] | None = None,
        begun: tuple[Parts, np.ndarray] | None = None,
    ) -> None:
        self.hierarchy = hierarchy
        self._num_rounds = num_rounds
        self._report = report or (lambda rounds: None)
        self.parts, self.before = begun or (hierarchy.start(start), hierarchy.round.maps.initial)
        self.rounds = 0
        self._squares: list[np.ndarray] = []
        self._long_run: LongRun | None = None
        self._opened: tuple[Parts, Parts] | None = None
        self._settled = False
        self.rounds_taken = 0
        """rounds taken one by one, before the moments settled or matrix powers took over"""
        self._settle()

    def _settle(self) -> None:
        """Treat the modes as stationary once they are, to rounding."""
        limit = self.hierarchy.round.maps.stationary
        self.stationary = float(np.abs(self.before - limit).sum()) <= _MIXED * len(
            self.hierarchy.counts
        )
        if self.stationary:
            self.before = limit
        self._means: RoundMeans | None = None
        self._readings: dict[int, Reading] = {}

    @property
    def means(self) -> RoundMeans:
        if self._means is None:
            self._means = self.hierarchy.means(self.before)
        return self._means

    def step(self) -> None:
        """Advance by one round."""
        means = self.means
        found = self.hierarchy.advance(self.parts, means)
        self._settled = self.stationary and self._changes_no_more(found)
        self.parts = found
        self.rounds += 1
        self.rounds_taken += 1
        self._report(self.rounds)
        if not self.stationary:
            # The rows of the chain sum to one only up to rounding, which would accumulate.
            sums = np.add.reduceat(means.after, self.hierarchy.begin[:-1])
            self.before = means.after / sums[self.hierarchy.kind]
            self._settle()

    def _changes_no_more(self, found: Parts) -> bool:
        """Whether the moments stay put even if every remaining round changes them as this one did.

        Each entry is compared with the sizes of its own two coordinates. Otherwise a large
        coordinate would hide a small one that grows.
        """
        sizes = np.sqrt(np.maximum(np.diag(found[0]), 0.0))
        limit = _SETTLED * np.outer(sizes, sizes) / max(1, self._num_rounds - self.rounds)
        agents = float(self.hierarchy.num_agents)
        return all(
            bool(np.all(agents**r * np.abs(new - old) <= limit))
            for r, (new, old) in enumerate(zip(found, self.parts, strict=True))
        )

    def long_run(self) -> LongRun | None:
        """The map of a round, if powers of its matrix are faster for the remaining rounds."""
        if not self.stationary:
            return None
        if self._long_run is None:
            self._long_run = LongRun(self.hierarchy)
        worth = min(DENSE_ENTRIES, (self._num_rounds - self.rounds) // 2)
        return self._long_run if self._squares or self._long_run.entries <= worth else None

    def advance(self, goal: int) -> None:
        """Advance to the round `goal`."""
        while self.rounds < goal:
            run = self.long_run()
            if self._settled:
                self.rounds = goal
            elif run is None:
                self.step()
                continue
            else:
                if not self._squares:
                    self._squares.append(run.matrix)
                self.parts = run.unpacked(
                    apply_power(self._squares, run.packed(self.parts), goal - self.rounds)
                )
                self.rounds = goal
            self._report(self.rounds)

    def at(self, steps: int) -> tuple[float, np.ndarray, float]:
        """E||avg - theta*||^2, E avg - theta* and sync error, `steps` after the last sync."""
        if steps == 0:
            own = slice(self.hierarchy.dimension)
            return float(np.trace(self.parts[0][own, own])), self.parts[0][own, -1], 0.0
        reading = self._readings.get(steps)
        if reading is None:
            reading = self.hierarchy.reading(self.before, np.array([steps]), np.ones(1))
            if (len(self._readings) + 1) * sum(
                each.nbytes for each in reading.parts
            ) <= _KEPT_BYTES:
                self._readings[steps] = reading
        parts = self._at_work()
        square = _paired(reading.parts, parts)
        own = _paired(reading.own, parts) / self.hierarchy.num_agents
        return square, self.hierarchy.mean(parts, self.before, steps), max(own - square, 0.0)

    def _at_work(self) -> Parts:
        """The parts when the agents begin their steps."""
        if self._opened is None or self._opened[0] is not self.parts:
            self._opened = self.parts, self.hierarchy.opened(self.parts, self.before)
        return self._opened[1]

    def weighted_sum(self, num_steps: int, decay: float, total: float = 0.0) -> float:
        """The sum over t < T of ``c^(T-1-t) E||avg_t - theta*||^2``, from the start.

        `total` is the sum over earlier times, up to the factor c^T.
        """
        length = self.hierarchy.length
        rounds, rest = divmod(num_steps, length)
        over_a_round, known_for = Reading([], []), None
        while self.rounds < rounds:
            if known_for is not self.before:
                over_a_round, known_for = self._weighted(length, decay), self.before
            if self._settled:
                left, rate = rounds - self.rounds, length * math.log(decay)
                repeated = math.expm1(left * rate) / math.expm1(rate)
                total = total * math.exp(left * rate) + repeated * _paired(
                    over_a_round.parts, self._at_work()
                )
                self.rounds = rounds
                break
            # A functional of the parts at work is not one of the parts at the synchronisation.
            run = self.long_run() if self.hierarchy.exchanges == 1 else None
            if run is None:
                total = total * decay**length + _paired(over_a_round.parts, self._at_work())
                self.step()
                continue
            # One more entry of the state accumulates the sum.
            row = run.dual(over_a_round.parts)
            joint = np.block(
                [[run.matrix, np.zeros((run.entries, 1))], [row, np.array(decay**length)]]
            )
            state = apply_power(
                [joint], np.append(run.packed(self.parts), total), rounds - self.rounds
            )
            self.parts, total, self.rounds = run.unpacked(state[:-1]), float(state[-1]), rounds
        return total * decay**rest + _paired(self._weighted(rest, decay).parts, self._at_work())

    def _weighted(self, steps: int, decay: float) -> Reading:
        offsets = np.arange(steps)
        return self.hierarchy.reading(self.before, offsets, decay ** (steps - 1.0 - offsets))


def _paired(functional: Parts, parts: Parts) -> float:
    return sum(float(np.vdot(one, other)) for one, other in zip(functional, parts, strict=False))
