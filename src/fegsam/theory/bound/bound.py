"""The theorem on FeGSAM for a run: its bound term by term, and its conditions (eq. thm_main_eq).

With c = 1 - alpha phi_2 / 2, the output theta at the random time satisfies

    E||theta - theta*||_c^2  <=  S_1 / alpha c^(T - 2 tau)           initial
                               + S_2 alpha tau^2 / N                 variance
                               + S_3 (K - 1) alpha^2 tau             local_steps
                               + S_4 (K - 1)^2 varepsilon alpha^2 tau    heterogeneity
                               + S_5 alpha^3 tau^2                   higher_order

for alpha, K and T that pass `conditions`. The exponent is one less than the paper's, whose proof
averages over times 0 to T while the algorithm draws from 0 to T - 1.

The paper remarks that ``tau = r log_rho(alpha)`` with r > 2 improves the last term to alpha^(2r-1).
Its lemma on the average noise, with ``B m_4 rho^tau``, gives only alpha^(r+1). The sharper lemma
used here, with ``(m_4 rho^tau)^2``, gives the paper's power; see docs/sharper_bound.md.
`sharper_error_bound` computes a far smaller bound.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from html import escape

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.errors import ProblemError, shown
from fegsam.pictures import bars, card
from fegsam.problem.checks import LARGEST_ENTRY, LARGEST_LENGTH, integer, positive
from fegsam.problem.federation import Problem
from fegsam.text import html_table, number, text_table
from fegsam.theory.assumptions.assumptions import Assumptions, assumptions
from fegsam.theory.bound.conditions import (
    Condition,
    largest_step,
    length_conditions,
    step_conditions,
)
from fegsam.theory.bound.constants import Constants, constants_from

__all__ = ["Bound", "Comparison", "Condition", "bound_from", "error_bound", "largest_step"]


@dataclass(frozen=True)
class Comparison:
    """The bound beside the error that it bounds.

    Attributes
    ----------
    bound, error : float
        The bound, and the exact or measured error, both of the same squared norm.

    Examples
    --------
    >>> print(Comparison(bound=10.0, error=0.5))
    bound 10, error 0.5: the bound is 20 times the error
    """

    bound: float
    error: float

    @property
    def ratio(self) -> float:
        """The bound divided by the error."""
        return self.bound / self.error if self.error != 0 else math.inf

    def __str__(self) -> str:
        return (
            f"bound {number(self.bound)}, error {number(self.error)}: the bound is "
            f"{self.ratio:.4g} times the error"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>"


@dataclass(frozen=True, eq=False)
class Bound:
    """What the theorem says about a run; see `error_bound`.

    Attributes
    ----------
    terms : dict
        The five terms: initial, variance, local_steps, heterogeneity, higher_order. They add up to
        `total`.
    conditions : list of Condition
        What the theorem asks for, with both sides of each inequality.
    constants : Constants
        At the step size of the run.
    norm : str
        The norm of the bounded error: "sup", "2" or "weighted".
    start_error : float
        The distance from the start to theta* in that norm.
    two_norm_factor : float
        The factor that turns the bound into one on the squared 2-norm.
    step_size, sync_period, num_steps, num_agents
        The run.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.5), num_agents=2, target_policy=[[1.0]])
    >>> bound = fg.theory.error_bound(
    ...     fed, fg.OffPolicyTabularTD(), step_size=1e-6, sync_period=1, num_steps=10**8
    ... )
    >>> list(bound.terms), bound.total == sum(bound.terms.values())
    (['initial', 'variance', 'local_steps', 'heterogeneity', 'higher_order'], True)
    >>> bound
    <Bound on the squared error (sup norm): 2 agents, ...; print it for its parts>
    """

    terms: dict[str, float]
    conditions: list[Condition]
    constants: Constants
    norm: str
    start_error: float
    two_norm_factor: float
    step_size: float
    sync_period: int
    num_steps: int
    num_agents: int

    @property
    def total(self) -> float:
        """The bound on the expected squared error of the output, in `norm`."""
        terms = self.terms.values()
        # fsum raises if the sum is infinite.
        return math.fsum(terms) if not max(terms) > 1e300 else sum(terms)

    @property
    def total_2(self) -> float:
        """The bound on the expected squared error of the output in the 2-norm."""
        return self.two_norm_factor * self.total

    @property
    def holds(self) -> bool:
        """Whether every condition holds, so that the theorem guarantees `total`."""
        return all(condition.holds for condition in self.conditions)

    @property
    def violations(self) -> list[str]:
        """The conditions that fail, one sentence each."""
        return [str(condition) for condition in self.conditions if not condition.holds]

    @property
    def vacuous(self) -> bool:
        """Whether the bound is no better than the squared error at the start."""
        return not self.total < self.start_error**2

    def beside(self, error: float) -> Comparison:
        """The bound beside an exact or measured squared error in the same norm.

        >>> import fegsam as fg
        >>> fed = fg.Federation(
        ...     fg.MDP([[[1.0]]], [[1.0]], 0.5), num_agents=2, target_policy=[[1.0]]
        ... )
        >>> bound = error_bound(
        ...     fed, fg.OffPolicyTabularTD(), step_size=1e-6, sync_period=1, num_steps=10**8
        ... )
        >>> bound.beside(bound.total / 4).ratio
        4.0
        """
        return Comparison(self.total, float(error))

    @property
    def _title(self) -> str:
        return (
            f"Bound on the squared error ({self.norm} norm): {self.num_agents} agents, step size "
            f"{self.step_size:.4g}, sync period {self.sync_period}, {self.num_steps:.4g} steps"
        )

    @property
    def _worth(self) -> str:
        return "vacuous" if self.vacuous else "informative"

    def _sums(self) -> list[list[str]]:
        start = f"{number(self.start_error**2)} at the start: {self._worth}"
        rows = [[name, number(value)] for name, value in self.terms.items()]
        return [
            *rows,
            ["total", number(self.total)],
            ["total, 2-norm", number(self.total_2)],
            ["squared error", start],
        ]

    def _inequalities(self) -> list[list[str]]:
        return [
            [
                c.name,
                "holds" if c.holds else "FAILS",
                number(c.lhs),
                number(c.rhs),
                f"{c.slack:.3g}",
                c.statement,
            ]
            for c in self.conditions
        ]

    def __repr__(self) -> str:
        return f"<{self._title}: {number(self.total)}, {self._worth}; print it for its parts>"

    def __str__(self) -> str:
        verdict = (
            "All conditions hold."
            if self.holds
            else "The theorem does not apply: a condition fails."
        )
        table = text_table(
            ["condition", "", "left", "right", "slack", "statement"], self._inequalities()
        )
        return "\n".join(
            [self._title, "", text_table(["term", "value"], self._sums()), "", verdict, table]
        )

    def _repr_html_(self) -> str:
        heads = ["condition", "", "left", "right", "slack", "statement"]
        picture = bars(list(self.terms), list(self.terms.values()), mark=self.start_error**2)
        sums = [(name, value) for name, value in self._sums() if name not in self.terms]
        verdict = ("conditions", "all hold" if self.holds else "FAIL: the theorem does not apply")
        return card(self._title, [*sums, verdict], picture) + html_table(
            "Conditions", heads, self._inequalities()
        )


def error_bound(
    problem: Problem,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: int,
    num_steps: int,
    tau_factor: float = 2.0,
) -> Bound:
    """The theorem's bound on the expected squared error of the output, with its conditions.

    Parameters
    ----------
    step_size, sync_period, num_steps
        The run's; the parameters start at zero. For one agent the sync period is taken to be 1.
    tau_factor : float
        r in ``tau = r log_rho(alpha)``, at least 2. A larger r lengthens the window and makes the
        last term smaller.

    Returns
    -------
    Bound
        The bound is evaluated even if a condition fails; ``holds`` says whether they all hold. It
        is NaN if no norm is found in which the agents contract.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.5), num_agents=2, target_policy=[[1.0]])
    >>> bound = error_bound(
    ...     fed, fg.OffPolicyTabularTD(), step_size=1e-6, sync_period=1, num_steps=10**8
    ... )
    >>> bound.holds, bound.vacuous, bound.terms["local_steps"]
    (True, False, 0.0)
    >>> error_bound(
    ...     fed, fg.OffPolicyTabularTD(), step_size=0.1, sync_period=1, num_steps=10**8
    ... ).violations[0]
    'c1a: alpha <= 1 / (360 tau (A_2^2 + 1)) fails, 0.1 against ...'
    """
    found = bound_from(
        assumptions(problem, algorithm),
        step_size=positive(step_size, "step_size"),
        sync_period=integer(sync_period, "sync_period", most=LARGEST_LENGTH),
        num_steps=integer(num_steps, "num_steps", most=LARGEST_LENGTH),
        tau_factor=tau_factor,
    )
    warn_unless_finite(found)
    return found


def warn_unless_finite(bound: Bound) -> None:
    """Warn, on behalf of the caller's caller, if a bound is infinite or NaN."""
    if not math.isfinite(bound.total):
        why = (
            f"since {bound.violations[0]}"
            if bound.violations
            else "since its constants are too large"
        )
        contracts = all(c.holds for c in bound.conditions if c.name == "contraction")
        cure = "use a smaller step_size" if contracts else "look at fegsam.theory.assumptions"
        warnings.warn(
            f"The bound is {bound.total}, {why}: {cure}.",
            RuntimeWarning,
            stacklevel=3,
        )


def bound_from(
    assumptions: Assumptions,
    *,
    step_size: float,
    sync_period: int,
    num_steps: int,
    tau_factor: float = 2.0,
) -> Bound:
    """`error_bound` from assumptions that are already known."""
    if (
        not isinstance(tau_factor, int | float | np.integer | np.floating)
        or not 2 <= tau_factor <= LARGEST_ENTRY
    ):
        raise ProblemError(
            f"tau_factor is {shown(tau_factor)}, but must be a number from 2 to "
            f"{LARGEST_ENTRY:g}; give such a number."
        )
    agents = assumptions.num_agents
    period = sync_period if agents > 1 else 1
    c = constants_from(assumptions, step_size, tau_factor=tau_factor)
    alpha, tau = c.alpha, c.tau
    shrink = alpha * c.phi_2 / 2
    # If it exceeds 1 the factor c is negative and not all conditions can hold.
    log_decay = math.log1p(-shrink) if shrink < 1 else math.nan
    terms = {
        "initial": c.S_1 / alpha * _exp((num_steps - 2 * tau) * log_decay),
        "variance": c.S_2 * alpha * tau * tau / agents,
        "local_steps": c.S_3 * (period - 1) * alpha * alpha * tau,
        "heterogeneity": c.S_4
        * float(period - 1) ** 2
        * assumptions.heterogeneity
        * alpha
        * alpha
        * tau,
        "higher_order": c.S_5 * _power(alpha, 2 * tau_factor - 1) * tau * tau,
    }
    return Bound(
        terms=terms,
        conditions=step_conditions(c, period) + length_conditions(tau, period, num_steps),
        constants=c,
        norm=assumptions.norm,
        start_error=assumptions.start_error,
        two_norm_factor=_two_norm_factor(assumptions),
        step_size=step_size,
        sync_period=sync_period,
        num_steps=num_steps,
        num_agents=agents,
    )


def _power(base: float, exponent: float) -> float:
    """``base ** exponent``, infinite where Python would raise an OverflowError."""
    with np.errstate(over="ignore"):
        return float(np.float64(base) ** exponent)


def _exp(exponent: float) -> float:
    return math.exp(exponent) if not exponent > 709 else math.inf


def _two_norm_factor(assumptions: Assumptions) -> float:
    """The largest ||x||_2^2 / ||x||_c^2."""
    if assumptions.norm == "sup":
        return float(assumptions.dimension)
    if assumptions.weight is None:
        return 1.0
    return 1 / float(np.linalg.eigvalsh(assumptions.weight)[0])
