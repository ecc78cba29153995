"""What a server and its nodes know of all rounds: their times, their step sizes and the method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.errors import ProblemError
from fegsam.methods.average import ByVisits, Mean
from fegsam.methods.method import Method
from fegsam.methods.rounds import Rounds
from fegsam.methods.schedules import StepSchedule


@dataclass(frozen=True, eq=False)
class RoundPlan:
    """The rounds of a federation.

    Examples
    --------
    >>> plan = RoundPlan(Method(), Rounds((1,), 3), num_steps=9, step_size=0.5)
    >>> [plan.begin(number) for number in range(plan.count + 1)], plan.is_whole(3)
    ([0, 1, 4, 7, 9], False)
    >>> plan.step_sizes(1, 2)
    array([0.5, 0.5])
    """

    method: Method
    rounds: Rounds
    num_steps: int
    step_size: float
    schedule: StepSchedule | None = None
    discount: float | None = None
    """the problem's, for schedules that depend on it"""

    @property
    def count(self) -> int:
        """The number of rounds; the last may be shorter, and its average is only measured."""
        return int(self.rounds.containing(np.asarray(self.num_steps - 1))) + 1

    def begin(self, number: int) -> int:
        """The federation's time when a round begins, at most that of the end of the run."""
        return min(int(self.rounds.start(np.asarray(number))), self.num_steps)

    def is_whole(self, number: int) -> bool:
        """Whether a round ends with a synchronisation."""
        return int(self.rounds.start(np.asarray(number + 1))) <= self.num_steps

    def step_sizes(self, number: int, count: int) -> np.ndarray:
        """(count): the step sizes of the first steps of a round."""
        if self.schedule is None:
            return np.full(count, self.step_size)
        begin = self.begin(number)
        factors = self.schedule.factors(np.arange(begin, begin + count), self.discount)
        return self.step_size * factors


def check_summable(method: Method) -> None:
    """Refuse a method that needs more than the sum over a node's agents.

    >>> check_summable(Method(average=Mean((0.25, 0.75))))
    Traceback (most recent call last):
    fegsam.errors.ProblemError: aggregate='node' adds up the agents of a node, but this method
    weighs or corrects them one by one; give aggregate='agent'.
    """
    some = method.participation
    if (
        method.average != Mean()
        or method.correction is not None
        or (some is not None and some.divide_by == "all")
    ):
        raise ProblemError(
            "aggregate='node' adds up the agents of a node, but this method weighs or corrects "
            "them one by one; give aggregate='agent'."
        )


def check_deployable(method: Method) -> None:
    """Refuse a method that a deployed federation cannot follow.

    >>> check_deployable(Method(average=ByVisits()))
    Traceback (most recent call last):
    fegsam.errors.ProblemError: ByVisits() needs the agents' visits to each cell, but these do not
    leave a node; give fegsam.Mean(weights), or simulate it with fegsam.run.
    """
    if isinstance(method.average, ByVisits):
        raise ProblemError(
            "ByVisits() needs the agents' visits to each cell, but these do not leave a node; give "
            "fegsam.Mean(weights), or simulate it with fegsam.run."
        )
    if method.exchanges > 1:
        raise ProblemError(
            "source='first_step' needs two exchanges a round, but a deployed round has one; give "
            "source='last_round', or simulate it with fegsam.run."
        )
    if method.participation is not None and method.participation.others == "go_on":
        raise ProblemError(
            "others='go_on' moves the chains of agents that are not asked, but a deployed chain "
            "stands still then; give others='wait', or simulate it with fegsam.run."
        )
