"""What held-out rows say the answer is: the solution of their mean equation, with its noise.

For values it is the projected n-step equation (LSTD), for control the optimal table of the MDP that
the rows count. To first order the solution is the mean of one part per cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from fegsam.data.basis import Basis
from fegsam.data.estimates import goes_on
from fegsam.data.sample import Sample, n_step
from fegsam.problem.checks import FloatArray, IntArray

TOLERANCE = 1e-10
"""Directions with less than this share of the largest mean square count as never seen."""


@dataclass(frozen=True, eq=False)
class Solution:
    """An estimate of the fixed point.

    Examples
    --------
    >>> import numpy as np
    >>> Solution(np.ones(2), np.eye(2), np.zeros((3, 2))).parts(np.ones((1, 2))).shape
    (1, 3, 2)
    """

    params: FloatArray
    """(r): the coordinates of the estimate"""
    directions: np.ndarray
    """(d, r) orthonormal columns, or the (r) cells of a table, that the rows show"""
    noise: FloatArray
    """(G, r): how far each cluster's own estimate lies from the common one, to first order"""

    def parts(self, params: FloatArray) -> FloatArray:
        """(T, G, r): how far parameters (T, d) lie from the estimate of each cluster."""
        flat = self.directions.ndim == 1
        found = params[:, self.directions] if flat else params @ self.directions
        return (found - self.params)[:, None] - self.noise


def directions_seen(gram: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(r) and (d, r): the mean squares along the directions that the rows show, and these."""
    squares, directions = np.linalg.eigh(gram)
    kept = squares > TOLERANCE * max(squares[-1], 0.0)
    return squares[kept], directions[:, kept]


def mean_system(sample: Sample, basis: Basis) -> tuple[Any, FloatArray]:
    """X (L, d), dense or sparse, and b (L) with the n-step error ``X v + b`` of each row."""
    later = sample.rows.discount
    rewards = n_step(sample, sample.rows.reward[:, None])[:, 0]
    if basis.dense is not None:
        ahead = np.append(basis.dense[1:], basis.dense[:1], axis=0)
        return n_step(sample, later[:, None] * ahead - basis.dense), rewards
    length = len(later)
    shift = sparse.csr_array(
        (later[:-1], (np.arange(length - 1), np.arange(1, length))),
        shape=(length, length),
    )
    phi = basis.matrix()
    scale = sparse.diags_array(sample.ratios)
    first = scale @ (shift @ phi - phi)
    found = first
    for _ in range(sample.horizon - 1):
        found = first + scale @ (shift @ found)
    return sparse.csr_array(found), rewards


def linear_values(
    sample: Sample, basis: Basis, seen: tuple[FloatArray, FloatArray]
) -> Solution | None:
    """LSTD with features; None where the equation has no unique solution.

    `seen` is what `directions_seen` returns.
    """
    squares, directions = seen
    matrix, rewards = mean_system(sample, basis)
    weighted = matrix * sample.weights[:, None]
    if basis.dense is not None:
        mean = basis.dense.T @ weighted
    else:
        mean = (basis.matrix().T @ sparse.csr_array(weighted)).toarray()
    slope = -directions.T @ mean @ directions
    everything = np.zeros(len(rewards), np.int64)
    right = directions.T @ basis.sums((sample.weights * rewards)[:, None], everything, 1)[0, 0]
    try:
        scale = np.sqrt(squares)
        if goes_on(np.linalg.solve(slope / np.outer(scale, scale), np.ones(len(scale)))):
            return None
        found = np.linalg.solve(slope, right)
        errors = matrix @ (directions @ found) + rewards
        sums = basis.sums((sample.weights * errors)[:, None], sample.clusters, sample.num_clusters)[
            0
        ]
        noise = sample.num_clusters * np.linalg.solve(slope, directions.T @ sums.T).T
    except np.linalg.LinAlgError:
        return None
    return Solution(found, directions, noise)


def table_values(sample: Sample, basis: Basis) -> Solution | None:
    """The values of the states that the rows leave; None if there are none.

    A window that ends in a state that no window leaves is not used, since that state's value is
    not known.
    """
    matrix, rewards = mean_system(sample, basis)
    phi, states = basis.matrix(), sample.rows.observation
    kept = (sample.weights > 0.0) & (sample.ratios > 0.0)
    while True:
        seen = np.zeros(basis.size, np.bool_)
        seen[states[kept]] = True
        unknown = np.asarray(abs(matrix[:, ~seen]).sum(axis=1)) > TOLERANCE
        if not (kept & unknown).any():
            break
        kept &= ~unknown
    cells = np.flatnonzero(seen)
    if not len(cells):
        return None
    weights = np.where(kept, sample.weights, 0.0)
    weighted: Any = sparse.diags_array(weights) @ phi
    own = weighted[:, cells]
    slope = -(own.T @ matrix[:, cells])
    return _solved(sample, own, slope, (matrix[:, cells], rewards), cells)


def _solved(
    sample: Sample,
    own: Any,
    slope: Any,
    errors: tuple[Any, FloatArray],
    cells: IntArray,
) -> Solution | None:
    """The solution of the mean equation of some cells, with each cluster's part."""
    matrix, rewards = errors
    try:
        solver = splu(sparse.csc_array(slope))
    except RuntimeError:  # singular
        return None
    if goes_on(solver.solve(abs(slope).sum(axis=1))):
        return None
    found = solver.solve(own.T @ rewards)
    rest = matrix @ found + rewards
    member = sparse.csr_array(
        (rest, (sample.clusters, np.arange(len(rest)))), shape=(sample.num_clusters, len(rest))
    )
    sums = (member @ own).toarray()
    return Solution(found, cells, sample.num_clusters * solver.solve(sums.T).T)


def optimal_table(sample: Sample, num_actions: int, size: int) -> Solution | None:
    """The optimal action values of the MDP that the rows count, in the cells that occur.

    A transition into a state from which no action is known is not used. In each state the best of
    the actions that occur there counts.
    """
    rows = sample.rows
    after = np.append(rows.observation[1:], 0)
    cell = rows.observation * num_actions + rows.action
    seen, at = _known_pairs(sample, (cell, after), num_actions, size)
    cells, place = np.flatnonzero(seen), np.cumsum(seen) - 1
    if not len(cells):
        return None
    shape = len(cell), len(cells)
    own: Any = sparse.csr_array((sample.weights[at], (at, place[cell[at]])), shape=shape)
    rewards = np.zeros(len(cell))
    rewards[at] = rows.reward[at]
    best = seen.reshape(-1, num_actions).argmax(axis=1)
    on = at[rows.discount[at] > 0.0]
    while True:
        ahead = place[after[on] * num_actions + best[after[on]]]
        entries = np.append(rows.discount[on], -np.ones(len(at)))
        places = np.append(on, at), np.append(ahead, place[cell[at]])
        matrix: Any = sparse.csr_array((entries, places), shape=shape)
        solution = _solved(sample, own, -(own.T @ matrix), (matrix, rewards), cells)
        if solution is None:
            return None
        improved = _improved(solution.params, seen, best, num_actions)
        if (improved == best).all():
            return solution
        best = improved


def _known_pairs(
    sample: Sample, moves: tuple[IntArray, IntArray], num_actions: int, size: int
) -> tuple[np.ndarray, IntArray]:
    """(d): whether each pair occurs in a transition that is used; and the rows of those."""
    cell, after = moves
    kept = sample.weights > 0.0
    while True:
        seen = np.zeros(size, np.bool_)
        seen[cell[kept]] = True
        left = np.any(seen.reshape(-1, num_actions), axis=1)
        unknown = (sample.rows.discount > 0.0) & ~left[after]
        if not (kept & unknown).any():
            return seen, np.flatnonzero(kept)
        kept &= ~unknown


def _improved(params: FloatArray, seen: np.ndarray, best: IntArray, num_actions: int) -> IntArray:
    """The best seen action of each state; the present one unless another is clearly better."""
    table = np.full(len(seen), -np.inf)
    table[seen] = params
    table = table.reshape(-1, num_actions)
    now = table[np.arange(len(best)), best]
    margin = 1e-12 * max(1.0, float(np.abs(params).max()))
    with np.errstate(invalid="ignore"):
        clear = table.max(axis=1) > now + margin
    return np.where(clear, table.argmax(axis=1), best)
