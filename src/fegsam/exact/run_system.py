"""The recursion that a run's settings ask for: of plain averaging, or of a method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fegsam.algorithms.rule import Algorithm, check_algorithm
from fegsam.errors import ProblemError
from fegsam.exact.course import Course, RunPlan
from fegsam.exact.method_system import MethodSystem, method_system
from fegsam.exact.method_weights import check_agents
from fegsam.exact.moment_system import MomentSystem, moment_system
from fegsam.exact.rounds import StepMeans
from fegsam.exact.trajectory import Trajectory
from fegsam.methods.method import Method, check_method
from fegsam.methods.rounds import Rounds
from fegsam.methods.schedules import check_schedule, rounds_of
from fegsam.methods.tail import Tail
from fegsam.problem.checks import positive
from fegsam.problem.federation import Federation, Problem

_LONGEST_ALONE = 32


@dataclass(frozen=True, eq=False)
class RunSystem:
    """A run as input of the moment recursion."""

    system: MomentSystem
    plan: RunPlan
    steps: StepMeans
    """The maps of a step at the plan's step size; every order uses them."""

    @property
    def longest(self) -> int:
        return self.plan.rounds.longest

    def num_rounds(self, last: int) -> int:
        return self.plan.rounds.count(last)

    def last_offset(self, times: np.ndarray) -> int:
        """The largest number of steps between a time and the synchronisation before it."""
        rounds = self.plan.rounds
        return int((times - rounds.start(rounds.containing(times))).max())

    def course(self, order: int, last: int, report: Callable[[int], None]) -> Course | PlainCourse:
        """The moments of the run up to time `last`."""
        if isinstance(self.system, MethodSystem):
            return Course(self.system, self.plan, order, last, report)
        hierarchy = self.system.hierarchy(self.steps, self.plan.rounds.period, order)
        return PlainCourse(Trajectory(hierarchy, self.system.start, self.num_rounds(last), report))


@dataclass(frozen=True, eq=False)
class PlainCourse:
    """The moments of a run of plain averaging with equal rounds and steps."""

    trajectory: Trajectory

    def at(self, time: int) -> tuple[float, np.ndarray, float]:
        number, offset = divmod(time, self.trajectory.hierarchy.length)
        self.trajectory.advance(number)
        return self.trajectory.at(offset)

    def state_scale(self) -> float:
        """Zero: the state holds the parameters alone."""
        return 0.0

    def weighted_sum(self, num_steps: int, decay: float) -> float:
        return self.trajectory.weighted_sum(num_steps, decay)

    def all_taken(self) -> int:
        return self.trajectory.rounds_taken


def run_system(
    problem: Problem,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: Any,
    method: Any,
    last: int | None,
    schedule: Any = None,
    initial_params: ArrayLike | None = None,
    sampling: str = "markov",
    tail: Tail | None = None,
) -> RunSystem:
    """Check the settings of a run up to time `last`, or of one without end."""
    step_size, rounds = positive(step_size, "step_size"), rounds_of(sync_period)
    chosen = Method() if method is None else check_method(method)
    check_schedule(schedule)
    is_plain = chosen.is_plain and schedule is None and not rounds.first and tail is None
    if is_plain:
        system = moment_system(problem, algorithm, initial_params, sampling)
        plan = RunPlan(Rounds((), _length(system, rounds.period, last)), step_size)
        return RunSystem(system, plan, system.steps(step_size))
    _check_fit(problem, algorithm, chosen, step_size, rounds)
    system = method_system(
        problem, algorithm, chosen, initial_params, sampling, with_sum=tail is not None
    )
    discount = problem.discount if isinstance(problem, Federation) else None
    plan = RunPlan(rounds, step_size, schedule, discount, tail, last or 0)
    _check_factors(plan)
    return RunSystem(system, plan, system.steps(step_size))


def _check_fit(
    problem: Problem, algorithm: Algorithm, method: Method, step_size: float, rounds: Rounds
) -> None:
    check_algorithm(algorithm, problem)
    check_agents(problem, algorithm, method, algorithm.dimension(problem))
    method.check_steps(step_size, (*rounds.first, rounds.period))


def _check_factors(plan: RunPlan) -> None:
    if plan.schedule is None:
        return
    sizes = np.array(plan.step_sizes(0, plan.span(0)[1]))
    wrong = ~(np.isfinite(sizes) & (sizes > 0))
    if wrong.any():
        raise ProblemError(
            f"schedule gives the step size {sizes[wrong][0]}; give one whose factors are positive "
            "and finite."
        )


def _length(system: MomentSystem, sync_period: int, last: int | None) -> int:
    """The number of steps in a round of the recursion.

    Any number will do for a single agent, which never averages, and for many agents before their
    first synchronisation.
    """
    most = sync_period if last is None else last + 1
    return min(sync_period, most, _LONGEST_ALONE if system.num_agents == 1 else sync_period)
