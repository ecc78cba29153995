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
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fegsam.algorithms.rule import Algorithm
from fegsam.errors import DivergenceWarning, ProblemError, shown
from fegsam.exact import stability
from fegsam.exact.long_run import LongRun
from fegsam.exact.moment_system import MomentSystem, moment_system
from fegsam.exact.orders import Computed, TruncationOrders
from fegsam.exact.trajectory import Trajectory
from fegsam.problem.checks import LARGEST_COUNT, fraction, integer, positive
from fegsam.problem.federation import Problem
from fegsam.progress import Notice, Progress

PATIENCE = 20.0
"""A further order is computed if it takes at most this many seconds."""
_ROUNDING = 1e-9
_LONGEST_ALONE = 32
_MOST_TIMES = 10**6
"""The longest curve of `mean_squared_error`; `moments` computes longer ones at selected times."""
_SOLVE_ROUNDS = 30
"""Solving for the limit and checking it costs about as much as this many rounds."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Exact expectations at given times.

    Attributes
    ----------
    times : (t,) array of int
    mse : (t,) array
        E||avg_t - theta*||_2^2.
    mean : (t, d) array
        E avg_t.
    sync_error : (t,) array
        E Omega_t, the expected mean over the agents of ||theta^i_t - avg_t||_2^2.
    order : int
        The recursion keeps sets of at most `order` agents.
    truncation : float
        The largest relative difference in `mse` to the order below, usually far larger than the
        difference to the order above. Zero if nothing was left out; NaN if no two orders were
        compared or if they differ by more than a tenth (`note` says which).
    note : str
        Empty, or why the truncation error is unknown, and the cure.

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
    note: str = ""


class ExactValue(float):
    """A float that also says how accurate it is.

    Attributes
    ----------
    order : int
        The recursion kept sets of at most `order` agents.
    truncation : float
        The relative difference to the order below, as in `Moments`.
    note : str
        Empty, or why the truncation error is unknown, and the cure.

    Examples
    --------
    >>> value = ExactValue(0.5, order=2, truncation=1e-12)
    >>> value + 1, value.order
    (1.5, 2)
    """

    order: int
    truncation: float
    note: str

    def __new__(cls, value: float, order: int, truncation: float, note: str = "") -> ExactValue:
        self = super().__new__(cls, value)
        self.order, self.truncation, self.note = order, truncation, note
        return self

    def __getnewargs__(self) -> tuple[float, int, float, str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return float(self), self.order, self.truncation, self.note


def moments(
    problem: Problem,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: int,
    times: ArrayLike,
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
    step_size, sync_period : float, int
    times : (t,) array of int
        Need not be sorted.
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
    step_size, sync_period = positive(step_size, "step_size"), integer(sync_period, "sync_period")
    asked = _times(times)
    system = moment_system(problem, algorithm, initial_params, sampling)
    last = int(asked.max())
    length = _length(system, sync_period, last)
    when, place = np.unique(asked, return_inverse=True)
    steps = system.steps(step_size)
    orders = TruncationOrders(
        system, length, order, positive(patience, "patience"), int((when % length).max())
    )

    def at_order(r: int) -> Computed:
        with Progress(last // length, "round", orders.label(r, last // length)) as progress:
            hierarchy = system.hierarchy(steps, length, r)
            return _along(Trajectory(hierarchy, system.start, last // length, progress.show), when)

    found, used, gap, note = orders.compute(at_order, last // length)
    _require_squares(found.mse, used, system)
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
    sync_period: int,
    num_steps: int,
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
        "initial_params": initial_params,
    }
    return moments(problem, algorithm, times=times, **settings).mse


def stationary_error(
    problem: Problem,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: int,
    order: int | None = None,
    patience: float = PATIENCE,
) -> ExactValue:
    """The limit of E||avg_t - theta*||_2^2 just after a synchronisation.

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
    step_size, sync_period = positive(step_size, "step_size"), integer(sync_period, "sync_period")
    system = moment_system(problem, algorithm, None, "markov")
    length = _length(system, sync_period, sync_period)

    steps = system.steps(step_size)
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
            stability.require_limit(system, step_size, length, runs[used])
    return ExactValue(float(found.mse[0]), used, gap, note)


def weighted_error(
    problem: Problem,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: int,
    num_steps: int,
    decay: float,
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
    step_size, sync_period = positive(step_size, "step_size"), integer(sync_period, "sync_period")
    num_steps, decay = integer(num_steps, "num_steps"), fraction(decay, "decay")
    system = moment_system(problem, algorithm, initial_params, "markov")
    length = _length(system, sync_period, num_steps)
    steps = system.steps(step_size)
    orders = TruncationOrders(system, length, order, positive(patience, "patience"), length)

    def at_order(r: int) -> Computed:
        rounds = num_steps // length
        with Progress(rounds, "round", orders.label(r, rounds)) as progress:
            trajectory = Trajectory(
                system.hierarchy(steps, length, r), system.start, rounds, progress.show
            )
            with np.errstate(over="ignore", invalid="ignore"):
                total = trajectory.weighted_sum(num_steps, decay)
        return Computed(_squares(np.array([total])), trajectory.rounds_taken)

    found, used, gap, note = orders.compute(at_order, num_steps // length)
    _require_squares(found.mse, used, system)
    error = float(found.mse[0]) * (1 - decay) / -math.expm1(num_steps * math.log(decay))
    if math.isinf(error):
        warnings.warn(
            f"The mean-square error at step_size={step_size:g} exceeds the largest number before "
            f"time {num_steps}; it is infinite. Use a smaller step size.",
            DivergenceWarning,
            stacklevel=2,
        )
    return ExactValue(error, used, gap, note)


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


def _length(system: MomentSystem, sync_period: int, last: int) -> int:
    """The number of steps in a round of the recursion.

    Any number will do for a single agent, which never averages, and for many agents before their
    first synchronisation.
    """
    return min(sync_period, last + 1, _LONGEST_ALONE if system.num_agents == 1 else sync_period)


def _along(trajectory: Trajectory, times: np.ndarray) -> Computed:
    """The moments at sorted times; infinite once they overflow."""
    length = trajectory.hierarchy.length
    found = []
    with np.errstate(over="ignore", invalid="ignore"):
        for time in times:
            trajectory.advance(int(time) // length)
            found.append(trajectory.at(int(time) % length))
    mse, mean, apart = (np.array(each) for each in zip(*found, strict=True))
    mse = _squares(mse, apart[np.isfinite(apart)].max(initial=0.0))
    mean, apart = (np.where(np.isfinite(each), each, np.inf) for each in (mean, apart))
    return Computed(mse, trajectory.rounds_taken, mean, apart)


def _squares(mse: np.ndarray, spread: float = 0.0) -> np.ndarray:
    """Clean squared errors: infinite where they overflow, all NaN if one is truly negative.

    A squared error is negative if the truncation leaves out too much. Rounding may make it
    negative too, by a small fraction of itself and of the agents' `spread`; such values become
    zero.
    """
    finite = np.isfinite(mse)
    least = -_ROUNDING * (np.abs(mse[finite]).max(initial=0.0) + spread)
    if np.any(mse[finite] < least):
        return np.full(mse.shape, np.nan)
    return np.where(finite, np.maximum(mse, 0.0), np.inf)


def _require_squares(mse: np.ndarray, order: int, system: MomentSystem) -> None:
    if np.any(np.isnan(mse)):
        raise ProblemError(
            f"At order {order} the squared error becomes "
            f"negative{stability.why_not_positive(order, system)}"
        )
