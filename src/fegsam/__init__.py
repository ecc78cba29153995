"""Federated stochastic approximation, TD- and Q-learning under Markov noise and heterogeneity."""

from typing import TYPE_CHECKING, Any

from fegsam import data, engines, exact, methods, theory
from fegsam.algorithms.alg1_stochastic_approximation import LinearSA, StochasticApproximation
from fegsam.algorithms.alg2_on_policy_td import OnPolicyTD
from fegsam.algorithms.alg3_off_policy_tabular_td import OffPolicyTabularTD
from fegsam.algorithms.alg4_q_learning import QLearning
from fegsam.algorithms.alg5_off_policy_linear_td import OffPolicyLinearTD
from fegsam.algorithms.linear_q_learning import LinearQLearning
from fegsam.algorithms.sarsa import Sarsa
from fegsam.algorithms.tdc import TDC
from fegsam.data.evaluation import Evaluation
from fegsam.data.federation import DataFederation
from fegsam.data.live import LiveSource
from fegsam.data.log import LogSource
from fegsam.data.spool import Spool
from fegsam.data.spool_reader import SpoolSource
from fegsam.data.vector import VectorSource
from fegsam.engines.paths import sample_path
from fegsam.errors import DivergenceWarning, ProblemError, SpecError
from fegsam.exact import agent_fixed_points, fixed_point, heterogeneity, policy_value
from fegsam.history import History, load_history
from fegsam.history.agent_paths import AgentPaths
from fegsam.history.extrapolation import extrapolated
from fegsam.methods import schedules
from fegsam.methods.average import ByVisits, Mean
from fegsam.methods.correction import ControlVariates
from fegsam.methods.local_steps import LocalSteps
from fegsam.methods.method import Method
from fegsam.methods.participation import Participation
from fegsam.methods.rounding import Rounding, SomeCells
from fegsam.methods.server import Server
from fegsam.methods.tail import Tail
from fegsam.problem import examples, features, policies
from fegsam.problem.federation import Federation, MarkovNoise
from fegsam.problem.mdp import MDP
from fegsam.replay import agent_paths
from fegsam.run import run

if TYPE_CHECKING:
    from fegsam import planning

__all__ = [
    "MDP",
    "TDC",
    "AgentPaths",
    "ByVisits",
    "ControlVariates",
    "DataFederation",
    "DivergenceWarning",
    "Evaluation",
    "Federation",
    "History",
    "LinearQLearning",
    "LinearSA",
    "LiveSource",
    "LocalSteps",
    "LogSource",
    "MarkovNoise",
    "Mean",
    "Method",
    "OffPolicyLinearTD",
    "OffPolicyTabularTD",
    "OnPolicyTD",
    "Participation",
    "ProblemError",
    "QLearning",
    "Rounding",
    "Sarsa",
    "Server",
    "SomeCells",
    "SpecError",
    "Spool",
    "SpoolSource",
    "StochasticApproximation",
    "Tail",
    "VectorSource",
    "agent_fixed_points",
    "agent_paths",
    "data",
    "engines",
    "exact",
    "examples",
    "extrapolated",
    "features",
    "fixed_point",
    "heterogeneity",
    "load_history",
    "methods",
    "planning",
    "policies",
    "policy_value",
    "run",
    "sample_path",
    "schedules",
    "theory",
]


def __dir__() -> list[str]:
    return list(__all__)


def __getattr__(name: str) -> Any:
    # Loaded on demand, since a run does not need it.
    if name == "planning":
        import fegsam.planning

        return fegsam.planning
    raise AttributeError(f"module 'fegsam' has no attribute {name!r}")
