"""The chain an agent walks: ergodicity and the stationary distribution mu of the paper's
assumptions.

Numba compiles the two loops that NumPy cannot express: the elimination of Grassmann, Taksar and
Heyman, which finds the stationary law without a single subtraction, and the walk over the graph
that finds the period.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from fegsam.compilation import compiled
from fegsam.errors import ProblemError
from fegsam.problem.balance import RESIDUAL, solve_large_chain
from fegsam.problem.checks import FloatArray

ELIMINATION_LIMIT = 500
"""Up to so many states the stationary law is found by elimination, beyond iteratively."""


def check_ergodic(kernel: sparse.csr_array, who: str) -> None:
    """Raise unless every state reaches every other (irreducible) and the chain has no period.

    Parameters
    ----------
    kernel : (S, S) csr_array
        Rows sum to one; no explicit zeros.
    who : str
        Whose chain it is, for the error.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> check_ergodic(csr_array([[0.5, 0.5], [1.0, 0.0]]), "agent kind 0")
    >>> check_ergodic(csr_array([[0.0, 1.0], [1.0, 0.0]]), "agent kind 0")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fegsam.errors.ProblemError: agent kind 0: its chain has period 2, but must be aperiodic: let
    some state stay ...
    """
    classes, class_of = csgraph.connected_components(kernel, directed=True, connection="strong")
    if classes > 1:
        _raise_reducible(kernel, classes, class_of, who)
    if kernel.diagonal().any():
        return
    period = int(chain_period(kernel.indptr, kernel.indices))
    if period > 1:
        raise ProblemError(
            f"{who}: its chain has period {period}, but must be aperiodic: let some state stay "
            "where it is with "
            "positive probability, or give the policy more actions"
        )


def _raise_reducible(
    kernel: sparse.csr_array, classes: int, class_of: NDArray[Any], who: str
) -> None:
    origin = np.repeat(np.arange(len(class_of)), np.diff(kernel.indptr))
    leaves = class_of[origin] != class_of[kernel.indices]
    is_closed = np.ones(classes, dtype=bool)
    is_closed[class_of[origin[leaves]]] = False
    sizes = np.bincount(class_of, minlength=classes)
    smallest = int(np.flatnonzero(is_closed)[np.argmin(sizes[is_closed])])
    members = np.flatnonzero(class_of == smallest)
    outside = int(np.argmax(class_of != smallest))
    named = ", ".join(str(state) for state in members[:5]) + (
        f", ... {len(members)} in all" if len(members) > 5 else ""
    )
    raise ProblemError(
        f"{who}: its chain is reducible: states [{named}] form a closed class that never reaches "
        f"state {outside}: "
        "give every action a positive probability, or drop the states that are not visited for ever"
    )


@compiled(_nrt=True)
def chain_period(indptr: NDArray[Any], indices: NDArray[Any]) -> Any:
    """Period of an irreducible chain: gcd of level(u) + 1 - level(v) over its edges, levels by
    breadth-first search."""
    states = len(indptr) - 1
    level = np.full(states, -1, np.int64)
    queue = np.empty(states, np.int64)
    level[0], queue[0] = 0, 0
    found, period = 1, 0
    for head in range(states):
        origin = queue[head]
        for edge in range(indptr[origin], indptr[origin + 1]):
            reached = indices[edge]
            if level[reached] < 0:
                level[reached] = level[origin] + 1
                queue[found] = reached
                found += 1
            a, b = period, abs(level[origin] + 1 - level[reached])
            while b:
                a, b = b, a % b
            period = a
        if period == 1:
            return 1
    return period


def stationary_law(kernel: sparse.csr_array) -> FloatArray:
    """The stationary law of an ergodic chain.

    Chains of up to 500 states are solved by elimination, with small relative error in every entry
    however slowly they mix. Larger ones are solved until ``||mu P - mu||_1 <= 1e-13``, or an error
    says how far that failed; the error of mu itself is at most about that residual times the steps
    the chain takes to mix.

    Parameters
    ----------
    kernel : (S, S) csr_array
        An ergodic chain (see `check_ergodic`).

    Returns
    -------
    (S,) array
        Positive, sums to one.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> stationary_law(csr_array([[0.5, 0.5], [0.25, 0.75]]))
    array([0.33333333, 0.66666667])
    """
    states = len(kernel.indptr) - 1
    if states <= ELIMINATION_LIMIT:
        return eliminated(kernel.toarray())
    law, residual = solve_large_chain(kernel)
    if residual > RESIDUAL:
        raise ProblemError(
            f"the stationary law of a chain of {states} states was found only to a residual of "
            f"{residual:.1e} "
            f"instead of {RESIDUAL:g}, for it mixes too slowly: use a policy that explores more, "
            "or at most "
            f"{ELIMINATION_LIMIT} states, where the law is found by elimination"
        )
    return _positive(law)


def eliminated(chain: FloatArray) -> FloatArray:
    """The stationary distribution of a dense ergodic chain (S, S), which is overwritten.

    >>> eliminated(np.array([[0.5, 0.5], [0.25, 0.75]]))
    array([0.33333333, 0.66666667])
    """
    return _positive(eliminate(chain))


def _positive(law: FloatArray) -> FloatArray:
    if law.min() <= 0.0:
        raise ProblemError(
            f"the stationary law of state {np.argmin(law)} is too small for a floating-point "
            "number, so the chain is "
            "ergodic in name only: use a policy that explores more"
        )
    return law


@compiled(_nrt=True)
def eliminate(chain: FloatArray) -> FloatArray:
    """GTH: censor the chain on fewer and fewer states, then put the weights back. Overwrites
    `chain`.

    A diagonal entry is one minus the rest of its row; the rest is summed instead, so nothing is
    ever subtracted.
    """
    states = len(chain)
    for last in range(states - 1, 0, -1):
        leaving = chain[last, :last].sum()
        for i in range(last):
            share = chain[i, last] / leaving
            chain[i, last] = share
            if share > 0.0:
                for j in range(last):
                    chain[i, j] += share * chain[last, j]
    law = np.empty(states)
    law[0] = 1.0
    for last in range(1, states):
        law[last] = 0.0
        for i in range(last):
            law[last] += law[i] * chain[i, last]
        if law[last] > 1e200:
            scale = law[last]
            for i in range(last + 1):
                law[i] /= scale
    total = law.sum()
    for i in range(states):
        law[i] /= total
    return law
