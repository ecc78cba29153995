"""The local steps of an agent under a method, with all that they carry along.

An agent's own state in a round is ``u = (theta - theta*, c, s, 1)``. Its correction c is constant
in a round, and s is the sum of its own parameters over some of the round's times. Both are there
only if the method needs them. A step is that of the algorithm, followed by a map that is not
random: theta moves by ``alpha c``, and s by theta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from fegsam.exact.packing import Packing
from fegsam.exact.rounds import PathRound
from fegsam.exact.step_maps import DenseMaps, IndependentMaps, RankOneMaps, StepMaps
from fegsam.exact.transition_maps import TransitionMaps

_CHUNK = 1 << 22
_MOST_DENSE = 300
"""Up to this many modes, their steps of a round are one matrix."""


@dataclass(frozen=True)
class LocalState:
    """Where the parts of u are."""

    dimension: int
    corrected: bool
    summed: bool

    @property
    def size(self) -> int:
        return (1 + self.corrected + self.summed) * self.dimension + 1

    @property
    def correction(self) -> slice:
        return slice(self.dimension, 2 * self.dimension)

    @property
    def total(self) -> slice:
        return slice(self.size - 1 - self.dimension, self.size - 1)

    @property
    def params(self) -> np.ndarray:
        """(d, size): reads theta - theta*."""
        return np.eye(self.dimension, self.size)

    def after_step(self, step_size: float, counted: bool) -> np.ndarray:
        """(size, size): what follows a step of the algorithm; s grows if the time is `counted`."""
        moved, added = np.eye(self.size), np.eye(self.size)
        if self.corrected:
            moved[: self.dimension, self.correction] = step_size * np.eye(self.dimension)
        if self.summed and counted:
            added[self.total, : self.dimension] = np.eye(self.dimension)
        return added @ moved


class LocalMaps:
    """The maps of a local step, for the state u."""

    def __init__(self, maps: StepMaps, state: LocalState, counted: bool = False) -> None:
        self._inner, self._state, self._counted = _widened(maps, state), state, counted
        self._packing = Packing(state.size)
        self.begin, self.chain = maps.begin, maps.chain
        self.initial, self.stationary = maps.initial, maps.stationary

    def _after(self, step_size: float) -> np.ndarray:
        return self._state.after_step(step_size, self._counted)

    def push_left(self, step_size: float, f: np.ndarray) -> np.ndarray:
        return self._after(step_size) @ self._inner.push_left(step_size, f)

    def push_both(self, step_size: float, f: np.ndarray) -> np.ndarray:
        after = self._after(step_size)
        return after @ self._inner.push_both(step_size, f) @ after.T

    def pull_left(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        return self._inner.pull_left(step_size, functional @ self._after(step_size))

    def pull_both(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        after = self._after(step_size)
        return self._inner.pull_both(step_size, after.T @ functional @ after)

    def left_blocks(self, step_size: float, pairs: slice) -> np.ndarray:
        return self._after(step_size) @ self._inner.left_blocks(step_size, pairs)

    def both_blocks(self, step_size: float, pairs: slice) -> np.ndarray:
        conjugation = self._packing.conjugation(self._after(step_size))
        return conjugation @ self._inner.both_blocks(step_size, pairs)


def _widened(maps: StepMaps, state: LocalState) -> StepMaps:
    """The same steps of theta, for vectors u; all else in u stands still."""
    if isinstance(maps, RankOneMaps):
        return maps.widened(_wide, state.size)
    if isinstance(maps, DenseMaps):
        increments = _wide(_wide(maps.increments, state.size, -1), state.size, -2)
        return DenseMaps(maps.begin, maps.chain, maps.initial, maps.stationary, increments)
    if isinstance(maps, TransitionMaps):
        wide = _wide_sums(maps.first, maps.second, state.size)
        return TransitionMaps(maps.begin, maps.chain, maps.initial, maps.stationary, *wide)
    assert isinstance(maps, IndependentMaps)
    return IndependentMaps(*_wide_sums(maps.first, maps.second, state.size))


def _wide_sums(first: np.ndarray, second: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The sums of M, and of X -> M X M' on packed matrices, for vectors of `size` entries."""
    small, large = Packing(first.shape[-1]), Packing(size)
    places = np.append(np.arange(small.size - 1), size - 1)
    basis = large.unpacked(np.eye(large.entries))[:, places[:, None], places]
    images = small.unpacked(small.packed(basis) @ second.swapaxes(1, 2))
    wide = _wide(_wide(images, size, -1), size, -2)
    return _wide(_wide(first, size, -1), size, -2), large.packed(wide).swapaxes(1, 2)


def _wide(values: np.ndarray, size: int, axis: int) -> np.ndarray:
    """Zeros before the last entry along an axis, so that it has `size` entries."""
    shape = list(values.shape)
    shape[axis] = size - shape[axis]
    head, tail = np.split(values, [values.shape[axis] - 1], axis)
    return np.concatenate([head, np.zeros(shape), tail], axis)


class VaryingRound:
    """A round whose steps differ: one map of a step and one step size for each.

    It offers what `RoundMaps` does for equal steps, and takes the steps one by one.
    """

    def __init__(
        self, maps: StepMaps, steps: Sequence[tuple[StepMaps, float]], size: int, dimension: int
    ) -> None:
        self.maps, self._steps, self._dimension = maps, list(steps), dimension
        self.length, self.packing = len(self._steps), Packing(size)
        self.modes = len(maps.initial)
        self._left_means: dict[int, np.ndarray] = {}

    @cached_property
    def _chain(self) -> np.ndarray | sparse.csr_array:
        """The transposed chain, of the whole round if it is small."""
        if self.modes <= _MOST_DENSE:
            return np.linalg.matrix_power(self.maps.chain.toarray().T, self.length)
        return sparse.csr_array(self.maps.chain.T)

    def mix(self, f: np.ndarray) -> np.ndarray:
        flat = f.reshape(self.modes, -1)
        for _ in range(1 if self.modes <= _MOST_DENSE else self.length):
            flat = self._chain @ flat
        return flat.reshape(f.shape)

    def left(self, f: np.ndarray) -> np.ndarray:
        for maps, step_size in self._steps:
            f = maps.push_left(step_size, f)
        return f

    def both(self, f: np.ndarray) -> np.ndarray:
        for maps, step_size in self._steps:
            f = maps.push_both(step_size, f)
        return f

    def left_mean(self, steps: int) -> np.ndarray:
        if steps not in self._left_means:
            functional = np.tile(np.eye(self.packing.size), (self.modes, 1, 1))
            for maps, step_size in reversed(self._steps[:steps]):
                functional = maps.pull_left(step_size, functional)
            self._left_means[steps] = functional
        return self._left_means[steps]

    def trace_mean(self, steps: int) -> np.ndarray:
        trace = np.diag((np.arange(self.packing.size) < self._dimension).astype(float))
        functional = np.tile(trace, (self.modes, 1, 1, 1))
        return self._pulled(functional, steps)[:, 0]

    def _pulled(self, functional: np.ndarray, steps: int) -> np.ndarray:
        for maps, step_size in reversed(self._steps[:steps]):
            functional = maps.pull_both(step_size, functional)
        return functional

    def both_mean(self, before: np.ndarray) -> np.ndarray:
        weighted = before[:, None, None] * self._both_means
        return np.add.reduceat(weighted, self.maps.begin[:-1], axis=0)

    def both_means(self) -> np.ndarray:
        return self._both_means

    @cached_property
    def _both_means(self) -> np.ndarray:
        entries, size = self.packing.entries, self.packing.size
        basis, means = self.packing.functional(np.eye(entries)), []
        step = max(1, _CHUNK // (self.modes * size**2))
        for begin in range(0, entries, step):
            functional = np.tile(basis[begin : begin + step], (self.modes, 1, 1, 1))
            means.append(self.packing.dual(self._pulled(functional, self.length)))
        return np.concatenate(means, axis=1)


class UnequalRound:
    """A round in which the agents of each kind make a number of steps of their own, then wait.

    `rounds` holds a round for each number of steps, and `steps` (M,) the number of each kind.
    """

    def __init__(self, rounds: dict[int, PathRound], steps: np.ndarray, length: int) -> None:
        self._rounds, self._steps, self.length = rounds, steps, length
        some = next(iter(rounds.values()))
        self.maps, self.packing = some.maps, some.packing
        self._of_mode = np.repeat(steps, np.diff(self.maps.begin))

    def _chosen(self, name: str, *arguments: np.ndarray) -> np.ndarray:
        """For each mode, what the round of its kind gives."""
        found = [getattr(each, name)(*arguments) for each in self._rounds.values()]
        return self._by_mode(found, self._of_mode)

    def _by_mode(self, found: list[np.ndarray], of_mode: np.ndarray) -> np.ndarray:
        out = np.empty_like(found[0])
        for steps, values in zip(self._rounds, found, strict=True):
            out[of_mode == steps] = values[of_mode == steps]
        return out

    def mix(self, f: np.ndarray) -> np.ndarray:
        return self._chosen("mix", f)

    def left(self, f: np.ndarray) -> np.ndarray:
        return self._chosen("left", f)

    def both(self, f: np.ndarray) -> np.ndarray:
        return self._chosen("both", f)

    def left_mean(self, steps: int) -> np.ndarray:
        found = [each.left_mean(min(steps, own)) for own, each in self._rounds.items()]
        return self._by_mode(found, self._of_mode)

    def trace_mean(self, steps: int) -> np.ndarray:
        found = [each.trace_mean(min(steps, own)) for own, each in self._rounds.items()]
        return self._by_mode(found, self._of_mode)

    def both_mean(self, before: np.ndarray) -> np.ndarray:
        found = [each.both_mean(before) for each in self._rounds.values()]
        return self._by_mode(found, self._steps)

    def both_means(self) -> np.ndarray:
        return self._by_mode([each.both_means() for each in self._rounds.values()], self._of_mode)


class LazyRound:
    """A round that an agent makes with some probability, by a coin of its own; else it waits."""

    def __init__(self, path: PathRound, probability: float) -> None:
        self._path, self._chance = path, probability
        self.maps, self.length, self.packing = path.maps, path.length, path.packing

    def _or_still(self, moved: np.ndarray, still: np.ndarray) -> np.ndarray:
        return self._chance * moved + (1.0 - self._chance) * still

    def mix(self, f: np.ndarray) -> np.ndarray:
        return self._or_still(self._path.mix(f), f)

    def left(self, f: np.ndarray) -> np.ndarray:
        return self._or_still(self._path.left(f), f)

    def both(self, f: np.ndarray) -> np.ndarray:
        return self._or_still(self._path.both(f), f)

    def left_mean(self, steps: int) -> np.ndarray:
        return self._or_still(self._path.left_mean(steps), np.eye(self.packing.size))

    def trace_mean(self, steps: int) -> np.ndarray:
        return self._or_still(self._path.trace_mean(steps), self._path.trace_mean(0))

    def both_mean(self, before: np.ndarray) -> np.ndarray:
        return self._or_still(self._path.both_mean(before), np.eye(self.packing.entries))

    def both_means(self) -> np.ndarray:
        return self._or_still(self._path.both_means(), np.eye(self.packing.entries))
