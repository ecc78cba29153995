"""Stationary laws of large sparse chains: mu P = mu to a certified residual, in memory proportional
to the successors.

Three ways, in this order: walking the chain, which is enough where it mixes fast; Krylov
corrections, which take care of a few slow modes, as in parts that hardly communicate; and sparse LU
for many slow modes, as on lines and grids. The last would fill in on a random graph, but random
graphs mix fast.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg

from fegsam.problem.checks import FloatArray

RESIDUAL = 1e-13
"""What is asked of ``||mu P - mu||_1``."""
POWER_STEPS = 2000
"""So many steps of the chain are walked at most before another way is taken."""


def solve_large_chain(kernel: sparse.csr_array) -> tuple[FloatArray, float]:
    """The stationary law of an ergodic chain and its residual ``||mu P - mu||_1``, by what is
    cheapest for the chain.

    Parameters
    ----------
    kernel : (S, S) csr_array

    Returns
    -------
    (S,) array and float
        The residual is at most `RESIDUAL`, or the best that was reached.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> law, residual = solve_large_chain(csr_array([[0.5, 0.5], [0.25, 0.75]]))
    >>> law, residual <= RESIDUAL
    (array([0.33333333, 0.66666667]), True)
    """
    backward = kernel.T.tocsr()
    law, settled = _iterate_powers(backward)
    residual = _residual(backward, law)
    if not settled:
        law, residual = _correct(backward, law)
        if residual > 0.01 * RESIDUAL:
            law, residual = _factorise(backward, law)
    return law, residual


def _iterate_powers(backward: sparse.csr_array) -> tuple[FloatArray, bool]:
    """Walk a law along the chain until it stands still, or see that this would take long."""
    states = len(backward.indptr) - 1
    law = np.full(states, 1.0 / states)
    earlier = math.inf
    for step in range(1, POWER_STEPS + 1):
        moved = backward @ law
        moved /= moved.sum()
        residual = float(np.abs(moved - law).sum())
        law = moved
        if step % 10:
            continue
        rate = min((residual / earlier) ** 0.1, 1.0)
        # A slow chain stands almost still before it has arrived: what is left to go is residual /
        # (1 - rate).
        if residual <= RESIDUAL * min(1.0, 10.0 * (1.0 - rate)):
            return law, True
        if step > 50 and residual * rate ** (POWER_STEPS - step) > RESIDUAL:
            break
        earlier = residual
    return law, False


def _correct(backward: sparse.csr_array, law: FloatArray) -> tuple[FloatArray, float]:
    """Add GMRES corrections while they help."""
    balance = (sparse.eye_array(len(law)) - backward).tocsr()
    residual = _residual(backward, law)
    while True:
        defect = backward @ law - law
        scale = float(np.linalg.norm(defect)) or 1.0
        correction, _ = sparse_linalg.gmres(
            balance, defect / scale, rtol=1e-12, restart=30, maxiter=1
        )
        better = np.abs(law + scale * correction)
        better /= better.sum()
        after = _residual(backward, better)
        if not after < 0.5 * residual:
            return law, residual
        law, residual = better, after


def _factorise(backward: sparse.csr_array, law: FloatArray) -> tuple[FloatArray, float]:
    """Fix one weight and solve for the others by sparse LU.

    The matrix is diagonally dominant by columns, so it needs no pivoting and the ordering may keep
    its symmetry.
    """
    fixed = int(np.argmax(law))
    others = np.delete(np.arange(len(law)), fixed)
    matrix = (sparse.eye_array(len(others)) - backward[others][:, others]).tocsc()
    inflow = backward[others][:, [fixed]].toarray()[:, 0]
    factors = sparse_linalg.splu(
        matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )
    weights = factors.solve(inflow)
    weights += factors.solve(inflow - matrix @ weights)
    solved = np.empty(len(law))
    solved[fixed], solved[others] = 1.0, np.abs(weights)
    solved /= solved.sum()
    return solved, _residual(backward, solved)


def _residual(backward: sparse.csr_array, law: FloatArray) -> float:
    return float(np.abs(backward @ law - law).sum())
