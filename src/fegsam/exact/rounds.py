"""One round, the K steps between two synchronisations, as it acts on first and second moments.

If the chain of a kind is small, its K steps are one dense matrix; otherwise they are taken one by
one (see `step_maps`). `Costs` decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fegsam.exact.packing import Packing
from fegsam.exact.step_maps import StepMaps

_DENSE_LIMIT = 2400
"""Up to this size the K steps of one kind may be a dense matrix."""
_MOST_ENTRIES = 1 << 25
"""The dense matrices of all kinds together have at most this many entries."""
_DENSE = 1e-10
"""Seconds per multiplication in a product of dense matrices."""
_SPARSE = 2e-9
"""Seconds per multiplication in a step, which is sparse."""
_STEP = 4e-5
"""The fixed cost of a step, in seconds."""
_ROUNDS = 60
"""The cost of a dense matrix is assumed to be shared by this many rounds."""
_KEPT_BYTES = 1 << 28
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Costs:
    """Estimates how long a round of K steps takes, by dense matrices or step by step.

    `inner` is the number of unknowns for each mode: 1 for the modes alone, D for ``T f``, D(D+1)/2
    for ``T f T'``.
    """

    modes: tuple[int, ...]
    """the number of modes of each kind"""
    pairs: int
    """the number of entries of the chain"""
    size: int
    """D"""
    length: int
    """K"""
    others: float
    """the factor by which the modes of the other agents in a set multiply the number of columns"""

    @property
    def entries(self) -> int:
        return self.size * (self.size + 1) // 2

    def _columns(self, inner: int) -> float:
        return self.others * {1: self.size**2, self.size: self.size}.get(inner, 1)

    def _by_steps(self, inner: int) -> float:
        return self.length * (_STEP + _SPARSE * self.pairs * inner * self._columns(inner))

    def _by_matrices(self, inner: int) -> float:
        if (
            max(self.modes) * inner > _DENSE_LIMIT
            or sum((each * inner) ** 2 for each in self.modes) > _MOST_ENTRIES
        ):
            return math.inf
        powers = math.log2(self.length) + 1
        return _DENSE * sum(
            powers * float(each * inner) ** 3 / _ROUNDS
            + self._columns(inner) * float(each * inner) ** 2
            for each in self.modes
        )

    def reading(self, steps: int) -> float:
        """Seconds to compute the functionals that read the moments after each of `steps` steps."""
        return steps * (2 * _STEP + _SPARSE * self.pairs * (self.size + self.size**2))

    def is_dense(self, inner: int) -> bool:
        """Whether dense matrices are faster than single steps."""
        return self._by_matrices(inner) <= self._by_steps(inner)

    def seconds(self, inner: int) -> float:
        return min(self._by_matrices(inner), self._by_steps(inner))


class AgentRound(Protocol):
    """One agent's round as it acts on first and second moments of x (D,)."""

    @property
    def maps(self) -> StepMaps: ...

    @property
    def length(self) -> int: ...

    @property
    def packing(self) -> Packing: ...

    def mix(self, f: np.ndarray) -> np.ndarray:
        """Move the modes of f (G, ...) by a round."""
        ...

    def left(self, f: np.ndarray) -> np.ndarray:
        """``T f`` for f (G, r, D, c)."""
        ...

    def both(self, f: np.ndarray) -> np.ndarray:
        """``T f T'`` for f (G, r, D, D), symmetric."""
        ...

    def left_mean(self, steps: int) -> np.ndarray:
        """(G, D, D): E[T | first mode], where T is the product of `steps` steps."""
        ...

    def both_mean(self, before: np.ndarray) -> np.ndarray:
        """(M, D(D+1)/2, D(D+1)/2): ``X -> E[T X T']`` for each kind, packed.

        The distribution of the first mode is `before` (G,).
        """
        ...


class PathRound(AgentRound, Protocol):
    """A round that is also read within, and knows all expectations given the first mode."""

    def trace_mean(self, steps: int) -> np.ndarray:
        """(G, D, D): the functional for E||T x||^2, over the parameters alone."""
        ...

    def both_means(self) -> np.ndarray:
        """(G, D(D+1)/2, D(D+1)/2): as in `both_mean`, given the first mode."""
        ...


class StepMeans:
    """The maps of a step, and expectations over any number of steps.

    Rounds of every order share them. The first `dimension` coordinates are the parameters, by
    default all but the last.
    """

    def __init__(
        self, maps: StepMaps, step_size: float, size: int, dimension: int | None = None
    ) -> None:
        self.maps, self.step_size, self.size = maps, step_size, size
        modes = len(maps.initial)
        self.dimension = size - 1 if dimension is None else dimension
        trace = np.diag((np.arange(size) < self.dimension).astype(float))
        self.left = _Pulled(maps.pull_left, np.tile(np.eye(size), (modes, 1, 1)), step_size)
        self.trace = _Pulled(maps.pull_both, np.tile(trace, (modes, 1, 1, 1)), step_size)


class RoundMaps:
    """The linear maps of K steps of the agents of every kind."""

    def __init__(self, steps: StepMeans, length: int, order: int) -> None:
        self.steps, self.maps, self.step_size, self.length, self.size = (
            steps,
            steps.maps,
            steps.step_size,
            length,
            steps.size,
        )
        self.modes = len(self.maps.initial)
        self.packing = Packing(self.size)
        self.costs = round_costs(self.maps, self.size, length, order)

    def mix(self, f: np.ndarray) -> np.ndarray:
        """Move the modes of f (G, ...) by K steps of the chain."""
        if self._power is not None:
            return _apply(self._power, f.reshape(self.modes, 1, -1)).reshape(f.shape)
        flat = f.reshape(self.modes, -1)
        for _ in range(self.length):
            flat = self.maps.chain.T @ flat
        return flat.reshape(f.shape)

    def left(self, f: np.ndarray) -> np.ndarray:
        """``T f`` for f (G, r, D, D)."""
        if self._left_power is None:
            for _ in range(self.length):
                f = self.maps.push_left(self.step_size, f)
            return f
        columns = f.swapaxes(1, 2).reshape(self.modes, self.size, -1)
        moved = _apply(self._left_power, columns)
        return moved.reshape(self.modes, self.size, f.shape[1], -1).swapaxes(1, 2)

    def both(self, f: np.ndarray) -> np.ndarray:
        """``T f T'`` for f (G, r, D, D), symmetric."""
        if self._both_power is None:
            for _ in range(self.length):
                f = self.maps.push_both(self.step_size, f)
            return f
        return self.packing.unpacked(
            _apply(self._both_power, self.packing.packed(f).swapaxes(1, 2)).swapaxes(1, 2)
        )

    def left_mean(self, steps: int) -> np.ndarray:
        """(G, D, D): E[T | first mode], where T is the product of `steps` steps."""
        if (
            steps == self.length
            and not self.steps.left.knows(steps)
            and self._left_power is not None
        ):
            return self._left_sums
        return self.steps.left.after(steps)

    def trace_mean(self, steps: int) -> np.ndarray:
        """(G, D, D): the functional for E||T x||^2, without the constant coordinate of x."""
        return self.steps.trace.after(steps)[:, 0]

    @cached_property
    def _left_sums(self) -> np.ndarray:
        assert self._left_power is not None
        sums = np.empty((self.modes, self.size, self.size))
        for places, matrices in self._left_power:
            kinds, modes = places.shape
            summed = matrices.reshape(kinds, modes, self.size, modes, self.size).sum(axis=1)
            sums[places] = summed.swapaxes(1, 2)
        return sums

    def both_mean(self, before: np.ndarray) -> np.ndarray:
        """(M, D(D+1)/2, D(D+1)/2): ``X -> E[T X T']`` for each kind, packed.

        The distribution of the first mode is `before` (G,).
        """
        weighted = before[:, None, None] * self._both_means
        return np.add.reduceat(weighted, self.maps.begin[:-1], axis=0)

    def both_means(self) -> np.ndarray:
        """(G, D(D+1)/2, D(D+1)/2): as in `both_mean`, given the first mode."""
        return self._both_means

    @cached_property
    def _both_means(self) -> np.ndarray:
        entries = self.packing.entries
        means = np.empty((self.modes, entries, entries))
        if self._both_power is not None:
            for places, matrices in self._both_power:
                kinds, modes = places.shape
                means[places] = (
                    matrices.reshape(kinds, modes, entries, modes, entries)
                    .sum(axis=1)
                    .swapaxes(1, 2)
                )
            return means
        basis = self.packing.functional(np.eye(entries))
        step = max(1, _CHUNK // (self.modes * self.size**2))
        for begin in range(0, entries, step):
            functional = np.tile(basis[begin : begin + step], (self.modes, 1, 1, 1))
            for _ in range(self.length):
                functional = self.maps.pull_both(self.step_size, functional)
            means[:, begin : begin + step] = self.packing.dual(functional)
        return means

    @cached_property
    def _power(self) -> _Blocks | None:
        return self._round_power(1, lambda pairs: self.maps.chain.data[pairs, None, None])

    @cached_property
    def _left_power(self) -> _Blocks | None:
        return self._round_power(
            self.size, lambda pairs: self.maps.left_blocks(self.step_size, pairs)
        )

    @cached_property
    def _both_power(self) -> _Blocks | None:
        blocks = self.maps.both_blocks
        return self._round_power(self.packing.entries, lambda pairs: blocks(self.step_size, pairs))

    def _round_power(self, inner: int, blocks: Callable[[slice], np.ndarray]) -> _Blocks | None:
        """The K-th power of a step, given by `blocks`; None if single steps are faster.

        ``blocks(pairs)`` are the step's matrices between these pairs of modes.
        """
        if not self.costs.is_dense(inner):
            return None
        chain, begin = self.maps.chain, self.maps.begin
        raised = []
        for places in _modes_by_count(begin):
            kinds, modes = places.shape
            matrices = np.zeros((kinds, modes, inner, modes, inner))
            for matrix, own in zip(matrices, places, strict=True):
                pairs = slice(int(chain.indptr[own[0]]), int(chain.indptr[own[-1] + 1]))
                source = np.repeat(np.arange(modes), np.diff(chain.indptr[own[0] : own[-1] + 2]))
                matrix[chain.indices[pairs] - own[0], :, source, :] = blocks(pairs)
            whole = matrices.reshape(kinds, modes * inner, modes * inner)
            raised.append((places, np.linalg.matrix_power(whole, self.length)))
        return raised


_Blocks = list[tuple[np.ndarray, np.ndarray]]
"""For each number m of modes, the kinds that have m: their modes, (kinds, m), and their matrices,
(kinds, m * inner, m * inner)."""


def round_costs(maps: StepMaps, size: int, length: int, order: int) -> Costs:
    """The costs of a round for sets of up to `order` agents."""
    others = float(len(maps.initial)) ** max(order - 1, 0)
    return Costs(tuple(np.diff(maps.begin).tolist()), maps.chain.nnz, size, length, others)


def _modes_by_count(begin: np.ndarray) -> list[np.ndarray]:
    """For each number m of modes: (kinds, m), the modes of the kinds that have m."""
    many = np.diff(begin)
    return [begin[:-1][many == m][:, None] + np.arange(m) for m in np.unique(many)]


def _apply(blocks: _Blocks, columns: np.ndarray) -> np.ndarray:
    """Multiply each kind's matrix by its rows of `columns` (G, inner, c)."""
    out = np.empty_like(columns)
    for places, matrices in blocks:
        kinds, modes = places.shape
        if kinds * modes == len(columns):
            return (matrices @ columns.reshape(kinds, matrices.shape[1], -1)).reshape(columns.shape)
        moved = matrices @ columns[places].reshape(kinds, matrices.shape[1], -1)
        out[places] = moved.reshape(kinds, modes, *columns.shape[1:])
    return out


class _Pulled:
    """A functional, pulled back by any number of steps; results are cached while they fit."""

    def __init__(
        self, pull: Callable[..., np.ndarray], start: np.ndarray, step_size: float
    ) -> None:
        self._pull, self._step_size = pull, step_size
        self._known = [start]
        self._most = max(2, _KEPT_BYTES // start.nbytes)
        self._beyond = (0, start)

    def knows(self, steps: int) -> bool:
        return steps < len(self._known)

    def after(self, steps: int) -> np.ndarray:
        while len(self._known) <= min(steps, self._most - 1):
            self._known.append(self._pull(self._step_size, self._known[-1]))
        if steps < len(self._known):
            return self._known[steps]
        place, found = self._beyond
        if not len(self._known) <= place <= steps:
            place, found = len(self._known) - 1, self._known[-1]
        for _ in range(place, steps):
            found = self._pull(self._step_size, found)
        self._beyond = (steps, found)
        return found
