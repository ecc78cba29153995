"""One round of the connected parts; `hierarchy` derives the recursion."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from fegsam.exact.parts import AgentMeans, Parts

if TYPE_CHECKING:
    from fegsam.exact.hierarchy import Hierarchy

_GATHERED = 1 << 22
"""Each kind's matrix is repeated for each of its modes if the copies have at most this many
numbers."""


class Advance:
    """One round, level by level: sets of r agents, r = 0, ..., R."""

    def __init__(self, hierarchy: Hierarchy, parts: Parts, means: AgentMeans) -> None:
        self.of, self.x, self.means = hierarchy, parts, means
        self.left = hierarchy.round.left_mean(hierarchy.length)
        order = hierarchy.order
        # The connected part of E[x x' T_i'], summed over the mode of one member i, by the member's
        # kind.
        self.with_member = [
            None,
            *(self._summed(self._times_right(parts[r])) for r in range(1, order + 1)),
        ]
        self.with_one = [self._with_one_outside(r) for r in range(order + 1)]
        self.squares = [None, *(self._squares(r) for r in range(1, order + 1))]

    def parts(self) -> Parts:
        found = [self._next(r) for r in range(len(self.x))]
        found[0][-1, -1] = self.x[0][-1, -1]
        return found

    # --- Sums over agents -------------------------------------------------------------------------

    def _summed(self, f: np.ndarray) -> np.ndarray:
        """(M, ...): f (G, ...) summed over the modes of each kind."""
        return self.of.by_kind(f)

    def _over_outsiders(self, by_kind: np.ndarray, r: int) -> np.ndarray:
        """Sum each kind's contribution (M, G, ..., G, D, D) over the agents outside a set of r."""
        total = np.tensordot(self.of.counts, by_kind, 1)
        for axis in range(r):
            own = np.moveaxis(by_kind, axis + 1, 1)[self.of.kind, np.arange(self.of.modes)]
            total -= np.moveaxis(own, 0, axis)
        return total

    def _of_members(self, f: np.ndarray, r: int) -> np.ndarray:
        """Sum f, whose first axis is the member's mode, over the members of a set of r."""
        return sum((np.moveaxis(f, 0, axis) for axis in range(1, r)), start=f)

    # --- One agent's round, as it acts on the first axis ------------------------------------------

    def _member(self, matrices: np.ndarray, r: int) -> np.ndarray:
        """(G, 1, ..., 1, D, D): for each mode, the matrix of its kind."""
        return matrices[self.of.kind].reshape(-1, *(1,) * (r - 1), *matrices.shape[1:])

    def _times_right(self, f: np.ndarray) -> np.ndarray:
        """``f E[T | z]'``, where z is the first mode of the agent on the first axis."""
        return f @ self.left.swapaxes(1, 2).reshape(-1, *(1,) * (f.ndim - 3), *self.left.shape[1:])

    def _times_left(self, f: np.ndarray) -> np.ndarray:
        return self.left.reshape(-1, *(1,) * (f.ndim - 3), *self.left.shape[1:]) @ f

    def _packed_map(self, total: np.ndarray, member: np.ndarray, r: int) -> np.ndarray:
        """The map `total` (packed) of U, minus the maps `member` (M, packed) of the members."""
        packing = self.of.round.packing
        packed = packing.packed(self.x[r])
        moved = packed @ total.T
        if r:
            flat = packed.reshape(self.of.modes, -1, packing.entries)
            if self.of.modes * packing.entries**2 <= _GATHERED:
                own = flat @ member[self.of.kind].swapaxes(1, 2)
            else:
                begin = self.of.begin
                pieces = zip(begin[:-1], begin[1:], member, strict=True)
                own = np.concatenate([flat[low:high] @ each.T for low, high, each in pieces])
            moved = moved - self._of_members(own.reshape(packed.shape), r)
        return packing.unpacked(moved)

    def _with_p(self, f: np.ndarray) -> np.ndarray:
        """Add to f a first axis for one more agent that is independent of the others."""
        return self.means.before.reshape(-1, *(1,) * f.ndim) * f

    def _touched(self, how: str, f: np.ndarray) -> np.ndarray:
        """Apply the round of the agent on the first axis, its map `how` of `RoundMaps`."""
        flat = f.reshape(self.of.modes, -1, self.of.size, self.of.size)
        return getattr(self.of.round, how)(flat).reshape(f.shape)

    def _mixed(self, f: np.ndarray, axes: range) -> np.ndarray:
        """Move the modes on these axes, of agents that the term does not involve."""
        for axis in axes:
            moved = self.of.round.mix(np.ascontiguousarray(np.moveaxis(f, axis, 0)))
            f = np.moveaxis(moved, 0, axis)
        return f

    # --- The terms --------------------------------------------------------------------------------

    def _with_one_outside(self, r: int) -> np.ndarray:
        """The sum of ``E[x x' T_j']`` over the agents j outside the set."""
        x, means = self.x[r], self.means
        found = x @ means.total_left.T
        if r:
            found -= self._of_members(x @ self._member(means.left, r).swapaxes(-1, -2), r)
        if r < self.of.order:
            found += self._over_outsiders(self.with_member[r + 1], r)
        return found

    def _squares(self, r: int) -> np.ndarray:
        """``E[T_i x x' T_i']`` for the agent i on the first axis, connected or not."""
        return self._touched("both", self.x[r] + self._with_p(self.x[r - 1]))

    def _outside(self, r: int) -> np.ndarray:
        """The sum of ``E[T_i x x' T_j']`` over all i, j outside the set.

        The modes of the set's own agents have not moved yet.
        """
        means, y = self.means, self.with_one[r]
        total = means.total_left @ y
        if r:
            total -= self._of_members(self._member(means.left, r) @ y, r)
        if r == self.of.order:
            return total + self._packed_map(means.total_own, means.own, r)
        squares = self._over_outsiders(self._summed(self.squares[r + 1]), r)
        left = means.left.reshape(-1, *(1,) * r, *means.left.shape[1:])
        same = self._over_outsiders(left @ self.with_member[r + 1], r) + self._packed_map(
            means.total_pair, means.pair, r
        )
        return (
            total
            + squares
            - same
            + self._over_outsiders(self._summed(self._times_left(self.with_one[r + 1])), r)
        )

    def _one_member(self, r: int) -> np.ndarray:
        """The terms with the agent on the first axis twice, or once with an agent outside."""
        left = self.means.left.reshape(-1, *(1,) * (r - 1), *self.means.left.shape[1:])
        own = self.x[r - 1] @ left.swapaxes(-1, -2) + self.with_member[r]
        others = self.with_one[r - 1] - own[self.of.kind]
        half = self._touched(
            "left",
            self.with_one[r] + self.means.before.reshape(-1, *(1,) * (others.ndim - 1)) * others,
        )
        return self.squares[r] + half + half.swapaxes(-1, -2)

    def _two_members(self, r: int) -> np.ndarray:
        """The terms with each of the agents on the first two axes once."""
        one = self._with_p(self.x[r - 1])
        full = self.x[r] + one + one.swapaxes(0, 1) + self._with_p(self._with_p(self.x[r - 2]))
        half = self._touched("left", full).swapaxes(-1, -2).swapaxes(0, 1)
        half = self._touched("left", np.ascontiguousarray(half)).swapaxes(0, 1)
        return half + half.swapaxes(-1, -2)

    def _next(self, r: int) -> np.ndarray:
        total = self._mixed(self._outside(r), range(r))
        if r:
            total = total + self._of_members(self._mixed(self._one_member(r), range(1, r)), r)
        if r > 1:
            pair = self._mixed(self._two_members(r), range(2, r))
            for axes in itertools.combinations(range(r), 2):
                total = total + np.moveaxis(pair, (0, 1), axes)
        total = (total + total.swapaxes(-1, -2)) / (2.0 * float(self.of.num_agents) ** 2)
        after = self.means.after
        for axis in range(r):
            front = np.moveaxis(total, axis, 0)
            sums = self._summed(front)[self.of.kind]
            total = np.moveaxis(front - after.reshape(-1, *(1,) * (front.ndim - 1)) * sums, 0, axis)
        allowed = self.of.allowed[r]
        if allowed is not None:
            total = np.where(allowed[..., None, None], total, 0.0)
        if r > 1:
            # Rounding makes the parts depend on the order of the agents, and a round would amplify
            # the difference.
            total = total.reshape(-1, *total.shape[-2:])[self.of.sorted_cells[r]].reshape(
                total.shape
            )
        return np.ascontiguousarray(total)
