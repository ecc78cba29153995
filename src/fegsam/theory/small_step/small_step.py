"""The variance and bias of the agents' average in the long run, to first order in the step size.

The paper's Theorem 3.1 bounds ``E||avg - theta*||^2``. For small step sizes alpha this error has a
closed form for the linear algorithms, and for Q-learning where the greedy policy is unique, since
it is then linear near Q* (`cell_noise`). Agent i moves ``theta += alpha (M_i(y) theta + b_i(y))``,
with theta measured from theta*. Let ``A_i = E M_i`` and ``b_i-bar = E b_i``. The mean of the
b_i-bar over the agents is zero, but for heterogeneous agents the b_i-bar are not. Let A be the mean
of the A_i, and let ~ mark deviations from the mean.

*Variance.* ``Cov(avg) = (alpha / N) X`` where X solves the Lyapunov equation

    A X + X A' + mean_i Gamma_i = 0,        Gamma_i = sum_j Cov(b_i(y_0), b_i(y_j)),

with lags j of either sign. N agents divide the variance by N, whatever the sync period K: this is
the linear speed-up.

*Markov bias.* An agent's parameters contain its past noise, and the matrix that multiplies them is
correlated with it:

    -alpha A^{-1} mean_i sum_{j>=1} w_j E[M_i~(y_j) b_i~(y_0)],
    w_j = 1/N + (1 - 1/N) max(0, 1 - j/K).

w_j is the share of the agent's own noise of j steps ago that its parameters still contain: all of
it if no synchronisation happened since, which has probability ``max(0, 1 - j/K)``, and otherwise
1/N of it. So K = 1 divides the bias by N, and with K large against the mixing time N agents are as
biased as one.

*Heterogeneity drift.* Between synchronisations each agent moves towards its own fixed point,

    -alpha (K - 1) / 2  A^{-1} mean_i (A_i b_i-bar).

It is zero for identical agents, and also for different agents that share A_i.

*Curvature*, in Q-learning. The maximum over fluctuating values is too large on average. This
matters where two actions nearly tie, within a few standard deviations of an agent's copy of Q; see
`curvature`.

If K > 1 no number of agents makes the biases vanish: they limit the speed-up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fegsam.algorithms.rule import Algorithm, check_algorithm
from fegsam.errors import ProblemError
from fegsam.exact.fixed_points import fixed_point
from fegsam.problem.checks import integer, positive
from fegsam.problem.federation import Problem
from fegsam.text import aligned
from fegsam.theory.small_step.agent_noise import AgentNoise
from fegsam.theory.small_step.cell_noise import CellNoise
from fegsam.theory.small_step.curvature import NO_CURVATURE, curvature
from fegsam.theory.small_step.lyapunov import slowest_rate, stationary_covariance
from fegsam.theory.small_step.noises import agent_noises

SAME_MATRIX = 1e-12
"""Mean matrices are equal if their entries differ by at most this share of the largest entry."""
MOST_PARAMETERS = 5000
"""The Lyapunov equation needs several dense (d, d) matrices, and time in proportion to d^3."""
RELIABLE_GAP = 3.0
"""The law of Q-learning holds if the greedy action leads by this many standard deviations."""
FIRST_ORDER_SHARE = 0.1
"""The law's drift holds up to this `stiffness`; the omitted terms are about this share of it."""


@dataclass(frozen=True, eq=False)
class SmallStepLaw:
    """The stationary average of the agents, to first order in the step size; see `small_step_law`.

    Attributes
    ----------
    algorithm : str
    num_agents, sync_period : int
    step_size : float
    covariance : (d, d) array
        ``(alpha / N) X``.
    markov_bias, drift : (d,) arrays
        Two parts of ``E[avg] - theta*``: from the memory of the noise, and from the heterogeneity
        of the agents.
    rate : float
        ``alpha min Re eig(-A)``: the slowest part of the mean error shrinks by the factor ``1 -
        rate`` in each step.
    curvature_bias : (d,) array
        The third part: from the maximum over fluctuating values. Zero except for Q-learning.
    gap_ratio : float
        Q-learning: the smallest ratio of an action gap, ``max Q*(s, .) - Q*(s, a)``, to the
        standard deviation of that gap in one agent's copy of Q. Infinite for the linear algorithms.
    stiffness : float
        ``alpha (K - 1) ||A||_2 / 2``: how far agents move towards their own fixed points between
        synchronisations. Where it is not small, the true drift grows more slowly with K than the
        law says. It is zero for one agent, for agents of one kind, and in the linear algorithms for
        agents that share A, since they do not drift.

    Examples
    --------
    >>> law = SmallStepLaw("LinearSA", 1, 1, 0.5, np.eye(2), np.zeros(2), np.array([0.0, 2.0]), 0.1)
    >>> law.variance, law.bias, law.mse
    (2.0, array([0., 2.]), 6.0)
    """

    algorithm: str
    num_agents: int
    sync_period: int
    step_size: float
    covariance: np.ndarray
    markov_bias: np.ndarray
    drift: np.ndarray
    rate: float
    curvature_bias: np.ndarray | float = 0.0
    gap_ratio: float = math.inf
    stiffness: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether the law is exact to first order: `limits` is empty.

        For Q-learning the greedy action of every state must lead by `RELIABLE_GAP` standard
        deviations. If it leads by less, the law is only a guide: it includes the curvature, but its
        variance assumes one greedy policy, while those of the agents vary. For heterogeneous agents
        the `stiffness` must be at most `FIRST_ORDER_SHARE`. If it is larger, the law overstates the
        drift.
        """
        return not self.limits

    @property
    def limits(self) -> list[str]:
        """The reasons why the law is only a guide, one sentence each; empty where it holds."""
        found = []
        if not self.gap_ratio >= RELIABLE_GAP:
            found.append(
                f"the smallest action gap is {self.gap_ratio:.3g} standard deviations, below "
                f"{RELIABLE_GAP:g}"
            )
        if not self.stiffness <= FIRST_ORDER_SHARE:
            found.append(
                f"alpha (K - 1) ||A|| / 2 is {self.stiffness:.3g}, above {FIRST_ORDER_SHARE:g}, "
                "where the drift levels off"
            )
        return found

    @property
    def variance(self) -> float:
        """The trace of the covariance, ``E||avg - E avg||_2^2``."""
        return float(np.trace(self.covariance))

    @property
    def bias(self) -> np.ndarray:
        """(d,): ``E[avg] - theta*``, the sum of its three parts."""
        return self.markov_bias + self.drift + self.curvature_bias

    @property
    def mse(self) -> float:
        """``E||avg - theta*||_2^2``: the variance plus the squared bias."""
        return self.variance + float(self.bias @ self.bias)

    def __str__(self) -> str:
        def norm(bias: np.ndarray | float) -> str:
            return f"{np.linalg.norm(bias):.4g}"

        lines = [
            (
                f"{self.algorithm}, small steps",
                f"N = {self.num_agents}, K = {self.sync_period}, step size {self.step_size:g}",
            ),
            ("E||avg - theta*||^2", f"{self.mse:.4g}"),
            ("  variance", f"{self.variance:.4g}"),
            ("  bias squared", f"{self.bias @ self.bias:.4g}"),
            ("bias (2-norm)", norm(self.bias)),
            ("  of the Markov noise", norm(self.markov_bias)),
            ("  of heterogeneity", norm(self.drift)),
            ("decay of the start", f"{self.rate:.4g} a step"),
        ]
        if self.gap_ratio < math.inf:
            lines.insert(-1, ("  of the maximum", norm(self.curvature_bias)))
            lines.append(("smallest action gap", f"{self.gap_ratio:.3g} standard deviations"))
            lines += [("the law holds", "")] if self.holds else []
        lines += [("the law is a guide", reason) for reason in self.limits]
        return "\n".join(aligned(lines))


def small_step_law(
    problem: Problem, algorithm: Algorithm, *, step_size: float, sync_period: int
) -> SmallStepLaw:
    """Variance and bias of the agents' average in the long run, for small steps, without sampling.

    The small-step law approximates `fegsam.exact.stationary_error` at a fraction of the cost: one
    sparse solve per kind of agents and one Lyapunov equation, whatever N and K. It omits terms of
    order ``alpha^2 / N`` in the covariance and of order ``alpha^2`` in the bias, so the relative
    error of ``mse`` is proportional to alpha, for every N. Steps are small if ``alpha ||A||`` is
    small against one, and for heterogeneous agents ``alpha K ||A||``. Beyond that the true drift
    stops growing with K and the law overstates it; `SmallStepLaw.holds` and `SmallStepLaw.limits`
    report this.

    Parameters
    ----------
    problem : Federation or MarkovNoise
    algorithm : LinearSA, OnPolicyTD, OffPolicyTabularTD, OffPolicyLinearTD, TDC or QLearning
        Or an algorithm of your own with the structure of one of these.
    step_size : float
        alpha.
    sync_period : int
        K. It has no effect for a single agent.

    Returns
    -------
    SmallStepLaw

    Raises
    ------
    ProblemError
        If the algorithm is not linear, diverges, or has more than 5000 parameters, or if the greedy
        policy of Q-learning is not unique.

    Examples
    --------
    Noise of +-2 that flips with probability 1/4 has correlation 1/2 from one step to the next, and
    a long-run variance of ``4 (1 + 1/2) / (1 - 1/2) = 12``. The average ``theta += alpha (noise -
    theta)`` has half of that variance times alpha:

    >>> import fegsam as fg
    >>> noise = fg.MarkovNoise([[0.75, 0.25], [0.25, 0.75]], num_agents=1)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[2.0], [-2.0]])
    >>> round(small_step_law(noise, average, step_size=0.01, sync_period=1).variance, 6)
    0.06

    Heterogeneous agents pay for rare synchronisation with a bias that no number of agents removes:

    >>> mdp = fg.examples.garnet(30, 3, 5, discount=0.9, seed=0)
    >>> fed = fg.Federation(
    ...     mdp,
    ...     fg.policies.random(30, 3, count=4, seed=1),
    ...     num_agents=10**6,
    ...     target_policy=fg.policies.uniform(30, 3),
    ...     features=[[1.0, s / 30] for s in range(30)],
    ... )
    >>> print(small_step_law(fed, fg.OffPolicyLinearTD(), step_size=0.01, sync_period=100))
    OffPolicyLinearTD, small steps  N = 1000000, K = 100, step size 0.01
    E||avg - theta*||^2             3.058e-08
      variance                      1.53e-08
      bias squared                  1.528e-08
    bias (2-norm)                   0.0001236
      of the Markov noise           8.529e-05
      of heterogeneity              6.373e-05
    decay of the start              0.0005314 a step

    Q-learning, where no two actions tie:

    >>> small_step_law(fed, fg.QLearning(), step_size=0.001, sync_period=10).holds
    True
    """
    alpha = positive(step_size, "step_size")
    period = integer(sync_period, "sync_period")
    check_algorithm(algorithm, problem)
    dimension = algorithm.dimension(problem)
    if dimension > MOST_PARAMETERS:
        raise ProblemError(
            f"The small-step law of {dimension} parameters was asked for, but its Lyapunov "
            f"equation is affordable up to {MOST_PARAMETERS}; use features or fewer states."
        )
    point = fixed_point(problem, algorithm)
    kinds = agent_noises(algorithm, problem, point)
    agents = problem.num_agents
    mean = _mean_moments(kinds, agents, period)
    covariance = alpha / agents * stationary_covariance(mean.matrix, mean.long_run)
    # A single kind has mean offset zero, and must not drift by rounding times K.
    wait = (period - 1) / 2 if len(kinds) > 1 else 0.0
    cells = [(share, noise) for share, noise in kinds if isinstance(noise, CellNoise)]
    bend = (
        curvature(cells, mean.cell_long_runs, covariance, point, alpha, period if agents > 1 else 1)
        if cells
        else NO_CURVATURE
    )
    drifts = period > 1 and agents > 1 and len(kinds) > 1 and (bool(cells) or not mean.is_shared)
    pulls = np.column_stack(
        [alpha * mean.memory, alpha * wait * mean.pull, np.broadcast_to(bend.pull, dimension)]
    )
    biases = -np.linalg.solve(mean.matrix, pulls)
    return SmallStepLaw(
        algorithm=type(algorithm).__name__,
        num_agents=agents,
        sync_period=period,
        step_size=alpha,
        covariance=covariance,
        markov_bias=biases[:, 0],
        drift=biases[:, 1],
        rate=alpha * slowest_rate(mean.matrix),
        curvature_bias=biases[:, 2],
        gap_ratio=bend.gap_ratio,
        stiffness=alpha * wait * float(np.linalg.norm(mean.matrix, 2)) if drifts else 0.0,
    )


@dataclass(frozen=True, eq=False)
class _MeanMoments:
    """The means over the agents that the small-step law consists of."""

    matrix: np.ndarray
    """(d, d): A"""
    is_shared: bool
    """whether all A_i are A"""
    long_run: np.ndarray
    """(d, d): mean_i Gamma_i"""
    pull: np.ndarray
    """(d,): mean_i (A_i b_i-bar)"""
    memory: np.ndarray
    """(d,): mean_i sum_{j>=1} w_j E[M_i~(y_j) b_i~(y_0)]"""
    cell_long_runs: list[np.ndarray]
    """Q-learning: Gamma_i (d, d) of each kind, which the curvature needs"""


def _mean_moments(
    kinds: Sequence[tuple[float, AgentNoise]], agents: int, period: int
) -> _MeanMoments:
    first = kinds[0][1].mean_matrix
    dimension = len(first)
    mean_matrix, long_run = np.zeros((dimension, dimension)), np.zeros((dimension, dimension))
    pull, memory = np.zeros(dimension), np.zeros(dimension)
    is_shared, cell_long_runs = True, []
    for share, noise in kinds:
        matrix = noise.mean_matrix
        own, correlation = lagged_moments(noise, agents, period)
        mean_matrix += share * matrix
        is_shared = is_shared and np.allclose(
            matrix, first, rtol=0.0, atol=SAME_MATRIX * np.abs(first).max()
        )
        long_run += share * own
        pull += share * matrix @ noise.mean_offset
        memory += share * correlation
        if isinstance(noise, CellNoise):
            cell_long_runs.append(own)
    if not np.isfinite(long_run).all() or not np.isfinite(mean_matrix).all():
        raise ProblemError(
            "The squares of the agents' noise overflow; give rewards or features in a larger unit."
        )
    return _MeanMoments(mean_matrix, is_shared, long_run, pull, memory, cell_long_runs)


def lagged_moments(noise: AgentNoise, agents: int, period: int) -> tuple[np.ndarray, np.ndarray]:
    """Gamma_i (d, d), and ``sum_{j>=1} w_j E[M_i~(y_j) b_i~(y_0)]`` (d,)."""
    total, within = noise.after_effects(period)
    one_sided = noise.offset_response(total)
    felt = total / agents + (1 - 1 / agents) * within
    return noise.spread + one_sided + one_sided.T, noise.matrix_response(felt)
