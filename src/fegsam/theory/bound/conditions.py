"""The theorem's conditions on alpha, K and T, and the largest step and period that satisfy them.

Names: c1 is eq. alpha_const_1, c3 eq. alpha_const_3, c4 eq. alpha_const_4, and c2 replaces eq.
alpha_const_2. There c2a is its first line; c2b follows from the other two and is what the proof
needs once its bound on I_4 is repaired (exchange the sums: for a fixed l' the factors l - sK of a
block add up to at most K(K-1)/2). Both matter only for K > 1.

tau is a step function of alpha, so the admissible steps need not form one interval: just above a
jump tau is smaller, and an inequality that fails below the jump may hold again. Between two jumps
every inequality is monotone in alpha. At the jumps ``alpha tau^2`` falls with tau as soon as tau >
4 / ln(1/rho), and for smaller tau alpha is far too large. So the smallest tau that admits a step is
found by bisection, then the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fegsam.algorithms.rule import Algorithm
from fegsam.bisection import last_real, last_whole
from fegsam.errors import ProblemError
from fegsam.problem.checks import LARGEST_LENGTH, integer, positive
from fegsam.problem.federation import Problem
from fegsam.theory.assumptions.assumptions import Assumptions, assumptions
from fegsam.theory.bound.constants import constants_from, numbers_at

EDGE = 1e-11
"""The relative distance of steps from a jump of tau, so that rounding cannot carry them over it."""


@dataclass(frozen=True)
class Condition:
    """An inequality that the theorem requires, at the values of a run.

    Attributes
    ----------
    name, statement : str
        For example "c1b" and "alpha <= phi_2 / (2 C_15)".
    lhs, rhs : float
        The two sides.
    strict : bool
        Whether equality violates it.
    flipped : bool
        Whether the left side must be the larger one.

    Examples
    --------
    >>> c = Condition("c4a", "alpha <= 1 / C_1", 0.1, 0.2)
    >>> c.holds, c.slack
    (True, 2.0)
    """

    name: str
    statement: str
    lhs: float
    rhs: float
    strict: bool = False
    flipped: bool = False

    @property
    def holds(self) -> bool:
        """Whether the inequality is satisfied; False if a side is NaN."""
        small, large = (self.rhs, self.lhs) if self.flipped else (self.lhs, self.rhs)
        return small < large if self.strict else small <= large

    @property
    def slack(self) -> float:
        """The side that should be larger divided by the other: below 1 if the inequality fails."""
        small, large = (self.rhs, self.lhs) if self.flipped else (self.lhs, self.rhs)
        return large / small if small != 0 else math.inf

    def __str__(self) -> str:
        outcome = "holds" if self.holds else "fails"
        return f"{self.name}: {self.statement} {outcome}, {self.lhs:.4g} against {self.rhs:.4g}"


def step_conditions(values: Mapping[str, float], sync_period: int) -> list[Condition]:
    """The conditions on the step size and, for K > 1, the sync period, given the constants."""
    alpha, tau, phi_2, A2, C1 = (
        values["alpha"],
        values["tau"],
        values["phi_2"],
        values["A_2"],
        values["C_1"],
    )
    root = math.hypot(A2, 1.0)
    found = [
        Condition("contraction", "gamma_c < 1", values["gamma_c"], 1.0, strict=True),
        Condition(
            "c1a", "alpha <= 1 / (360 tau (A_2^2 + 1))", alpha, 1 / (360 * tau * root * root)
        ),
        Condition("c1b", "alpha <= phi_2 / (2 C_15)", alpha, phi_2 / (2 * values["C_15"])),
        Condition("c3a", "alpha tau <= 1 / (24 sqrt(A_2^2 + 1))", alpha * tau, 1 / (24 * root)),
        Condition("c3b", "alpha tau <= 1 / (8 (A_2 + 1))", alpha * tau, 1 / (8 * (A2 + 1))),
        Condition("c4a", "alpha <= 1 / C_1", alpha, 1 / C1),
        Condition("c4b", "alpha <= 1 / (8 tau C_2)", alpha, 1 / (8 * tau * values["C_2"])),
        Condition("c4c", "alpha <= 1 / (40 tau C_1^2)", alpha, 1 / (40 * tau * C1 * C1)),
    ]
    return found + (sync_conditions(values, sync_period) if sync_period > 1 else [])


def sync_conditions(values: Mapping[str, float], sync_period: int) -> list[Condition]:
    """The conditions c2a and c2b, for K > 1."""
    alpha, tau, phi_2, period = values["alpha"], values["tau"], values["phi_2"], float(sync_period)
    shrink = alpha * phi_2 / 2
    decay = math.exp((period + tau - 1) * math.log1p(-shrink)) if shrink < 1 else 0.0
    consensus = (
        20 * alpha * alpha * values["A_tilde_2"] * values["C_17"] * values["u_cm"] ** 2 * (tau + 1)
    )
    return [
        Condition(
            "c2a",
            "alpha (K - 1) <= sqrt(ln(5/4) / (2 (1 + A_tilde_1)))",
            alpha * (period - 1),
            math.sqrt(math.log(1.25) / (2 * (1 + values["A_tilde_1"]))),
        ),
        Condition(
            "c2b",
            "20 alpha^2 A_tilde_2 C_17 u_cm^2 (tau + 1) K (K - 1) <= phi_2 (1 - alpha phi_2 / "
            "2)^(K + tau - 1)",
            consensus * period * (period - 1),
            phi_2 * decay,
        ),
    ]


def length_conditions(tau: float, sync_period: int, num_steps: int) -> list[Condition]:
    """The conditions on T.

    They ask for one step more than the paper's, since the output time lies in 0, ..., T-1 and not
    in 0, ..., T.
    """
    steps = float(num_steps)
    return [
        Condition(
            "T > K", "T - 1 > K + tau", steps - 1, sync_period + tau, strict=True, flipped=True
        ),
        Condition("T > tau", "T > 2 tau", steps, 2 * tau, strict=True, flipped=True),
    ]


def largest_step(problem: Problem, algorithm: Algorithm, *, sync_period: int = 1) -> float:
    """The largest step size that the theorem admits.

    Parameters
    ----------
    sync_period : int
        K. With one agent averaging changes nothing, and K is taken to be 1.

    Returns
    -------
    float
        The algorithm's own step size, which is alpha / beta for the linear ones.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.5), num_agents=2, target_policy=[[1.0]])
    >>> td = fg.OffPolicyTabularTD()
    >>> largest_step(fed, td, sync_period=10**6) < largest_step(fed, td) < 0.01
    True
    """
    found = assumptions(problem, algorithm)
    period = integer(sync_period, "sync_period", most=LARGEST_LENGTH) if found.num_agents > 1 else 1
    return largest_alpha(found, period) / found.beta


def largest_alpha(assumptions: Assumptions, sync_period: int) -> float:
    """The largest FeGSAM step that passes `step_conditions`."""
    require_complete(assumptions)
    least = max(1, assumptions.horizon)
    rho = assumptions.mixing.rho
    rate = math.log(1 / rho) if rho > 0 else math.inf

    def passes(alpha: float, tau: int) -> bool:
        return all(
            c.holds for c in step_conditions(numbers_at(assumptions, alpha, tau), sync_period)
        )

    if rho <= 0:
        return (1 - EDGE) * _last_passing(
            lambda alpha: passes(alpha, assumptions.horizon + 1), 1e-300, 1.0
        )

    def first(tau: int) -> float:
        return math.exp(-tau * rate / 2) * (1 + 2 * EDGE)

    window = least
    if not passes(first(window), window):
        below, window = max(least, math.ceil(4 / rate)), 2 * max(least, math.ceil(4 / rate))
        while not passes(first(window), window):
            below, window = window, 2 * window
            if first(window) == 0.0:
                raise ProblemError(
                    "No step size above 1e-300 satisfies the theorem; use policies that explore "
                    "more, or a smaller discount."
                )
        window = last_whole(lambda tau: passes(first(tau), tau), window, below)
    last = 1.0 if window == least else math.exp(-(window - 1) * rate / 2)
    return (1 - EDGE) * _last_passing(
        lambda alpha: passes(alpha, window), first(window), last * (1 - EDGE)
    )


def _last_passing(passes: Callable[[float], bool], low: float, high: float) -> float:
    """The end of the interval of passing values that starts at `low`, at most `high`."""
    return high if passes(high) else last_real(passes, low, high)


def largest_sync_period(problem: Problem, algorithm: Algorithm, *, step_size: float) -> int:
    """The largest sync period K that satisfies c2a and c2b at a step size; 1 if no K > 1 does.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.5), num_agents=2, target_policy=[[1.0]])
    >>> td = fg.OffPolicyTabularTD()
    >>> largest_sync_period(fed, td, step_size=1e-6) > 10 * largest_sync_period(
    ...     fed, td, step_size=1e-4
    ... )
    True
    """
    return largest_period(assumptions(problem, algorithm), positive(step_size, "step_size"))


def largest_period(assumptions: Assumptions, step_size: float) -> int:
    """The largest K that passes `sync_conditions`, whose inequalities both tighten as K grows."""
    require_complete(assumptions)
    values = constants_from(assumptions, step_size)
    longest = sync_conditions(values, 2)[0].rhs / values["alpha"]
    bad = int(longest if longest < LARGEST_LENGTH - 1 else LARGEST_LENGTH - 1) + 2
    return last_whole(lambda K: all(c.holds for c in sync_conditions(values, K)), 1, bad)


def require_complete(assumptions: Assumptions) -> None:
    """Raise unless a norm was found and every constant of the assumptions is known."""
    if not assumptions.holds:
        raise ProblemError(
            f"No norm was found in which the mean operators of all agents of "
            f"{assumptions.algorithm} contract ({assumptions.level}), so the theorem admits no "
            "step size; look at fegsam.theory.assumptions."
        )
    for name in ("A_1", "A_2", "B", "m_1", "m_2", "m_3", "m_4"):
        if math.isnan(getattr(assumptions, name)):
            raise ProblemError(
                f"{name} is not known, so there is no bound; give it as "
                f'assumptions={{"{name}": ...}}.'
            )
