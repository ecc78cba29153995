"""How fast chains mix: rigorous constants (m, rho) of the paper's Assumption 3.1.

They are computed for one chain or for a stack of small ones, since a federation may have a policy
for each of its agents. The chains of a stack are evaluated at the same times; each leaves the stack
when it is done.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fegsam.compilation import compiled
from fegsam.errors import ProblemError
from fegsam.problem.checks import FloatArray, fraction
from fegsam.problem.markov_chain import check_ergodic

MIXING_LIMIT = 2000
"""The most states of a chain: the constants come from dense powers of its kernel."""
PAIRWISE_LIMIT = 256
"""Up to this many states all pairs of rows are compared; beyond, each row with the mean row."""
SMALLEST_DISTANCE = 1e-10
"""Smaller distances are lost in rounding and are rounded up to this."""
POINTS_PER_OCTAVE = 32


@dataclass(frozen=True)
class MixingConstants:
    """m and rho with ``TV(P^t(s, .), P^t(s', .)) <= m rho^t`` for all states s, s' and all t.

    The same then holds with mu in the place of ``P^t(s', .)``.

    >>> MixingConstants(m=1.0, rho=0.5).m
    1.0
    """

    m: float
    rho: float


def mixing_constants(kernel: sparse.csr_array, target: float = 1e-6) -> MixingConstants:
    """A rigorous pair (m, rho) with total variation at most ``m rho^t`` at every t.

    The distance ``d(t) = max TV(P^t(s, .), P^t(s', .))`` over pairs of states never grows and is
    submultiplicative, so any t0 with d(t0) < 1 gives a pair, ``rho = d(t0)^(1/t0)`` and
    ``m = max_{r<t0} d(r) rho^-r``. The result is the pair, among those of all t0 that are tried,
    that guarantees a distance of `target` soonest. Bounds on the rounding errors of the powers are
    added to the distances.

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
            f"mixing constants were asked for a chain of {states} states, but dense powers are "
            f"affordable up to {MIXING_LIMIT}: use a smaller problem"
        )
    check_ergodic(kernel, "mixing constants")
    (m,), (rho,) = _pairs(kernel.toarray()[None], kernel, log_target)
    return MixingConstants(m=float(m), rho=float(rho))


def largest_mixing_constants(chains: FloatArray, target: float = 1e-6) -> MixingConstants:
    """The largest m and the largest rho of a stack (k, S, S) of ergodic chains.

    Examples
    --------
    >>> flip = np.array([[[0.75, 0.25], [0.25, 0.75]], [[0.5, 0.5], [0.5, 0.5]]])
    >>> round(largest_mixing_constants(flip).rho, 6)
    0.5
    """
    m, rho = _pairs(chains, None, math.log(fraction(target, "target")))
    return MixingConstants(m=float(m.max()), rho=float(rho.max()))


def _pairs(
    chains: FloatArray, kernel: sparse.csr_array | None, log_target: float
) -> tuple[FloatArray, FloatArray]:
    """(k,) m and (k,) rho of the chains (k, S, S).

    Where there is a single chain, `kernel` may be that chain as a sparse matrix; else it is None.
    """
    m, rho = np.ones(len(chains)), np.zeros(len(chains))
    slow = np.flatnonzero(_distance(chains) > _rounding(chains, 1))
    for members, times, distances in _scans(chains[slow], kernel):
        m[slow[members]], rho[slow[members]] = _best_pair(times, distances, log_target)
    return m, rho


def _best_pair(
    times: FloatArray, distances: FloatArray, log_target: float
) -> tuple[FloatArray, FloatArray]:
    """(k,) m and (k,) rho from the distances (p, k) at `times` (p,)."""
    logs = np.log(distances)
    rates = logs / np.maximum(times, 1)[:, None]
    # On [times[i], times[i + 1]) the distance is at most distances[i].
    last = (times[1:] - 1)[:, None]
    shape = distances.shape[1]
    best, m, rho = np.full(shape, math.inf), np.ones(shape), np.ones(shape)
    for j in range(1, len(times)):
        log_m = np.maximum(0.0, (logs[:j] - last[:j] * rates[j]).max(axis=0))
        mixes = rates[j] < 0.0
        steps = np.divide(log_m - log_target, -rates[j], out=np.full(shape, math.inf), where=mixes)
        sooner = steps < best
        best = np.where(sooner, steps, best)
        m, rho = np.where(sooner, np.exp(log_m), m), np.where(sooner, np.exp(rates[j]), rho)
    return m, rho


@dataclass(frozen=True, eq=False)
class _Walk:
    """The chains of a stack that still have to mix, and their distances d(t) so far.

    >>> _Walk(np.arange(2), [0.0], [np.ones(2)]).only(np.array([False, True])).members
    array([1])
    """

    members: NDArray[np.int64]
    times: list[float]
    distances: list[FloatArray]

    def only(self, which: NDArray[np.bool_]) -> _Walk:
        return _Walk(
            self.members[which], self.times, [distance[which] for distance in self.distances]
        )

    def after(self, time: int, distances: FloatArray) -> _Walk:
        return _Walk(self.members, [*self.times, time], [*self.distances, distances])


Scan = tuple[NDArray[np.int64], FloatArray, FloatArray]


def _scans(chains: FloatArray, kernel: sparse.csr_array | None) -> Iterator[Scan]:
    """Members (k,), times 0 = t_0 < t_1 < ... (p,) and upper bounds on d(t_i) (p, k).

    The times continue until the distance is at most `SMALLEST_DISTANCE`. Squaring finds the octave
    in which a chain begins to mix; from there on the times are 1/32 octave apart.
    """
    walk = _Walk(np.arange(len(chains)), [0], [np.ones(len(chains))])
    squares = deque([chains], maxlen=POINTS_PER_OCTAVE.bit_length() + 1)
    time = 1
    while len(walk.members):
        distance = _bounded_distance(squares[-1], time)
        begins = distance <= 0.5
        if begins.any():
            earlier = [square[begins] for square in squares]
            if time > 1:
                # Scan from the last time with a distance above 1/2, which is where `walk` ends.
                yield from _scan(walk.only(begins), earlier[:-1], time // 2, kernel)
            else:
                yield from _scan(
                    walk.only(begins).after(time, distance[begins]), earlier, time, kernel
                )
        if begins.all():
            return
        if _rounding(chains, time) > 0.25:
            raise ProblemError(
                f"mixing constants: the chain has not mixed after {time} steps, and rounding "
                "errors hide what follows: use a policy that explores more"
            )
        walk = walk.only(~begins).after(time, distance[~begins])
        squares = deque([square[~begins] for square in squares], maxlen=squares.maxlen)
        squares.append(squares[-1] @ squares[-1])
        time *= 2


def _scan(
    walk: _Walk, squares: list[FloatArray], time: int, kernel: sparse.csr_array | None
) -> Iterator[Scan]:
    """`_scans` from `time` on, for chains that begin to mix there.

    The last of `squares` holds their powers at `time`.
    """
    power = squares[-1]
    stride = max(1, time // POINTS_PER_OCTAVE)
    # Single steps use the sparse kernel, which costs far less. The order of the factors does not
    # matter: powers of one chain commute.
    step: Any = (
        kernel if stride == 1 and kernel is not None else squares[-(time // stride).bit_length()]
    )
    while True:
        for _ in range(POINTS_PER_OCTAVE):
            # Below ten times the rounding error, the bound at the next time would be worse.
            done = walk.distances[-1] <= max(SMALLEST_DISTANCE, 10.0 * _rounding(power, time))
            if done.any():
                finished = walk.only(done)
                yield (
                    finished.members,
                    np.array(finished.times, dtype=np.float64),
                    np.array(finished.distances),
                )
                if done.all():
                    return
                walk, power, step = walk.only(~done), power[~done], step[~done]
            power = step @ power if step is not kernel else (step @ power[0])[None]
            time += stride
            walk = walk.after(time, np.minimum(walk.distances[-1], _bounded_distance(power, time)))
        step = (step @ step).toarray()[None] if step is kernel else step @ step
        stride = 2 * stride


def _rounding(chains: FloatArray, time: int) -> float:
    """A bound on the error of a computed power, in L1: each step adds at most S rounding errors."""
    return chains.shape[-1] * time * float(np.finfo(np.float64).eps)


def _bounded_distance(powers: FloatArray, time: int) -> FloatArray:
    """(k,): upper bounds on d(time), from the computed powers."""
    return np.clip(_distance(powers) + _rounding(powers, time), SMALLEST_DISTANCE, 1.0)


def _distance(powers: FloatArray) -> FloatArray:
    """(k,): the largest total variation between two rows.

    For more than `PAIRWISE_LIMIT` rows it is an upper bound: twice the largest to their mean.
    """
    if powers.shape[-1] <= PAIRWISE_LIMIT:
        return _pairwise_distance(np.ascontiguousarray(powers))
    return np.abs(powers - powers.mean(axis=1, keepdims=True)).sum(axis=2).max(axis=1)


@compiled(_nrt=True)
def _pairwise_distance(powers: FloatArray) -> FloatArray:
    chains, states = powers.shape[:2]
    largest = np.zeros(chains)
    for k in range(chains):
        for i in range(states):
            for j in range(i):
                apart = 0.0
                for s in range(states):
                    apart += abs(powers[k, i, s] - powers[k, j, s])
                largest[k] = max(largest[k], 0.5 * apart)
    return largest
