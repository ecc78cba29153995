"""Sums over the lags of a Markov chain: the total effect of a disturbance of its distribution.

A disturbance g of the distribution of the state, of total mass zero, becomes ``Q^i g`` after i
steps, where Q is the transpose of the kernel. This module computes two sums over i,

    sum_{i>=0} Q^i g = (I - Q)^{-1} g,          the fundamental matrix applied to g, and
    sum_{i<k} (k - i) Q^i g,                    lags that fall within a block of k steps.

Neither computation subtracts nearly equal terms, for k up to 10^6 and more and however slowly the
chain mixes. Dense matrices are squared repeatedly. Sparse ones are applied step by step until the
disturbance is gone; where that takes long, the sums are taken in a small Krylov space of Q or of
(I - Q)^{-1}.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg

DENSE_STATES = 500
"""The most states for which the kernel is a dense matrix, whatever the number of disturbances."""
MOST_DENSE_STATES = 4000
"""The same limit where there is at least one disturbance for every eight states."""
WALK_STEPS = 500
"""The steps that are taken one by one before a Krylov space is tried."""
LONG_WALK = 5000
"""The longest block whose steps are taken one by one where a Krylov space of Q is not enough."""
NEGLIGIBLE = 1e-15
"""A sum ends where its remainder is below this share of its first term."""
FORWARD_DIMENSIONS, INVERSE_DIMENSIONS = 40, 120
"""The largest dimensions of the Krylov spaces of Q and of the inverse of I - Q."""

Operator = Callable[[np.ndarray], np.ndarray]


def lag_sums(
    kernel: sparse.csr_array, stationary: np.ndarray, disturbances: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """``sum_{i>=0} Q^i g`` and ``sum_{i<length} (length - i) Q^i g`` for several g.

    Parameters
    ----------
    kernel : (S, S) csr_array
        The kernel of an ergodic chain; Q is its transpose.
    stationary : (S,) array
        The chain's stationary distribution.
    disturbances : (S, d) array
        The g, as columns that sum to zero.
    length : int
        At least 0.

    Returns
    -------
    two (S, d) arrays

    Examples
    --------
    The two-state chain that moves with probability 1/4 halves a disturbance at each step:

    >>> flip = sparse.csr_array([[0.75, 0.25], [0.25, 0.75]])
    >>> total, triangle = lag_sums(flip, np.array([0.5, 0.5]), np.array([[1.0], [-1.0]]), length=2)
    >>> float(total[0, 0]), float(triangle[0, 0])
    (2.0, 2.5)
    """
    states, columns = disturbances.shape
    if states <= max(DENSE_STATES, min(8 * columns, MOST_DENSE_STATES)):
        # Without its stationary part the kernel acts the same on zero-sum columns, and rounding
        # errors cannot accumulate along that part.
        transient = kernel.T.toarray() - stationary[:, None]
        return np.linalg.solve(np.eye(states) - transient, disturbances), triangle_by_squaring(
            transient, disturbances, length
        )
    return _sparse_sums(kernel, stationary, disturbances, length)


def triangle_by_squaring(matrix: np.ndarray, block: np.ndarray, length: int) -> np.ndarray:
    """``sum_{i<length} (length - i) matrix^i block`` in as many squarings as `length` has bits.

    With ``A_k = sum_{i<k} Q^i`` and ``T_k = sum_{i<k} (k - i) Q^i``:  ``A_2k = A_k + Q^k A_k``,
    ``T_2k = T_k + k A_k + Q^k T_k``, and ``A_{k+1} = I + Q A_k``, ``T_{k+1} = T_k + A_{k+1}``.

    Examples
    --------
    >>> triangle_by_squaring(np.array([[0.5]]), np.array([[1.0]]), length=3)
    array([[4.25]])
    """
    if length == 0:
        return np.zeros_like(block)
    power, count, plain, triangle = matrix, 1, block, block
    gone = False
    for bit in f"{length:b}"[1:]:
        gone = gone or float(np.abs(power).sum(axis=0).max()) <= NEGLIGIBLE
        if gone:  # Q^k = 0
            triangle = triangle + count * plain
        else:
            triangle = triangle + count * plain + power @ triangle
            plain = plain + power @ plain
            power = power @ power
        count *= 2
        if bit == "1":
            if not gone:
                plain, power = block + matrix @ plain, matrix @ power
            triangle = triangle + plain
            count += 1
    return triangle


def _sparse_sums(
    kernel: sparse.csr_array, stationary: np.ndarray, disturbances: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray]:
    backward = kernel.T.tocsr()
    # The columns sum to zero only up to rounding, and mass that is left over would never decay.
    disturbances = disturbances - np.outer(stationary, disturbances.sum(axis=0))
    total, triangle, rest, walked = _walk(backward, stationary, disturbances, length, WALK_STEPS)
    if walked == WALK_STEPS:
        slow_total, slow_triangle = _slow_sums(backward, stationary, rest, max(0, length - walked))
        total += slow_total
        triangle += slow_triangle
    return total, triangle


def _walk(
    backward: sparse.csr_array,
    stationary: np.ndarray,
    disturbances: np.ndarray,
    length: int,
    steps: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Both sums over at most `steps` terms, the next term, and the number of terms.

    There are fewer than `steps` terms if the remainder becomes negligible before.
    """
    total, triangle = np.zeros_like(disturbances), np.zeros_like(disturbances)
    term = disturbances
    first = earlier = float(np.abs(term).sum(axis=0).max())
    for step in range(steps):
        if step % 10 == 0 and step > 0:
            term = term - np.outer(stationary, term.sum(axis=0))
            size = float(np.abs(term).sum(axis=0).max())
            rate = min((size / earlier) ** 0.1, 1.0) if earlier > 0 else 0.0
            if size <= NEGLIGIBLE * first * (1 - rate):
                return total, triangle, term, step
            earlier = size
        total += term
        if step < length:
            triangle += (length - step) * term
        term = backward @ term
    return total, triangle, term, steps


def _slow_sums(
    backward: sparse.csr_array, stationary: np.ndarray, disturbances: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Both sums for disturbances whose fast modes have decayed.

    If few slow modes are left, for example where parts of the chain hardly communicate, the Krylov
    space of Q contains them. If many are left, for example on lines and grids, the sparse LU
    factors of I - Q have little fill-in.
    """
    total, triangle = np.zeros_like(disturbances), np.zeros_like(disturbances)
    difficult = []
    for column in range(disturbances.shape[1]):
        found = _krylov_sums(
            lambda g: backward @ g,
            False,
            stationary,
            disturbances[:, column],
            length,
            FORWARD_DIMENSIONS,
        )
        if found is None:
            difficult.append(column)
        else:
            total[:, column], triangle[:, column] = found
    if not difficult:
        return total, triangle
    solve = _zero_sum_solver(backward, stationary)
    total[:, difficult] = solve(disturbances[:, difficult])
    if length <= LONG_WALK:
        triangle[:, difficult] = _walk(
            backward, stationary, disturbances[:, difficult], length, length
        )[1]
        return total, triangle
    for column in difficult:
        found = _krylov_sums(
            solve, True, stationary, disturbances[:, column], length, INVERSE_DIMENSIONS
        )
        if found is None:
            triangle[:, [column]] = _walk(
                backward, stationary, disturbances[:, [column]], length, length
            )[1]
        else:
            triangle[:, column] = found[1]
    return total, triangle


def _zero_sum_solver(backward: sparse.csr_array, stationary: np.ndarray) -> Operator:
    """A solver of ``(I - Q) x = g`` for g and x that sum to zero: sparse LU without one state."""
    fixed = int(np.argmax(stationary))
    others = np.delete(np.arange(len(stationary)), fixed)
    matrix = (sparse.eye_array(len(others)) - backward[others][:, others]).tocsc()
    # Diagonally dominant by columns: no pivoting is needed, so the ordering may keep the symmetry.
    factors = sparse_linalg.splu(
        matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )

    def solve(g: np.ndarray) -> np.ndarray:
        found = np.zeros_like(g)
        found[others] = factors.solve(g[others])
        found[others] += factors.solve(g[others] - matrix @ found[others])
        return found - (
            stationary * found.sum(axis=0)
            if g.ndim == 1
            else np.outer(stationary, found.sum(axis=0))
        )

    return solve


def _krylov_sums(
    operator: Operator,
    is_inverse: bool,
    stationary: np.ndarray,
    disturbance: np.ndarray,
    length: int,
    dimensions: int,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Both sums of g in the Krylov space of O and g; None if it needs more than `dimensions`.

    O is Q, or ``(I - Q)^{-1}`` if `is_inverse`. Divided by the square root of the stationary
    distribution, measures have an inner product in which Q does not expand. Up to rounding, its
    projection on the space does not expand either; that is H, or ``I - H^{-1}`` for an inverse,
    where H is the projection of O.
    """
    root = np.sqrt(stationary)
    size = float(np.linalg.norm(disturbance / root))
    if size == 0.0:
        return np.zeros_like(disturbance), np.zeros_like(disturbance)
    basis = np.zeros((dimensions + 1, len(stationary)))
    projected = np.zeros((dimensions + 1, dimensions))
    basis[0] = disturbance / root / size
    for j in range(dimensions):
        image = operator(root * basis[j]) / root
        scale = float(np.linalg.norm(image))
        for _ in range(2):  # orthogonalise twice, against rounding
            shares = basis[: j + 1] @ image
            projected[: j + 1, j] += shares
            image -= shares @ basis[: j + 1]
        left_out = projected[j + 1, j] = float(np.linalg.norm(image))
        is_invariant = left_out <= 1e-14 * scale
        if is_invariant or j % 10 == 9:
            known = projected[: j + 1, : j + 1]
            chain = np.eye(j + 1) - np.linalg.inv(known) if is_inverse else known
            if np.linalg.norm(chain, 2) > 1 + 1e-9:
                return None
            start = np.eye(j + 1, 1)
            weights = np.hstack(
                [
                    np.linalg.solve(np.eye(j + 1) - chain, start),
                    triangle_by_squaring(chain, start, length),
                ]
            )
            if is_invariant or np.all(
                np.abs(weights[-5:]).max(axis=0) <= 1e-13 * np.abs(weights).max(axis=0)
            ):
                total, triangle = (root * (size * weight @ basis[: j + 1]) for weight in weights.T)
                return total, triangle
        if is_invariant:
            break
        basis[j + 1] = image / left_out
    return None
