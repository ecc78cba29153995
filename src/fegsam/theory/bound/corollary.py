"""The corollary's step size and sync period, beside the theorem's (Corollary sample_complexity).

For T steps the corollary chooses ``alpha = 8 log(N T) / (phi_2 T)``, with ``K = T / N`` for agents
that share a fixed point and ``K = sqrt(T) / N`` for others. The theorem does not admit the first K:
alpha K = 8 log(N T) / (phi_2 N) grows with T, so c2a and c2b fail for every large T; `Schedule`
also gives the largest K that passes. The theorem admits the second K, which is smaller than
necessary: ``K = sqrt(T / N)`` makes every term as small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fegsam.algorithms.rule import Algorithm
from fegsam.problem.checks import LARGEST_LENGTH, flag, integer
from fegsam.problem.federation import Problem
from fegsam.text import html_table, number, text_table
from fegsam.theory.assumptions.assumptions import Assumptions, assumptions
from fegsam.theory.bound.bound import Bound, bound_from, warn_unless_finite
from fegsam.theory.bound.conditions import largest_period, require_complete
from fegsam.theory.bound.constants import constants_from

HOMOGENEOUS = 1e-12
"""Fixed points closer than this, relative to max(1, ||theta_0 - theta*||), count as equal."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """The corollary's choice for a number of steps; see `schedule`.

    Attributes
    ----------
    step_size, sync_period, num_steps
        The corollary's alpha / beta, its K, rounded down to an integer of at least 1, and T.
    heterogeneous : bool
        Whether this is the corollary's case for agents with different fixed points.
    bound : Bound
        The theorem's bound at that choice, with the conditions that the choice violates.
    largest_sync_period : int
        The largest K that passes c2a and c2b at that step size.
    advised_sync_period : int
        ``min(T / N, largest_sync_period)``, or ``min(sqrt(T / N), largest_sync_period)`` for
        heterogeneous agents.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.5), num_agents=10, target_policy=[[1.0]])
    >>> found = fg.theory.schedule(fed, fg.OffPolicyTabularTD(), num_steps=10**9)
    >>> (
    ...     found.heterogeneous,
    ...     found.communications,
    ...     found.advised_sync_period <= found.largest_sync_period,
    ... )
    (False, 10, True)
    """

    step_size: float
    sync_period: int
    num_steps: int
    heterogeneous: bool
    bound: Bound
    largest_sync_period: int
    advised_sync_period: int

    @property
    def communications(self) -> int:
        """The number of synchronisations, T // K."""
        return self.num_steps // self.sync_period

    @property
    def holds(self) -> bool:
        """Whether the theorem admits the corollary's choice."""
        return self.bound.holds

    @property
    def violations(self) -> list[str]:
        """The conditions that the corollary's choice violates."""
        return self.bound.violations

    def _rows(self) -> list[list[str]]:
        return [
            ["step size", number(self.step_size)],
            ["sync period", number(self.sync_period)],
            ["communications", number(self.communications)],
            ["agents", "heterogeneous" if self.heterogeneous else "homogeneous"],
            [
                "violates",
                ", ".join(line.partition(":")[0] for line in self.violations) or "nothing",
            ],
            ["largest sync period", number(self.largest_sync_period)],
            ["advised sync period", number(self.advised_sync_period)],
        ]

    def __str__(self) -> str:
        return text_table([f"The corollary at {self.num_steps:.4g} steps", ""], self._rows())

    def _repr_html_(self) -> str:
        return html_table(f"The corollary at {self.num_steps:.4g} steps", ["", ""], self._rows())


def schedule(
    problem: Problem,
    algorithm: Algorithm,
    *,
    num_steps: int,
    heterogeneous: bool | None = None,
) -> Schedule:
    """The corollary's step size and sync period for T steps, and whether the theorem admits them.

    Parameters
    ----------
    num_steps : int
        T, at least 2.
    heterogeneous : bool, optional
        Whether to take the corollary's case for agents with different fixed points; by default as
        the agents' fixed points are.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.5), num_agents=10, target_policy=[[1.0]])
    >>> plan = schedule(fed, fg.OffPolicyTabularTD(), num_steps=10**9)
    >>> plan.sync_period, plan.communications, plan.holds
    (100000000, 10, False)
    >>> [line[:3] for line in plan.violations]
    ['c2a', 'c2b']
    """
    steps = integer(num_steps, "num_steps", least=2, most=LARGEST_LENGTH)
    found = assumptions(problem, algorithm)
    made = schedule_from(found, steps, is_heterogeneous(found, heterogeneous))
    warn_unless_finite(made.bound)
    return made


def is_heterogeneous(assumptions: Assumptions, asked: bool | None) -> bool:
    """Whether to take the corollary's case for agents with different fixed points.

    `asked` decides, or if it is None the agents' fixed points.
    """
    if asked is None:
        return assumptions.heterogeneity > HOMOGENEOUS * max(1.0, assumptions.start_error)
    return flag(asked, "heterogeneous")


def schedule_from(assumptions: Assumptions, num_steps: int, heterogeneous: bool) -> Schedule:
    """`schedule` from assumptions that are already known."""
    require_complete(assumptions)
    agents = assumptions.num_agents
    step, period = schedule_choice(assumptions, num_steps, heterogeneous)
    longest = largest_period(assumptions, step)
    wanted = max(1, math.isqrt(num_steps // agents) if heterogeneous else num_steps // agents)
    return Schedule(
        step_size=step,
        sync_period=period,
        num_steps=num_steps,
        heterogeneous=heterogeneous,
        bound=bound_from(assumptions, step_size=step, sync_period=period, num_steps=num_steps),
        largest_sync_period=longest,
        advised_sync_period=min(wanted, longest),
    )


def schedule_choice(
    assumptions: Assumptions, num_steps: int, heterogeneous: bool
) -> tuple[float, int]:
    """The corollary's step size and sync period for `num_steps` steps."""
    agents, phi_2 = assumptions.num_agents, constants_from(assumptions, 1.0).phi_2
    step = 8 * (math.log(agents) + math.log(num_steps)) / (phi_2 * num_steps) / assumptions.beta
    return step, max(1, math.isqrt(num_steps) // agents if heterogeneous else num_steps // agents)
