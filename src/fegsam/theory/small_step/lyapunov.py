"""The stationary covariance of a linear iteration, by its Lyapunov equation."""

from __future__ import annotations

import numpy as np
from scipy import linalg
from scipy.sparse import linalg as sparse_linalg

from fegsam.errors import ProblemError

SCHUR_PARAMETERS = 200
"""The most parameters for Schur forms and full eigenvalue computations, which are slow beyond."""
SIGN_STEPS = 60
"""The most Newton steps for the matrix sign function."""


def stationary_covariance(mean_matrix: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The solution X of ``A X + X A' + Gamma = 0``.

    A must be stable: all its eigenvalues have negative real parts. Large equations are solved by
    Newton's iteration for the sign of A, ``E <- (E / c + c E^{-1}) / 2`` with ``W <- (W / c + c
    E^{-1} W E^{-1}') / 2`` from W = Gamma: E converges to -I and W to 2 X. The iteration consists
    of matrix products and inverses, which run near the machine's peak speed.

    Parameters
    ----------
    mean_matrix, noise : (d, d) arrays
        A, and a symmetric Gamma.

    Returns
    -------
    (d, d) array, symmetric

    Examples
    --------
    >>> stationary_covariance(np.array([[-2.0]]), np.array([[8.0]]))
    array([[2.]])
    """
    if len(mean_matrix) <= SCHUR_PARAMETERS:
        found = linalg.solve_continuous_lyapunov(mean_matrix, -noise)
        return (found + found.T) / 2
    sign, doubled = mean_matrix, noise
    for _ in range(SIGN_STEPS):
        inverse = np.linalg.inv(sign)
        off = float(np.linalg.norm(sign + np.eye(len(sign)))) / len(sign) ** 0.5
        # Far from -I, scaling brings large and small eigenvalues together; near -I it would spoil
        # the quadratic convergence.
        scale = 1.0 if off < 0.1 else (np.linalg.norm(sign) / np.linalg.norm(inverse)) ** 0.5
        sign = (sign / scale + scale * inverse) / 2
        doubled = (doubled / scale + scale * (inverse @ doubled @ inverse.T)) / 2
        if off < 1e-8:  # the step just taken has squared the distance
            return (doubled + doubled.T) / 4
    raise ProblemError(
        f"The stationary covariance of {len(sign)} parameters was not found in {SIGN_STEPS} "
        "steps: the mean matrix is unstable up to rounding; use fewer features or policies that "
        "explore more."
    )


def slowest_rate(mean_matrix: np.ndarray) -> float:
    """The smallest real part of the eigenvalues of -A.

    It is the rate at which the slowest direction of ``dx/dt = A x`` decays. Where -A has no
    positive entry off its diagonal, as in tabular TD, it is the eigenvalue nearest zero (Perron and
    Frobenius), and only that one is computed.

    Examples
    --------
    >>> slowest_rate(np.array([[-1.0, 5.0], [0.0, -0.25]]))
    0.25
    """
    off_diagonal = mean_matrix[~np.eye(len(mean_matrix), dtype=bool)]
    if len(mean_matrix) <= SCHUR_PARAMETERS or off_diagonal.min() < 0:
        return float(np.linalg.eigvals(-mean_matrix).real.min())
    largest = sparse_linalg.eigs(
        np.linalg.inv(-mean_matrix), k=1, v0=np.ones(len(mean_matrix)), return_eigenvectors=False
    )
    return float(1 / abs(largest[0]))
