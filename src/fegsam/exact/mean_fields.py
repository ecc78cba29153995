"""Mean fields: the expected increment of each kind of agent under its stationary distribution.

An algorithm updates ``theta += alpha * increment``. For small steps it converges to the fixed
point, at which the agents' expected increments average to zero. Agent i alone converges to the
point at which its own expected increment is zero. A mean field stores what both need, once per kind
of agent (or once for all kinds, see `chains`), and `root` finds the zero for any weights of the
kinds.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

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
from fegsam.exact.acting_field import ActingField
from fegsam.exact.chains import visit_frequencies
from fegsam.exact.linear_field import noise_field, projected_field
from fegsam.exact.rule_field import rule_field
from fegsam.exact.transitions import kind_transitions, transition_field
from fegsam.exact.value_fields import QField, TabularField
from fegsam.problem.chains import distinct_stationary_laws
from fegsam.problem.federation import Federation, Problem


class MeanField(Protocol):
    """The expected increments of the kinds of agents."""

    def __len__(self) -> int:
        """M, or 1 where all kinds have the same root."""
        ...

    def root(self, weights: np.ndarray) -> np.ndarray:
        """(d,): the root of the sum of the fields, weighted by `weights` (M or 1,)."""
        ...


def mean_field(algorithm: Algorithm, problem: Problem) -> MeanField:
    """The mean field of `algorithm` on a `problem` that has passed its check."""
    policies = algorithm.policies(problem)
    match structure_of(algorithm, problem):
        case TemporalDifference() as structure:
            federation = require_federation(problem, algorithm)
            make = tabular_field if structure.is_tabular else projected_field
            return make(federation, structure, policies)
        case Control():
            mdps = require_federation(problem, algorithm).mdps
            return QField(mdps, visit_frequencies(problem, algorithm) if len(mdps) > 1 else None)
        case LinearOperator() as operator:
            return noise_field(operator, distinct_stationary_laws(problem, policies))
        case TransitionOperator() as operator:
            return transition_field(kind_transitions(problem, algorithm, operator))
        case OnPolicyControl(acting=acting):
            return ActingField(require_federation(problem, algorithm).mdps, acting)
        case Opaque() as known:
            return rule_field(algorithm, problem, known)


def tabular_field(
    problem: Federation, structure: TemporalDifference, policies: np.ndarray
) -> TabularField:
    chains = [mdp.continuing_chain(structure.target_policy) for mdp in problem.mdps]
    rewards = [mdp.policy_rewards(structure.target_policy) for mdp in problem.mdps]
    visits = distinct_stationary_laws(problem, policies) if len(problem.mdps) > 1 else None
    return TabularField(chains, rewards, visits, problem.discount, structure.horizon)
