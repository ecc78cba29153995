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
from typing import NamedTuple

import numpy as np

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

ENVELOPES = 24
"""The number of smoothings psi of the sup norm to try."""
WINDOWS = 60
"""The largest number of windows tau to try, in geometric progression."""


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


@dataclass(frozen=True)
class Envelope:
    """The smoothness X, the norm equivalence and the drift phi_2 of a Lyapunov function M.

    The norm equivalence is ``l2 ||x||_m^2 <= ||x||_c^2 <= u2 ||x||_m^2``.

    >>> Envelope(psi=math.inf, X=1.0, u2=1.0, l2=1.0, phi_2=0.5).phi_2
    0.5
    """

    psi: float
    X: float
    u2: float
    l2: float
    phi_2: float


def envelopes(given: Assumptions) -> list[Envelope]:
    """The Lyapunov functions to try.

    In an inner-product norm this is ``M = ||x||_c^2 / 2``; in the sup norm they are Moreau
    envelopes with several psi.
    """
    gap = 1 - given.contraction
    if given.norm != "sup":
        return [Envelope(math.inf, 1.0, 1.0, 1.0, gap)]
    order = max(2.0, 2 * math.log(given.dimension)) if given.dimension > 1 else 2.0
    lower = given.dimension ** (-2 / order)
    found = []
    for psi in np.geomspace(1e-3, 10, ENVELOPES) * gap / max(given.contraction, 1e-3):
        # 1 - gamma_c sqrt((1 + psi) / (1 + psi l_cs^2)), without subtracting nearly equal numbers
        left = gap * (1 + given.contraction) - psi * (given.contraction**2 - lower)
        phi_2 = (
            left
            / (1 + psi * lower)
            / (1 + given.contraction * math.sqrt((1 + psi) / (1 + psi * lower)))
        )
        if phi_2 > 0:
            found.append(
                Envelope(float(psi), (order - 1) / (psi * lower), 1 + psi, 1 + psi * lower, phi_2)
            )
    return found


def windows(given: Assumptions, alpha: float) -> list[int]:
    """The tau to try.

    They end where the chain's memory is below alpha^3 or alpha tau (A_2 + 1) reaches one half.
    """
    rho, least = given.mixing.rho, max(1, given.horizon)
    if rho <= 0:
        return [given.horizon + 1]
    longest = min(3 * math.log(alpha) / math.log(rho), 0.5 / (alpha * (given.A_2 + 1)))
    if not longest >= least:
        return [least]
    return sorted({int(tau) for tau in np.rint(np.geomspace(least, longest, WINDOWS))})


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


def drift_polynomial(
    given: Assumptions, envelope: Envelope, alpha: float, tau: int, period: int = 1
) -> tuple[float, float, float]:
    """The coefficients k, q_1 and q_0 of the drift.

    From time 2 tau + K - 1 on, ``E M`` falls by at least ``alpha (k y - q_1 sqrt(y) - q_0)`` in
    each step.
    """
    found = movement(given, alpha, tau, period)
    if found is None:
        return -math.inf, math.inf, math.inf
    way, apart = found
    X, u2, a, is_sup = envelope.X, envelope.u2, given.A_2 + 1, given.norm == "sup"
    delta, x = _forgotten(given, tau), Affine(1.0, 0.0)
    square = (given.dimension if is_sup else 1) * (
        given.B**2 / given.num_agents + (given.m_4 * delta**2) ** 2
    )
    noise = Affine(0.0, math.sqrt(square))
    earlier, moved = x + way, a * x + given.A_1 * apart
    parts = [
        # T_3, the Markov noise of G
        (X * (given.A_2 + given.contraction), way, x + apart),
        (X * (given.A_1 + given.contraction), earlier, way + 2 * apart),
        (X * given.m_1 * delta, earlier, earlier + apart),
        # T_4, the distance between the agents
        (given.contraction / math.sqrt(u2 * envelope.l2), x, apart),
        # T_5, the square of the step
        (alpha * X / 2, moved + noise, moved + noise),
        # T_2, the Markov noise b: its mean given the state tau steps ago, and its correlation with
        # the parameters' movement since
        (X * given.m_4 * delta, Affine(0.0, 1.0), earlier),
    ]
    if is_sup:
        parts.append((X, noise, way))
    else:
        heard = given.B * correlated_noise(given, tau) / given.num_agents
        known = (given.m_4 * delta) ** 2 * delta / (1 - given.mixing.rho)
        parts.append((alpha * tau, a * earlier + given.A_1 * apart, noise))
        parts.append((alpha, Affine(0.0, 1.0), Affine(0.0, heard + known)))
    q2 = sum(factor * f.slope * g.slope for factor, f, g in parts)
    q1 = sum(factor * (f.slope * g.constant + f.constant * g.slope) for factor, f, g in parts)
    q0 = sum(factor * f.constant * g.constant for factor, f, g in parts)
    return envelope.phi_2 / u2 - q2, q1, q0


class Affine(NamedTuple):
    """``slope x + constant``.

    >>> 2 * Affine(1.0, 0.5)
    Affine(slope=2.0, constant=1.0)
    """

    slope: float
    constant: float

    def __add__(self, other: Affine) -> Affine:  # type: ignore[override]
        return Affine(self.slope + other.slope, self.constant + other.constant)

    def __rmul__(self, factor: float) -> Affine:  # type: ignore[override]
        return Affine(factor * self.slope, factor * self.constant)


def movement(
    given: Assumptions, alpha: float, tau: int, period: int
) -> tuple[Affine, Affine] | None:
    """Bounds on the distance moved in tau steps and on the root of the sync error.

    Both are functions of x; None if the step is too large. Over the W = tau + K - 1 steps that
    matter, the distance D and the root omega of the sync error satisfy

        D     <= alpha (W a (x + D) + W A_1 omega + S_W),
        omega <= alpha (c (K - 1) a (x + D + omega) + beta),

    where S_W is the noise of the average in W steps and beta that of one agent in K - 1 steps; c is
    2 in the sup norm and 1 otherwise.
    """
    a, reach, local = given.A_2 + 1, tau + period - 1, period - 1
    is_sup = given.norm == "sup"
    r = math.sqrt(given.dimension) if is_sup else 1.0
    own, left = (
        given.B / math.sqrt(given.num_agents),
        _forgotten(given, tau) / (1 - given.mixing.rho),
    )
    heard = [r * (steps * own + given.m_4 * left) for steps in (reach, tau)]
    spread = (
        math.sqrt(local * given.B * (given.B + 2 * correlated_noise(given, local)))
        if local
        else 0.0
    )
    pulled = (
        local * given.m_3 * float(np.max(given.agent_heterogeneity)) + given.m_2 * left
        if local
        else 0.0
    )
    part = (2 if is_sup else 1) * local
    ways, parting, drag = 1 - alpha * reach * a, 1 - alpha * part * a, alpha * reach * given.A_1
    determinant = ways * parting - drag * alpha * part * a
    # If all three are positive, the inverse of the two inequalities has no negative entry.
    if not (ways > 0 and parting > 0 and determinant > 0):
        return None
    first = alpha * Affine(reach * a, heard[0])
    second = alpha * Affine(part * a, r * (spread + pulled))
    farthest = 1 / determinant * (parting * first + drag * second)
    apart = 1 / determinant * (alpha * part * a * first + ways * second)
    way = tau * a * (Affine(1.0, 0.0) + farthest) + tau * given.A_1 * apart + Affine(0.0, heard[1])
    return alpha * way, apart


def _forgotten(given: Assumptions, tau: int) -> float:
    return given.mixing.rho**tau if given.mixing.rho > 0 else 0.0


def correlated_noise(given: Assumptions, tau: int) -> float:
    """A bound on the sum over k = 1, ..., tau of the standard deviation of ``E[b_i(y_k) | y_0]``.

    Each of them is at most B.
    """
    if not math.isnan(given.lag_sum):
        return min(given.lag_sum, tau * given.B)
    if given.level == "given" and given.m_3 > 0:
        # m_2 then does not bound the distance of the conditional mean from the agent's own mean.
        return tau * given.B
    rho = given.mixing.rho
    if rho <= 0:
        return 0.0
    # min(B, m_2 rho^k) is B for the first `full` lags and geometric from there on.
    full = (
        0
        if given.m_2 <= given.B
        else min(tau, math.floor(math.log(given.m_2 / given.B) / -math.log(rho)))
    )
    return full * given.B + given.m_2 * rho ** (full + 1) * (1 - rho ** (tau - full)) / (1 - rho)


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
