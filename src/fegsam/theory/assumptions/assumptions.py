"""Whether the theorem on FeGSAM applies to an algorithm on a problem, and its first constants.

Algorithms 2 to 5 are special cases of Algorithm 1, ``theta += alpha (G(theta, y) - theta + b(y))``,
in coordinates centred at the fixed point x*. If the increment at x is H(x, y) - x, then ``G(theta,
y) = H(theta + x*, y) - H(x*, y)`` and ``b(y) = H(x*, y) - x*``. So G(0, y) = 0, and the agents'
disagreement about the fixed point appears in the means of their b.

* Contraction (Assumption 3.2): ``||Gbar_i(x) - Gbar_i(x')||_c <= gamma_c ||x - x'||_c`` for every
  agent i. In the sup norm ``gamma_c = 1 - mu_min (1 - gamma^n)``, see `drift`; for the linear
  algorithms see `norms`.
* Size (Assumption 3.3): ``||G_i(x, y) - G_i(x', y)||_c <= A_1 ||x - x'||_c``, ``||G_i(x, y)||_c <=
  A_2 ||x||_c`` and ``||b_i(y)||_c <= B``, see `sharp`.
* Mixing (Assumption 3.1): rho, m_1, m_2 and m_4, see `mixing`.
* Disagreement (Assumption 3.1): the mean of b_i is at most ``m_3 eta_i``, where eta_i is the
  distance from x* to agent i's own fixed point. m_3 is zero if all agents have the same mean field.
  In the linear algorithms the mean of b_i is A_i / beta times the difference of the two points, so
  m_3 is ``max_i ||A_i / beta||_c``. In the others it is x - Gbar_i(x) at that difference x, so m_3
  is ``1 + gamma_c``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fegsam.algorithms.rule import Algorithm, check_algorithm
from fegsam.algorithms.structure import (
    OnPolicyControl,
    Opaque,
    Structure,
    TemporalDifference,
    structure_of,
)
from fegsam.errors import ProblemError
from fegsam.exact.chains import kind_weights
from fegsam.exact.fixed_points import agent_fixed_points, fixed_point
from fegsam.exact.linear_field import LinearField
from fegsam.exact.mean_fields import mean_field
from fegsam.exact.value_fields import QField, TabularField
from fegsam.problem.checks import flat_params
from fegsam.problem.federation import Problem
from fegsam.problem.mixing import MixingConstants
from fegsam.text import html_table, number, text_table
from fegsam.theory.assumptions.drift import contraction
from fegsam.theory.assumptions.horizons import has_threshold, horizon_threshold
from fegsam.theory.assumptions.mixing import chain_mixing, mixing_rates
from fegsam.theory.assumptions.norms import Contraction, can_search
from fegsam.theory.assumptions.sharp import StepBounds, step_bounds
from fegsam.theory.assumptions.stated import no_theorem, stated_constants

_VERDICTS = {
    "sup": "The theorem applies, in the sup norm.",
    "identity": "The theorem applies, in the 2-norm.",
    "common": "The theorem applies, in a weighted 2-norm.",
    "given": "The theorem applies if the given constants are right.",
    "average-only": "The theorem does not apply: there is no norm in which all agents contract. "
    "The average of the agents is stable, so the algorithm converges for small steps, and for "
    "K > 1 as long as alpha K is small.",
    "unsearched": "The theorem was not found to apply: the agents do not all contract in the "
    "2-norm, and the problem is too large to search for a weighted one. The average of the agents "
    "is stable, so the algorithm converges for small steps, and for K > 1 as long as alpha K is "
    "small.",
    "joint": "The theorem does not apply: gamma_c is 1, because some agent alone never takes some "
    "action in some state. Together the agents take every action in every state, so the algorithm "
    "converges: the mean step of the average contracts in the sup norm by 1 - alpha (1 - gamma) "
    "times the mean frequency of the rarest pair of state and action.",
    "unstable": "The theorem does not apply: the average of the agents is unstable, so the "
    "algorithm diverges.",
}

WELL_CONDITIONED = 1e14
"""Matrices with a smaller condition number are not singular up to rounding."""


@dataclass(frozen=True, eq=False)
class Assumptions:
    """The constants that the theorem starts from; see `assumptions`.

    All norms are the c-norm, in which the agents contract.

    Attributes
    ----------
    algorithm : str
    num_agents, dimension, horizon : int
        N, d and n; n is 1 for Q-learning and 0 for Algorithm 1, which observes one state.
    norm : "sup", "2" or "weighted"
        The c-norm. Where none is found it is the 2-norm, and beta is 1.
    level : str
        "sup" for algorithms 3 and 4, "joint" for Q-learning whose agents try every action only
        together, "identity", "common", "average-only" or "unstable" for linear ones, "given".
    weight : (d, d) array or None
        Lambda of the weighted 2-norm.
    beta : float
        The theorem's step size is ``step_size * beta``.
    contraction : float
        gamma_c; NaN where no norm is found.
    A_1, A_2, B : float
        B is as small as it can be, and so are A_1 and A_2 if `is_sharp`. B is NaN if there is no
        fixed point.
    A_cap, B_cap : float
        Closed forms that they do not exceed.
    mixing : MixingConstants
        m and rho of the chains of states, the largest over the kinds.
    m_1, m_2, m_3, m_4 : float
    lag_sum : float
        ``sum_{k>=1} sup ||E[b(y_k) | y_0]||_c`` or a bound on it; NaN where the theorem uses
        m_2 rho / (1 - rho) instead.
    agent_heterogeneity : (M,) array
        eta_k: the distance of each kind's own fixed point from the common one.
    heterogeneity : float
        Their mean over the agents, the paper's varepsilon.
    start_error : float
        ``||theta_0 - theta*||_c``.
    n_threshold : int or None
        Algorithm 5: for this n and all larger ones the level is known to be "identity".

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.5), num_agents=2, target_policy=[[1.0]])
    >>> assumptions(fed, fg.OffPolicyTabularTD()).holds
    True
    """

    algorithm: str
    num_agents: int
    dimension: int
    horizon: int
    norm: str
    level: str
    weight: np.ndarray | None
    beta: float
    contraction: float
    A_1: float
    A_2: float
    B: float
    A_cap: float
    B_cap: float
    is_sharp: bool
    mixing: MixingConstants
    m_1: float
    m_2: float
    m_3: float
    m_4: float
    lag_sum: float
    agent_heterogeneity: np.ndarray
    heterogeneity: float
    start_error: float
    n_threshold: int | None

    @property
    def holds(self) -> bool:
        """Whether the theorem applies: a norm was found in which the mean operators contract.

        >>> import fegsam as fg
        >>> noise = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=1)
        >>> assumptions(noise, fg.LinearSA([[[1.0]], [[2.0]]], [[0.0], [0.0]])).holds
        False
        """
        return 0 <= self.contraction < 1

    @property
    def _title(self) -> str:
        agents, dimension = self.num_agents, self.dimension
        return f"{self.algorithm} with {agents} agents, d = {dimension}, n = {self.horizon}"

    @property
    def _verdict(self) -> str:
        searched = self.level != "average-only" or can_search(
            len(self.agent_heterogeneity), self.dimension
        )
        return _VERDICTS[self.level if searched else "unsearched"]

    def _rows(self) -> list[list[str]]:
        sharp = (
            "sharp" if self.is_sharp else "given" if self.level == "given" else "a bound, not sharp"
        )
        rows = [
            ["norm", self.norm, f"level {self.level}"],
            ["gamma_c", _digits(self.contraction), "contraction of the mean operators"],
            ["beta", number(self.beta), "step size of the theorem / step size"],
            [
                "A_1, A_2",
                f"{number(self.A_1)}, {number(self.A_2)}",
                f"{sharp}; closed form {number(self.A_cap)}",
            ],
            ["B", number(self.B), f"noise at the fixed point; closed form {number(self.B_cap)}"],
            [
                "m, rho",
                f"{number(self.mixing.m)}, {_digits(self.mixing.rho)}",
                "total variation <= m rho^t",
            ],
            ["m_1, m_2", f"{number(self.m_1)}, {number(self.m_2)}", "mixing of G and of b"],
            [
                "m_3, m_4",
                f"{number(self.m_3)}, {number(self.m_4)}",
                "disagreement; mixing of the average b",
            ],
            [
                "heterogeneity",
                number(self.heterogeneity),
                "mean distance of the agents' fixed points",
            ],
            ["start error", number(self.start_error), "distance of the start from the fixed point"],
        ]
        if not math.isnan(self.lag_sum):
            rows.insert(
                8, ["lag sum", number(self.lag_sum), "correlation of b in overlapping windows"]
            )
        if self.n_threshold is not None:
            rows.append(
                ["n threshold", str(self.n_threshold), "from this n on, all contract in the 2-norm"]
            )
        return rows

    def __str__(self) -> str:
        return "\n".join(
            [self._title, self._verdict, "", text_table(["", "value", "meaning"], self._rows())]
        )

    def _repr_html_(self) -> str:
        return html_table(f"{self._title}. {self._verdict}", ["", "value", "meaning"], self._rows())


def _digits(value: float) -> str:
    """`value` with enough digits to distinguish a contraction factor from 1."""
    return f"{value:.10g}"


def assumptions(
    problem: Problem, algorithm: Algorithm, *, initial_params: ArrayLike | None = None
) -> Assumptions:
    """Check Assumptions 3.1 to 3.3 for an algorithm on a problem, and find their constants.

    If no norm is found in which the agents contract, or if the average is unstable, the result says
    so and no error is raised. Values that need a fixed point are NaN if there is none.

    Parameters
    ----------
    initial_params : (d,) array, optional
        Where the agents start; zero by default.

    Raises
    ------
    ProblemError
        If the algorithm does not fit the problem, if a chain is not ergodic or has more than 2000
        states, too many to certify its mixing, or if constants of a rule of your own are missing.
        Such a rule must state gamma_c, A_1, A_2 and B. It states all of m_1 to m_4 and rho or none
        of them; if none, they follow from the chains.

    Examples
    --------
    >>> import fegsam as fg
    >>> mdp = fg.MDP([[[0.75, 0.25]], [[0.25, 0.75]]], [[0.0], [1.0]], 0.5)
    >>> fed = fg.Federation(mdp, num_agents=4, target_policy=[[1.0], [1.0]])
    >>> print(assumptions(fed, fg.OffPolicyTabularTD()))
    OffPolicyTabularTD with 4 agents, d = 2, n = 1
    The theorem applies, in the sup norm.
    <BLANKLINE>
                   value   meaning
    norm           sup     level sup
    gamma_c        0.75    contraction of the mean operators
    beta           1       step size of the theorem / step size
    A_1, A_2       1, 1    sharp; closed form 2.5
    B              0.5     noise at the fixed point; closed form 4
    m, rho         1, 0.5  total variation <= m rho^t
    m_1, m_2       4, 0    mixing of G and of b
    m_3, m_4       0, 0    disagreement; mixing of the average b
    lag sum        0       correlation of b in overlapping windows
    heterogeneity  0       mean distance of the agents' fixed points
    start error    1.667   distance of the start from the fixed point
    """
    check_algorithm(algorithm, problem)
    structure = structure_of(algorithm, problem)
    # Checked first, so that the error names every missing constant and not gamma_c alone.
    stated = stated_constants(structure) if isinstance(structure, Opaque) else {}
    if isinstance(structure, OnPolicyControl):
        raise no_theorem(algorithm)
    found = contraction(algorithm, problem)
    assert found is not None
    dimension = algorithm.dimension(problem)
    start = (
        np.zeros(dimension)
        if initial_params is None
        else flat_params(initial_params, "initial_params", dimension)
    )
    point, spread = _points(problem, algorithm, found)
    bounds = step_bounds(algorithm, problem, point, found)
    mixing, rates = _mixing(problem, algorithm, found, bounds, stated)
    return Assumptions(
        algorithm=type(algorithm).__name__,
        num_agents=problem.num_agents,
        dimension=dimension,
        horizon=algorithm.window,
        norm=found.norm.name,
        level=found.level,
        weight=found.norm.weight,
        beta=found.beta,
        contraction=found.factor,
        A_1=stated.get("A_1", bounds.lipschitz),
        A_2=stated.get("A_2", bounds.lipschitz),
        B=bounds.noise,
        A_cap=bounds.lipschitz_cap,
        B_cap=bounds.noise_cap,
        is_sharp=bounds.is_sharp,
        mixing=mixing,
        m_1=rates["m_1"],
        m_2=rates["m_2"],
        m_3=rates["m_3"],
        m_4=rates["m_4"],
        lag_sum=rates["lag_sum"],
        agent_heterogeneity=spread,
        heterogeneity=float(kind_weights(problem, problem.num_kinds) @ spread),
        start_error=float(found.norm.of(start - point)),
        n_threshold=_threshold(problem, algorithm, structure),
    )


def _points(
    problem: Problem, algorithm: Algorithm, found: Contraction
) -> tuple[np.ndarray, np.ndarray]:
    """theta* (d,) and the distances (M,) of the kinds' own fixed points; NaN if there are none."""
    nothing = np.full(problem.num_kinds, math.nan)
    if found.level == "unstable":
        return np.full(algorithm.dimension(problem), math.nan), nothing
    point = fixed_point(problem, algorithm)
    try:
        return point, found.norm.of(_own_points(problem, algorithm) - point)
    except ProblemError:
        if found.level not in ("average-only", "joint"):
            raise
        return point, nothing  # one agent's own point may not exist or not be unique


def _own_points(problem: Problem, algorithm: Algorithm) -> np.ndarray:
    """(M, d): `agent_fixed_points`, in one solve for linear mean fields."""
    field = mean_field(algorithm, problem)
    if not isinstance(field, LinearField) or len(field) == 1:
        return agent_fixed_points(problem, algorithm)
    scales = np.abs(field.matrices).max(axis=2, keepdims=True)
    with np.errstate(all="ignore"):
        conditions = np.linalg.cond(np.where(scales > 0, field.matrices / scales, 0.0))
    for kind in np.flatnonzero(~(conditions < WELL_CONDITIONED)):
        # Raises if the matrix is singular up to rounding.
        field.root(np.eye(1, len(field), int(kind))[0])
    return np.linalg.solve(field.matrices, field.offsets[:, :, None])[:, :, 0]


def _mixing(
    problem: Problem,
    algorithm: Algorithm,
    found: Contraction,
    bounds: StepBounds,
    stated: dict[str, float],
) -> tuple[MixingConstants, dict[str, float]]:
    """m and rho, then m_1 to m_4 and lag_sum by name."""
    if "rho" in stated:
        return MixingConstants(m=1.0, rho=stated["rho"]), stated | {"lag_sum": math.nan}
    field = mean_field(algorithm, problem)
    if len(field) == 1:
        m_3 = 0.0
    elif isinstance(field, LinearField):
        m_3 = float(found.norm.of_matrices(field.matrices / found.beta).max())
    else:
        m_3 = 1 + found.factor
    mixing = chain_mixing(problem, algorithm)
    is_centred = len(field) == 1 and isinstance(field, TabularField | QField)
    overlap = bounds.lagged_noise if is_centred else None
    return mixing, mixing_rates(
        mixing, algorithm.window, bounds.lipschitz, bounds.noise, overlap
    ) | {"m_3": m_3}


def _threshold(problem: Problem, algorithm: Algorithm, structure: Structure) -> int | None:
    if not isinstance(structure, TemporalDifference) or structure.is_on_policy:
        return None
    return horizon_threshold(problem, algorithm) if has_threshold(structure) else None
