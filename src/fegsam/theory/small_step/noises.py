"""The noise of the agents, for every structure that states how it depends on the parameters."""

from __future__ import annotations

from collections.abc import Sequence

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
from fegsam.errors import ProblemError
from fegsam.exact.chains import kind_stationary_laws
from fegsam.problem.federation import MarkovNoise, Problem
from fegsam.theory.small_step.agent_noise import AgentNoise, state_noises, window_noises
from fegsam.theory.small_step.cell_noise import cell_noises
from fegsam.theory.small_step.transition_noise import transition_noises


def agent_noises(
    algorithm: Algorithm, problem: Problem, fixed_point: np.ndarray
) -> Sequence[tuple[float, AgentNoise]]:
    """The noise of each kind of agents that occurs, with the kind's share of the agents.

    Equal kinds are merged.
    """
    match structure_of(algorithm, problem):
        case TemporalDifference():
            return window_noises(algorithm, problem, fixed_point)
        case Control():
            return cell_noises(algorithm, require_federation(problem, algorithm), fixed_point)
        case LinearOperator() as operator:
            assert isinstance(problem, MarkovNoise)
            distributions = kind_stationary_laws(problem, algorithm)
            return state_noises(problem, operator, distributions, fixed_point)
        case TransitionOperator() as operator:
            return transition_noises(problem, algorithm, operator, fixed_point)
        case Opaque() | OnPolicyControl():
            raise ProblemError(
                f"{type(algorithm).__name__} is not linear in its parameters, as far as its "
                "structure says, so its small-step law is not known; use LinearSA, OnPolicyTD, "
                "OffPolicyTabularTD, OffPolicyLinearTD, TDC or QLearning, or give your algorithm a "
                "linear structure."
            )
