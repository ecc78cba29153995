"""The step maps of each linear algorithm.

They are made from the windows of a temporal-difference algorithm or from the matrices of
Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from fegsam.exact.packing import Packing
from fegsam.exact.step_maps import DenseMaps, IndependentMaps, RankOneMaps
from fegsam.exact.windows import Windows


@dataclass(frozen=True, eq=False)
class WindowSteps:
    """The windows of one kind as changes of x: ``T_e = I + alpha u h_e'``."""

    windows: Windows
    h: np.ndarray
    """(E, D)"""
    rows: np.ndarray
    """(S, d): u of each state, without its last entry, which is zero"""


def window_steps(windows: Windows, fixed_point: np.ndarray) -> WindowSteps:
    dim = len(fixed_point)
    phi = np.eye(dim) if windows.features is None else windows.features
    h = np.empty((len(windows.source), dim + 1))
    h[:, :dim] = sum(
        coefficient[:, None] * phi[state]
        for coefficient, state in zip(windows.coefficients.T, windows.states.T, strict=True)
    )
    h[:, dim] = windows.errors(fixed_point)
    return WindowSteps(windows, h, np.eye(dim) if windows.rows is None else windows.rows)


def rank_one_maps(kinds: list[WindowSteps]) -> RankOneMaps:
    """The step maps of a temporal-difference algorithm."""
    chains, lefts, firsts, seconds = [], [], [], []
    for each in kinds:
        windows = each.windows
        size = windows.num_modes
        keys, pair_of = np.unique(windows.source * size + windows.target, return_inverse=True)
        first, second = _moments(pair_of, windows.probability, each.h, len(keys))
        start = np.searchsorted(keys // size, np.arange(size + 1))
        weights = np.bincount(pair_of, weights=windows.probability)
        chains.append(sparse.csr_array((weights, keys % size, start), shape=(size, size)))
        left = each.rows[windows.first_state]
        lefts.append(np.column_stack([left, np.zeros(len(left))]))
        firsts.append(first)
        seconds.append(second)
    initial, stationary = (
        np.concatenate([getattr(each.windows, name) for each in kinds])
        for name in ("initial", "stationary")
    )
    parts = (np.concatenate(each) for each in (lefts, firsts, seconds))
    return RankOneMaps(_begin(chains), _side_by_side(chains), initial, stationary, *parts)


def independent_window_maps(kinds: list[WindowSteps]) -> IndependentMaps:
    """The step maps of a temporal-difference algorithm whose windows are drawn independently."""
    means, squares = [], []
    for each in kinds:
        windows, size = each.windows, each.h.shape[1]
        packing = Packing(size)
        share = windows.stationary[windows.source] * windows.probability
        first, second = _moments(windows.states[:, 0], share, each.h, len(each.rows))
        u = np.column_stack([each.rows, np.zeros(len(each.rows))])
        means.append(u.T @ first)
        squares.append(packing.packed(u[:, :, None] * u[:, None, :]).T @ packing.dual(second))
    return IndependentMaps(np.array(means), np.array(squares))


def _moments(
    group: np.ndarray, weight: np.ndarray, h: np.ndarray, groups: int
) -> tuple[np.ndarray, np.ndarray]:
    """(groups, D) and (groups, D, D): weighted sums of h and h h' over each group."""
    gather = sparse.csr_array((weight, (group, np.arange(len(h)))), shape=(groups, len(h)))
    size = h.shape[1]
    second = np.empty((groups, size, size))
    for i in range(size):
        second[:, i] = gather @ (h[:, i, None] * h)
    return gather @ h, second


def dense_maps(
    chains: list[sparse.csr_array],
    initial: np.ndarray,
    stationary: list[np.ndarray],
    increments: list[np.ndarray],
) -> DenseMaps:
    """The step maps of linear Algorithm 1; all kinds start from the same distribution."""
    every = np.concatenate([initial] * len(chains))
    return DenseMaps(
        _begin(chains),
        _side_by_side(chains),
        every,
        np.concatenate(stationary),
        np.concatenate(increments),
    )


def independent_noise_maps(
    stationary: list[np.ndarray], increments: list[np.ndarray]
) -> IndependentMaps:
    """The step maps of linear Algorithm 1 whose noise is drawn independently."""
    packing = Packing(increments[0].shape[-1])
    means = np.array(
        [
            np.tensordot(weights, each, 1)
            for weights, each in zip(stationary, increments, strict=True)
        ]
    )
    squares = [
        sum(
            weight * packing.conjugation(matrix)
            for weight, matrix in zip(weights, each, strict=True)
        )
        for weights, each in zip(stationary, increments, strict=True)
    ]
    return IndependentMaps(means, np.array(squares))


def linear_increments(
    matrices: np.ndarray, offsets: np.ndarray, fixed_point: np.ndarray
) -> np.ndarray:
    """(S, D, D): the change of x in a step of Algorithm 1, for each state of the noise."""
    states, dim = offsets.shape
    increments = np.zeros((states, dim + 1, dim + 1))
    increments[:, :dim, :dim] = matrices
    increments[:, :dim, dim] = matrices @ fixed_point + offsets
    return increments


def _begin(chains: list[sparse.csr_array]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum([len(each.indptr) - 1 for each in chains])])


def _side_by_side(chains: list[sparse.csr_array]) -> sparse.csr_array:
    return (
        chains[0] if len(chains) == 1 else sparse.csr_array(sparse.block_diag(chains, format="csr"))
    )
