"""Mean fields: the expected increment of each kind of agent under its stationary law, and where
their average vanishes.

An algorithm moves ``theta += alpha * increment``. For small steps it goes where the average over
the agents of the expected increments is zero, the fixed point; agent i on its own goes where its
own expected increment is zero. A mean field holds what both need, once per kind of agent (or once
for all, see `chains`), and `root` finds the zero for any weights of the kinds.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any, Protocol

import numpy as np

from fegsam.algorithms.alg1_stochastic_approximation import LinearSA, StochasticApproximation
from fegsam.algorithms.alg2_on_policy_td import OnPolicyTD
from fegsam.algorithms.alg3_off_policy_tabular_td import OffPolicyTabularTD
from fegsam.algorithms.alg4_q_learning import QLearning
from fegsam.algorithms.alg5_off_policy_linear_td import OffPolicyLinearTD
from fegsam.algorithms.td import target_policy
from fegsam.errors import ProblemError
from fegsam.exact.chains import visit_frequencies
from fegsam.exact.linear_field import LinearField, noise_field, projected_field
from fegsam.exact.rule_field import RuleField, given_contraction, mean_of
from fegsam.exact.value_fields import QField, TabularField
from fegsam.problem.chains import distinct_stationary_laws
from fegsam.problem.federation import Federation, MarkovNoise


class MeanField(Protocol):
    """The expected increments of the kinds of agents."""

    def __len__(self) -> int:
        """M, or 1 where all kinds have the same root."""
        ...

    def root(self, weights: np.ndarray) -> np.ndarray:
        """(d,): where the fields, weighted by `weights` (M or 1,), add up to zero."""
        ...


@singledispatch
def mean_field(algorithm: Any, problem: Any) -> MeanField:
    """The mean field of `algorithm` on a `problem` that it has checked."""
    raise ProblemError(
        f"The fixed point of {type(algorithm).__name__} is not known to fegsam; use one of its "
        "algorithms, or pass "
        "run(..., fixed_point=...)."
    )


@mean_field.register
def _(algorithm: LinearSA, problem: MarkovNoise) -> LinearField:
    return noise_field(problem, algorithm)


@mean_field.register
def _(algorithm: StochasticApproximation, problem: MarkovNoise) -> RuleField:
    laws = distinct_stationary_laws(problem, algorithm.policies(problem))
    mean = mean_of(algorithm.user_rule, algorithm.dim, laws)
    return RuleField(mean, laws, algorithm.dim, algorithm.norm_order, given_contraction(algorithm))


@mean_field.register
def _(algorithm: OnPolicyTD, problem: Federation) -> LinearField:
    return projected_field(problem, algorithm)


@mean_field.register
def _(algorithm: OffPolicyTabularTD, problem: Federation) -> TabularField:
    policy = target_policy(problem, algorithm)
    chains = [mdp.policy_chain(policy) for mdp in problem.mdps]
    rewards = [mdp.policy_rewards(policy) for mdp in problem.mdps]
    laws = (
        distinct_stationary_laws(problem, algorithm.policies(problem))
        if len(problem.mdps) > 1
        else None
    )
    return TabularField(chains, rewards, laws, problem.discount, algorithm.horizon)


@mean_field.register
def _(algorithm: QLearning, problem: Federation) -> QField:
    return QField(
        problem.mdps, visit_frequencies(problem, algorithm) if len(problem.mdps) > 1 else None
    )


@mean_field.register
def _(algorithm: OffPolicyLinearTD, problem: Federation) -> LinearField:
    return projected_field(problem, algorithm, preconditioned=algorithm.preconditioned)
