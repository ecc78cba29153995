"""The chain an agent walks: its ergodicity and its stationary distribution mu (the assumptions).

Numba compiles the two loops that NumPy cannot express: the elimination of Grassmann, Taksar and
Heyman, which finds the stationary distribution without a single subtraction, and the search of the
graph that finds the period.
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
"""Chains of at most this many states are solved by elimination, larger ones iteratively."""


CONNECT = ": give every action a positive probability, or drop the transient states"
"""How to mend a reducible chain, unless the caller knows better."""


def check_ergodic(kernel: sparse.csr_array, who: str, connect: str = CONNECT) -> None:
    """Raise unless every state reaches every other (irreducible) and the chain is aperiodic.

    Parameters
    ----------
    kernel : (S, S) csr_array
        Rows sum to one; no explicit zeros.
    who : str
        The owner of the chain, for the error.
    connect : str
        How to make the chain irreducible: the end of the error.

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
        _raise_reducible(kernel, classes, class_of, who, connect)
    if kernel.diagonal().any():
        return
    period = int(chain_period(kernel.indptr, kernel.indices))
    if period > 1:
        raise ProblemError(
            f"{who}: its chain has period {period}, but must be aperiodic: let some state stay "
            "where it is with positive probability, or give the policy more actions"
        )


def _raise_reducible(
    kernel: sparse.csr_array, classes: int, class_of: NDArray[Any], who: str, connect: str
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
        f"state {outside}{connect}"
    )


@compiled(_nrt=True)
def chain_period(indptr: NDArray[Any], indices: NDArray[Any]) -> Any:
    """The period of an irreducible chain: the gcd of level(u) + 1 - level(v) over its edges u -> v.

    Levels are distances from state 0, found by breadth-first search.
    """
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
    """The stationary distribution of an ergodic chain.

    Chains of up to 500 states are solved by elimination, with a small relative error in every entry
    however slowly they mix. Larger ones are solved to ``||mu P - mu||_1 <= 1e-13``; where that is
    not reached, an error gives the residual. The error of mu itself is at most about the residual
    times the number of steps in which the chain mixes.

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
    distribution, residual = solve_large_chain(kernel)
    if residual > RESIDUAL:
        raise ProblemError(
            f"the stationary distribution of a chain of {states} states was found only to a "
            f"residual of {residual:.1e} instead of {RESIDUAL:g}, because the chain mixes too "
            f"slowly: use a policy that explores more, or at most {ELIMINATION_LIMIT} states, "
            "where the distribution is found by elimination"
        )
    return _positive(distribution)


def eliminated(chain: FloatArray) -> FloatArray:
    """The stationary distribution of a dense ergodic chain (S, S), which is overwritten.

    >>> eliminated(np.array([[0.5, 0.5], [0.25, 0.75]]))
    array([0.33333333, 0.66666667])
    """
    return _positive(eliminate(chain))


def _positive(distribution: FloatArray) -> FloatArray:
    if distribution.min() <= 0.0:
        raise ProblemError(
            f"the stationary probability of state {np.argmin(distribution)} is too small for a "
            "floating-point number, so the chain is not ergodic in double precision: use a policy "
            "that explores more"
        )
    return distribution


@compiled(_nrt=True)
def eliminate(chain: FloatArray) -> FloatArray:
    """GTH elimination: censor the chain on fewer and fewer states, then restore their weights.

    It overwrites `chain`. One minus a diagonal entry is the sum of the rest of its row, and that
    sum is taken instead, so that nothing is ever subtracted.
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
    weights = np.empty(states)
    weights[0] = 1.0
    for last in range(1, states):
        weights[last] = 0.0
        for i in range(last):
            weights[last] += weights[i] * chain[i, last]
        if weights[last] > 1e200:
            scale = weights[last]
            for i in range(last + 1):
                weights[i] /= scale
    total = weights.sum()
    for i in range(states):
        weights[i] /= total
    return weights
