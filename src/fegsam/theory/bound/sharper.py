"""The theorem on FeGSAM with the constants of a more careful proof.

docs/sharper_bound.md derives every step. The bound of `error_bound` is a million or more times the
error, mostly because of inequalities that are not needed. This proof keeps the paper's assumptions,
its Lyapunov function M and its decomposition of the drift, and changes five things:

* the mean square of the average noise is B^2/N + (m_4 rho^r)^2;
* the distance that the parameters move in tau steps, and the distance between the agents before a
  synchronisation, are bounded along every path, not by recursions;
* products are bounded by the Cauchy-Schwarz inequality in mean square, not by Young's;
* the recursion is solved at its fixed point;
* tau is the number that gives the least bound.

In an inner-product norm, moreover, the correlation of the noise at two times is bounded by the
mixing of the chain.

Let x be the root of ``E||theta_t||^2``. The distance moved in tau steps and the root of the
expected sync error Omega are at most affine functions of x, so the drift of ``y = 2 u_cm^2 E M``,
which is at least x^2, is at most ``-2 alpha u_cm^2 (k y - q_1 sqrt(y) - q_0)``.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

from fegsam.algorithms.rule import Algorithm
from fegsam.bisection import last_real
from fegsam.errors import ProblemError
from fegsam.problem.checks import LARGEST_LENGTH, fraction, integer, positive
from fegsam.problem.federation import Problem
from fegsam.text import number, text_table
from fegsam.theory.assumptions.assumptions import Assumptions, assumptions
from fegsam.theory.bound.bound import Comparison
from fegsam.theory.bound.conditions import require_complete
from fegsam.theory.bound.output_time import OutputTimeDistribution, default_output_decay
from fegsam.theory.bound.sharper_drift import Envelope, drift_polynomial, envelopes, windows


@dataclass(frozen=True)
class SharperBound:
    """What the sharper theorem says about a run; see `sharper_error_bound`.

    Attributes
    ----------
    total : float
        The bound on the expected squared error of the output, in `norm`; infinite where the step is
        too large.
    stationary : float
        The bound on the expected squared error of the average in the long run.
    initial : float
        The rest of `total`: the times before the recursion applies, and the remaining effect of the
        start after them.
    norm : str
        "sup", "2" or "weighted".
    start_error : float
    rate : float
        The error above `stationary` shrinks by the factor ``1 - rate`` in each step.
    window : int
        The tau that gives the least bound; 0 if none gives a bound.
    smoothing : float
        psi of the Lyapunov function; infinite in an inner-product norm, which is smooth itself.
    step_size, sync_period, num_steps, num_agents
        The run.

    Examples
    --------
    >>> bound = SharperBound(2.0, 1.5, 0.5, "2", 3.0, 0.1, 5, math.inf, 0.1, 1, 100, 1)
    >>> bound.holds, bound.vacuous
    (True, False)
    """

    total: float
    stationary: float
    initial: float
    norm: str
    start_error: float
    rate: float
    window: int
    smoothing: float
    step_size: float
    sync_period: int
    num_steps: int
    num_agents: int

    @property
    def holds(self) -> bool:
        """Whether the step is small enough for the theorem to say anything."""
        return self.total < math.inf

    @property
    def vacuous(self) -> bool:
        """Whether the bound is no better than the squared error at the start."""
        return not self.total < self.start_error**2

    def beside(self, error: float) -> Comparison:
        """The bound beside an exact or measured squared error in the same norm."""
        return Comparison(self.total, float(error))

    def __str__(self) -> str:
        rows = [
            ["long run", number(self.stationary)],
            ["start", number(self.initial)],
            ["total", number(self.total)],
            ["at the start", number(self.start_error**2)],
            ["rate", number(self.rate)],
            ["window tau", str(self.window)],
        ]
        title = (
            f"Sharper bound on the squared error ({self.norm} norm): {self.num_agents} agents, "
            f"step size {self.step_size:.4g}, sync period {self.sync_period}, "
            f"{self.num_steps:.4g} steps"
        )
        return title + "\n\n" + text_table(["part", "value"], rows)


def sharper_error_bound(
    problem: Problem,
    algorithm: Algorithm,
    *,
    step_size: float,
    num_steps: int,
    sync_period: int = 1,
    decay: float | None = None,
) -> SharperBound:
    """The sharpest known bound on the error of the output under the theorem's assumptions.

    Parameters
    ----------
    step_size, num_steps, sync_period
        The run's; the parameters start at zero. For one agent the sync period is taken to be 1.
    decay : float, optional
        c of the output time; by default that of `run`.

    Returns
    -------
    SharperBound
        Infinite, with a warning, if the step is too large.

    Raises
    ------
    ProblemError
        If no norm is found in which the agents contract.

    Examples
    --------
    >>> import fegsam as fg
    >>> mdp = fg.MDP([[[0.75, 0.25]], [[0.25, 0.75]]], [[0.0], [1.0]], 0.5)
    >>> fed = fg.Federation(
    ...     mdp, num_agents=4, target_policy=[[1.0], [1.0]], features=[[1.0], [0.5]]
    ... )
    >>> settings = {"step_size": 1e-6, "num_steps": 10**9, "sync_period": 10}
    >>> sharp = sharper_error_bound(fed, fg.OnPolicyTD(), **settings)
    >>> plain = fg.theory.error_bound(fed, fg.OnPolicyTD(), **settings)
    >>> sharp.holds, plain.total / sharp.total > 1000
    (True, True)
    """
    step, steps = (
        positive(step_size, "step_size"),
        integer(num_steps, "num_steps", most=LARGEST_LENGTH),
    )
    period = integer(sync_period, "sync_period", most=LARGEST_LENGTH)
    found = assumptions(problem, algorithm)
    chosen = (
        default_output_decay(problem, algorithm, step, steps)
        if decay is None
        else fraction(decay, "decay")
    )
    bound = sharper_from(found, step_size=step, num_steps=steps, sync_period=period, decay=chosen)
    if not bound.holds:
        warnings.warn(
            f"The sharper bound is infinite, since step_size={step:g} is too large; use at most "
            f"largest_sharper_step(problem, algorithm, sync_period={period}).",
            RuntimeWarning,
            stacklevel=2,
        )
    return bound


def sharper_from(
    given: Assumptions, *, step_size: float, num_steps: int, decay: float, sync_period: int = 1
) -> SharperBound:
    """`sharper_error_bound` from known assumptions: the least bound over tau and psi."""
    require_complete(given)
    alpha, period = step_size * given.beta, sync_period if given.num_agents > 1 else 1
    output = OutputTimeDistribution(num_steps, decay)
    best = (math.inf, math.inf, math.inf, 0.0, 0, math.nan)
    for envelope in envelopes(given):
        for tau in windows(given, alpha):
            parts = _bound(given, envelope, alpha, tau, period, output)
            if parts is not None and parts[0] < best[0]:
                best = (*parts, tau, envelope.psi)
    total, stationary, initial, rate, tau, psi = best
    run = (step_size, sync_period, num_steps, given.num_agents)
    return SharperBound(
        total, stationary, initial, given.norm, given.start_error, rate, tau, psi, *run
    )


def _bound(
    given: Assumptions,
    envelope: Envelope,
    alpha: float,
    tau: int,
    period: int,
    output: OutputTimeDistribution,
) -> tuple[float, float, float, float] | None:
    """Total, long run, share of the start, and rate; None if the step is too large."""
    a, begin = given.A_2 + 1, 2 * tau + period - 1
    if not alpha * begin * a < 1:
        return None
    k, q1, q0 = drift_polynomial(given, envelope, alpha, tau, period)
    if not k > 0:
        return None
    root = (q1 + math.sqrt(q1 * q1 + 4 * k * q0)) / (2 * k)
    # The drift is concave in y = root^2, so it lies below its tangent there, whose slope is at
    # least half of k.
    rate = 2 * alpha * envelope.u2 * (k - (q1 / (2 * root) if root > 0 else 0.0))
    first = (
        given.start_error
        + alpha * begin * (a * given.start_error + given.B) / (1 - alpha * begin * a)
    ) ** 2
    if begin >= output.num_steps:
        return first, root**2, first, rate
    early = float(output.cdf(begin - 1))
    above = max(0.0, envelope.u2 / envelope.l2 * first - root**2)
    total = early * first + (1 - early) * root**2 + _remembered(output, begin, rate) * above
    return total, root**2, total - (1 - early) * root**2, rate


def _remembered(output: OutputTimeDistribution, begin: int, rate: float) -> float:
    """``sum_{t>=begin} q(t) (1 - rate)^(t - begin)``."""
    length, c = output.num_steps - begin, math.log(output.decay)
    g = math.log1p(-min(rate, 0.5))
    if abs(g - c) * length < 1e-9:
        total = length * math.exp((length - 1) * g)
    else:
        total = (math.expm1(length * g) - math.expm1(length * c)) / (math.expm1(g) - math.expm1(c))
    return total * math.expm1(c) / math.expm1(c * output.num_steps)


def largest_sharper_step(problem: Problem, algorithm: Algorithm, *, sync_period: int = 1) -> float:
    """The largest step size with a finite long-run `sharper_error_bound`, to within 0.1%.

    Examples
    --------
    >>> import fegsam as fg
    >>> mdp = fg.MDP([[[0.75, 0.25]], [[0.25, 0.75]]], [[0.0], [1.0]], 0.5)
    >>> fed = fg.Federation(
    ...     mdp, num_agents=4, target_policy=[[1.0], [1.0]], features=[[1.0], [0.5]]
    ... )
    >>> largest_sharper_step(fed, fg.OnPolicyTD()) > 1000 * fg.theory.largest_step(
    ...     fed, fg.OnPolicyTD()
    ... )
    True
    """
    period = integer(sync_period, "sync_period", most=LARGEST_LENGTH)
    given = assumptions(problem, algorithm)
    require_complete(given)
    period = period if given.num_agents > 1 else 1

    def passes(alpha: float) -> bool:
        return any(
            alpha * (2 * tau + period - 1) * (given.A_2 + 1) < 1
            and drift_polynomial(given, envelope, alpha, tau, period)[0] > 0
            for envelope in envelopes(given)
            for tau in windows(given, alpha)
        )

    least = 1e-300
    if not passes(least):
        raise ProblemError(
            "No step size above 1e-300 satisfies the theorem; use policies that explore more, or "
            "a smaller discount."
        )
    return last_real(passes, least, 1.0, within=1.001) / given.beta
