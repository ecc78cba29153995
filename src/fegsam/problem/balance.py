"""Stationary distributions of large sparse chains: mu P = mu to a certified residual.

Memory is proportional to the number of transitions. Three methods are tried in this order:

1. power iteration, which is enough for a chain that mixes fast;
2. Krylov corrections (GMRES), which remove a few slow modes, as nearly disconnected parts have;
3. sparse LU, for many slow modes, as on lines and grids. LU would fill in on a random graph, but
   random graphs mix fast and never reach it.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg

from fegsam.problem.checks import FloatArray

RESIDUAL = 1e-13
"""The largest ``||mu P - mu||_1`` that counts as solved."""
POWER_STEPS = 2000
"""Power iteration takes at most this many steps before the next method is tried."""


def solve_large_chain(kernel: sparse.csr_array) -> tuple[FloatArray, float]:
    """The stationary distribution mu of an ergodic chain and its residual ``||mu P - mu||_1``.

    The methods of this module are tried from the cheapest on.

    Parameters
    ----------
    kernel : (S, S) csr_array

    Returns
    -------
    (S,) array and float
        The residual is at most `RESIDUAL`, or the smallest that was reached.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> distribution, residual = solve_large_chain(csr_array([[0.5, 0.5], [0.25, 0.75]]))
    >>> distribution, residual <= RESIDUAL
    (array([0.33333333, 0.66666667]), True)
    """
    backward = kernel.T.tocsr()
    distribution, settled = _iterate_powers(backward)
    residual = _residual(backward, distribution)
    if not settled:
        distribution, residual = _correct(backward, distribution)
        if residual > 0.01 * RESIDUAL:
            distribution, residual = _factorise(backward, distribution)
    return distribution, residual


def _iterate_powers(backward: sparse.csr_array) -> tuple[FloatArray, bool]:
    """Iterate powers from the uniform distribution; return the last one and whether it converged.

    The iteration stops early when its rate of decay shows that `POWER_STEPS` would not be enough.
    """
    states = len(backward.indptr) - 1
    distribution = np.full(states, 1.0 / states)
    earlier = math.inf
    for step in range(1, POWER_STEPS + 1):
        moved = backward @ distribution
        moved /= moved.sum()
        residual = float(np.abs(moved - distribution).sum())
        distribution = moved
        if step % 10:
            continue
        rate = min((residual / earlier) ** 0.1, 1.0)
        # On a slow chain a small residual is not convergence: the remaining distance is about
        # residual / (1 - rate).
        if residual <= RESIDUAL * min(1.0, 10.0 * (1.0 - rate)):
            return distribution, True
        if step > 50 and residual * rate ** (POWER_STEPS - step) > RESIDUAL:
            break
        earlier = residual
    return distribution, False


def _correct(backward: sparse.csr_array, distribution: FloatArray) -> tuple[FloatArray, float]:
    """Add GMRES corrections as long as each one halves the residual."""
    balance = (sparse.eye_array(len(distribution)) - backward).tocsr()
    residual = _residual(backward, distribution)
    while True:
        defect = backward @ distribution - distribution
        scale = float(np.linalg.norm(defect)) or 1.0
        correction, _ = sparse_linalg.gmres(
            balance, defect / scale, rtol=1e-12, restart=30, maxiter=1
        )
        better = np.abs(distribution + scale * correction)
        better /= better.sum()
        after = _residual(backward, better)
        if not after < 0.5 * residual:
            return distribution, residual
        distribution, residual = better, after


def _factorise(backward: sparse.csr_array, distribution: FloatArray) -> tuple[FloatArray, float]:
    """Fix one weight and solve for the others by sparse LU.

    The matrix is diagonally dominant by columns, so it needs no pivoting, and a symmetric ordering
    can be used.
    """
    fixed = int(np.argmax(distribution))
    others = np.delete(np.arange(len(distribution)), fixed)
    matrix = (sparse.eye_array(len(others)) - backward[others][:, others]).tocsc()
    inflow = backward[others][:, [fixed]].toarray()[:, 0]
    factors = sparse_linalg.splu(
        matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )
    weights = factors.solve(inflow)
    weights += factors.solve(inflow - matrix @ weights)
    solved = np.empty(len(distribution))
    solved[fixed], solved[others] = 1.0, np.abs(weights)
    solved /= solved.sum()
    return solved, _residual(backward, solved)


def _residual(backward: sparse.csr_array, distribution: FloatArray) -> float:
    return float(np.abs(backward @ distribution - distribution).sum())
