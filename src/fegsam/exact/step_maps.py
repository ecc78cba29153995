"""One step of the agents of every kind, as it acts on first and second moments.

In centred homogeneous coordinates ``x = (theta - theta*, 1)``, D = d + 1, every window e of a
linear algorithm multiplies x by ``T_e``. We number the modes of all kinds consecutively, G in
total. No mode leads to a mode of another kind, so one chain serves all kinds. The other modules
need four maps of a step. Two push a function f of the mode forward,

    push_left: f'(z') = sum_{e: z->z'} p_e T_e f(z),
    push_both: f'(z') = sum_{e: z->z'} p_e T_e f(z) T_e',

and two pull a functional back,

    pull_left: F'(z) = sum_{e: z->z'} p_e F(z') T_e,
    pull_both: F'(z) = sum_{e: z->z'} p_e T_e' F(z') T_e.

Temporal differences (`RankOneMaps`) have ``T_e = I + alpha u h_e'``. Here u depends on the mode
only, and only the first and second moments of h_e between two modes matter. A step then costs D^2
instead of D^3 for each pair of modes, and D^4 instead of D^5 for a functional. `DenseMaps` takes
any T that depends on the mode alone, as in Algorithm 1. `IndependentMaps` draws every window
independently, so that each kind has a single mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy import sparse

from fegsam.exact.packing import Packing

_CHUNK = 1 << 20
"""A pull gathers at most this many numbers at a time."""


class StepMaps(Protocol):
    """The linear maps of one step, for G modes of M kinds."""

    @property
    def begin(self) -> np.ndarray:
        """(M + 1,): the modes of kind k are begin[k], ..., begin[k + 1] - 1."""
        ...

    @property
    def chain(self) -> sparse.csr_array:
        """(G, G): the transition kernel of the modes."""
        ...

    @property
    def initial(self) -> np.ndarray:
        """(G,): the distribution of each kind's mode at time 0."""
        ...

    @property
    def stationary(self) -> np.ndarray:
        """(G,): the stationary distribution of each kind's mode."""
        ...

    def push_left(self, step_size: float, f: np.ndarray) -> np.ndarray:
        """Map f, (G, r, D, c) for any r and c."""
        ...

    def push_both(self, step_size: float, f: np.ndarray) -> np.ndarray:
        """Map f, (G, r, D, D) and symmetric in its last two axes."""
        ...

    def pull_left(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        """Map a functional (G, D, D)."""
        ...

    def pull_both(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        """Map a functional (G, r, D, D), symmetric in its last two axes.

        Its value at f is ``sum_z <functional[z], f[z]>``.
        """
        ...

    def left_blocks(self, step_size: float, pairs: slice) -> np.ndarray:
        """(p, D, D): the matrices of `push_left` for these entries of `chain`, in their order."""
        ...

    def both_blocks(self, step_size: float, pairs: slice) -> np.ndarray:
        """(p, D(D+1)/2, D(D+1)/2): the matrices of `push_both`, packed, as in `left_blocks`."""
        ...


class RankOneMaps:
    """The step maps of temporal differences, ``T_e = I + alpha u h_e'``.

    The pairs (z, z') of modes are stored in rows of equal length c, one row for each z. If a mode
    has fewer than c successors, pairs of weight zero fill its row.

    Parameters
    ----------
    begin : (M + 1,) array
    chain : (G, G) csr_array
    initial, stationary : (G,) arrays
    left : (G, D) array
        u of each mode.
    first : (pairs, D) array
        The sum of p_e h_e over the windows of each entry of `chain`.
    second : (pairs, D, D) array
        The sum of p_e h_e h_e'.
    """

    def __init__(
        self,
        begin: np.ndarray,
        chain: sparse.csr_array,
        initial: np.ndarray,
        stationary: np.ndarray,
        left: np.ndarray,
        first: np.ndarray,
        second: np.ndarray,
    ) -> None:
        self.begin, self.chain, self.initial, self.stationary, self.left = (
            begin,
            chain,
            initial,
            stationary,
            left,
        )
        modes, size = left.shape
        many = np.diff(chain.indptr)
        width = int(many.max())
        source = np.repeat(np.arange(modes), many)
        slot = np.arange(len(source)) - chain.indptr[source]
        self._source, self._slot = source, slot
        self.target = np.zeros((modes, width), np.int64)
        self.target[source, slot] = chain.indices
        self.first = np.zeros((modes, width, size))
        self.first[source, slot] = first
        self.second = np.zeros((modes, width, size * size))
        self.second[source, slot] = second.reshape(len(source), -1)
        self._forward, self._backward = _both_ways(chain)
        self.scatter = None
        if len(source) < modes * modes:
            rows = chain.indices[:, None] * size + np.arange(size)
            columns = np.repeat(source * width + slot, size)
            shape = (modes * size, modes * width)
            self.scatter = sparse.csr_array(
                (left[source].ravel(), (rows.ravel(), columns)), shape=shape
            )

    def widened(self, wide: Callable[[np.ndarray, int, int], np.ndarray], size: int) -> RankOneMaps:
        """The same maps for vectors of `size` entries, of which the new ones stand still.

        ``wide(values, size, axis)`` adds the zeros of the new entries along an axis.
        """
        pairs, old = (self._source, self._slot), self.left.shape[1]
        second = self.second[pairs].reshape(-1, old, old)
        return RankOneMaps(
            self.begin,
            self.chain,
            self.initial,
            self.stationary,
            wide(self.left, size, -1),
            wide(self.first[pairs], size, -1),
            wide(wide(second, size, -1), size, -2),
        )

    def _spread(self, rows: np.ndarray) -> np.ndarray:
        """(G, D, w): the sum of u times `rows` (G, c, w) over the pairs with the same target."""
        if self.scatter is None:
            return np.tensordot(self.left, rows, (0, 0)).swapaxes(0, 1)
        modes, size = self.left.shape
        return (self.scatter @ rows.reshape(-1, rows.shape[2])).reshape(modes, size, -1)

    def push_left(self, step_size: float, f: np.ndarray) -> np.ndarray:
        modes, many, size, columns = f.shape
        flat = f.swapaxes(1, 2).reshape(modes, size, many * columns)
        change = self._spread(self.first @ flat).reshape(modes, size, many, columns)
        return _along_modes(self._forward, f) + step_size * change.swapaxes(1, 2)

    def push_both(self, step_size: float, f: np.ndarray) -> np.ndarray:
        modes, many, size, _ = f.shape
        rows = self.first @ f.swapaxes(1, 2).reshape(modes, size, many * size)
        squares = self.second @ f.reshape(modes, many, -1).swapaxes(1, 2)
        rows = rows.reshape(*squares.shape, size)
        rows += (0.5 * step_size) * squares[..., None] * self.left[:, None, None]
        change = (
            self._spread(rows.reshape(modes, -1, many * size))
            .reshape(modes, size, many, size)
            .swapaxes(1, 2)
        )
        return _along_modes(self._forward, f) + step_size * (change + change.swapaxes(-1, -2))

    def pull_left(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        out = _along_modes(self._backward, functional)
        for some in self._pieces(functional.shape[-1] ** 2):
            along = (functional[self.target[some]] @ self.left[some, None, :, None])[..., 0]
            out[some] += step_size * (along.swapaxes(1, 2) @ self.first[some])
        return out

    def pull_both(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        _, many, size, _ = functional.shape
        out = _along_modes(self._backward, functional)
        for some in self._pieces(many * size * size):
            u = self.left[some]
            along = (functional[self.target[some]] @ u[:, None, None, :, None])[..., 0]
            squares = along @ u[:, None, :, None]
            width = along.shape[1]
            change = along.reshape(len(u), width, many * size).swapaxes(1, 2) @ self.first[some]
            change = change.reshape(len(u), many, size, size)
            square = squares[..., 0].swapaxes(1, 2) @ self.second[some]
            out[some] += step_size * (change + change.swapaxes(2, 3))
            out[some] += (step_size * step_size) * square.reshape(len(u), many, size, size)
        return out

    def left_blocks(self, step_size: float, pairs: slice) -> np.ndarray:
        place = self._source[pairs], self._slot[pairs]
        change = self.left[place[0]][:, :, None] * self.first[place][:, None, :]
        return self.chain.data[pairs, None, None] * np.eye(self.left.shape[1]) + step_size * change

    def both_blocks(self, step_size: float, pairs: slice) -> np.ndarray:
        place, size = (self._source[pairs], self._slot[pairs]), self.left.shape[1]
        packing, u = Packing(size), self.left[self._source[pairs]]
        blocks = step_size * packing.derivation(u[:, :, None] * self.first[place][:, None, :])
        blocks += self.chain.data[pairs, None, None] * np.eye(packing.entries)
        square = packing.packed(u[:, :, None] * u[:, None, :])
        dual = packing.dual(self.second[place].reshape(-1, size, size))
        blocks += (step_size * step_size) * square[:, :, None] * dual[:, None, :]
        return blocks

    def _pieces(self, each: int) -> list[slice]:
        """Slices of modes to gather at a time, if each pair has `each` numbers."""
        modes, width = self.target.shape
        step = max(1, _CHUNK // (width * each))
        return [slice(begin, min(begin + step, modes)) for begin in range(0, modes, step)]


@dataclass(frozen=True, eq=False)
class DenseMaps:
    """The step maps of a T that depends on the mode alone."""

    begin: np.ndarray
    chain: sparse.csr_array
    initial: np.ndarray
    stationary: np.ndarray
    increments: np.ndarray
    """(G, D, D): ``T = I + alpha * increment``"""

    @cached_property
    def _ways(self) -> tuple[np.ndarray | sparse.csr_array, np.ndarray | sparse.csr_array]:
        return _both_ways(self.chain)

    def _steps(self, step_size: float) -> np.ndarray:
        return np.eye(self.increments.shape[-1]) + step_size * self.increments[:, None]

    def push_left(self, step_size: float, f: np.ndarray) -> np.ndarray:
        return _along_modes(self._ways[0], self._steps(step_size) @ f)

    def push_both(self, step_size: float, f: np.ndarray) -> np.ndarray:
        steps = self._steps(step_size)
        return _along_modes(self._ways[0], steps @ f @ steps.swapaxes(-1, -2))

    def pull_left(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        return _along_modes(self._ways[1], functional) @ self._steps(step_size)[:, 0]

    def pull_both(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        steps = self._steps(step_size)
        return steps.swapaxes(-1, -2) @ _along_modes(self._ways[1], functional) @ steps

    @cached_property
    def _source(self) -> np.ndarray:
        """(pairs,): the mode from which each entry of the chain leads."""
        return np.repeat(np.arange(len(self.increments)), np.diff(self.chain.indptr))

    def left_blocks(self, step_size: float, pairs: slice) -> np.ndarray:
        steps = np.eye(self.increments.shape[-1]) + step_size * self.increments[self._source[pairs]]
        return self.chain.data[pairs, None, None] * steps

    def both_blocks(self, step_size: float, pairs: slice) -> np.ndarray:
        modes, place = np.unique(self._source[pairs], return_inverse=True)
        packing = Packing(self.increments.shape[-1])
        maps = packing.conjugation(np.eye(packing.size) + step_size * self.increments[modes])
        return self.chain.data[pairs, None, None] * maps[place]


@dataclass(frozen=True, eq=False)
class IndependentMaps:
    """The maps of steps that are drawn independently, with one mode for each kind."""

    first: np.ndarray
    """(M, D, D): E[M], where ``T = I + alpha M``"""
    second: np.ndarray
    """(M, D(D+1)/2, D(D+1)/2): ``X -> E[M X M']``, packed"""

    @property
    def begin(self) -> np.ndarray:
        return np.arange(len(self.first) + 1)

    @property
    def chain(self) -> sparse.csr_array:
        return self._identity

    @cached_property
    def _identity(self) -> sparse.csr_array:
        return sparse.csr_array(sparse.eye_array(len(self.first)))

    @property
    def initial(self) -> np.ndarray:
        return np.ones(len(self.first))

    stationary = initial

    @cached_property
    def _packing(self) -> Packing:
        return Packing(self.first.shape[-1])

    def push_left(self, step_size: float, f: np.ndarray) -> np.ndarray:
        return f + step_size * (self.first[:, None] @ f)

    def push_both(self, step_size: float, f: np.ndarray) -> np.ndarray:
        change = self.first[:, None] @ f
        square = self._packing.unpacked(self._packing.packed(f) @ self.second.swapaxes(1, 2))
        return f + step_size * (change + change.swapaxes(-1, -2)) + (step_size * step_size) * square

    def pull_left(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        return functional + step_size * (functional @ self.first)

    def pull_both(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        change = functional @ self.first[:, None]
        square = self._packing.functional(self._packing.dual(functional) @ self.second)
        return (
            functional
            + step_size * (change + change.swapaxes(-1, -2))
            + (step_size * step_size) * square
        )

    def left_blocks(self, step_size: float, pairs: slice) -> np.ndarray:
        return np.eye(self.first.shape[-1]) + step_size * self.first[pairs]

    def both_blocks(self, step_size: float, pairs: slice) -> np.ndarray:
        first = self._packing.derivation(self.first[pairs])
        return (
            np.eye(self._packing.entries)
            + step_size * first
            + (step_size * step_size) * self.second[pairs]
        )


def _both_ways(
    chain: sparse.csr_array,
) -> tuple[np.ndarray | sparse.csr_array, np.ndarray | sparse.csr_array]:
    """The transposed chain, which pushes functions forward, and the chain, which pulls back."""
    if chain.nnz > len(chain.indptr) ** 2 // 4:
        dense = chain.toarray()
        return np.ascontiguousarray(dense.T), dense
    return sparse.csr_array(chain.T), chain


def _along_modes(matrix: np.ndarray | sparse.csr_array, f: np.ndarray) -> np.ndarray:
    return (matrix @ f.reshape(len(f), -1)).reshape(f.shape)
