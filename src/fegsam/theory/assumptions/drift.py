"""The contraction gamma_c of the mean operators and the negative drift phi_2 (eq. def:constants).

The theorem needs one norm in which the mean operators of all agents contract by gamma_c < 1. Up to
noise, its Lyapunov function, a smooth envelope of that norm, then shrinks by ``1 - alpha phi_2`` in
each step, where ``phi_2 = 1 - gamma_c sqrt(phi_1)``.

**Linear algorithms** are rescaled by a beta > 0: ``Gbar_i = I - A_i / beta`` with the step ``alpha
beta``. Their norm is the 2-norm, or a weighted 2-norm if they do not all contract in the former;
see `norms`. Both are smooth, so phi_1 = 1 and phi_2 = 1 - gamma_c with ``gamma_c = max_i ||I - A_i
/ beta||_c``.

**Sup-norm algorithms** contract by ``gamma_c = 1 - mu_min (1 - gamma^n)``, where mu_min is the
frequency of the rarest state over all agents (for Q-learning of the rarest state-action pair, with
n = 1). Where transitions have discounts of their own, gamma is the largest one, and gamma_c is a
bound on the contraction. The lemma on off-policy TD prints gamma^{n+1}, which its own mean operator
contradicts. The envelope is that of the p-norm, p = max(2, 2 ln d), with ``l_cs = d^(-1/p)``, ``psi
= ((1 + gamma_c) / (2 gamma_c))^2 - 1`` and ``phi_1 = (1 + psi) / (1 + psi l_cs^2)``. The paper
omits the square of l_cs, and takes p = 2 ln |S| for Q-learning as well, where d = |S||A|.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from fegsam.algorithms.rule import Algorithm
from fegsam.algorithms.structure import (
    Control,
    LinearOperator,
    OnPolicyControl,
    Opaque,
    TemporalDifference,
    TransitionOperator,
    structure_of,
)
from fegsam.algorithms.td import require_federation
from fegsam.exact.chains import kind_weights, visit_frequencies
from fegsam.exact.linear_field import LinearField
from fegsam.exact.mean_fields import mean_field
from fegsam.exact.rule_field import given_contraction
from fegsam.problem.chains import distinct_stationary_laws
from fegsam.problem.federation import Problem
from fegsam.theory.assumptions.norms import Contraction, Norm, linear_contraction


@dataclass(frozen=True)
class Drift:
    """How fast the theorem's Lyapunov function falls.

    Attributes
    ----------
    contraction : float
        gamma_c; NaN where no norm is found in which all agents contract.
    drift : float
        phi_2; NaN where no norm is found.
    beta : float
        The step size of the general theorem is ``alpha * beta``; 1 except for linear algorithms.
    norm_found : bool
        Whether a norm was found in which all agents' mean operators contract.

    Examples
    --------
    >>> Drift(contraction=0.75, drift=0.25, beta=1.0, norm_found=True).drift
    0.25
    """

    contraction: float
    drift: float
    beta: float
    norm_found: bool


NO_NORM = Drift(contraction=math.nan, drift=math.nan, beta=1.0, norm_found=False)


def drift(problem: Problem, algorithm: Algorithm) -> Drift:
    """gamma_c, phi_2 and beta of an algorithm on a problem.

    Examples
    --------
    One state, so the mean operator of one-step TD contracts by the discount:

    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.75), num_agents=2, target_policy=[[1.0]])
    >>> drift(fed, fg.OffPolicyTabularTD()).contraction
    0.75
    """
    found = contraction(algorithm, problem)
    if found is None or not found.gap > 0:
        return NO_NORM
    return (
        sup_norm_drift(found.gap, algorithm.dimension(problem))
        if found.norm.name == "sup"
        else smooth_drift(found)
    )


def contraction(algorithm: Algorithm, problem: Problem) -> Contraction | None:
    """The norm in which the mean operators of all agents contract, and by how much.

    None for a rule that does not state its contraction, and where policies depend on parameters.
    """
    match structure_of(algorithm, problem):
        case TemporalDifference(features=None, horizon=horizon):
            discount = require_federation(problem, algorithm).discount
            rarest = float(distinct_stationary_laws(problem, algorithm.policies(problem)).min())
            gap = -rarest * math.expm1(horizon * math.log(discount))
            return Contraction("sup", Norm("sup"), gap, 1.0)
        case Control():
            discount = require_federation(problem, algorithm).discount
            visits = visit_frequencies(problem, algorithm)
            rarest = float(visits[problem.kind_counts > 0 if len(visits) > 1 else slice(1)].min())
            level = "sup" if rarest > 0 else "joint"
            return Contraction(level, Norm("sup"), rarest * (1 - discount), 1.0)
        case TemporalDifference() | LinearOperator() | TransitionOperator():
            return _searched_contraction(algorithm, problem)
        case OnPolicyControl():
            return None
        case Opaque() as known:
            given = given_contraction(known)
            norm = Norm(algorithm.norm)
            return None if given is None else Contraction("given", norm, 1 - given, 1.0)


def _searched_contraction(algorithm: Algorithm, problem: Problem) -> Contraction:
    """The contraction of a linear algorithm, cached with the problem.

    The search for a weighted norm may take seconds, and every run of a study needs the result.
    """
    field = mean_field(algorithm, problem)
    assert isinstance(field, LinearField)
    kept: dict[bytes, Contraction] = problem.__dict__.setdefault("_contractions", {})
    key = hashlib.sha256(field.matrices.tobytes()).digest()
    if key not in kept:
        kept[key] = linear_contraction(field, kind_weights(problem, len(field)))
    return kept[key]


def smooth_drift(found: Contraction) -> Drift:
    """phi_2 = 1 - gamma_c, in an inner-product norm."""
    return Drift(contraction=found.factor, drift=found.gap, beta=found.beta, norm_found=True)


def sup_norm_drift(gap: float, dim: int) -> Drift:
    """phi_2 for ``gap = 1 - gamma_c`` in the sup norm of `dim` parameters.

    With h = (1 + gamma_c) / 2 the definitions give

        phi_2 = 1 - h gamma_c / sqrt(gamma_c^2 + l_cs^2 (h^2 - gamma_c^2)).

    Gaps of 1e-12 are common, so it is computed without subtracting nearly equal numbers. It also
    holds in the limit gamma_c = 0.

    Examples
    --------
    >>> sup_norm_drift(0.1, dim=100).drift
    0.0693476692330...
    """
    contraction, half = 1 - gap, 1 - gap / 2
    order = max(2.0, 2 * math.log(dim))
    lower = dim ** (-2 / order)
    spread = lower * (gap / 2) * (half + contraction)
    root = math.sqrt(contraction**2 + spread)
    excess = contraction**2 * (gap / 2) * (1 + half) + spread
    return Drift(
        contraction, excess / (root * (root + half * contraction)), beta=1.0, norm_found=True
    )
