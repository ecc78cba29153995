"""The smallest T from which on the theorem admits the corollary's schedule, if there is one.

Corollary sample_complexity assumes "T large enough". Here the number of agents N is fixed, T grows,
and ``alpha = 8 log(N T) / (phi_2 T)``.

* ``K = sqrt(T) / N``: alpha tau^2, alpha K and alpha^2 tau K^2 all tend to 0 as powers of log T
  over a power of T, and their upper limits do not, so every condition holds from some T on. That T
  is found by bisection.
* ``K = T / N``, N > 1: since K > T / N - 1, ``alpha (K - 1) >= 8 log(N T) / phi_2 (1 / N - 2 /
  T)``. For T >= 4 N that is at least ``4 log(N T) / (phi_2 N)``, which is unbounded, while c2a
  requires alpha (K - 1) to be at most a number that does not depend on T, ``R = sqrt(ln(5/4) / (2
  (1 + A~_1)))``. So c2a fails for every ``T >= max(4 N, exp(phi_2 N R / 4) / N)``, and no T is
  large enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fegsam.algorithms.rule import Algorithm
from fegsam.bisection import last_whole
from fegsam.problem.federation import Problem
from fegsam.theory.assumptions.assumptions import Assumptions, assumptions
from fegsam.theory.bound.conditions import (
    length_conditions,
    require_complete,
    step_conditions,
    sync_conditions,
)
from fegsam.theory.bound.constants import constants_from
from fegsam.theory.bound.corollary import is_heterogeneous, schedule_choice

LAST = 10**30
"""The largest number of steps to check."""
PER_DECADE = 8
"""Numbers of steps to check in each decade."""


@dataclass(frozen=True)
class LargeEnough:
    """Whether T can be large enough for the corollary's schedule; see `large_enough`.

    Attributes
    ----------
    num_steps : float
        The theorem admits the schedule at this T and at all larger ones that were checked, up to
        `last`. Infinite if none was found; see `log_fails_from`.
    log_fails_from : float
        If no T is large enough: c2a fails for every T from exp(log_fails_from) on, by the
        inequality in this module's docstring. Infinite if nothing is proved.
    heterogeneous : bool
        Whether this is the corollary's case for agents with different fixed points.
    limit : float
        R, the largest alpha (K - 1) that c2a allows.
    drift : float
        phi_2.
    num_agents : int
    last : float

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.5), num_agents=10, target_policy=[[1.0]])
    >>> found = large_enough(fed, fg.OffPolicyTabularTD())
    >>> found.num_steps, found.holds
    (inf, False)
    """

    num_steps: float
    log_fails_from: float
    heterogeneous: bool
    limit: float
    drift: float
    num_agents: int
    last: float = float(LAST)

    @property
    def holds(self) -> bool:
        """Whether some T is large enough."""
        return math.isfinite(self.num_steps)

    @property
    def why(self) -> str:
        """The proof or the finding, in one sentence."""
        if self.holds:
            return (
                f"every condition holds at T = {self.num_steps:.3g} and at all larger T that were "
                f"checked, {PER_DECADE} per decade up to {self.last:.0e}"
            )
        if math.isinf(self.log_fails_from):
            return (
                f"some condition fails at T = {self.last:.0e}, the largest T that was checked; "
                "nothing is proved beyond it"
            )
        least = (
            4 * (math.log(self.num_agents) + self.log_fails_from) / (self.drift * self.num_agents)
        )
        decades = self.log_fails_from / math.log(10)
        first = f"{10**decades:.3g}" if decades < 12 else f"10^{decades:.4g}"
        return (
            "the condition on the sync period (c2a, the first line of eq. alpha_const_2) asks for "
            f"alpha (K - 1) <= {self.limit:.3g}, but alpha (K - 1) >= 4 log(N T) / (phi_2 N) = "
            f"{least:.3g} at T = {first}, N = {self.num_agents}, phi_2 = {self.drift:.3g}, and "
            "that grows with T: it fails for every larger T"
        )


def large_enough(
    problem: Problem, algorithm: Algorithm, *, heterogeneous: bool | None = None
) -> LargeEnough:  # fmt: skip
    """The smallest number of steps from which on the theorem admits the corollary's schedule.

    Parameters
    ----------
    heterogeneous : bool, optional
        Whether to take the corollary's case for agents with different fixed points; by default as
        the agents' fixed points are.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.5), num_agents=10, target_policy=[[1.0]])
    >>> found = large_enough(fed, fg.OffPolicyTabularTD(), heterogeneous=True)
    >>> (
    ...     found.holds,
    ...     violations_at(
    ...         fg.theory.assumptions(fed, fg.OffPolicyTabularTD()), round(found.num_steps), True
    ...     ),
    ... )
    (True, [])
    """
    found = assumptions(problem, algorithm)
    return large_enough_from(found, is_heterogeneous(found, heterogeneous))


def large_enough_from(assumptions: Assumptions, heterogeneous: bool) -> LargeEnough:
    """`large_enough` from assumptions that are already known."""
    require_complete(assumptions)
    agents, values = assumptions.num_agents, constants_from(assumptions, 1e-6)
    limit, phi_2 = sync_conditions(values, 2)[0].rhs, values["phi_2"]
    if not heterogeneous and agents > 1:
        fails_from = max(math.log(4 * agents), phi_2 * agents * limit / 4 - math.log(agents))
        return LargeEnough(math.inf, fails_from, False, limit, phi_2, agents)
    grid = [
        round(10 ** (k / PER_DECADE))
        for k in range(PER_DECADE, round(math.log10(LAST)) * PER_DECADE + 1)
    ]
    failing = [steps for steps in grid if violations_at(assumptions, steps, heterogeneous)]
    if failing and failing[-1] == grid[-1]:
        return LargeEnough(math.inf, math.inf, heterogeneous, limit, phi_2, agents)
    bad, good = (failing[-1], grid[grid.index(failing[-1]) + 1]) if failing else (1, grid[0])
    good = last_whole(
        lambda steps: not violations_at(assumptions, steps, heterogeneous), good, bad, near=1e-6
    )
    return LargeEnough(float(good), math.inf, heterogeneous, limit, phi_2, agents)


def violations_at(assumptions: Assumptions, num_steps: int, heterogeneous: bool) -> list[str]:
    """The names of the conditions that the corollary's schedule for `num_steps` violates."""
    step, period = schedule_choice(assumptions, num_steps, heterogeneous)
    values = constants_from(assumptions, step)
    period = period if assumptions.num_agents > 1 else 1
    conditions = step_conditions(values, period) + length_conditions(
        values["tau"], period, num_steps
    )
    return [condition.name for condition in conditions if not condition.holds]
