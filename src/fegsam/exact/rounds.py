"""K steps of one kind of agent, between two synchronisations, as they act on first and second moments (see `sweeps`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from fegsam.exact.sweeps import Moves

_DENSE_LIMIT = 2400
"""Up to this size the steps of a kernel are kept as one dense matrix."""
PACKED_LIMIT = 600
"""And up to this size those of the second moments, for rounds of some length."""
PACKED_LENGTH = 8


class Round:
    """K steps of one kind of agent."""

    def __init__(self, moves: Moves, step_size: float, length: int, size: int) -> None:
        self.moves, self.step_size, self.length, self.size = moves, step_size, length, size
        self.modes = len(moves.initial)
        self.pack = np.triu_indices(size)
        self._left_means = {0: np.tile(np.eye(size), (self.modes, 1, 1))}
        trace = np.diag(np.append(np.ones(size - 1), 0.0))
        self._trace_means = {0: np.tile(trace, (self.modes, 1, 1, 1))}

    def mix(self, f: np.ndarray) -> np.ndarray:
        """The modes move; f is (m, ...)."""
        flat = f.reshape(self.modes, -1)
        if self._power is not None:
            return (self._power.T @ flat).reshape(f.shape)
        for _ in range(self.length):
            flat = self.moves.chain.T @ flat
        return flat.reshape(f.shape)

    def left(self, f: np.ndarray) -> np.ndarray:
        """``T f``; f is (m, r, D, D)."""
        if self._left_power is not None:
            columns = f.swapaxes(1, 2).reshape(self.modes * self.size, -1)
            moved = self._left_power @ columns
            return moved.reshape(self.modes, self.size, f.shape[1], self.size).swapaxes(1, 2)
        for _ in range(self.length):
            f = self.moves.push_left(self.step_size, f)
        return f

    def both(self, f: np.ndarray) -> np.ndarray:
        """``T f T'``; f is (m, r, D, D), symmetric."""
        if self._both_power is not None:
            columns = f[..., self.pack[0], self.pack[1]].swapaxes(1, 2).reshape(len(self._both_power), -1)
            moved = (self._both_power @ columns).reshape(self.modes, -1, f.shape[1])
            return self.unpacked(moved.swapaxes(1, 2))
        for _ in range(self.length):
            f = self.moves.push_both(self.step_size, f)
        return f

    def left_mean(self, steps: int) -> np.ndarray:
        """(m, D, D): E[T | first mode], T the product of so many steps."""
        if steps == self.length and steps not in self._left_means and self._left_power is not None:
            summed = self._left_power.reshape(self.modes, self.size, self.modes, self.size).sum(axis=0)
            self._left_means[steps] = summed.swapaxes(0, 1)
        return self._pulled(self._left_means, steps, self.moves.pull_left)

    def trace_mean(self, steps: int) -> np.ndarray:
        """(m, D, D): the functional that yields the expected squared length of ``T x``, without the constant."""
        return self._pulled(self._trace_means, steps, self.moves.pull_both)[:, 0]

    def _pulled(self, known: dict[int, np.ndarray], steps: int, pull: Callable[..., np.ndarray]) -> np.ndarray:
        nearest = max(k for k in known if k <= steps)
        found = known[nearest]
        for _ in range(nearest, steps):
            found = pull(self.step_size, found)
        known[steps] = found
        return found

    @cached_property
    def both_mean(self) -> np.ndarray:
        """(m, D(D+1)/2, D, D): E[T x x' T' | first mode], one functional for each entry of the upper triangle."""
        if self._both_power is not None:
            entries = len(self.pack[0])
            summed = self._both_power.reshape(self.modes, entries, self.modes, entries).sum(axis=0)
            # An entry off the diagonal stands for two of the symmetric matrix that the functional meets.
            halved = summed * np.where(self.pack[0] == self.pack[1], 1.0, 0.5)
            return self.unpacked(halved.swapaxes(0, 1))
        rows, columns = self.pack
        unit = np.zeros((len(rows), self.size, self.size))
        unit[np.arange(len(rows)), rows, columns] += 0.5
        unit[np.arange(len(rows)), columns, rows] += 0.5
        functional = np.tile(unit, (self.modes, 1, 1, 1))
        for _ in range(self.length):
            functional = self.moves.pull_both(self.step_size, functional)
        return functional

    def unpacked(self, upper: np.ndarray) -> np.ndarray:
        """(..., D, D), symmetric, from (..., D(D+1)/2)."""
        full = np.empty((*upper.shape[:-1], self.size, self.size))
        full[..., self.pack[0], self.pack[1]] = upper
        full[..., self.pack[1], self.pack[0]] = upper
        return full

    @cached_property
    def _power(self) -> np.ndarray | None:
        """(m, m)"""
        if self.modes > _DENSE_LIMIT:
            return None
        return np.linalg.matrix_power(self.moves.chain.toarray(), self.length)

    @cached_property
    def _left_power(self) -> np.ndarray | None:
        """(mD, mD)"""
        whole = self.modes * self.size
        if whole > _DENSE_LIMIT:
            return None
        unit = np.eye(whole).reshape(self.modes, 1, self.size, whole)
        step = self.moves.push_left(self.step_size, unit).reshape(whole, whole)
        return np.linalg.matrix_power(step, self.length)

    @cached_property
    def _both_power(self) -> np.ndarray | None:
        """(mD(D+1)/2, mD(D+1)/2), for long rounds of small problems"""
        upper = len(self.pack[0])
        whole = self.modes * upper
        if whole > PACKED_LIMIT or self.length < PACKED_LENGTH:
            return None
        unit = self.unpacked(np.eye(whole).reshape(self.modes, upper, whole).swapaxes(1, 2))
        moved = self.moves.push_both(self.step_size, unit)[..., self.pack[0], self.pack[1]]
        return np.linalg.matrix_power(moved.swapaxes(1, 2).reshape(whole, whole), self.length)
