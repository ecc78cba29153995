"""The hierarchy of connected parts under a method, and what is read from it within a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.exact.hierarchy import Hierarchy
from fegsam.exact.method_round import Phase
from fegsam.exact.parts import AgentMeans, Parts, Reading, RoundMeans
from fegsam.exact.rounds import PathRound


@dataclass(frozen=True, eq=False)
class MethodMeans(RoundMeans):
    """Expectations over a round under a method."""

    phases: list[list[tuple[float, Hierarchy, AgentMeans]]]


@dataclass(frozen=True, eq=False)
class Seen:
    """How the average within a round is formed: moments of the participants' shares."""

    path: PathRound
    """the steps of an agent that takes part"""
    start: np.ndarray
    """(d, Dz): reads the point at which the agents start"""
    report: np.ndarray
    """(d, Da): reads an agent's parameters"""
    mean: np.ndarray
    """(M,): the mean of an agent's share"""
    square: np.ndarray
    """(M,)"""
    pair: np.ndarray
    """(M, M): the mean of the product of two agents' shares"""


class MethodHierarchy(Hierarchy):
    """The map from U at one synchronisation to U at the next, under a method.

    x is the server's whole state z. Its first coordinates are the parameters minus theta*.
    """

    def __init__(
        self, phases: list[Phase], counts: np.ndarray, order: int, dimension: int, seen: Seen
    ) -> None:
        terms = [phase.terms() for phase in phases]
        super().__init__(terms[-1][0][1], counts, order)
        self.dimension, self._lift, self._seen = dimension, phases[-1].lift, seen
        self.exchanges = len(phases)
        self._phases = [
            [(factor, self.with_round(term)) for factor, term in each] for each in terms
        ]

    def means(self, before: np.ndarray) -> MethodMeans:
        phases = [
            [(factor, each, each.agent_means(before)) for factor, each in terms]
            for terms in self._phases
        ]
        return MethodMeans(before, phases[-1][0][2].after, phases)

    def advance(self, parts: Parts, means: RoundMeans) -> Parts:
        assert isinstance(means, MethodMeans)
        for terms in means.phases:
            parts = _sum_of_terms(parts, terms)
        return parts

    def slow_map(self, means: RoundMeans) -> np.ndarray:
        assert isinstance(means, MethodMeans)
        whole = np.eye(self.round.packing.entries)
        for terms in means.phases:
            whole = sum(factor * each.slow_map(own) for factor, each, own in terms) @ whole
        return whole

    def opened(self, parts: Parts, before: np.ndarray) -> Parts:
        for terms in self._phases[:-1]:
            known = [(factor, each, each.agent_means(before)) for factor, each in terms]
            parts = _sum_of_terms(parts, known)
        return parts

    # --- Within a round ---------------------------------------------------------------------------

    def _change(self, offset: int) -> np.ndarray:
        """(G, d, Dz): the mean change of an agent's parameters, given its first mode."""
        moved = self._seen.path.left_mean(offset) @ self._lift
        return self._seen.report @ moved - self._seen.start

    def _square(self, offset: int, change: np.ndarray) -> np.ndarray:
        """(G, Dz, Dz): the functional for the squared change, given the first mode."""
        lift, start = self._lift, self._seen.start
        whole = lift.swapaxes(1, 2) @ self._seen.path.trace_mean(offset) @ lift
        cross = (change + start).swapaxes(1, 2) @ start
        return whole - cross - cross.swapaxes(1, 2) + start.T @ start

    def mean(self, parts: Parts, before: np.ndarray, offset: int) -> np.ndarray:
        change = (self._seen.mean * self.counts)[self.kind][:, None, None] * self._change(offset)
        first = before[:, None] * parts[0][:, -1]
        if self.order:
            first = first + parts[1][:, :, -1]
        return self._seen.start @ parts[0][:, -1] + np.tensordot(change, first, ((0, 2), (0, 1)))

    def reading(self, before: np.ndarray, offsets: np.ndarray, weights: np.ndarray) -> Reading:
        whole, own = self._no_reading(), self._no_reading()
        for offset, weight in zip(offsets.tolist(), weights.tolist(), strict=True):
            average, spread = self._functionals(before, offset)
            for r in range(len(whole)):
                whole[r] += weight * average[r]
                own[r] += weight * self.num_agents * (average[r] + spread[r])
        return Reading(whole, own)

    def _no_reading(self) -> Parts:
        return [
            np.zeros((self.modes,) * r + (self.size, self.size))
            for r in range(min(self.order, 2) + 1)
        ]

    def _functionals(self, before: np.ndarray, offset: int) -> tuple[Parts, Parts]:
        """E||avg - theta*||^2, and the mean squared distance of the agents from the average."""
        if offset == 0:
            # The average is that of the server, not the point that it sends.
            average = self._no_reading()
            average[0][: self.dimension, : self.dimension] = np.eye(self.dimension)
            return average, self._no_reading()
        seen, kind, n = self._seen, self.kind, self.counts
        change = self._change(offset)
        square = self._square(offset, change)
        once = (seen.mean[kind])[:, None, None] * (seen.start.T @ change)
        mean_change = self.by_kind(before[:, None, None] * change)
        pairs = seen.pair * (n[:, None] * n - np.diag(n))
        others = np.tensordot(pairs / n[:, None], mean_change, 1)[kind]
        other = change.swapaxes(1, 2) @ others
        two = np.einsum("gh,gab,hac->bc", pairs, mean_change, mean_change)
        count = n[kind][:, None, None]
        own = count * (seen.square[kind])[:, None, None] * square
        moved = own + count * (other + other.swapaxes(1, 2))
        start = count * (once + once.swapaxes(1, 2))
        apart = count * (seen.mean[kind])[:, None, None] * square

        def alone(one: np.ndarray) -> np.ndarray:
            return np.tensordot(before, one, 1)

        squares = [alone(own) + two, moved]
        average = [seen.start.T @ seen.start + alone(start) + squares[0], start + moved]
        spread = [alone(apart) - squares[0], apart - moved]
        if self.order > 1:
            flat = change.swapaxes(0, 1).reshape(self.dimension, -1)
            whole = (flat.T @ flat).reshape(self.modes, self.size, self.modes, self.size)
            both = pairs[kind[:, None], kind][:, :, None, None] * whole.swapaxes(1, 2)
            average.append(both)
            spread.append(-both)
        return average[: self.order + 1], spread[: self.order + 1]


def _sum_of_terms(parts: Parts, terms: list[tuple[float, Hierarchy, AgentMeans]]) -> Parts:
    total = [np.zeros_like(part) for part in parts]
    for factor, each, means in terms:
        for level, part in zip(total, each.advance(parts, means), strict=True):
            level += factor * part
    total[0][-1, -1] = parts[0][-1, -1]
    return total
