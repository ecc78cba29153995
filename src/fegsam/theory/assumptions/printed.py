"""The assumptions as the paper's lemmas print them, for comparison with the corrected ones.

* Off-policy tabular TD: gamma_c with gamma^(n+1), A without the outer factor I_max, rewards of at
  most 1, m_2 = m_4 = 0.
* Q-learning: A = 2, B = 2 / (1 - gamma), m_1 = 2 A_2 m, and |S| wherever the dimension |S||A|
  belongs.
* On-policy TD: beta = 2 lambda_max^2 / delta and gamma_c = 1 - delta^2 / (8 lambda_max^2), from the
  eigenvalues of the mean operator; m_2 = 2 B m, m_4 = 0. The lemma only says that A and B exist, so
  the corrected ones are used, rescaled to that beta.
* Off-policy linear TD and Algorithm 1: the lemmas only say that constants exist, so nothing
  changes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.algorithms.structure import Control, TemporalDifference, structure_of
from fegsam.algorithms.td import require_federation
from fegsam.errors import ProblemError
from fegsam.exact.linear_field import projected_field
from fegsam.problem.chains import distinct_stationary_laws
from fegsam.problem.federation import Federation, Problem
from fegsam.theory.assumptions.assumptions import Assumptions


def printed_assumptions(
    problem: Problem, algorithm: Algorithm, corrected: Assumptions
) -> Assumptions:
    """`corrected` with the values that the paper's lemmas print.

    Raises `ProblemError` where transitions have discounts of their own.
    """
    if isinstance(problem, Federation) and problem.discounts is not None:
        raise ProblemError(
            "The paper prints its constants for one discount, and the transitions of this problem "
            "have several; use printed=False."
        )
    match structure_of(algorithm, problem):
        case TemporalDifference(features=None) as structure:
            federation = require_federation(problem, algorithm)
            distributions = distinct_stationary_laws(problem, algorithm.policies(problem))
            return _tabular(structure, federation, float(distributions.min()), corrected)
        case TemporalDifference(ratios=None, rows=None) as structure:
            federation = require_federation(problem, algorithm)
            field = projected_field(federation, structure, algorithm.policies(problem))
            return _on_policy(structure, np.linalg.eigvals(field.matrices), corrected)
        case Control():
            return _q_learning(require_federation(problem, algorithm), corrected)
        case _:
            return corrected


def _tabular(
    structure: TemporalDifference, problem: Federation, rarest: float, corrected: Assumptions
) -> Assumptions:
    largest = 1.0 if structure.ratios is None else float(structure.ratios.max())
    n, discount = structure.horizon, problem.discount
    products = sum((discount * largest) ** k for k in range(n))
    A = 1 + (1 + discount) * products
    return replace(
        corrected,
        contraction=1 - rarest * (1 - discount ** (n + 1)),
        A_1=A,
        A_2=A,
        B=2 * largest / (1 - discount) * products,
        m_1=2 * A * _forgotten(corrected, n),
        m_2=0.0,
        m_3=0.0,
        m_4=0.0,
    )


def _q_learning(problem: Federation, corrected: Assumptions) -> Assumptions:
    return replace(
        corrected,
        dimension=problem.num_states,
        A_1=2.0,
        A_2=2.0,
        B=2 / (1 - problem.discount),
        m_1=4 * corrected.mixing.m,
        m_2=0.0,
        m_3=0.0,
        m_4=0.0,
    )


def _on_policy(
    structure: TemporalDifference, eigenvalues: np.ndarray, corrected: Assumptions
) -> Assumptions:
    largest, slowest = float(np.abs(eigenvalues).max()), float(np.real(eigenvalues).min())
    beta = 2 * largest * largest / slowest
    # I + M / beta is a mixture of I and of I + M / beta_0, with weight beta_0 / beta on the latter.
    weight = corrected.beta / beta
    A, B = abs(1 - weight) + weight * corrected.A_2, weight * corrected.B
    return replace(
        corrected,
        beta=beta,
        contraction=1 - (slowest / largest) ** 2 / 8,
        A_1=A,
        A_2=A,
        B=B,
        m_1=2 * A * _forgotten(corrected, structure.horizon),
        m_2=2 * B * corrected.mixing.m,
        m_3=0.0,
        m_4=0.0,
    )


def _forgotten(corrected: Assumptions, horizon: int) -> float:
    """m rho^-n, infinite for independent draws."""
    with np.errstate(divide="ignore"):
        return float(corrected.mixing.m * np.float64(corrected.mixing.rho) ** -horizon)
