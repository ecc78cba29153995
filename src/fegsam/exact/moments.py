"""Exact moments of the average: E||avg_t - theta*||^2, E avg_t and the sync error, for any N.

Algorithms 2, 3 and 5, and Algorithm 1 in its linear form, multiply ``x = (theta - theta*, 1)`` by
random matrices, so the second moments obey a linear recursion (`hierarchy`), truncated at sets of R
agents. R rises until two orders agree. The cost does not depend on the number of agents.

All errors are in the 2-norm. The theorem on Algorithm 3 is in the sup norm, and moments only bound
that: ``max_s E theta(s)^2 <= E||theta||_sup^2 <= E||theta||_2^2``.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import ArrayLike

from fegsam.algorithms.rule import Algorithm
from fegsam.errors import DivergenceWarning, ProblemError, shown
from fegsam.exact import stability
from fegsam.exact.course import Course
from fegsam.exact.long_run import LongRun
from fegsam.exact.orders import Computed, TruncationOrders
from fegsam.exact.results import ExactValue, Moments, TailMoments
from fegsam.exact.run_system import run_system
from fegsam.exact.squared_errors import along, require_squares, squares
from fegsam.methods.method import Method
from fegsam.methods.schedules import StepSchedule, SyncPeriod, rounds_of
from fegsam.methods.tail import Tail, tail_of
from fegsam.problem.checks import LARGEST_COUNT, fraction, integer, positive
from fegsam.problem.federation import Problem
from fegsam.progress import Notice, Progress

PATIENCE = 20.0
"""A further order is computed if it takes at most this many seconds."""
_MOST_TIMES = 10**6
"""The longest curve of `mean_squared_error`; `moments` computes longer ones at selected times."""
_SOLVE_ROUNDS = 30
"""Solving for the limit and checking it costs about as much as this many rounds."""


def moments(
    problem: Problem,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: SyncPeriod,
    times: ArrayLike,
    method: Method | None = None,
    schedule: StepSchedule | None = None,
    initial_params: ArrayLike | None = None,
    sampling: str = "markov",
    order: int | None = None,
    patience: float = PATIENCE,
) -> Moments:
    """Error, mean and sync error of the average at the given times, without sampling.

    Parameters
    ----------
    problem, algorithm
        A temporal difference or a linear operator: Algorithm 1 as `LinearSA`, 2, 3, 5, or your own
        algorithm with such a structure.
    step_size : float
    sync_period : int, sequence of int or schedules.Growing
        The length of the rounds; of a sequence, the last one repeats.
    times : (t,) array of int
        Need not be sorted.
    method : Method, optional
        Plain averaging if not given. Errors are from `fixed_point` with the same method.
    schedule : schedule of step sizes, optional
        Its factor at time t multiplies the step size.
    initial_params : (d,) array, optional
        Zeros if not given.
    sampling : {"markov", "iid"}
    order : int, optional
        Keep connected parts of at most `order` agents. By default the order rises until two orders
        agree to 1e-9.
    patience : float
        The most seconds that a further order may take, by an estimate that does not depend on the
        machine.

    Examples
    --------
    Twice the agents have half the error, once the start is forgotten:

    >>> import fegsam as fg
    >>> mdp = fg.examples.two_state()
    >>> def error(num_agents):
    ...     fed = fg.Federation(mdp, num_agents=num_agents, target_policy=fg.policies.uniform(2, 2))
    ...     return fg.exact.moments(
    ...         fed, fg.OffPolicyTabularTD(), step_size=0.1, sync_period=1, times=[4000]
    ...     ).mse[0]
    >>> round(float(error(10) / error(20)), 2)
    2.0
    """
    asked = _times(times)
    last = int(asked.max())
    run = run_system(
        problem,
        algorithm,
        step_size=step_size,
        sync_period=sync_period,
        method=method,
        schedule=schedule,
        last=last,
        initial_params=initial_params,
        sampling=sampling,
    )
    when, place = np.unique(asked, return_inverse=True)
    rounds, reads = run.num_rounds(last), run.last_offset(when)
    orders = TruncationOrders(run.system, run.longest, order, positive(patience, "patience"), reads)

    def at_order(r: int) -> Computed:
        with Progress(rounds, "round", orders.label(r, rounds)) as progress:
            return along(run.course(r, last, progress.show), when)

    system = run.system
    found, used, gap, note = orders.compute(at_order, rounds)
    require_squares(found.mse, used, system)
    if not np.all(np.isfinite(found.mse)):
        first = int(when[np.argmin(np.isfinite(found.mse))])
        warnings.warn(
            f"The mean-square error at step_size={step_size:g} exceeds the largest number by time "
            f"{first}; it is infinite from there on. Use a smaller step size.",
            DivergenceWarning,
            stacklevel=2,
        )
    assert found.mean is not None
    assert found.sync_error is not None
    mean = found.mean[place] + system.fixed_point
    return Moments(asked, found.mse[place], mean, found.sync_error[place], used, gap, note)


def mean_squared_error(
    problem: Problem,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: SyncPeriod,
    num_steps: int,
    method: Method | None = None,
    schedule: StepSchedule | None = None,
    initial_params: ArrayLike | None = None,
) -> np.ndarray:
    """The curve E||avg_t - theta*||_2^2 at the times 0, ..., T.

    Returns
    -------
    (T + 1,) array

    Examples
    --------
    Two agents average independent noise of variance 1/4 with a step size of 1/2:

    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> fg.exact.mean_squared_error(coin, average, step_size=0.5, sync_period=1, num_steps=2)
    array([0.25      , 0.09375   , 0.0546875])
    """
    if integer(num_steps, "num_steps") > _MOST_TIMES:
        raise ProblemError(
            f"num_steps is {num_steps}, but a curve has at most {_MOST_TIMES} times; use "
            "exact.moments at selected times."
        )
    times = np.arange(num_steps + 1)
    settings = {
        "step_size": step_size,
        "sync_period": sync_period,
        "method": method,
        "schedule": schedule,
        "initial_params": initial_params,
    }
    return moments(problem, algorithm, times=times, **settings).mse


def stationary_error(
    problem: Problem,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: SyncPeriod,
    method: Method | None = None,
    order: int | None = None,
    patience: float = PATIENCE,
) -> ExactValue:
    """The limit of E||avg_t - theta*||_2^2 just after a synchronisation.

    A limit needs a constant step size, so there is no schedule, and rounds that have one length in
    the end: of a sequence of lengths only the last one matters.

    Returns
    -------
    ExactValue
        A float with the attributes `order`, `truncation` and `note`, as in `Moments`.

    Raises
    ------
    ProblemError
        If the step size is so large that the error does not converge. The message names a step size
        at which it does.

    Examples
    --------
    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> round(fg.exact.stationary_error(coin, average, step_size=0.5, sync_period=7), 6)
    0.041667
    """
    settled = rounds_of(sync_period).period
    run = run_system(
        problem,
        algorithm,
        step_size=step_size,
        sync_period=settled,
        method=method,
        last=None,
    )
    system, steps, length = run.system, run.steps, run.longest
    orders = TruncationOrders(system, length, order, positive(patience, "patience"), 0)
    runs: dict[int, LongRun] = {}

    def run_of(r: int) -> LongRun:
        runs[r] = LongRun(system.hierarchy(steps, length, r), runs.get(r - 1))
        return runs[r]

    def at_order(r: int) -> Computed:
        with Notice(orders.label(r, _SOLVE_ROUNDS)):
            return Computed(np.array([stability.limit(run_of(r))]), _SOLVE_ROUNDS)

    with np.errstate(over="ignore", invalid="ignore"):
        found, used, gap, note = orders.compute(at_order, _SOLVE_ROUNDS)
        with Notice("checking that the error converges"):
            stability.require_limit(system, steps.step_size, length, runs[used])
    return ExactValue(float(found.mse[0]), used, gap, note)


def weighted_error(
    problem: Problem,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: SyncPeriod,
    num_steps: int,
    decay: float,
    method: Method | None = None,
    schedule: StepSchedule | None = None,
    initial_params: ArrayLike | None = None,
    order: int | None = None,
    patience: float = PATIENCE,
) -> ExactValue:
    """The expected error E||avg - theta*||_2^2 at the random output time.

    The output time has the distribution q_T^c with c = `decay`.

    Returns
    -------
    ExactValue
        A float with the attributes `order`, `truncation` and `note`, as in `Moments`.

    Examples
    --------
    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> fg.exact.weighted_error(
    ...     coin, average, step_size=0.5, sync_period=1, num_steps=2, decay=0.25
    ... )
    0.125
    """
    num_steps, decay = integer(num_steps, "num_steps"), fraction(decay, "decay")
    run = run_system(
        problem,
        algorithm,
        step_size=step_size,
        sync_period=sync_period,
        method=method,
        schedule=schedule,
        last=num_steps,
        initial_params=initial_params,
    )
    rounds = run.num_rounds(num_steps)
    orders = TruncationOrders(
        run.system, run.longest, order, positive(patience, "patience"), run.longest
    )

    def at_order(r: int) -> Computed:
        with Progress(rounds, "round", orders.label(r, rounds)) as progress:
            course = run.course(r, num_steps, progress.show)
            with np.errstate(over="ignore", invalid="ignore"):
                total = course.weighted_sum(num_steps, decay)
        return Computed(squares(np.array([total])), course.all_taken())

    found, used, gap, note = orders.compute(at_order, rounds)
    require_squares(found.mse, used, run.system)
    error = float(found.mse[0]) * (1 - decay) / -math.expm1(num_steps * math.log(decay))
    if math.isinf(error):
        warnings.warn(
            f"The mean-square error at step_size={step_size:g} exceeds the largest number before "
            f"time {num_steps}; it is infinite. Use a smaller step size.",
            DivergenceWarning,
            stacklevel=2,
        )
    return ExactValue(error, used, gap, note)


def tail_error(
    problem: Problem,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: SyncPeriod,
    num_steps: int,
    tail: float | Tail,
    method: Method | None = None,
    schedule: StepSchedule | None = None,
    initial_params: ArrayLike | None = None,
    sampling: str = "markov",
    order: int | None = None,
    patience: float = PATIENCE,
) -> TailMoments:
    """Error and mean of the tail average, the mean of the averages at the end of a run.

    Parameters
    ----------
    problem, algorithm, step_size, sync_period, num_steps
    tail : float or Tail
        The fraction of the run, at its end, over which the mean is taken.
    method, schedule, initial_params, sampling, order, patience
        As in `moments`.

    Examples
    --------
    The mean over the last half of a run has a smaller error than its last average:

    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> settings = {"step_size": 0.5, "sync_period": 5, "num_steps": 100}
    >>> found = fg.exact.tail_error(coin, average, tail=0.5, **settings)
    >>> round(found.mse, 6)
    0.002433
    """
    num_steps, chosen = integer(num_steps, "num_steps"), tail_of(tail)
    if chosen.fraction == 0.0:
        raise ProblemError(
            f"tail is {shown(tail)}, so there is nothing to take the mean of; give a fraction "
            "above 0 and at most 1, or use exact.moments."
        )
    chosen.check(rounds_of(sync_period), num_steps)
    run = run_system(
        problem,
        algorithm,
        step_size=step_size,
        sync_period=sync_period,
        method=method,
        schedule=schedule,
        last=num_steps,
        initial_params=initial_params,
        sampling=sampling,
        tail=chosen,
    )
    rounds = run.num_rounds(num_steps)
    orders = TruncationOrders(run.system, run.longest, order, positive(patience, "patience"), 0)

    def at_order(r: int) -> Computed:
        with Progress(rounds, "round", orders.label(r, rounds)) as progress:
            course = run.course(r, num_steps, progress.show)
            assert isinstance(course, Course)
            with np.errstate(over="ignore", invalid="ignore"):
                mse, mean = course.tail()
        return Computed(squares(np.array([mse])), course.all_taken(), mean[None])

    found, used, gap, note = orders.compute(at_order, rounds)
    require_squares(found.mse, used, run.system)
    assert found.mean is not None
    mean = run.system.fixed_point + found.mean[0]
    return TailMoments(float(found.mse[0]), mean, used, gap, note)


def _times(times: ArrayLike) -> np.ndarray:
    try:
        asked = np.asarray(times)
    except (TypeError, ValueError):
        asked = np.zeros(())
    if asked.ndim != 1 or asked.size == 0 or not np.issubdtype(asked.dtype, np.integer):
        raise ProblemError(f"times is {shown(times)}; give a list of whole numbers of at least 0.")
    if asked.min() < 0 or int(asked.max()) > LARGEST_COUNT:
        raise ProblemError(
            f"times is {shown(times)}; give whole numbers from 0 to {LARGEST_COUNT}."
        )
    return asked.astype(np.int64)
