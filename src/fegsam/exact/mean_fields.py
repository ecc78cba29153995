"""Mean fields: the expected increment of each kind of agent under its stationary
distribution, and where their average vanishes.

An algorithm moves ``theta += alpha * increment``. For small steps it goes where the average over
the agents of the expected increments is zero, the fixed point; agent i on its own goes where its
own expected increment is zero. A mean field holds what both need, once per kind of agent (or once
for all, see `chains`), and `root` finds the zero for any weights of the kinds.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.algorithms.structure import (
    Control,
    LinearOperator,
    Opaque,
    TemporalDifference,
    structure_of,
)
from fegsam.algorithms.td import require_federation
from fegsam.exact.chains import visit_frequencies
from fegsam.exact.linear_field import noise_field, projected_field
from fegsam.exact.rule_field import rule_field
from fegsam.exact.value_fields import QField, TabularField
from fegsam.problem.chains import distinct_stationary_laws
from fegsam.problem.federation import Federation, Problem


class MeanField(Protocol):
    """The expected increments of the kinds of agents."""

    def __len__(self) -> int:
        """M, or 1 where all kinds have the same root."""
        ...

    def root(self, weights: np.ndarray) -> np.ndarray:
        """(d,): where the fields, weighted by `weights` (M or 1,), add up to zero."""
        ...


def mean_field(algorithm: Algorithm, problem: Problem) -> MeanField:
    """The mean field of `algorithm` on a `problem` that it has checked."""
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
        case Opaque() as known:
            return rule_field(algorithm, problem, known)


def tabular_field(
    problem: Federation, structure: TemporalDifference, policies: np.ndarray
) -> TabularField:
    chains = [mdp.policy_chain(structure.target_policy) for mdp in problem.mdps]
    rewards = [mdp.policy_rewards(structure.target_policy) for mdp in problem.mdps]
    laws = distinct_stationary_laws(problem, policies) if len(problem.mdps) > 1 else None
    return TabularField(chains, rewards, laws, problem.discount, structure.horizon)
