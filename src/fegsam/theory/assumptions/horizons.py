"""How far Algorithm 5 must look ahead: from some n on, all agents contract in the 2-norm.

``A_i = Phi' D_i (I - gamma^n P^n) Phi`` has ``v' A_i v = ||Phi v||_i^2 - gamma^n <Phi v, P^n Phi
v>_i`` in the inner product with the weights mu_i. By the Cauchy-Schwarz inequality this is positive
for v != 0 if ``gamma^n ||P^n||_{mu_i} < 1`` with ``||X||_mu = ||D^(1/2) X D^(-1/2)||_2``. Since
``||P^n||_mu <= mu_min^(-1/2)``, that is so for every n above ``ln(mu_min^(-1/2)) / ln(1 / gamma)``.
With preconditioning, ``I - A_i = gamma^n H_i P^n Phi``, whose 2-norm is at most ``gamma^n max_s
||phi(s)|| lambda_min(Phi' D_i Phi)^(-1/2)``.

Where transitions have discounts of their own, gamma is the largest one, and P is the part of the
chain that continues (see `MDP.continuing`). It is nowhere larger than the chain, and neither are
these norms.

Both tests are sufficient and neither is necessary. From n to n + 1 the level itself may rise or
fall.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fegsam.algorithms.rule import Algorithm, check_algorithm
from fegsam.algorithms.structure import TemporalDifference, temporal_difference
from fegsam.algorithms.td import require_federation
from fegsam.errors import ProblemError
from fegsam.exact.chains import kind_weights
from fegsam.exact.linear_field import LinearField, projected_field
from fegsam.problem.chains import distinct_stationary_laws
from fegsam.problem.checks import integer, several
from fegsam.problem.federation import Federation, Problem
from fegsam.text import text_table
from fegsam.theory.assumptions.norms import linear_contraction


@dataclass(frozen=True, eq=False)
class HorizonScan:
    """The level and the contraction for each look-ahead n; see `scan_horizons`.

    Attributes
    ----------
    horizons : tuple of int
        n.
    levels : tuple of str
        "identity", "common", "average-only" or "unstable", see `norms`.
    contractions : (len(horizons),) array
        gamma_c; NaN where no norm is found.
    operator_norms : (len(horizons),) array
        The largest ``gamma^n ||P^n||_mu`` over the agents, or ``gamma^n ||H P^n Phi||_2`` with
        preconditioning. Below one, the level is "identity".
    threshold : int
        The level is "identity" for this n and all larger ones.

    Examples
    --------
    >>> HorizonScan((1,), ("identity",), np.array([0.5]), np.array([0.75]), threshold=3).levels
    ('identity',)
    """

    horizons: tuple[int, ...]
    levels: tuple[str, ...]
    contractions: np.ndarray
    operator_norms: np.ndarray
    threshold: int

    def __str__(self) -> str:
        found = zip(self.horizons, self.levels, self.contractions, self.operator_norms, strict=True)
        table = text_table(
            ["n", "level", "contraction", "operator norm"],
            [[str(n), level, f"{factor:.6g}", f"{norm:.6g}"] for n, level, factor, norm in found],
            right=[0, 2, 3],
        )
        return f"{table}\nThe level is identity for every n >= {self.threshold}."


def scan_horizons(problem: Problem, algorithm: Algorithm, horizons: Sequence[int]) -> HorizonScan:
    """The norm in which all agents contract, for each look-ahead n in `horizons`.

    The horizon of `algorithm` itself is ignored.

    Examples
    --------
    >>> import fegsam as fg
    >>> mdp = fg.examples.garnet(8, 3, 2, discount=0.95, seed=1)
    >>> fed = fg.Federation(
    ...     mdp,
    ...     fg.policies.random(8, 3, count=4, seed=1),
    ...     num_agents=4,
    ...     target_policy=fg.policies.random(8, 3, count=1, seed=2)[0],
    ...     features=np.eye(8)[:, :5],
    ... )
    >>> scan = scan_horizons(fed, fg.OffPolicyLinearTD(), range(1, 6))
    >>> scan.levels[-1], scan.threshold > 5
    ('identity', True)
    """
    structure, federation = _require_linear(algorithm, problem)
    policies = algorithm.policies(problem)
    steps = [
        integer(n, "horizon")
        for n in several(horizons, "horizons", "but must be a list: give several, as range(1, 9)")
    ]
    levels, factors, norms = [], [], []
    for n in steps:
        looking = replace(structure, horizon=n)
        field = projected_field(federation, looking, policies)
        found = linear_contraction(field, kind_weights(problem, len(field)))
        levels.append(found.level)
        factors.append(found.factor)
        norms.append(_operator_norm(federation, looking, policies, field))
    return HorizonScan(
        tuple(steps),
        tuple(levels),
        np.array(factors),
        np.array(norms),
        horizon_threshold(problem, algorithm),
    )


def horizon_threshold(problem: Problem, algorithm: Algorithm) -> int:
    """An n from which on all agents contract in the 2-norm, whatever P is; 1 on-policy.

    Examples
    --------
    Two states that are visited equally often, so n > ln(2^(1/2)) / ln 2 = 1/2:

    >>> import fegsam as fg
    >>> mdp = fg.MDP([[[0.5, 0.5]], [[0.5, 0.5]]], [[0.0], [1.0]], 0.5)
    >>> fed = fg.Federation(
    ...     mdp, num_agents=1, target_policy=[[1.0], [1.0]], features=[[1.0], [2.0]]
    ... )
    >>> horizon_threshold(fed, fg.OffPolicyLinearTD())
    1
    """
    structure, federation = _require_linear(algorithm, problem)
    if structure.is_on_policy and not structure.is_preconditioned:
        return 1
    distributions = distinct_stationary_laws(problem, algorithm.policies(problem))
    largest = float(distributions.min()) ** -0.5
    if structure.is_preconditioned:
        phi = structure.linear_features
        smallest = np.linalg.eigvalsh(np.einsum("ks,si,sj->kij", distributions, phi, phi)).min()
        largest = float(np.linalg.norm(phi, axis=1).max() / math.sqrt(smallest))
    return max(1, math.floor(math.log(largest) / -math.log(federation.discount)) + 1)


def _operator_norm(
    problem: Federation, structure: TemporalDifference, policies: np.ndarray, field: LinearField
) -> float:
    if structure.is_preconditioned:
        return float(
            np.linalg.norm(np.eye(field.matrices.shape[1]) - field.matrices, 2, axis=(1, 2)).max()
        )
    ahead = [
        problem.discount**structure.horizon
        * np.linalg.matrix_power(
            mdp.continuing_chain(structure.target_policy).toarray(), structure.horizon
        )
        for mdp in problem.mdps
    ]
    roots = np.sqrt(distinct_stationary_laws(problem, policies))
    return max(
        float(np.linalg.norm(root[:, None] * ahead[problem.mdp_index(kind)] / root, 2))
        for kind, root in enumerate(roots)
    )


def has_threshold(structure: TemporalDifference) -> bool:
    """Whether a long enough look-ahead makes the agents contract in the 2-norm.

    It does for temporal differences whose rows are their features, preconditioned or not.
    """
    own_rows = structure.rows is not None and not structure.is_preconditioned
    return not structure.is_tabular and not own_rows


def _require_linear(
    algorithm: Algorithm, problem: Problem
) -> tuple[TemporalDifference, Federation]:
    check_algorithm(algorithm, problem)
    structure = temporal_difference(algorithm, problem)
    if structure is None or not has_threshold(structure):
        raise ProblemError(
            f"The norm of {type(algorithm).__name__} does not depend on its look-ahead; give a "
            "temporal difference with features, for example OnPolicyTD or OffPolicyLinearTD."
        )
    return structure, require_federation(problem, algorithm)
