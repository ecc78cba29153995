"""The step maps of an algorithm that is linear on each transition; see `step_maps`.

The modes are the states. Between two of them there may be several transitions e, one for each
action, with ``T_e = I + alpha M_e``, so that a step needs two sums over them: ``sum p_e M_e``, and
``X -> sum p_e M_e X M_e'`` on packed symmetric matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from fegsam.errors import ProblemError
from fegsam.exact.algorithm_steps import linear_increments
from fegsam.exact.packing import Packing
from fegsam.exact.step_maps import IndependentMaps
from fegsam.exact.transitions import Transitions
from fegsam.exact.windows import MOST_BYTES

_AT_ONCE = 1 << 22
"""The most entries of packed maps that are made at a time."""


@dataclass(frozen=True, eq=False)
class TransitionMaps:
    """The maps of T that depend on the transition."""

    begin: np.ndarray
    chain: sparse.csr_array
    initial: np.ndarray
    stationary: np.ndarray
    first: np.ndarray
    """(pairs, D, D): the sum of p_e M_e over the transitions of each entry of `chain`"""
    second: np.ndarray
    """(pairs, D(D+1)/2, D(D+1)/2): ``X -> sum p_e M_e X M_e'``, packed"""

    @cached_property
    def _packing(self) -> Packing:
        return Packing(self.first.shape[-1])

    @cached_property
    def _forward(self) -> tuple[sparse.csr_array, sparse.csr_array, sparse.csr_array]:
        """The chain, `first` and `second`, each transposed in the modes, so that they push."""
        source = np.repeat(np.arange(len(self.initial)), np.diff(self.chain.indptr))
        return (
            sparse.csr_array(self.chain.T),
            _block_matrix(self.first, self.chain.indices, source, len(self.initial)),
            _block_matrix(self.second, self.chain.indices, source, len(self.initial)),
        )

    @cached_property
    def _backward(self) -> tuple[sparse.csr_array, sparse.csr_array, sparse.csr_array]:
        chain, first, second = (sparse.csr_array(matrix.T) for matrix in self._forward)
        return chain, first, second

    def push_left(self, step_size: float, f: np.ndarray) -> np.ndarray:
        chain, first, _ = self._forward
        return _times(chain, f) + step_size * _on_rows(first, f)

    def push_both(self, step_size: float, f: np.ndarray) -> np.ndarray:
        chain, first, second = self._forward
        change = _on_rows(first, f)
        square = _on_rows(second, self._packing.packed(f)[..., None])[..., 0]
        return (
            _times(chain, f)
            + step_size * (change + change.swapaxes(-1, -2))
            + (step_size * step_size) * self._packing.unpacked(square)
        )

    def pull_left(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        chain, first, _ = self._backward
        rows = functional.swapaxes(1, 2)[:, None]
        change = _on_rows(first, rows)[:, 0].swapaxes(1, 2)
        return _times(chain, functional) + step_size * change

    def pull_both(self, step_size: float, functional: np.ndarray) -> np.ndarray:
        chain, first, second = self._backward
        change = _on_rows(first, functional)
        square = _on_rows(second, self._packing.dual(functional)[..., None])[..., 0]
        return (
            _times(chain, functional)
            + step_size * (change + change.swapaxes(-1, -2))
            + (step_size * step_size) * self._packing.functional(square)
        )

    def left_blocks(self, step_size: float, pairs: slice) -> np.ndarray:
        still = self.chain.data[pairs, None, None] * np.eye(self._packing.size)
        return still + step_size * self.first[pairs]

    def both_blocks(self, step_size: float, pairs: slice) -> np.ndarray:
        still = self.chain.data[pairs, None, None] * np.eye(self._packing.entries)
        change = self._packing.derivation(self.first[pairs])
        return still + step_size * change + (step_size * step_size) * self.second[pairs]


def transition_maps(kinds: list[Transitions], fixed_point: np.ndarray) -> TransitionMaps:
    """The step maps of agents that follow their chains."""
    _check_memory(sum(each.chain.nnz for each in kinds), len(fixed_point) + 1)
    parts = [_pair_sums(each, fixed_point) for each in kinds]
    chains = [each.chain for each in kinds]
    return TransitionMaps(
        begin=np.concatenate([[0], np.cumsum([len(each.stationary) for each in kinds])]),
        chain=sparse.csr_array(sparse.block_diag(chains, format="csr")),
        initial=np.concatenate([each.initial for each in kinds]),
        stationary=np.concatenate([each.stationary for each in kinds]),
        first=np.concatenate([first for first, _ in parts]),
        second=np.concatenate([second for _, second in parts]),
    )


def independent_transition_maps(
    kinds: list[Transitions], fixed_point: np.ndarray
) -> IndependentMaps:
    """The step maps of agents whose transitions are drawn independently."""
    _check_memory(len(kinds), len(fixed_point) + 1)
    sums = [
        _sums(each, np.zeros(len(each.state), np.int64), 1, each.frequency, fixed_point)
        for each in kinds
    ]
    return IndependentMaps(
        np.concatenate([first for first, _ in sums]), np.concatenate([second for _, second in sums])
    )


def _pair_sums(transitions: Transitions, fixed_point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sums over the transitions of each entry of the chain, in its order."""
    size = len(transitions.stationary)
    chain = transitions.chain
    keys = np.repeat(np.arange(size), np.diff(chain.indptr)) * size + chain.indices
    pair_of = np.searchsorted(keys, transitions.state * size + transitions.next)
    return _sums(transitions, pair_of, chain.nnz, transitions.probability, fixed_point)


def _sums(
    transitions: Transitions,
    group_of: np.ndarray,
    groups: int,
    weights: np.ndarray,
    fixed_point: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(groups, D, D) and (groups, D(D+1)/2, D(D+1)/2): weighted sums of M, and of X -> M X M'."""
    packing = Packing(len(fixed_point) + 1)
    many = len(group_of)
    gather = sparse.csc_array((weights, (group_of, np.arange(many))), shape=(groups, many))
    increments = linear_increments(*transitions.terms, fixed_point)
    first = gather @ increments.reshape(many, -1)
    second = np.zeros((groups, packing.entries**2))
    step = max(1, _AT_ONCE // packing.entries**2)
    for begin in range(0, many, step):
        some = slice(begin, begin + step)
        maps = packing.conjugation(increments[some])
        second += gather[:, some] @ maps.reshape(len(maps), -1)
    return (
        first.reshape(groups, packing.size, packing.size),
        second.reshape(groups, packing.entries, packing.entries),
    )


def _check_memory(pairs: int, size: int) -> None:
    """The packed maps of all pairs, as an array and as the two sparse matrices made of it."""
    needed = 4 * 8.0 * pairs * (size * (size + 1) / 2) ** 2
    if needed > MOST_BYTES:
        raise ProblemError(
            f"Exact moments of {size - 1} parameters over {pairs} pairs of states need about "
            f"{needed / 1e9:.3g} GB, but {MOST_BYTES / 1e9:.3g} GB are allowed; use fewer states, "
            "features or kinds, or sample with fegsam.run."
        )


def _block_matrix(
    blocks: np.ndarray, rows: np.ndarray, columns: np.ndarray, modes: int
) -> sparse.csr_array:
    """(modes k, modes k): the `blocks` (pairs, k, k) at their block rows and columns."""
    size = blocks.shape[1]
    order = np.lexsort((columns, rows))
    starts = np.searchsorted(rows[order], np.arange(modes + 1))
    shape = modes * size, modes * size
    matrix = sparse.bsr_array((blocks[order], columns[order], starts), shape=shape)
    return sparse.csr_array(matrix)


def _times(matrix: sparse.csr_array, f: np.ndarray) -> np.ndarray:
    return (matrix @ f.reshape(len(f), -1)).reshape(f.shape)


def _on_rows(matrix: sparse.csr_array, f: np.ndarray) -> np.ndarray:
    """A block matrix times f (G, r, k, c), along the modes and the rows k."""
    modes, many, size, columns = f.shape
    flat = f.swapaxes(1, 2).reshape(modes * size, many * columns)
    return (matrix @ flat).reshape(modes, size, many, columns).swapaxes(1, 2)
