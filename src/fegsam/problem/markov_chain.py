"""The chain an agent walks: ergodicity, stationary law mu and mixing constants (m, rho) of the paper's assumptions.

Numba compiles the two loops that NumPy cannot express: the elimination of Grassmann, Taksar and Heyman, which finds the
stationary law without a single subtraction, and the walk over the graph that finds the period.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from fegsam.compilation import compiled
from fegsam.errors import ProblemError
from fegsam.problem.balance import RESIDUAL, solve_large_chain
from fegsam.problem.checks import FloatArray, fraction

ELIMINATION_LIMIT = 500
"""Up to so many states the stationary law is found by elimination, beyond iteratively."""
MIXING_LIMIT = 2000
"""Mixing constants take dense powers of the kernel, so there is a limit to the states."""
PAIRWISE_LIMIT = 256
"""Up to so many states all pairs of rows are compared, beyond each with the mean row."""
SMALLEST_DISTANCE = 1e-10
"""Distances below drown in rounding: they are taken to be this large."""
POINTS_PER_OCTAVE = 32


@dataclass(frozen=True)
class MixingConstants:
    """The pair with ``TV(P^t(s, .), P^t(s', .)) <= m rho^t`` for all states s, s' and all t, hence for mu too.

    >>> MixingConstants(m=1.0, rho=0.5).m
    1.0
    """

    m: float
    rho: float


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
    fegsam.errors.ProblemError: agent kind 0: its chain has period 2, but must be aperiodic: let some state stay ...
    """
    classes, class_of = csgraph.connected_components(kernel, directed=True, connection="strong")
    if classes > 1:
        _raise_reducible(kernel, classes, class_of, who)
    if kernel.diagonal().any():
        return
    period = int(_period(kernel.indptr, kernel.indices))
    if period > 1:
        raise ProblemError(
            f"{who}: its chain has period {period}, but must be aperiodic: let some state stay where it is with "
            "positive probability, or give the policy more actions"
        )


def _raise_reducible(kernel: sparse.csr_array, classes: int, class_of: NDArray[Any], who: str) -> None:
    origin = np.repeat(np.arange(len(class_of)), np.diff(kernel.indptr))
    leaves = class_of[origin] != class_of[kernel.indices]
    is_closed = np.ones(classes, dtype=bool)
    is_closed[class_of[origin[leaves]]] = False
    sizes = np.bincount(class_of, minlength=classes)
    smallest = int(np.flatnonzero(is_closed)[np.argmin(sizes[is_closed])])
    members = np.flatnonzero(class_of == smallest)
    outside = int(np.argmax(class_of != smallest))
    named = ", ".join(str(state) for state in members[:5]) + (f", ... {len(members)} in all" if len(members) > 5 else "")
    raise ProblemError(
        f"{who}: its chain is reducible: states [{named}] form a closed class that never reaches state {outside}: "
        "give every action a positive probability, or drop the states that are not visited for ever"
    )


@compiled(_nrt=True)
def _period(indptr: NDArray[Any], indices: NDArray[Any]) -> Any:
    """Period of an irreducible chain: gcd of level(u) + 1 - level(v) over its edges, levels by breadth-first search."""
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

    Chains of up to 500 states are solved by elimination, with small relative error in every entry however slowly they
    mix. Larger ones are solved until ``||mu P - mu||_1 <= 1e-13``, or an error says how far that failed; the error of
    mu itself is at most about that residual times the steps the chain takes to mix.

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
        law = _eliminate(kernel.toarray())
    else:
        law, residual = solve_large_chain(kernel)
        if residual > RESIDUAL:
            raise ProblemError(
                f"the stationary law of a chain of {states} states was found only to a residual of {residual:.1e} "
                f"instead of {RESIDUAL:g}, for it mixes too slowly: use a policy that explores more, or at most "
                f"{ELIMINATION_LIMIT} states, where the law is found by elimination"
            )
    if law.min() <= 0.0:
        raise ProblemError(
            f"the stationary law of state {np.argmin(law)} is too small for a floating-point number, so the chain is "
            "ergodic in name only: use a policy that explores more"
        )
    return law


@compiled(_nrt=True)
def _eliminate(chain: FloatArray) -> FloatArray:
    """GTH: censor the chain on fewer and fewer states, then put the weights back. Overwrites `chain`.

    A diagonal entry is one minus the rest of its row; the rest is summed instead, so nothing is ever subtracted.
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


def mixing_constants(kernel: sparse.csr_array, target: float = 1e-6) -> MixingConstants:
    """A rigorous pair (m, rho) with total variation at most ``m rho^t`` at every t.

    The distance ``d(t) = max TV(P^t(s, .), P^t(s', .))`` over pairs of states never grows and is submultiplicative, so
    any t0 with d(t0) < 1 gives ``rho = d(t0)^(1/t0)``, ``m = max_{r<t0} d(r) rho^-r``. Of all t0 looked at, the pair is
    kept that promises a distance of `target` soonest. Rounding in the powers is added to the distances.

    Parameters
    ----------
    kernel : (S, S) csr_array
        An ergodic chain of at most 2000 states.
    target : float
        The distance that matters, strictly between 0 and 1.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> pair = mixing_constants(csr_array([[0.75, 0.25], [0.25, 0.75]]))
    >>> round(pair.m, 6), round(pair.rho, 6)
    (1.0, 0.5)
    """
    log_target = math.log(fraction(target, "target"))
    states = len(kernel.indptr) - 1
    if states > MIXING_LIMIT:
        raise ProblemError(
            f"mixing constants were asked for a chain of {states} states, but dense powers are affordable up to "
            f"{MIXING_LIMIT}: use a smaller problem"
        )
    check_ergodic(kernel, "mixing constants")
    chain = kernel.toarray()
    if _distance(chain) <= _rounding(chain, 1):
        return MixingConstants(m=1.0, rho=0.0)
    times, distances = _distances(kernel, chain)
    rates = np.log(distances) / np.maximum(times, 1)
    # On [times[i], times[i + 1]) the distance is at most distances[i].
    last = times[1:] - 1
    best, pair = math.inf, MixingConstants(m=1.0, rho=1.0)
    for j in range(1, len(times)):
        if rates[j] >= 0.0:
            continue
        log_m = max(0.0, float(np.max(np.log(distances[:j]) - last[:j] * rates[j])))
        steps = (log_m - log_target) / -rates[j]
        if steps < best:
            best, pair = steps, MixingConstants(m=math.exp(log_m), rho=math.exp(rates[j]))
    return pair


def _distances(kernel: sparse.csr_array, chain: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Times 0 = t_0 < t_1 < ... and upper bounds on d(t_i), down to `SMALLEST_DISTANCE`.

    Squaring finds the octave in which the chain begins to mix; from there it is scanned in steps of 1/32 octave.
    """
    times, distances = [0], [1.0]
    squares = deque([chain], maxlen=POINTS_PER_OCTAVE.bit_length() + 1)
    time = 1
    while (distance := _bounded_distance(squares[-1], time)) > 0.5:
        if _rounding(chain, time) > 0.25:
            raise ProblemError(
                f"mixing constants: the chain has not mixed after {time} steps, more than rounding allows to follow: "
                "use a policy that explores more"
            )
        times.append(time)
        distances.append(distance)
        squares.append(squares[-1] @ squares[-1])
        time *= 2
    if time > 1:  # step back to where the distance was last above a half, which is on the list already
        squares.pop()
        time //= 2
        power = squares[-1]
    else:
        times.append(time)
        distances.append(distance)
        power = chain
    stride = max(1, time // POINTS_PER_OCTAVE)
    # A single step is taken with the sparse kernel, which costs far less; powers of one chain commute.
    step: Any = kernel if stride == 1 else squares[-(time // stride).bit_length()]
    while True:
        for _ in range(POINTS_PER_OCTAVE):
            # Below ten times the rounding a distance would promise less at the next time, not more.
            if distances[-1] <= max(SMALLEST_DISTANCE, 10.0 * _rounding(chain, time)):
                return np.array(times, dtype=np.float64), np.array(distances)
            power = step @ power
            time += stride
            times.append(time)
            distances.append(min(distances[-1], _bounded_distance(power, time)))
        step, stride = step @ step, 2 * stride
        step = step.toarray() if sparse.issparse(step) else step


def _rounding(chain: FloatArray, time: int) -> float:
    """Every product may shift a row by S rounding errors in L1, and the shifts add up over time."""
    return len(chain) * time * float(np.finfo(np.float64).eps)


def _bounded_distance(power: FloatArray, time: int) -> float:
    """Upper bound on d(time), from the computed power."""
    return min(1.0, max(SMALLEST_DISTANCE, _distance(power) + _rounding(power, time)))


def _distance(power: FloatArray) -> float:
    """The largest total variation between two rows; for many rows, twice the largest to their mean."""
    if len(power) == 1:
        return 0.0
    if len(power) <= PAIRWISE_LIMIT:
        # Imported here, for it takes a tenth of the time of `import fegsam` and few runs need it.
        from scipy.spatial.distance import pdist

        return 0.5 * float(pdist(power, "cityblock").max())
    return float(np.abs(power - power.mean(axis=0)).sum(axis=1).max())
