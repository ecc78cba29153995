"""The norm in which the mean operators of the linear algorithms contract (Assumption 3.2).

The linear algorithms are Algorithms 1, 2 and 5, where the mean increment of agent i is ``offset -
A_i theta``. The theorem needs one norm and one beta > 0 for all agents with ``gamma_c = max_i ||I -
A_i / beta|| < 1``. In the norm ``||x||^2 = x' Lambda x`` such a beta exists if and only if every
``A_i' Lambda + Lambda A_i`` is positive definite: Lambda is a common Lyapunov matrix. The paper's
lemma on Algorithm 5 asks only that each A_i is stable (its eigenvalues have positive real parts),
which is not enough. The levels, from the best:

================  ==================================================================================
level             meaning
================  ==================================================================================
``identity``      Lambda = I satisfies the condition. On-policy it always does; off-policy it does
                  for every large n, see `scan_horizons`.
``common``        Another Lambda satisfies it; the theorem holds in its norm.
``average-only``  None was found, but the average of the A_i is stable. The theorem does not apply.
                  The algorithm still converges for small steps if K = 1, and also if K > 1 as long
                  as ``alpha K`` is small.
``unstable``      The average of the A_i is not stable: the algorithm diverges at every step size.
================  ==================================================================================

Among the matrices of trace d, Lambda maximises t, the smallest eigenvalue of Lambda and of all
``A_i' Lambda + Lambda A_i``, with each A_i scaled to norm one. This is a small semidefinite
programme; Newton's method follows its central path. On the path t is within ``(M + 1) d mu`` of its
maximum, where mu is the weight of the barrier. So a search that ends without a Lambda shows that
there is none, except for Lambdas that are too ill-conditioned to be of use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fegsam.errors import ProblemError
from fegsam.exact.linear_field import LinearField

SEARCH_LIMIT = 500_000
"""The search for Lambda stores about M d^4 / 2 numbers; it is skipped if they exceed this."""
SMALLEST_GAP = 1e-10
"""If the maximum of t is known to be smaller, no Lambda is considered to exist."""
BARRIER_CUT = 0.1
NEWTON_STEPS = 100
CENTRED = 1e-4
SMALLEST_LENGTH = 1e-9


@dataclass(frozen=True, eq=False)
class Norm:
    """The c-norm of the theorem.

    Attributes
    ----------
    name : "sup", "2" or "weighted"
    weight : (d, d) array, or None
        Lambda of a weighted 2-norm.

    Examples
    --------
    >>> float(Norm("weighted", np.diag([4.0, 1.0])).of(np.array([1.0, 0.0])))
    2.0
    """

    name: str
    weight: np.ndarray | None = None

    def of(self, vectors: np.ndarray) -> np.ndarray:
        """The norm along the last axis of (..., d)."""
        if self.name == "sup":
            return np.abs(vectors).max(axis=-1)
        return np.linalg.norm(
            vectors if self.weight is None else vectors @ _roots(self.weight)[0], axis=-1
        )

    def dual(self, vectors: np.ndarray) -> np.ndarray:
        """The dual norm along the last axis, of a functional ``x -> w'x``."""
        if self.name == "sup":
            return np.abs(vectors).sum(axis=-1)
        return np.linalg.norm(
            vectors if self.weight is None else vectors @ _roots(self.weight)[1], axis=-1
        )

    def of_matrices(self, matrices: np.ndarray) -> np.ndarray:
        """The operator norm over the last two axes of (..., d, d)."""
        if self.name == "sup":
            return np.abs(matrices).sum(axis=-1).max(axis=-1)
        return np.linalg.norm(self.transformed(matrices), 2, axis=(-2, -1))

    def transformed(self, matrices: np.ndarray) -> np.ndarray:
        """``h X h^-1`` with ``h = Lambda^(1/2)``: its 2-norm is X's operator norm in this norm."""
        if self.weight is None:
            return matrices
        root, inverse = _roots(self.weight)
        return root @ matrices @ inverse


def _roots(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lambda^(1/2) and its inverse."""
    values, vectors = np.linalg.eigh(weight)
    return (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T


@dataclass(frozen=True, eq=False)
class Contraction:
    """How the mean operators of all agents contract.

    Attributes
    ----------
    level : str
        A level of the table above, "sup" for the sup-norm algorithms, "joint" for Q-learning whose
        agents try every action only together, or "given" for a rule of the user's own.
    norm : Norm
        The 2-norm if none is found.
    gap : float
        1 - gamma_c, without rounding error; NaN if no norm is found.
    beta : float
        The step size of the general theorem is ``alpha * beta``; 1 except for linear algorithms.

    Examples
    --------
    >>> Contraction("identity", Norm("2"), gap=0.25, beta=2.0).factor
    0.75
    """

    level: str
    norm: Norm
    gap: float
    beta: float

    @property
    def factor(self) -> float:
        """gamma_c."""
        return 1 - self.gap


def linear_contraction(field: LinearField, weights: np.ndarray) -> Contraction:
    """The best level that a linear mean field reaches; `weights` (M or 1,) are the kinds' shares.

    Examples
    --------
    One agent spirals inwards along an ellipse, the other contracts along the axes:

    >>> ellipse, axes = [[0.1, 10.0], [-0.1, 0.1]], [[1.0, 0.0], [0.0, 2.0]]
    >>> found = linear_contraction(
    ...     LinearField(np.array([ellipse, axes]), np.zeros((2, 2))), np.array([0.5, 0.5])
    ... )
    >>> found.level, bool(found.factor < 1)
    ('common', True)
    """
    best = smallest_contraction(field.matrices)
    if best is not None:
        return Contraction("identity", Norm("2"), *best)
    if not _is_stable(field, weights):
        return Contraction("unstable", Norm("2"), math.nan, 1.0)
    weight = common_weight(field.matrices)
    if weight is not None:
        norm = Norm("weighted", weight)
        best = smallest_contraction(norm.transformed(field.matrices))
        if best is not None:
            return Contraction("common", norm, *best)
    return Contraction("average-only", Norm("2"), math.nan, 1.0)


def _is_stable(field: LinearField, weights: np.ndarray) -> bool:
    try:
        field.require_stable(weights)
    except ProblemError:
        return False
    return True


def smallest_contraction(matrices: np.ndarray) -> tuple[float, float] | None:
    """The largest ``1 - gamma_c`` and its beta, for `matrices` A_k (M, d, d).

    ``gamma_c = max_k ||I - A_k / beta||_2``. With s = 1 / beta, ``1 - gamma_c^2`` is the smallest
    eigenvalue of ``s (A_k + A_k') - s^2 A_k' A_k``, which is concave in s, zero at s = 0 and not
    positive from ``2 / max_k ||A_k||_2`` on. Returns None if no beta makes gamma_c < 1.

    Examples
    --------
    >>> gap, beta = smallest_contraction(np.array([[[1.0]], [[3.0]]]))
    >>> round(gap, 6), round(beta, 6)
    (0.5, 2.0)
    """
    # A power of two, so that no digit changes; the squares of large entries would overflow.
    unit = math.ldexp(1.0, math.frexp(float(np.abs(matrices).max()))[1])
    matrices = matrices / unit
    symmetric = matrices + matrices.transpose(0, 2, 1)
    squares = matrices.transpose(0, 2, 1) @ matrices
    if np.linalg.eigvalsh(symmetric).min() <= 0:
        return None

    def margin(s: float) -> float:
        return float(np.linalg.eigvalsh(s * symmetric - s**2 * squares).min())

    largest = 2 / math.sqrt(float(np.linalg.eigvalsh(squares).max()))
    from scipy.optimize import minimize_scalar  # slow to import, and rarely needed

    found = minimize_scalar(
        lambda s: -margin(s), bounds=(0.0, largest), options={"xatol": 1e-8 * largest}
    )
    best = float(found.x)  # pyright: ignore[reportAttributeAccessIssue]
    gained = min(margin(best), 1.0)
    return (gained / (1 + math.sqrt(1 - gained)), unit / best) if gained > 0 else None


def can_search(kinds: int, dim: int) -> bool:
    """Whether a problem is small enough for the search of `common_weight`.

    >>> can_search(kinds=5, dim=10), can_search(kinds=5, dim=100)
    (True, False)
    """
    return dim > 1 and (kinds + 1) * dim**3 * (dim + 1) // 2 <= SEARCH_LIMIT


def common_weight(matrices: np.ndarray) -> np.ndarray | None:
    """A Lambda that makes every ``A_k' Lambda + Lambda A_k`` positive definite.

    Parameters
    ----------
    matrices : (M, d, d) array
        The A_k.

    Returns
    -------
    (d, d) array of trace d, or None
        None if there is no such matrix, if d = 1, where there is nothing to choose, or if the
        search would be too large.

    Examples
    --------
    >>> weight = common_weight(np.array([[[1.0, 10.0], [-0.1, 1.0]], [[1.0, 0.0], [0.0, 2.0]]]))
    >>> bool(weight[1, 1] > 10 * weight[0, 0])
    True
    >>> common_weight(np.array([[[1.0, 10.0], [-0.1, 1.0]], [[1.0, 0.1], [-10.0, 1.0]]])) is None
    True
    """
    kinds, dim = matrices.shape[:2]
    if not can_search(kinds, dim) or np.linalg.eigvals(matrices).real.min() <= 0:
        return None
    basis = _traceless_basis(dim)
    scaled = np.concatenate(
        [np.eye(dim)[None] / 2, matrices / np.linalg.norm(matrices, 2, axis=(1, 2))[:, None, None]]
    )
    # Block j is offset_j + sum_p y_p slopes_jp - t I; the first is Lambda itself, and t is the last
    # unknown.
    offsets = scaled + scaled.transpose(0, 2, 1)
    slopes = basis @ scaled[:, None] + scaled.transpose(0, 2, 1)[:, None] @ basis
    slopes = np.concatenate(
        [slopes, np.broadcast_to(-np.eye(dim), (kinds + 1, 1, dim, dim))], axis=1
    )
    # Contiguous, so that one matrix product handles all p.
    slopes = np.ascontiguousarray(slopes.transpose(0, 2, 1, 3))
    unknowns = np.zeros(len(basis) + 1)
    unknowns[-1] = np.linalg.eigvalsh(offsets).min() - 1
    barrier, blocks = 1.0, (kinds + 1) * dim
    while True:
        unknowns = _centre(offsets, slopes, unknowns, barrier)
        best, slack = unknowns[-1], 2 * blocks * barrier
        if best > slack:
            return np.eye(dim) + np.tensordot(unknowns[:-1], basis, axes=1)
        if best + slack < SMALLEST_GAP:
            return None
        barrier *= BARRIER_CUT


def _centre(
    offsets: np.ndarray, slopes: np.ndarray, unknowns: np.ndarray, barrier: float
) -> np.ndarray:
    """The unknowns that maximise ``t / barrier + sum_j log det block_j``, by Newton's method.

    The given `unknowns`, where it starts, must make all blocks positive definite.
    """
    target = np.zeros(len(unknowns))
    target[-1] = 1 / barrier

    def height(at: np.ndarray) -> float:
        """The objective; minus infinity if a block is not positive definite."""
        eigenvalues = np.linalg.eigvalsh(offsets + np.einsum("japb,p->jab", slopes, at))
        return (
            float(target @ at + np.log(eigenvalues).sum()) if eigenvalues.min() > 0 else -math.inf
        )

    here = height(unknowns)
    for _ in range(NEWTON_STEPS):
        inverses = np.linalg.inv(offsets + np.einsum("japb,p->jab", slopes, unknowns))
        products = (inverses @ slopes.reshape(*inverses.shape[:2], -1)).reshape(slopes.shape)
        gradient = target + np.einsum("japa->p", products)
        rows = products.transpose(2, 0, 1, 3).reshape(len(unknowns), -1)
        columns = products.transpose(2, 0, 3, 1).reshape(len(unknowns), -1)
        step = np.linalg.solve(rows @ columns.T, gradient)
        gain = float(gradient @ step)
        if gain < CENTRED:
            return unknowns
        length = 1.0
        while (there := height(unknowns + length * step)) < here + gain * length / 4:
            length /= 2
            if length < SMALLEST_LENGTH:  # any further gain is below rounding
                return unknowns
        unknowns, here = unknowns + length * step, there
    return unknowns


def _traceless_basis(dim: int) -> np.ndarray:
    """(d (d + 1) / 2 - 1, d, d): an orthogonal basis of the symmetric matrices of trace zero."""
    rows, columns = np.triu_indices(dim, 1)
    off_diagonal = np.zeros((len(rows), dim, dim))
    pairs = np.arange(len(rows))
    off_diagonal[pairs, rows, columns] = off_diagonal[pairs, columns, rows] = math.sqrt(0.5)
    diagonal = np.zeros((dim - 1, dim, dim))
    for k in range(1, dim):
        diagonal[k - 1][np.diag_indices(dim)] = np.r_[
            np.ones(k), -k, np.zeros(dim - k - 1)
        ] / math.sqrt(k * (k + 1))
    return np.concatenate([off_diagonal, diagonal])
