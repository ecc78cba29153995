"""Second moments of the average over many agents, from one synchronisation to the next.

Just after a synchronisation all agents hold the same x = (theta - theta*, 1). It is correlated with
the mode of *every* agent, so moments with the modes of one or two agents do not satisfy a closed
recursion. Connected parts do, up to a truncation whose error vanishes fast. For a set A of agents
let

    U_A(z_A) = the part of E[x x' 1{z^i = z_i for i in A}] that sums to zero along the mode of each
    agent in A,

so that ``E[x x' 1{z_A}] = sum over B in A of U_B(z_B) prod_{i in A - B} p_i(z_i)``, where p_i is
the distribution of the mode alone. K steps and an average map x x' to ``(1/N^2) sum_{i,j} T^i x x'
T^j'``, where T^i is agent i's own product of K steps. Each term involves one or two agents. The
modes of all other agents move by their chains, which map p to p' and zero sums to zero sums. So the
next U_A depends only on those U_B whose sets differ from A in these one or two agents. Sets of more
than R agents are left out; with R = N the recursion is exact.

Agents of one kind are interchangeable and a mode belongs to one kind, so U_A depends only on the
modes of its agents. The parts of r agents are one array with r axes of all G modes, symmetric in
these axes, and the cost does not depend on N. A sum over the agents outside a set is the sum over
all agents minus the terms of the members.
"""

from __future__ import annotations

import itertools

import numpy as np

from fegsam.exact.advance import Advance
from fegsam.exact.parts import AgentMeans, Parts, Reading, RoundMeans
from fegsam.exact.rounds import AgentRound, RoundMaps

_CHUNK = 1 << 18
"""At most this many numbers of the functionals of a step are stacked at a time."""


class Hierarchy:
    """The map from U at one synchronisation to U at the next.

    Parameters
    ----------
    round_maps : RoundMaps
        The maps of a round of one agent.
    counts : (M,) array
        The number of agents of each kind.
    order : int
        R; 0 is exact if every kind has a single mode.
    """

    dimension: int
    """d: x begins with the parameters minus theta*"""
    exchanges: int = 1
    """the number of times that agents and server communicate in a round"""

    def __init__(self, round_maps: AgentRound, counts: np.ndarray, order: int) -> None:
        self.round, self.length, self.size = round_maps, round_maps.length, round_maps.packing.size
        self.dimension = self.size - 1
        self.counts = np.asarray(counts, dtype=float)
        self.num_agents = int(np.sum(counts))
        self.order = min(order, self.num_agents)
        self.begin, self.modes = round_maps.maps.begin, len(round_maps.maps.initial)
        self.kind = np.repeat(np.arange(len(counts)), np.diff(self.begin))
        self.allowed = [self._allowed(r) for r in range(self.order + 1)]
        self.sorted_cells = [self._sorted_cells(r) for r in range(self.order + 1)]

    def with_round(self, round_maps: AgentRound) -> Hierarchy:
        """The same agents with other maps of a round."""
        other = Hierarchy.__new__(Hierarchy)
        other.__dict__ = {**self.__dict__, "round": round_maps, "length": round_maps.length}
        return other

    def _sorted_cells(self, r: int) -> np.ndarray:
        """(G^r,): for each cell of modes, the cell with the same modes in sorted order.

        The two have the same moments, since agents may be swapped.
        """
        shape = (self.modes,) * r
        cells = np.sort(np.indices(shape).reshape(r, self.modes**r), axis=0)
        return np.asarray(np.ravel_multi_index(tuple(cells), shape)) if r else np.zeros(1, np.int64)

    def _allowed(self, r: int) -> np.ndarray | None:
        """(G, ..., G): whether each kind has enough agents for the set; None if always true."""
        if self.counts.min() >= r:
            return None
        kinds = np.indices((len(self.counts),) * r)
        there = np.ones(kinds.shape[1:], bool)
        for axes in itertools.chain.from_iterable(
            itertools.combinations(range(r), k) for k in range(2, r + 1)
        ):
            same = np.logical_and.reduce([kinds[axes[0]] == kinds[axis] for axis in axes[1:]])
            there &= ~same | (self.counts[kinds[axes[0]]] >= len(axes))
        return there[np.ix_(*[self.kind] * r)]

    def start(self, params: np.ndarray) -> Parts:
        """The parts at time 0, at which x is not random, and so independent of all modes."""
        x = np.append(params, 1.0)
        return [np.outer(x, x), *self.zeros()]

    def zeros(self) -> Parts:
        """Connected parts that are zero."""
        return [
            np.zeros((self.modes,) * r + (self.size, self.size)) for r in range(1, self.order + 1)
        ]

    def means(self, before: np.ndarray) -> RoundMeans:
        return self.agent_means(before)

    def agent_means(self, before: np.ndarray) -> AgentMeans:
        left = self.by_kind(before[:, None, None] * self.round.left_mean(self.length))
        pair = self.round.packing.conjugation(left)
        own = self.round.both_mean(before) - pair
        totals = (np.tensordot(self.counts, each, 1) for each in (left, pair, own))
        total_left, total_pair, total_own = totals
        return AgentMeans(
            before, self.round.mix(before), left, total_left, pair, own, total_pair, total_own
        )

    def advance(self, parts: Parts, means: RoundMeans) -> Parts:
        """The parts after one round."""
        assert isinstance(means, AgentMeans)
        return Advance(self, parts, means).parts()

    def opened(self, parts: Parts, before: np.ndarray) -> Parts:
        """The parts when the agents begin their steps; here those at the synchronisation."""
        return parts

    def reading(self, before: np.ndarray, offsets: np.ndarray, weights: np.ndarray) -> Reading:
        """The weighted sum of the squared errors, `offsets` steps after the synchronisation.

        `before` (G,) is the distribution of the modes at the synchronisation.
        """
        sums = _ReadingSums(self, before)
        step = max(1, _CHUNK // (self.modes * self.size**2))
        for begin in range(0, len(offsets), step):
            sums.add(offsets[begin : begin + step].tolist(), weights[begin : begin + step])
        return sums.reading()

    def mean(self, parts: Parts, before: np.ndarray, offset: int) -> np.ndarray:
        """(d,): E avg - theta*, `offset` steps after the synchronisation."""
        weights = self.counts[self.kind] / self.num_agents
        first = before[:, None] * parts[0][:, -1]
        if self.order:
            first = first + parts[1][:, :, -1]
        return np.tensordot(
            weights[:, None, None] * self.round.left_mean(offset)[:, :-1], first, ((0, 2), (0, 1))
        )

    def by_kind(self, f: np.ndarray) -> np.ndarray:
        """(M, ...): f (G, ...) summed over the modes of each kind."""
        return np.add.reduceat(f, self.begin[:-1], axis=0)

    def slow_map(self, means: RoundMeans) -> np.ndarray:
        """(D(D+1)/2, D(D+1)/2): one round of the average's own moments, packed.

        It assumes that all connected parts are zero.
        """
        assert isinstance(means, AgentMeans)
        return (means.total_own + self.round.packing.conjugation(means.total_left)) / float(
            self.num_agents
        ) ** 2


class _ReadingSums:
    """The terms of E||avg - theta*||^2 by single agents and pairs, summed over steps of a round."""

    def __init__(self, hierarchy: Hierarchy, before: np.ndarray) -> None:
        self.of, self.before = hierarchy, before
        modes, size = hierarchy.modes, hierarchy.size
        self.own, self.one = np.zeros((modes, size, size)), np.zeros((modes, size, size))
        self.alone = np.zeros((size, size))
        self.two = np.zeros((modes * size,) * 2) if hierarchy.order > 1 else None

    def add(self, offsets: list[int], weights: np.ndarray) -> None:
        of, rows, size = self.of, self.of.size - 1, self.of.size
        assert isinstance(of.round, RoundMaps)
        self.own += np.tensordot(
            weights, np.stack([of.round.trace_mean(offset) for offset in offsets]), 1
        )
        left = np.stack([of.round.left_mean(offset)[:, :rows] for offset in offsets])
        mean = np.add.reduceat(self.before[:, None, None] * left, of.begin[:-1], axis=1)
        total = np.tensordot(of.counts, mean, (0, 1))
        share = weights[:, None, None]
        self.alone += np.tensordot(share * total, total, ((0, 1), (0, 1)))
        self.alone -= np.tensordot(
            (share[:, None] * of.counts[:, None, None]) * mean, mean, ((0, 1, 2), (0, 1, 2))
        )
        others = total[:, None] - mean[:, of.kind]
        by_mode = (
            each.swapaxes(0, 1).reshape(of.modes, -1, size)
            for each in (share[:, None] * left, others)
        )
        weighted, others = by_mode
        self.one += weighted.swapaxes(1, 2) @ others
        if self.two is not None:
            flat = left.swapaxes(1, 2).reshape(len(offsets) * rows, -1)
            self.two += (np.repeat(weights, rows)[:, None] * flat).T @ flat

    def reading(self) -> Reading:
        of = self.of
        n, scale = of.counts[of.kind], float(of.num_agents) ** 2
        own = n[:, None, None] * self.own
        one = n[:, None, None] * (self.one + self.one.swapaxes(1, 2))
        own_alone = np.tensordot(self.before, own, 1)
        read = [(self.alone + own_alone) / scale, (one + own) / scale][: of.order + 1]
        if self.two is not None:
            pairs = n[:, None] * (n - (of.kind[:, None] == of.kind))
            whole = self.two.reshape(of.modes, of.size, of.modes, of.size).swapaxes(1, 2)
            read.append(pairs[:, :, None, None] * whole / scale)
        return Reading(read, [own_alone, own][: of.order + 1])
