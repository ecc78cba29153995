"""The error of the average without sampling: E||avg_t - theta*||^2, E avg_t and the sync error, for any number of agents.

Algorithms 2, 3 and 5, and Algorithm 1 in its linear form, multiply ``x = (theta - theta*, 1)`` by random matrices, so second
moments obey a linear recursion (`hierarchy`), truncated at sets of R agents. R rises until two orders agree. The cost does not
depend on the number of agents.

All errors are in the 2-norm. For Algorithm 3, whose theorem is in the sup norm, moments can say that
``max_s E theta(s)^2 <= E||theta||_sup^2 <= E||theta||_2^2``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fegsam.errors import ProblemError
from fegsam.exact.long_run import DENSE_ENTRIES, LongRun, largest_stable_step
from fegsam.exact.moment_system import MOST_BYTES, MomentSystem, moment_system
from fegsam.exact.trajectory import Trajectory
from fegsam.problem.checks import fraction, integer, positive
from fegsam.problem.federation import Federation, MarkovNoise

AGREEMENT = 1e-6
"""How closely two orders of truncation must agree, relative to the error."""
_PATIENCE = 20.0
"""Seconds up to which a further order is run all the way."""
_LONGEST_ALONE = 32


@dataclass(frozen=True, eq=False)
class Moments:
    """Exact expectations at some times.

    Attributes
    ----------
    times : (t,) array of int
    mse : (t,) array
        E||avg_t - theta*||_2^2.
    mean : (t, d) array
        E avg_t.
    sync_error : (t,) array
        E Omega_t, the mean over the agents of ||theta^i_t - avg_t||_2^2.
    order : int
        Sets of up to so many agents are kept.
    truncation : float
        The largest relative difference in `mse` to the order below; or, where the order above was too dear to run all the
        way, an estimate of the difference that it would make at the last time. Zero where nothing was left out, NaN where no
        two orders were compared.

    Examples
    --------
    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> fg.exact.moments(coin, average, step_size=0.5, sync_period=3, times=[0, 1]).mean.ravel()
    array([0.  , 0.25])
    """

    times: np.ndarray
    mse: np.ndarray
    mean: np.ndarray
    sync_error: np.ndarray
    order: int
    truncation: float


class Computed(NamedTuple):
    """What one order of truncation gives, and where its run ended."""

    mse: np.ndarray
    mean: np.ndarray
    sync_error: np.ndarray
    end: Trajectory


def moments(
    problem: Federation | MarkovNoise,
    algorithm: Any,
    *,
    step_size: float,
    sync_period: int,
    times: ArrayLike,
    initial_params: ArrayLike | None = None,
    sampling: str = "markov",
    order: int | None = None,
) -> Moments:
    """Error, mean and sync error of the average at the given times, without sampling.

    Parameters
    ----------
    problem, algorithm
        Algorithm 1 as `LinearSA`, 2, 3 or 5.
    step_size, sync_period : float, int
    times : (t,) array of int
        In any order.
    initial_params : (d,) array, optional
        Zeros if not given.
    sampling : {"markov", "iid"}
    order : int, optional
        Keep connected parts of up to so many agents; by default more and more until two orders agree to 1e-6.

    Examples
    --------
    Twice the agents, half the error, once the start is forgotten:

    >>> import fegsam as fg
    >>> mdp = fg.examples.two_state()
    >>> def error(num_agents):
    ...     fed = fg.Federation(mdp, num_agents=num_agents, target_policy=fg.policies.uniform(2, 2))
    ...     return fg.exact.moments(fed, fg.OffPolicyTabularTD(), step_size=0.1, sync_period=1, times=[4000]).mse[0]
    >>> round(float(error(10) / error(20)), 2)
    2.0
    """
    step_size, sync_period = positive(step_size, "step_size"), integer(sync_period, "sync_period")
    asked = _times(times)
    system = moment_system(problem, algorithm, initial_params, sampling)
    last = int(asked.max())
    length = _length(system, sync_period, last)
    when, place = np.unique(asked, return_inverse=True)

    def compute(r: int) -> Computed:
        return _along(Trajectory(system.hierarchy(step_size, length, r), system.start, last // length), when)

    found, used, gap = _raise_order(system, compute, order, step_size, length, last // length)
    mean = found.mean[place] + system.fixed_point
    return Moments(asked, found.mse[place], mean, found.sync_error[place], used, gap)


def mean_squared_error(
    problem: Federation | MarkovNoise,
    algorithm: Any,
    *,
    step_size: float,
    sync_period: int,
    num_steps: int,
    initial_params: ArrayLike | None = None,
) -> np.ndarray:
    """E||avg_t - theta*||_2^2 at the times 0, ..., T.

    Returns
    -------
    (T + 1,) array

    Examples
    --------
    Independent noise of variance 1/4, averaged by steps of a half: the error of the mean of two agents.

    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> fg.exact.mean_squared_error(coin, average, step_size=0.5, sync_period=1, num_steps=2)
    array([0.25      , 0.09375   , 0.0546875])
    """
    times = np.arange(integer(num_steps, "num_steps") + 1)
    settings = {"step_size": step_size, "sync_period": sync_period, "initial_params": initial_params}
    return moments(problem, algorithm, times=times, **settings).mse


def stationary_error(
    problem: Federation | MarkovNoise, algorithm: Any, *, step_size: float, sync_period: int, order: int | None = None
) -> float:
    """The limit of E||avg_t - theta*||_2^2 just after a synchronisation.

    Raises
    ------
    ProblemError
        Where the step is so large that the error does not converge; it says up to which step it does.

    Examples
    --------
    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> round(fg.exact.stationary_error(coin, average, step_size=0.5, sync_period=7), 6)
    0.041667
    """
    step_size, sync_period = positive(step_size, "step_size"), integer(sync_period, "sync_period")
    system = moment_system(problem, algorithm, None, "markov")
    length = _length(system, sync_period, sync_period)
    _require_stable(system, step_size, length)

    def compute(r: int) -> Computed:
        hierarchy = system.hierarchy(step_size, length, r)
        run = LongRun(hierarchy)
        end = Trajectory(hierarchy, system.start, 0)
        end.settle(run.unpacked(run.stationary()))
        mse, mean, apart = end.at(0)
        return Computed(np.array([mse]), mean, np.array([apart]), end)

    return float(_raise_order(system, compute, order, step_size, length, 60)[0].mse[0])


def weighted_error(
    problem: Federation | MarkovNoise,
    algorithm: Any,
    *,
    step_size: float,
    sync_period: int,
    num_steps: int,
    decay: float,
    initial_params: ArrayLike | None = None,
    order: int | None = None,
) -> float:
    """E||avg - theta*||_2^2 at the random output time, whose law q_T^c has the given `decay` c.

    Examples
    --------
    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> fg.exact.weighted_error(coin, average, step_size=0.5, sync_period=1, num_steps=2, decay=0.25)
    0.125
    """
    step_size, sync_period = positive(step_size, "step_size"), integer(sync_period, "sync_period")
    num_steps, decay = integer(num_steps, "num_steps"), fraction(decay, "decay")
    system = moment_system(problem, algorithm, initial_params, "markov")
    length = _length(system, sync_period, num_steps)

    def compute(r: int) -> Computed:
        trajectory = Trajectory(system.hierarchy(step_size, length, r), system.start, num_steps // length)
        total = trajectory.weighted_sum(num_steps, decay)
        return Computed(np.array([total]), np.zeros(0), np.zeros(0), trajectory)

    total = float(_raise_order(system, compute, order, step_size, length, num_steps // length)[0].mse[0])
    return total * (1 - decay) / -math.expm1(num_steps * math.log(decay))


def _times(times: ArrayLike) -> np.ndarray:
    asked = np.asarray(times)
    if asked.ndim != 1 or asked.size == 0 or not np.issubdtype(asked.dtype, np.integer) or asked.min() < 0:
        raise ProblemError(f"times is {times!r:.60}; give a list of whole numbers of at least 0.")
    return asked.astype(np.int64)


def _length(system: MomentSystem, sync_period: int, last: int) -> int:
    """The steps of a round. A single agent never averages, so any will do; nor do many before their first synchronisation."""
    return min(sync_period, last + 1, _LONGEST_ALONE if system.num_agents == 1 else sync_period)


def _raise_order(
    system: MomentSystem, compute: Callable[[int], Computed], order: int | None, step_size: float, length: int, rounds: int
) -> tuple[Computed, int, float]:
    """What is computed, its order, and the relative difference to another order."""
    if order is not None:
        order = integer(order, "order")
        return compute(order), order, 0.0 if order >= system.num_agents or system.iid else math.nan
    most = 1 if system.iid else system.num_agents
    best, reached = compute(1), 1
    while reached < most:
        if _seconds(system, reached + 1, length, rounds) > _PATIENCE:
            return best, reached, _estimated_gap(system, best.end, reached, step_size, length)
        finer = compute(reached + 1)
        gap = float(np.max(np.abs(finer.mse - best.mse) / np.maximum(np.abs(finer.mse), 1e-300)))
        best, reached = finer, reached + 1
        if gap <= AGREEMENT or not np.isfinite(gap):
            return best, reached, gap
    return best, reached, 0.0


def _seconds(system: MomentSystem, order: int, length: int, rounds: int) -> float:
    """About how long so many rounds take."""
    size, modes = len(system.start) + 1, sum(len(each.initial) for each in system.moves)
    one = 1e-3 * len(system.moves) ** order + 4e-7 * length * size**2 * modes**order
    packed = size * (size + 1) / 2 * sum(math.comb(modes + r - 1, r) for r in range(order + 1))
    return min(rounds, packed if packed <= DENSE_ENTRIES else rounds) * one


def _estimated_gap(system: MomentSystem, end: Trajectory, order: int, step_size: float, length: int) -> float:
    """What one more order would change at the end, from a few of its rounds.

    Parts of more agents are slaves of those below, for the modes soon forget them. What they add to the average's moments in
    each round is solved for in the long run.
    """
    few = max(1, min(16, 16 // length))
    if _seconds(system, order + 1, length, few) > _PATIENCE or system.needed_bytes(order + 1) > MOST_BYTES:
        return math.nan
    finer = system.hierarchy(step_size, length, order + 1)
    finer.rounds = end.hierarchy.rounds
    parts = finer.start(np.zeros_like(system.start)) | end.parts
    for _ in range(few):
        parts = finer.advance(parts, end.laws) | end.parts
    known = {chosen: parts[chosen] for chosen in end.parts}
    change = finer.average_alone(parts, end.laws) - end.hierarchy.average_alone(known, end.laws)
    settled = LongRun(end.hierarchy).settled(change)
    return float(abs(np.trace(settled) / np.trace(end.parts[()][:-1, :-1])))


def _along(trajectory: Trajectory, times: np.ndarray) -> Computed:
    """At sorted times; infinite once beyond all numbers."""
    length = trajectory.hierarchy.length
    found = []
    with np.errstate(over="ignore", invalid="ignore"):
        for time in times:
            trajectory.advance(int(time) // length)
            found.append(trajectory.at(int(time) % length))
    mse, mean, apart = (np.array(each) for each in zip(*found, strict=True))
    mse, mean, apart = (np.where(np.isfinite(each), each, np.inf) for each in (mse, mean, apart))
    return Computed(mse, mean, apart, trajectory)


def _require_stable(system: MomentSystem, step_size: float, length: int) -> None:
    """Judged at the lowest order, of which higher ones are small changes."""

    def radius(step: float) -> float:
        return LongRun(system.hierarchy(step, length, 1)).spectral_radius()

    found = radius(step_size)
    if found >= 1.0:
        raise ProblemError(
            f"At step_size={step_size:g} the mean-square error grows without bound (spectral radius {found:.6g} of one round); "
            f"use a step below {largest_stable_step(radius, step_size):.3g}."
        )
