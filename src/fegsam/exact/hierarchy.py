"""Second moments of the average over many agents, from one synchronisation to the next.

Just after a synchronisation all agents hold the same x = (theta - theta*, 1). It is correlated with the mode of *every* agent,
so moments with the modes of one or two agents do not close. What closes fast are connected parts. For a set A of agents let

    U_A(z_A) = the part of E[x x' 1{z^i = z_i for i in A}] that sums to zero along the mode of each agent in A,

so that ``E[x x' 1{z_A}] = sum over B in A of U_B(z_B) prod_{i in A - B} p_i(z_i)``, p_i the law of the mode alone. K steps
and an average take x x' to ``(1/N^2) sum_{i,j} T^i x x' T^j'``, T^i agent i's own product of K steps, which touches one or two
agents; the modes of all others move by their chains, which take p to p' and zero sums to zero sums. Thus U_A is driven by the
U_B that differ from it in the touched agents alone. Sets of more than R agents are left out; with R = N nothing is.

Agents of a kind are alike, so U depends on A through the kinds of its agents, and the cost not on N at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fegsam.exact.rounds import Round
from fegsam.exact.sweeps import Moves

Kinds = tuple[int, ...]
Parts = dict[Kinds, np.ndarray]
"""U_A by the sorted kinds of A: (m_1, ..., m_r, D, D)"""


@dataclass(frozen=True, eq=False)
class Laws:
    """What hangs on the law of the modes at the round's start, for one kind."""

    before: np.ndarray
    """(m,): p"""
    after: np.ndarray
    """(m,): p'"""
    left: np.ndarray
    """(D, D): E T"""
    both: np.ndarray
    """(D(D+1)/2, D, D): E[T x x' T']"""


class Hierarchy:
    """The map from U at one synchronisation to U at the next.

    Parameters
    ----------
    moves : list of Moves
        One for each kind.
    counts : (M,) array
        Agents of each kind.
    order : int
        R.
    """

    def __init__(self, moves: list[Moves], counts: np.ndarray, size: int, step_size: float, length: int, order: int) -> None:
        self.counts, self.size, self.length = [int(count) for count in counts], size, length
        self.num_agents = sum(self.counts)
        self.rounds = [Round(each, step_size, length, size) for each in moves]
        kinds = range(len(moves))
        self.sets: list[Kinds] = [
            chosen
            for r in range(min(order, self.num_agents) + 1)
            for chosen in itertools.combinations_with_replacement(kinds, r)
            if all(chosen.count(kind) <= self.counts[kind] for kind in chosen)
        ]

    def start(self, params: np.ndarray) -> Parts:
        """The parts at time 0, where `params` are certain: x is independent of all modes."""
        x = np.append(params, 1.0)
        parts = {chosen: self._zeros(chosen) for chosen in self.sets}
        parts[()] = np.outer(x, x)
        return parts

    def _zeros(self, chosen: Kinds) -> np.ndarray:
        return np.zeros((*(self.rounds[kind].modes for kind in chosen), self.size, self.size))

    def laws(self, before: list[np.ndarray]) -> list[Laws]:
        return [
            Laws(p, each.mix(p), np.tensordot(p, each.left_mean(self.length), 1), np.tensordot(p, each.both_mean, 1))
            for each, p in zip(self.rounds, before, strict=True)
        ]

    def advance(self, parts: Parts, laws: list[Laws]) -> Parts:
        """The parts after one round."""
        found = {chosen: self._next(chosen, parts, laws) for chosen in self.sets}
        found[()][-1, -1] = parts[()][-1, -1]
        return found

    def average_alone(self, parts: Parts, laws: list[Laws]) -> np.ndarray:
        """(D, D): the average's own moments after one round."""
        return self._next((), parts, laws)

    def _next(self, chosen: Kinds, parts: Parts, laws: list[Laws]) -> np.ndarray:
        axes = range(len(chosen))
        total = self._outside(chosen, parts, laws)
        for axis in axes:
            total = self._moved(total, axis, chosen)
        for axis in axes:
            alone = self._full(chosen, (axis,), parts, laws)
            for other in axes:
                if other != axis:
                    alone = self._moved(alone, other, chosen)
            total += self._touched(alone, axis, chosen, "both")

            with_one = self._with_one_outside(chosen, axis, parts, laws)
            for other in axes:
                if other != axis:
                    with_one = self._moved(with_one, other, chosen)
            half = self._touched(with_one, axis, chosen, "left")
            for other in range(axis + 1, len(chosen)):
                pair = self._full(chosen, (axis, other), parts, laws)
                for third in axes:
                    if third not in (axis, other):
                        pair = self._moved(pair, third, chosen)
                pair = self._touched(pair, axis, chosen, "left").swapaxes(-1, -2)
                half += self._touched(pair, other, chosen, "left")
            total += half + half.swapaxes(-1, -2)
        total /= float(self.num_agents) ** 2
        for axis in axes:
            p = laws[chosen[axis]].after
            total -= total.sum(axis=axis, keepdims=True) * p.reshape([-1 if a == axis else 1 for a in range(total.ndim)])
        return total

    def _part(self, parts: Parts, kinds: Kinds) -> np.ndarray | None:
        """U with its axes in the order of `kinds`, or None where it is left out."""
        order = sorted(range(len(kinds)), key=lambda axis: kinds[axis])
        found = parts.get(tuple(kinds[axis] for axis in order))
        if found is None:
            return None
        back = np.argsort(order)
        return found.transpose(*back, len(kinds), len(kinds) + 1)

    def _full(self, chosen: Kinds, touched: tuple[int, ...], parts: Parts, laws: list[Laws]) -> np.ndarray:
        """U with the touched axes complete: connected or not."""
        total = self._zeros(chosen)
        for many in range(len(touched) + 1):
            for free in itertools.combinations(touched, many):
                kept = tuple(kind for axis, kind in enumerate(chosen) if axis not in free)
                part = self._part(parts, kept)
                if part is not None:
                    total += self._spread(part, free, chosen, laws)
        return total

    def _spread(self, part: np.ndarray, free: tuple[int, ...], chosen: Kinds, laws: list[Laws]) -> np.ndarray:
        """Give `part` the axes in `free`, along which it is the law of the mode."""
        for axis in free:
            p = laws[chosen[axis]].before
            part = np.expand_dims(part, axis)
            part = part * p.reshape([-1 if a == axis else 1 for a in range(part.ndim)])
        return part

    def _others(self, chosen: Kinds) -> Iterator[tuple[int, int]]:
        """Each kind, and how many of its agents are not in the set."""
        for kind, count in enumerate(self.counts):
            if count > chosen.count(kind):
                yield kind, count - chosen.count(kind)

    def _with_one_outside(self, chosen: Kinds, axis: int, parts: Parts, laws: list[Laws]) -> np.ndarray:
        """Sum over the agents j outside the set of ``x x' T^j'``, with `axis` complete."""
        base = self._full(chosen, (axis,), parts, laws)
        rest = tuple(kind for a, kind in enumerate(chosen) if a != axis)
        total = np.zeros_like(base)
        for kind, many in self._others(chosen):
            mean = self.rounds[kind].left_mean(self.length)
            total += many * (base @ laws[kind].left.T)
            alone = self._met(parts, rest, kind, mean)
            if alone is not None:
                total += many * self._spread(alone, (axis,), chosen, laws)
            together = self._met(parts, chosen, kind, mean)
            if together is not None:
                total += many * together
        return total

    def _met(self, parts: Parts, chosen: Kinds, kind: int, mean: np.ndarray) -> np.ndarray | None:
        """``E[x x' T^j']`` for one more agent j that is connected; None where the part is left out."""
        part = self._part(parts, (kind, *chosen))
        return None if part is None else np.tensordot(part, mean, ((0, -1), (0, 2)))

    def _outside(self, chosen: Kinds, parts: Parts, laws: list[Laws]) -> np.ndarray:
        """Both touched agents outside the set; the modes of the set are yet to move."""
        part = parts[chosen]
        total = np.zeros_like(part)
        for kind, many in self._others(chosen):
            each, law = self.rounds[kind], laws[kind]
            squares = np.tensordot(part, law.both, ((-2, -1), (1, 2)))
            joined = self._part(parts, (kind, *chosen))
            if joined is not None:
                squares = squares + np.tensordot(joined, each.both_mean, ((0, -2, -1), (0, 2, 3)))
            total += many * each.unpacked(squares)
        return total + self._pairs(chosen, parts, [law.before for law in laws], self.length)

    def _pairs(self, chosen: Kinds, parts: Parts, before: list[np.ndarray], steps: int) -> np.ndarray:
        """Sum of ``E[T^i x x' T^j']`` over pairs of different agents outside the set, after so many steps of the round."""
        means = [each.left_mean(steps) for each in self.rounds]
        lefts = [np.tensordot(p, mean, 1) for p, mean in zip(before, means, strict=True)]
        total = np.zeros_like(parts[chosen])
        for (kind, many), (other, others) in itertools.product(self._others(chosen), repeat=2):
            pairs = many * (others - (kind == other))
            if not pairs:
                continue
            one = lefts[kind] @ parts[chosen] @ lefts[other].T
            right = self._met(parts, chosen, other, means[other])
            if right is not None:
                one += lefts[kind] @ right
            left = self._met(parts, chosen, kind, means[kind])
            if left is not None:
                one += left.swapaxes(-1, -2) @ lefts[other].T
            joined = self._part(parts, (kind, other, *chosen))
            if joined is not None:
                half = np.tensordot(joined, means[other], ((1, -1), (0, 2)))
                one += np.tensordot(half, means[kind], ((0, -2), (0, 2))).swapaxes(-1, -2)
            total += pairs * one
        return total

    def within(self, parts: Parts, before: list[np.ndarray], steps: int) -> tuple[float, np.ndarray, float]:
        """So many steps after the synchronisation: E||average||^2, E average, and the mean over agents of E||x^i||^2."""
        own, mean = 0.0, np.zeros(self.size - 1)
        for kind, count in enumerate(self.counts):
            each = self.rounds[kind]
            full = before[kind][:, None, None] * parts[()] + parts[kind,]
            own += count * float(np.tensordot(each.trace_mean(steps), full, 3))
            mean += count * np.tensordot(each.left_mean(steps)[:, :-1], full[:, :, -1], ((0, 2), (0, 1)))
        pairs = float(np.trace(self._pairs((), parts, before, steps)[:-1, :-1])) if self.num_agents > 1 else 0.0
        return (own + pairs) / float(self.num_agents) ** 2, mean / self.num_agents, own / self.num_agents

    def _moved(self, f: np.ndarray, axis: int, chosen: Kinds) -> np.ndarray:
        return np.moveaxis(self.rounds[chosen[axis]].mix(np.moveaxis(f, axis, 0)), 0, axis)

    def _touched(self, f: np.ndarray, axis: int, chosen: Kinds, how: str) -> np.ndarray:
        each = self.rounds[chosen[axis]]
        front = np.moveaxis(f, axis, 0)
        flat = np.ascontiguousarray(front).reshape(each.modes, -1, self.size, self.size)
        moved = each.left(flat) if how == "left" else each.both(flat)
        return np.moveaxis(moved.reshape(front.shape), 0, axis)
