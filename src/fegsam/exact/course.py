"""The moments of a run whose rounds or step sizes may differ, from round to round."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fegsam.exact.method_hierarchy import MethodHierarchy
from fegsam.exact.method_system import MethodSystem
from fegsam.exact.parts import Parts
from fegsam.exact.server_state import RoundSteps
from fegsam.exact.trajectory import Trajectory
from fegsam.methods.rounds import Rounds
from fegsam.methods.schedules import StepSchedule
from fegsam.methods.tail import Tail

_KEPT = 16
"""Rounds of this many different kinds are kept."""


@dataclass(frozen=True, eq=False)
class RunPlan:
    """Where the rounds of a run are, its step sizes, and what enters its tail average."""

    rounds: Rounds
    step_size: float
    schedule: StepSchedule | None = None
    discount: float | None = None
    tail: Tail | None = None
    num_steps: int = 0
    """the length of the run; only a tail average depends on it"""

    def step_sizes(self, begin: int, end: int) -> tuple[float, ...]:
        if self.schedule is None:
            return (self.step_size,) * (end - begin)
        factors = self.schedule.factors(np.arange(begin, end), self.discount)
        return tuple((self.step_size * factors).tolist())

    def span(self, number: int) -> tuple[int, int]:
        """Where a round begins and ends."""
        begin, end = self.rounds.start(np.array([number, number + 1])).tolist()
        return begin, end

    @property
    def tail_begin(self) -> int:
        """The averages after this time enter the tail average."""
        assert self.tail is not None
        return self.num_steps - round(self.tail.fraction * self.num_steps)

    def round(self, number: int) -> RoundSteps:
        begin, end = self.span(number)
        if self.tail is None:
            return RoundSteps.plain(self.step_sizes(begin, end))
        is_whole = end <= self.num_steps
        end = min(end, self.num_steps)
        times = np.arange(begin + 1, end + 1)
        counted = (times > self.tail_begin) & (self.tail.over == "steps")
        return RoundSteps(
            self.step_sizes(begin, end),
            tuple(counted.tolist()),
            is_whole,
            is_whole and end > self.tail_begin,
        )

    def counted(self) -> int:
        """The number of averages in the tail average."""
        assert self.tail is not None
        if self.tail.over == "steps":
            return self.num_steps - self.tail_begin
        return self.rounds.count(self.num_steps) - self.rounds.count(self.tail_begin)

    def repeats(self, number: int) -> float:
        """How many rounds are like this one, with itself and up to the next that differs."""
        if self.schedule is not None or number < len(self.rounds.first):
            return 1
        if self.tail is None:
            return math.inf
        last, borders = self.rounds.count(self.num_steps), []
        turn = int(self.rounds.containing(np.asarray(self.tail_begin)))
        borders = [turn, turn + 1, last, math.inf]
        return next(border for border in borders if border > number) - number


class Course:
    """The moments of a run, at its current round."""

    def __init__(
        self,
        system: MethodSystem,
        plan: RunPlan,
        order: int,
        last: int,
        report: Callable[[int], None] | None = None,
    ) -> None:
        self._system, self._plan, self._order = system, plan, order
        self._rounds = plan.rounds.count(last) + 1
        self._report = report or (lambda rounds: None)
        self._known: dict[RoundSteps, MethodHierarchy] = {}
        self.rounds_taken = 0
        first = self._hierarchy(0)
        self._open(0, first.start(system.start), first.round.maps.initial)

    def _hierarchy(self, number: int) -> MethodHierarchy:
        plan = self._plan.round(number)
        if plan not in self._known:
            if len(self._known) >= _KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[plan] = self._system.round(plan, self._order)
        return self._known[plan]

    def _open(self, number: int, parts: Parts, before: np.ndarray) -> None:
        """Begin a stretch of equal rounds."""
        self._first, many = number, self._plan.repeats(number)
        left = max(1, self._rounds - number)
        self._end = number + many
        self.here = Trajectory(
            self._hierarchy(number),
            self._system.start,
            int(min(many, left)),
            lambda rounds: self._report(number + rounds),
            (parts, before),
        )

    def advance(self, number: int) -> None:
        """Advance to the beginning of a round."""
        while number >= self._end:
            self.here.advance(int(self._end) - self._first)
            self._next()
        self.here.advance(number - self._first)

    def _next(self) -> None:
        self.rounds_taken += self.here.rounds_taken
        self._open(int(self._end), self.here.parts, self.here.before)

    def all_taken(self) -> int:
        """The number of rounds taken one by one."""
        return self.rounds_taken + self.here.rounds_taken

    def at(self, time: int) -> tuple[float, np.ndarray, float]:
        """E||avg - theta*||^2, E avg - theta* and sync error."""
        number = int(self._plan.rounds.containing(np.asarray(time)))
        self.advance(number)
        return self.here.at(time - self._plan.span(number)[0])

    def state_scale(self) -> float:
        """The mean square of the server's state, beside which small errors are lost in rounding."""
        scale = float(np.trace(self.here.parts[0]))
        return scale if math.isfinite(scale) else 0.0

    def weighted_sum(self, num_steps: int, decay: float) -> float:
        """The sum over t < T of ``c^(T-1-t) E||avg_t - theta*||^2``, from the start."""
        total = 0.0
        while True:
            begin = self._plan.span(self._first)[0]
            end = num_steps
            if math.isfinite(self._end):
                end = min(num_steps, self._plan.span(int(self._end))[0])
            total = self.here.weighted_sum(end - begin, decay, total)
            if end == num_steps:
                return total
            self._next()

    def tail(self) -> tuple[float, np.ndarray]:
        """E||tail - theta*||^2 and E tail - theta*, at the end of the run."""
        plan = self._plan
        number = plan.rounds.count(plan.num_steps)
        self.advance(number)
        if plan.span(number)[0] < plan.num_steps:
            self.here.step()
        place = self._system.server.total.argmax(axis=1)
        whole, many = self.here.parts[0], plan.counted()
        return float(np.trace(whole[np.ix_(place, place)])) / many**2, whole[place, -1] / many
