"""One step of one kind of agent, as it acts on first and second moments.

In centred homogeneous coordinates ``x = (theta - theta*, 1)``, D = d + 1, every window e of a linear algorithm multiplies x
by ``T_e``. What the other modules need of it are four maps. Two push a function f of the mode forward,

    push_left: f'(z') = sum_{e: z->z'} p_e T_e f(z)           push_both: f'(z') = sum_{e: z->z'} p_e T_e f(z) T_e',

and two pull a functional back, ``pull_left: F'(z) = sum_{e: z->z'} p_e F(z') T_e`` and `pull_both` likewise.

Temporal differences (`RankOneMoves`) have ``T_e = I + alpha u h_e'``: u belongs to the mode, and of the h_e between two modes
only the first and second moment matters. A step then costs D^2 for each pair of modes instead of D^3, and D^4 instead of D^5
for a functional. `DenseMoves` takes any T that depends on the mode alone: Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import sparse

from fegsam.algorithms.alg1_stochastic_approximation import LinearSA
from fegsam.exact.windows import Windows
from fegsam.problem.federation import MarkovNoise


class Moves(Protocol):
    """What one kind of agent does in a step; m modes."""

    @property
    def chain(self) -> sparse.csr_array:
        """(m, m)"""
        ...

    @property
    def initial(self) -> np.ndarray:
        """(m,): the law of the mode at time 0"""
        ...

    @property
    def stationary(self) -> np.ndarray:
        """(m,)"""
        ...

    def push_left(self, step_size: float, f: np.ndarray) -> np.ndarray:
        """f is (m, r, D, c) for any r and c."""
        ...

    def push_both(self, step_size: float, f: np.ndarray) -> np.ndarray:
        """f is (m, r, D, D), symmetric in its last two axes."""
        ...

    def pull_left(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        """(m, D, D)"""
        ...

    def pull_both(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        """(m, r, D, D), symmetric likewise: ``sum_z <functional[z], f[z]>`` is what it stands for."""
        ...


class RankOneMoves:
    """Pairs (z, z') of modes, c for each z: where a mode has fewer successors, pairs of weight zero fill the row.

    Parameters
    ----------
    chain : (m, m) csr_array
    initial, stationary : (m,) arrays
    left : (m, D) array
        u of each mode.
    first : (pairs, D) array
        Sum of p_e h_e over the windows of each entry of `chain`.
    second : (pairs, D, D) array
        Sum of p_e h_e h_e'.
    """

    def __init__(
        self,
        chain: sparse.csr_array,
        initial: np.ndarray,
        stationary: np.ndarray,
        left: np.ndarray,
        first: np.ndarray,
        second: np.ndarray,
    ) -> None:
        self.chain, self.initial, self.stationary, self.left = chain, initial, stationary, left
        modes, size = left.shape
        many = np.diff(chain.indptr)
        width = int(many.max())
        source = np.repeat(np.arange(modes), many)
        slot = np.arange(len(source)) - chain.indptr[source]
        self.target = np.zeros((modes, width), np.int64)
        self.target[source, slot] = chain.indices
        self.first = np.zeros((modes, width, size))
        self.first[source, slot] = first
        self.second = np.zeros((modes, width, size * size))
        self.second[source, slot] = second.reshape(len(source), -1)
        self.mixing = chain.toarray() if len(source) > modes * modes // 4 else chain
        self.scatter = None
        if len(source) < modes * modes:
            rows = chain.indices[:, None] * size + np.arange(size)
            columns = np.repeat(source * width + slot, size)
            shape = (modes * size, modes * width)
            self.scatter = sparse.csr_array((left[source].ravel(), (rows.ravel(), columns)), shape=shape)

    def _spread(self, rows: np.ndarray) -> np.ndarray:
        """(m, D, w): the sum over the pairs of u times their row, at the pair's target; rows is (m, c, w)."""
        if self.scatter is None:
            return np.tensordot(self.left, rows, (0, 0)).swapaxes(0, 1)
        modes, size = self.left.shape
        return (self.scatter @ rows.reshape(-1, rows.shape[2])).reshape(modes, size, -1)

    def _mixed(self, f: np.ndarray) -> np.ndarray:
        return (self.mixing.T @ f.reshape(len(f), -1)).reshape(f.shape)

    def push_left(self, step_size: float, f: np.ndarray) -> np.ndarray:
        modes, many, size, columns = f.shape
        flat = f.swapaxes(1, 2).reshape(modes, size, many * columns)
        change = self._spread(self.first @ flat).reshape(modes, size, many, columns)
        return self._mixed(f) + step_size * change.swapaxes(1, 2)

    def push_both(self, step_size: float, f: np.ndarray) -> np.ndarray:
        modes, many, size, _ = f.shape
        rows = self.first @ f.swapaxes(1, 2).reshape(modes, size, many * size)
        squares = self.second @ f.reshape(modes, many, -1).swapaxes(1, 2)
        rows = rows.reshape(*squares.shape, size)
        rows += (0.5 * step_size) * squares[..., None] * self.left[:, None, None]
        change = self._spread(rows.reshape(modes, -1, many * size)).reshape(modes, size, many, size).swapaxes(1, 2)
        return self._mixed(f) + step_size * (change + change.swapaxes(-1, -2))

    def pull_left(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        out = (self.mixing @ functional.reshape(len(functional), -1)).reshape(functional.shape)
        for z, (target, u) in enumerate(zip(self.target, self.left, strict=True)):
            out[z] += step_size * (functional[target] @ u).T @ self.first[z]
        return out

    def pull_both(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        modes, many, size, _ = functional.shape
        out = (self.mixing @ functional.reshape(modes, -1)).reshape(functional.shape)
        for z, (target, u) in enumerate(zip(self.target, self.left, strict=True)):
            along = functional[target] @ u
            squares = along @ u
            change = np.tensordot(along, self.first[z], (0, 0))
            out[z] += step_size * (change + change.swapaxes(1, 2))
            out[z] += (step_size * step_size) * (squares.T @ self.second[z]).reshape(many, size, size)
        return out


@dataclass(frozen=True, eq=False)
class DenseMoves:
    chain: sparse.csr_array
    initial: np.ndarray
    stationary: np.ndarray
    increments: np.ndarray
    """(m, D, D): ``T = I + alpha * increment``"""

    def _steps(self, step_size: float) -> np.ndarray:
        return np.eye(self.increments.shape[-1]) + step_size * self.increments[:, None]

    def _mixed(self, f: np.ndarray) -> np.ndarray:
        return (self.chain.T @ f.reshape(len(f), -1)).reshape(f.shape)

    def _expected(self, f: np.ndarray) -> np.ndarray:
        return (self.chain @ f.reshape(len(f), -1)).reshape(f.shape)

    def push_left(self, step_size: float, f: np.ndarray) -> np.ndarray:
        return self._mixed(self._steps(step_size) @ f)

    def push_both(self, step_size: float, f: np.ndarray) -> np.ndarray:
        steps = self._steps(step_size)
        return self._mixed(steps @ f @ steps.swapaxes(-1, -2))

    def pull_left(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        return self._expected(functional) @ self._steps(step_size)[:, 0]

    def pull_both(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        steps = self._steps(step_size)
        return steps.swapaxes(-1, -2) @ self._expected(functional) @ steps


def rank_one_moves(windows: Windows, fixed_point: np.ndarray, *, iid: bool = False) -> RankOneMoves:
    """The moves of a temporal-difference algorithm; `iid`: each window is drawn afresh from the stationary law."""
    dim = len(fixed_point)
    phi = np.eye(dim) if windows.features is None else windows.features
    rows = np.eye(dim) if windows.rows is None else windows.rows
    h = np.empty((len(windows.source), dim + 1))
    h[:, :dim] = np.einsum("el,eld->ed", windows.coefficients, phi[windows.states])
    h[:, dim] = windows.errors(fixed_point)
    if iid:
        # What comes next hangs on nothing, so a mode is the state that a window begins with.
        size = len(phi)
        law = np.bincount(windows.first_state, weights=windows.stationary, minlength=size)
        share = windows.stationary[windows.source] * windows.probability / law[windows.states[:, 0]]
        source, target = np.repeat(np.arange(size), size), np.tile(np.arange(size), size)
        first, second = _moments(windows.states[:, 0], share, h, size)
        first, second = first[source] * law[target, None], second[source] * law[target, None, None]
        chain = sparse.csr_array(np.tile(law, (size, 1)))
        left, initial, stationary = rows, law, law
    else:
        size = windows.num_modes
        keys, pair_of = np.unique(windows.source * size + windows.target, return_inverse=True)
        first, second = _moments(pair_of, windows.probability, h, len(keys))
        start = np.searchsorted(keys // size, np.arange(size + 1))
        chain = sparse.csr_array((np.bincount(pair_of, weights=windows.probability), keys % size, start), shape=(size, size))
        left, initial, stationary = rows[windows.first_state], windows.initial, windows.stationary
    return RankOneMoves(chain, initial, stationary, np.column_stack([left, np.zeros(len(left))]), first, second)


def _moments(group: np.ndarray, weight: np.ndarray, h: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """(groups, D) and (groups, D, D): weighted sums of h and h h' over each group."""
    gather = sparse.csr_array((weight, (group, np.arange(len(h)))), shape=(groups, len(h)))
    size = h.shape[1]
    second = np.empty((groups, size, size))
    for i in range(size):
        second[:, i] = gather @ (h[:, i, None] * h)
    return gather @ h, second


def dense_moves(
    problem: MarkovNoise, algorithm: LinearSA, kind: int, law: np.ndarray, fixed_point: np.ndarray, *, iid: bool = False
) -> DenseMoves:
    """The moves of Algorithm 1 in its linear form."""
    matrices, offsets = (table[kind % len(table)] for table in (algorithm.matrices, algorithm.offsets))
    states, dim = offsets.shape
    increments = np.zeros((states, dim + 1, dim + 1))
    increments[:, :dim, :dim] = matrices
    increments[:, :dim, dim] = matrices @ fixed_point + offsets
    if iid:
        return DenseMoves(sparse.csr_array(np.tile(law, (states, 1))), law, law, increments)
    return DenseMoves(problem.kernels[kind % len(problem.kernels)], problem.initial_distribution, law, increments)
