"""`prepare`: check the arguments of a run, solve for its fixed point, and flatten all to a job.

Nothing runs here. `fegsam.run`, the deployed federation and the benchmarks all begin with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fegsam.algorithms.rule import Algorithm, check_algorithm, require_fixed_policies
from fegsam.algorithms.structure import (
    Control,
    OnPolicyControl,
    TemporalDifference,
    TransitionOperator,
    structure_of,
)
from fegsam.blas_threads import one_blas_thread
from fegsam.data.federation import DataFederation
from fegsam.engines.job import (
    LARGEST,
    Job,
    Sampling,
    check_sampling,
    check_seeds,
    lower_agents,
    lower_chain,
)
from fegsam.engines.resume import check_resumable, record_after
from fegsam.errors import ProblemError, shown
from fegsam.exact.fixed_points import common_point, policy_value
from fegsam.exact.method_weights import check_agents
from fegsam.fingerprint import content_fingerprint, describe
from fegsam.history.history import Checkpoint, History
from fegsam.history.recorder import Truth, ValueForm
from fegsam.history.settings import Settings
from fegsam.methods.method import Method, check_method
from fegsam.methods.rounds import Rounds
from fegsam.methods.schedules import StepSchedule, SyncPeriod, check_schedule, rounds_of
from fegsam.methods.tail import Tail, tail_of
from fegsam.prepare_data import DataPlan, RunEnds, check_data, data_job
from fegsam.problem.chains import check_chains, stationary_laws
from fegsam.problem.checks import flag, flat_params, integer, positive
from fegsam.problem.federation import Federation, MarkovNoise, Problem
from fegsam.randomness import OUTPUT_TIME, words
from fegsam.theory.bound.output_time import decay_at, output_time_distribution
from fegsam.versions import installed_version

_RECORDS = 200
"""The default number of recorded times."""
_MOST_RECORDS = 10**8
_EARLY = 1000
"""Times at which a schedule is checked, at the start and over the whole run."""


@one_blas_thread()
def prepare(
    problem: Problem | DataFederation,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: SyncPeriod,
    num_steps: int,
    method: Method | None = None,
    schedule: StepSchedule | None = None,
    tail: float | Tail | None = None,
    seeds: Iterable[int] = (0,),
    record: int | ArrayLike | None = None,
    record_params: bool = False,
    engine_name: str = "cpu",
    initial_params: ArrayLike | None = None,
    sampling: Sampling = "markov",
    output_decay: float | None = None,
    stop_at_output: bool = False,
    fixed_point: ArrayLike | None = None,
    resume_from: History | None = None,
) -> Job:
    """The job of a run; the arguments are those of `fegsam.run`.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> job = prepare(fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=50)
    >>> job.dimension, job.settings.communications
    (4, 10)
    """
    _check_resumed(resume_from)
    course = _check_course(step_size, sync_period, num_steps, method, schedule, tail)
    check_sampling(sampling)
    plan, dimension = _check_problem(problem, algorithm, course, sampling)
    initial = np.zeros(dimension)
    if initial_params is not None:
        initial = flat_params(initial_params, "initial_params", dimension)
    known = None
    if fixed_point is not None:
        known = flat_params(fixed_point, "fixed_point", dimension)
    _check_fit(problem, algorithm, course, dimension, stop_at_output)
    times = _record_times(record, course.num_steps)
    settings = Settings(
        algorithm=describe(algorithm),
        num_agents=problem.num_agents,
        **course.settings(),
        seeds=check_seeds(seeds),
        record=times if resume_from is None else record_after(resume_from, record, times),
        record_params=flag(record_params, "record_params"),
        engine=engine_name,
        sampling=sampling,
        output_decay=_decay(output_decay, problem, algorithm, course),
        stop_at_output=flag(stop_at_output, "stop_at_output"),
        fingerprint=content_fingerprint(problem, algorithm, initial, known),
        version=installed_version("fegsam") or "unknown",
        num_actions=_num_actions(problem, algorithm, dimension),
    )
    start = Checkpoint(0, np.broadcast_to(initial, (len(settings.seeds), dimension)))
    if resume_from is not None:
        start = check_resumable(resume_from, settings)
    ends = RunEnds(initial, start, _output_times(settings), known)
    if isinstance(problem, DataFederation):
        assert plan is not None
        job = data_job(problem, algorithm, plan, course.method, settings, ends)
    else:
        job = _flatten(problem, algorithm, course.method, settings, ends)
    discount = None if isinstance(problem, MarkovNoise) else problem.discount
    return dataclasses.replace(job, schedule=course.schedule, discount=discount)


class _Course(NamedTuple):
    """The steps and the rounds of a run, checked."""

    step_size: float
    rounds: Rounds
    num_steps: int
    method: Method
    schedule: StepSchedule | None
    tail: Tail

    def settings(self) -> dict[str, Any]:
        """The fields of `Settings` that follow from it."""
        return {
            "step_size": self.step_size,
            "sync_period": self.rounds.period,
            "periods": self.rounds.first,
            "method": "" if self.method.is_plain else repr(self.method),
            "exchanges": self.method.exchanges,
            "schedule": "" if self.schedule is None else repr(self.schedule),
            "tail": self.tail.fraction,
            "tail_over": self.tail.over,
            "num_steps": self.num_steps,
        }


def _check_course(
    step_size: Any,
    sync_period: SyncPeriod,
    num_steps: int,
    method: Method | None,
    schedule: StepSchedule | None,
    tail: float | Tail | None,
) -> _Course:
    if isinstance(step_size, list | tuple | np.ndarray):
        raise ProblemError(
            f"step_size is {shown(step_size)}; give one positive number, and schedule= for sizes "
            "that change over time."
        )
    step_size = positive(step_size, "step_size")
    rounds, averaged = rounds_of(sync_period), tail_of(tail)
    num_steps = integer(num_steps, "num_steps")
    method = Method() if method is None else check_method(method)
    check_schedule(schedule)
    return _Course(step_size, rounds, num_steps, method, schedule, averaged)


def _check_problem(
    problem: Problem | DataFederation, algorithm: Algorithm, course: _Course, sampling: Sampling
) -> tuple[DataPlan | None, int]:
    """How the algorithm runs on recorded data, if the agents have such, and the dimension d."""
    if sampling == "iid":
        require_fixed_policies(algorithm, "i.i.d. windows have no such policy")
    if isinstance(problem, DataFederation):
        plan = check_data(problem, algorithm, course.step_size, course.num_steps, sampling)
        return plan, plan.needs.dimension
    check_algorithm(algorithm, problem)
    check_chains(problem, algorithm.policies(problem))
    return None, algorithm.dimension(problem)


def _check_fit(
    problem: Problem | DataFederation,
    algorithm: Algorithm,
    course: _Course,
    dimension: int,
    stop_at_output: bool,
) -> None:
    """Raise `ProblemError` where the steps and rounds fit neither the problem nor each other."""
    step_size, rounds, num_steps, method, schedule, tail = course
    check_rounds(problem, algorithm, method, schedule, rounds, step_size, num_steps, dimension)
    tail.check(rounds, num_steps)
    if tail.fraction and stop_at_output:
        raise ProblemError(
            "A tail average needs the run to its end; leave out tail or stop_at_output."
        )


def check_rounds(
    problem: Problem | DataFederation,
    algorithm: Algorithm,
    method: Method,
    schedule: StepSchedule | None,
    rounds: Rounds,
    step_size: float,
    num_steps: int,
    dimension: int,
) -> None:
    """Raise `ProblemError` where a method or a schedule does not fit the problem and the run.

    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> few = Method(participation=fg.Participation(agents=5))
    >>> check_rounds(fed, fg.QLearning(), few, None, Rounds((), 10), 0.1, 100, 4)
    Traceback (most recent call last):
    fegsam.errors.ProblemError: participation asks for 5 agents of 4; give at most 4.
    """
    discount = None if isinstance(problem, MarkovNoise) else problem.discount
    check_agents(problem, algorithm, method, dimension)
    largest = _largest_step(step_size, schedule, discount, num_steps)
    method.check_steps(largest, (*rounds.first, rounds.period))


def _check_resumed(resume_from: Any) -> None:
    if resume_from is not None and not isinstance(resume_from, History):
        raise ProblemError(
            f"resume_from is {shown(resume_from)}; give a History, for example "
            "fegsam.load_history(path)."
        )


def _largest_step(
    step_size: float, schedule: StepSchedule | None, discount: float | None, num_steps: int
) -> float:
    """The largest step size of the run: shapes fall, so the first steps and the changes decide."""
    if schedule is None:
        return step_size
    early = np.arange(min(num_steps, _EARLY))
    later = np.linspace(0, num_steps - 1, _EARLY).astype(np.int64)
    changes = np.array(getattr(schedule, "times", ()), np.int64)
    times = np.union1d(np.union1d(early, later), changes[changes < num_steps])
    factors = schedule.factors(times, discount)
    wrong = ~(np.isfinite(factors) & (factors > 0))
    if wrong.any():
        raise ProblemError(
            f"schedule has the factor {factors[wrong][0]}; give one whose factors are positive and "
            "finite."
        )
    return step_size * float(factors.max())


def _flatten(
    problem: Problem,
    algorithm: Algorithm,
    method: Method,
    settings: Settings,
    ends: RunEnds,
) -> Job:
    """The job of checked settings: the problem and the algorithm as flat arrays."""
    policies = algorithm.policies(problem)
    return Job(
        settings=settings,
        form=algorithm.form,
        rule=algorithm.rule,
        tables=algorithm.tables(problem),
        window=algorithm.window,
        dimension=len(ends.initial_params),
        agents=lower_agents(problem, policies),
        chain=lower_chain(problem, policies, settings.sampling),
        initial_params=ends.initial_params,
        start=ends.start,
        acting=getattr(algorithm, "acting", None),
        truth=_truth(problem, algorithm, method, ends.fixed_point),
        output_times=ends.output_times,
        method=method,
    )


def _record_times(record: int | ArrayLike | None, num_steps: int) -> np.ndarray:
    """The recorded times, int64, sorted, in 0..T."""
    if record is None:
        return np.unique(np.linspace(0, num_steps, min(num_steps, _RECORDS) + 1).astype(np.int64))
    if not isinstance(record, Iterable) or (isinstance(record, np.ndarray) and record.ndim == 0):
        return _every(integer(record, "record"), num_steps)
    try:
        times = np.asarray(record)
    except (TypeError, ValueError, OverflowError):
        times = np.empty(0)
    if times.size == 0 or times.ndim != 1 or not np.issubdtype(times.dtype, np.integer):
        raise ProblemError(f"record is {shown(record)}; give a whole number, or a list of times.")
    outside = times[(times < 0) | (times > num_steps)]
    if len(outside):
        raise ProblemError(
            f"record has time {outside[0]}; times run from 0 to num_steps={num_steps}."
        )
    return np.unique(times).astype(np.int64)


def _every(period: int, num_steps: int) -> np.ndarray:
    """0, `period`, ... and T."""
    if num_steps // period > _MOST_RECORDS:
        raise ProblemError(
            f"record={period} asks for {num_steps // period} times out of num_steps={num_steps}, "
            f"but at most {_MOST_RECORDS} can be recorded: record less often."
        )
    return np.unique(np.append(np.arange(0, num_steps + 1, period), num_steps))


def _decay(
    decay: Any,
    problem: Problem | DataFederation,
    algorithm: Algorithm,
    course: _Course,
) -> float:
    if decay is None and isinstance(problem, DataFederation):
        return 1.0 - 1.0 / max(course.num_steps, 2)
    if decay is None:
        assert not isinstance(problem, DataFederation)
        return decay_at(problem, algorithm, course.step_size, course.num_steps)
    if not isinstance(decay, int | float | np.integer | np.floating) or not 0 < decay < 1:
        raise ProblemError(
            f"output_decay is {shown(decay)}; give a number between 0 and 1 (the smaller it is, "
            "the likelier late times are)."
        )
    return float(decay)


def _output_times(settings: Settings) -> np.ndarray:
    """int64 (seeds,): the output times, drawn before the run from words of their own purpose."""
    seeds = np.array(settings.seeds, np.uint64)
    high, low = words(seeds, np.uint64(0), np.uint64(0), OUTPUT_TIME)
    uniform = ((high >> np.uint64(5)) * 2.0**26 + (low >> np.uint64(6))) / 2.0**53
    return output_time_distribution(settings.num_steps, settings.output_decay).draw(uniform)


def _truth(
    problem: Problem, algorithm: Algorithm, method: Method, known: np.ndarray | None
) -> Truth:
    fixed = known if known is not None else common_point(problem, algorithm, method)
    largest = float(np.abs(fixed).max())
    if not largest <= LARGEST:
        raise ProblemError(
            f"The fixed point has an entry of size {largest:.3g}, but squares of numbers beyond "
            f"{LARGEST:g} overflow: give rewards or features in a larger unit."
        )
    return Truth(fixed, algorithm.norm, _value_form(problem, algorithm, fixed))


def _num_actions(problem: Problem | DataFederation, algorithm: Algorithm, dimension: int) -> int:
    """A, where the algorithm learns a table of action values; else 0."""
    if isinstance(problem, DataFederation):
        states, actions = problem.num_states or 0, problem.num_actions or 0
        return actions if algorithm.form == "cell" and dimension == states * actions else 0
    learns_values = isinstance(structure_of(algorithm, problem), Control | OnPolicyControl)
    return problem.num_actions if learns_values and isinstance(problem, Federation) else 0


def _value_form(problem: Problem, algorithm: Algorithm, fixed: np.ndarray) -> ValueForm | None:
    """The distance from V^pi, weighted by the mixture of the agents' stationary distributions."""
    structure = structure_of(algorithm, problem)
    if not isinstance(structure, TemporalDifference | TransitionOperator):
        return None
    if not isinstance(problem, Federation) or len(problem.mdps) > 1:
        return None
    if structure.target_policy is None:
        return None
    value = policy_value(next(iter(problem.mdps)), structure.target_policy)
    stationary = stationary_laws(problem, algorithm.policies(problem))
    weights = (problem.kind_counts / problem.num_agents) @ stationary
    if structure.features is None:
        off = fixed - value
        return ValueForm(weights[None], weights * off, float(weights @ off**2))
    phi = structure.features
    off = phi @ fixed - value
    gram = phi.T @ (weights[:, None] * phi)
    return ValueForm(gram, phi.T @ (weights * off), float(weights @ off**2))
