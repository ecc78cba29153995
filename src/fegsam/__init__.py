"""Federated stochastic approximation, TD- and Q-learning under Markov noise and heterogeneity."""

from fegsam import engines, exact, theory
from fegsam.algorithms.alg1_stochastic_approximation import LinearSA, StochasticApproximation
from fegsam.algorithms.alg2_on_policy_td import OnPolicyTD
from fegsam.algorithms.alg3_off_policy_tabular_td import OffPolicyTabularTD
from fegsam.algorithms.alg4_q_learning import QLearning
from fegsam.algorithms.alg5_off_policy_linear_td import OffPolicyLinearTD
from fegsam.engines.paths import sample_path
from fegsam.errors import DivergenceWarning, ProblemError, SpecError
from fegsam.exact import agent_fixed_points, fixed_point, heterogeneity, policy_value
from fegsam.history import History, load_history
from fegsam.problem import examples, policies
from fegsam.problem.federation import Federation, MarkovNoise
from fegsam.problem.mdp import MDP
from fegsam.run import run

__all__ = [
    "MDP",
    "DivergenceWarning",
    "Federation",
    "History",
    "LinearSA",
    "MarkovNoise",
    "OffPolicyLinearTD",
    "OffPolicyTabularTD",
    "OnPolicyTD",
    "ProblemError",
    "QLearning",
    "SpecError",
    "StochasticApproximation",
    "agent_fixed_points",
    "engines",
    "exact",
    "examples",
    "fixed_point",
    "heterogeneity",
    "load_history",
    "policies",
    "policy_value",
    "run",
    "sample_path",
    "theory",
]
