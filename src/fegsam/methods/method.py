"""A method: a choice in each place of a round."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from fegsam.errors import ProblemError, shown
from fegsam.methods.average import Average, ByVisits, Mean, check_average
from fegsam.methods.correction import ControlVariates
from fegsam.methods.local_steps import LocalSteps
from fegsam.methods.participation import Participation
from fegsam.methods.rounding import Rounding, SomeCells
from fegsam.methods.server import Server


@dataclass(frozen=True)
class Method:
    """How a round goes; plain averaging, as in the paper, is the default in every place.

    Parameters
    ----------
    average : Mean or ByVisits
        How the server forms one change from those of the agents.
    correction : ControlVariates, optional
        What agents add to their steps so that their drift cancels.
    server : Server
        How the server moves by that change.
    participation : Participation, optional
        Which agents take part in a round; all by default.
    rounding : Rounding or SomeCells, optional
        What agents report with fewer bits.
    local_steps : LocalSteps, optional
        Unequal numbers of local steps, by kind.

    Examples
    --------
    >>> Method().is_plain, Method(server=Server(momentum=0.9))
    (True, Method(server=Server(step=1.0, momentum=0.9, nesterov=False)))
    """

    average: Average = field(default_factory=Mean)
    correction: ControlVariates | None = None
    server: Server = field(default_factory=Server)
    participation: Participation | None = None
    rounding: Rounding | SomeCells | None = None
    local_steps: LocalSteps | None = None

    def __post_init__(self) -> None:
        check_average(self.average)
        for name, kinds in _PLACES.items():
            value = getattr(self, name)
            if not isinstance(value, kinds):
                wanted = " or ".join(
                    f"fegsam.{kind.__name__}(...)" for kind in kinds if kind is not type(None)
                )
                raise ProblemError(f"{name} is {shown(value)}; give {wanted}.")
        self._check_combinations()

    def __repr__(self) -> str:
        plain = _PLAIN_PLACES
        changed = [
            f"{each.name}={getattr(self, each.name)!r}"
            for each in fields(self)
            if getattr(self, each.name) != plain[each.name]
        ]
        return f"Method({', '.join(changed)})"

    @property
    def is_plain(self) -> bool:
        """Whether it is plain averaging of all agents in every place."""
        return all(getattr(self, name) == value for name, value in _PLAIN_PLACES.items())

    @property
    def exchanges(self) -> int:
        """The number of times that agents and server communicate in a round."""
        return 2 if self.correction is not None and self.correction.source == "first_step" else 1

    @property
    def own_clocks(self) -> bool:
        """Whether agents may have made different numbers of steps."""
        waits = self.participation is not None and self.participation.others == "wait"
        return waits or self.local_steps is not None

    def _check_combinations(self) -> None:
        visits = isinstance(self.average, ByVisits)
        if self.correction is not None:
            for name, why in (
                ("rounding", "the server would not know the agents' control variates"),
                ("local_steps", "control variates need the same number of steps of every agent"),
            ):
                if getattr(self, name) is not None:
                    raise ProblemError(
                        f"A method has either correction or {name}: {why}; leave one of them out."
                    )
            if visits:
                raise ProblemError(
                    "ByVisits() weighs cells by their visits, but a correction changes all cells; "
                    "leave one of them out."
                )
        if visits and (self.rounding is not None or self.local_steps is not None):
            name = "rounding" if self.rounding is not None else "local_steps"
            raise ProblemError(
                f"ByVisits() weighs the agents' own changes, which {name} would scale or replace; "
                "leave one of them out."
            )

    def check_agents(
        self,
        *,
        kinds: np.ndarray,
        num_kinds: int,
        form: str,
        dimension: int,
        acts_by_parameters: bool,
    ) -> None:
        """Raise `ProblemError` where the method does not fit the agents or the algorithm.

        `kinds` (N,) are those of the agents, and `form` is the shape of the algorithm's update.
        """
        if isinstance(self.average, Mean):
            # This refuses a wrong number of weights.
            self.average.of_agents(kinds, num_kinds)
        elif form != "cell":
            raise ProblemError(
                "ByVisits() averages cell by cell, and this algorithm does not update single "
                "cells; use it with QLearning() or OffPolicyTabularTD()."
            )
        if self.participation is not None:
            _check_participation(self.participation, len(kinds), acts_by_parameters)
        if isinstance(self.rounding, SomeCells) and self.rounding.count > dimension:
            raise ProblemError(
                f"SomeCells asks for {self.rounding.count} cells of {dimension}; give at most "
                f"{dimension}."
            )
        if self.local_steps is not None and len(self.local_steps.by_kind) != num_kinds:
            raise ProblemError(
                f"local_steps has {len(self.local_steps.by_kind)} numbers for {num_kinds} kinds of "
                "agents; give one for each kind."
            )

    def check_steps(self, largest_step: float, periods: tuple[int, ...]) -> None:
        """Raise `ProblemError` where it does not fit the step sizes or the lengths of the rounds.

        >>> Method(local_steps=LocalSteps((2, 5))).check_steps(0.1, (4,))
        Traceback (most recent call last):
        fegsam.errors.ProblemError: local_steps asks for 5 steps in a round of sync_period=4; ...
        """
        if isinstance(self.average, ByVisits) and not largest_step < 1:
            raise ProblemError(
                f"ByVisits() weighs by powers of 1 - step_size, and the step size reaches "
                f"{largest_step:g}; give one below 1."
            )
        if self.local_steps is not None:
            _check_periods(self.local_steps, periods)

    def check(
        self,
        *,
        num_agents: int,
        num_kinds: int,
        form: str,
        dimension: int,
        largest_step: float,
        periods: tuple[int, ...],
    ) -> None:
        """`check_agents` and `check_steps` at once, for agents whose kinds take turns."""
        warnings.warn(
            "Method.check is divided; use Method.check_agents and Method.check_steps.",
            DeprecationWarning,
            stacklevel=2,
        )
        self.check_agents(
            kinds=np.arange(num_agents) % num_kinds,
            num_kinds=num_kinds,
            form=form,
            dimension=dimension,
            acts_by_parameters=False,
        )
        self.check_steps(largest_step, periods)


def _check_participation(some: Participation, agents: int, acts_by_parameters: bool) -> None:
    if (some.agents or 0) > agents:
        raise ProblemError(
            f"participation asks for {some.agents} agents of {agents}; give at most {agents}."
        )
    if acts_by_parameters:
        raise ProblemError(
            "The actions of this algorithm depend on its parameters, and agents that do not take "
            "part could not act; leave out participation."
        )


def _check_periods(local_steps: LocalSteps, periods: tuple[int, ...]) -> None:
    if len(periods) > 1:
        raise ProblemError(
            "local_steps fixes the number of steps of a round, so all rounds must have one length; "
            "give a whole number as sync_period."
        )
    most, period = max(local_steps.by_kind), max(periods)
    if most > period:
        raise ProblemError(
            f"local_steps asks for {most} steps in a round of sync_period={period}; give at most "
            "as many."
        )


_PLACES: dict[str, tuple[type, ...]] = {
    "correction": (ControlVariates, type(None)),
    "server": (Server,),
    "participation": (Participation, type(None)),
    "rounding": (Rounding, SomeCells, type(None)),
    "local_steps": (LocalSteps, type(None)),
}
_PLAIN_PLACES: dict[str, Any] = {
    "average": Mean(),
    "correction": None,
    "server": Server(),
    "participation": None,
    "rounding": None,
    "local_steps": None,
}


def check_method(method: Any) -> Method:
    if not isinstance(method, Method):
        raise ProblemError(
            f"method is {shown(method)}; give fegsam.Method(...), or one by its name, for example "
            "fegsam.methods.scafflsa()."
        )
    return method
