"""The problems of the claims: for each algorithm a Garnet, a structured problem and FrozenLake.

All are small enough for `fegsam.exact` to answer in seconds, so that sampled curves can be compared
with exact ones. A `Case` is one algorithm on one of them, for any number of agents. The agents are
alike or have private behaviour policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fegsam as fg
from fegsam.algorithms.rule import Algorithm
from fegsam.exact.fixed_points import fixed_point
from fegsam.problem import examples, policies
from fegsam.problem.federation import Federation, MarkovNoise, Problem
from fegsam.problem.federation_checks import first_kinds
from fegsam.problem.mdp import MDP
from fegsam.reproduction.mean_q_learning import MeanQLearning
from fegsam.reproduction.names import ALGORITHMS
from fegsam.theory.small_step.noises import agent_noises

HAVE_EXACT = (1, 2, 3, 5)
"""The algorithms that are linear in their parameters, so that `fegsam.exact` knows their error."""


@dataclass(frozen=True, eq=False)
class Case:
    """One algorithm on one problem.

    Attributes
    ----------
    number : int
        The paper's number of the algorithm.
    place : str
        Name of the problem: "Garnet", "River swim", ...
    algorithm : Algorithm
    federate : function of N
        The problem for N agents.
    step_size : float
        Chosen so that after at most some tens of thousands of steps the noise, not the start,
        determines the error.
    relaxation : float
        The number of steps in which the slowest part of the mean error falls by the factor e, at
        `step_size`.
    """

    number: int
    place: str
    algorithm: Algorithm
    federate: Callable[[int], Federation | MarkovNoise]
    step_size: float
    relaxation: float

    @property
    def name(self) -> str:
        return f"{ALGORITHMS[self.number]}, {self.place}"

    @property
    def key(self) -> str:
        """The case's name in file names."""
        return f"{self.number}-{self.place.lower().replace(' ', '-')}"

    @property
    def has_exact(self) -> bool:
        return self.number in HAVE_EXACT


def cases(quick: bool, numbers: Iterable[int] = tuple(ALGORITHMS), *, kinds: int = 1) -> list[Case]:
    """Every algorithm on three problems, or only on the Garnet in a quick run.

    Parameters
    ----------
    quick : bool
    numbers : iterable of int
        The algorithms.
    kinds : int
        The number of different behaviour policies of the agents in Algorithms 3, 4 and 5.

    Examples
    --------
    >>> [case.name for case in cases(True, (2, 4))]
    ['On-policy TD, Garnet', 'Q-learning, Garnet']
    """
    return [
        _case(number, place, kinds)
        for number in numbers
        for place in places(number)[: 1 if quick else None]
    ]


def places(number: int) -> tuple[str, ...]:
    """The names of an algorithm's problems.

    >>> places(4)
    ('Garnet', 'Grid world', 'FrozenLake')
    """
    structured = {
        1: "River swim",
        2: "Random walk",
        3: "River swim",
        4: "Grid world",
        5: "Random walk",
    }
    return "Garnet", structured[number], "FrozenLake"


def environment(place: str, tabular: bool) -> MDP:
    """The MDP by its name.

    >>> environment("River swim", tabular=True)
    MDP(states=5, actions=2, discount=0.8, successors=18)
    """
    if place == "Garnet":
        states = 6 if tabular else 20
        return examples.garnet(states, 2, 3, discount=0.8, seed=2, connected=True)
    if place == "River swim":
        return examples.river_swim(5, discount=0.8)
    if place == "Random walk":
        return examples.random_walk(7, discount=0.8)
    if place == "Grid world":
        return examples.grid_world(2, 3, discount=0.8)
    # Three by three for tables, whose rarest cell determines the speed.
    options: dict[str, Any] = {"desc": ["SFF", "FHF", "FFG"]} if tabular else {}
    return examples.from_gymnasium("FrozenLake-v1", discount=0.8, **options)


def small_lake(rows: list[str], discount: float, *, priced: bool = False) -> MDP:
    """FrozenLake on the map `rows`.

    If `priced`, each move has its own price, so that no two are equally good.

    >>> small_lake(["SG"], 0.5)
    MDP(states=2, actions=4, discount=0.5, successors=11)
    """
    lake = examples.from_gymnasium("FrozenLake-v1", discount=discount, desc=rows)
    left_down_right_up = np.array([0.6, 0.3, 0.0, 0.9])
    return MDP(lake.transitions, lake.rewards - left_down_right_up, discount) if priced else lake


def smooth_features(states: int, dim: int) -> np.ndarray:
    """(S, dim): cosines over the states, each row scaled to length at most one.

    >>> smooth_features(5, 2).shape
    (5, 2)
    """
    place = (np.arange(states) + 0.5) / states
    return np.cos(np.pi * place[:, None] * np.arange(dim)) / np.sqrt(dim)


def behaviors(states: int, actions: int, kinds: int, *, share: float = 0.5) -> np.ndarray:
    """(kinds, S, A): uniform policies mixed with a `share` of random ones.

    >>> behaviors(4, 2, 3).shape
    (3, 4, 2)
    """
    return (1 - share) * policies.uniform(states, actions) + share * policies.random(
        states, actions, count=kinds, seed=7
    )


def relaxation(number: int, problem: Problem, algorithm: Algorithm, step_size: float) -> float:
    """The number of steps in which the slowest part of the mean error falls by the factor e."""
    rates = np.linalg.eigvals(-mean_matrix(number, problem, algorithm)).real
    return float(1.0 / (step_size * rates.min()))


def mean_matrix(number: int, problem: Problem, algorithm: Algorithm) -> np.ndarray:
    """(d, d): the derivative of the agents' mean increment at the fixed point."""
    point = fixed_point(problem, algorithm)
    if number == 4:
        assert isinstance(problem, Federation)
        mean = MeanQLearning.of(problem)
        return np.tensordot(mean.weights, mean.matrices(point), axes=1)
    kinds = agent_noises(algorithm, problem, point)
    return np.sum([share * noise.mean_matrix for share, noise in kinds], axis=0)


_STEP = 0.05
_STEPS = {
    (1, "FrozenLake"): 0.02,
    (2, "FrozenLake"): 0.02,
    (5, "FrozenLake"): 0.02,
    (4, "FrozenLake"): 0.1,
}
"""The step sizes of cases where the common one is too large for the small rewards, or too slow."""


def _case(number: int, place: str, kinds: int) -> Case:
    mdp = environment(place, tabular=number in (3, 4))
    own = behaviors(mdp.num_states, mdp.num_actions, kinds)
    algorithm, federate = ingredients(number, mdp, own, smooth_features(mdp.num_states, 3))
    step = _STEPS.get((number, place), _STEP)
    return Case(
        number,
        place,
        algorithm,
        federate,
        step,
        relaxation(number, federate(kinds), algorithm, step),
    )


def ingredients(
    number: int, mdp: MDP, own: Any, features: np.ndarray
) -> tuple[Any, Callable[[int], Any]]:
    """The algorithm, and the problem that N agents run it on.

    They evaluate the uniform policy and follow the policies `own`.

    >>> regression, federate = ingredients(1, examples.two_state(), None, np.ones((2, 1)))
    >>> federate(4).num_agents
    4
    """
    target = policies.uniform(mdp.num_states, mdp.num_actions)
    if number == 1:
        # Least mean squares: fit the reward by features along paths of the uniform policy.
        chain, rewards = mdp.policy_chain(target), mdp.policy_rewards(target)
        regression = fg.LinearSA(
            -features[:, :, None] * features[:, None, :], features * rewards[:, None]
        )
        return regression, lambda agents: MarkovNoise(chain.toarray(), num_agents=agents)
    algorithm = {
        2: fg.OnPolicyTD(),
        3: fg.OffPolicyTabularTD(),
        4: fg.QLearning(),
        5: fg.OffPolicyLinearTD(),
    }[number]
    followed = None if number == 2 else own
    linear = {"features": features} if number in (2, 5) else {}
    kinds = len(followed) if followed is not None and np.ndim(followed) == 3 else 1
    return algorithm, lambda agents: Federation(
        mdp,
        followed,
        num_agents=agents,
        assignment=first_kinds(agents, kinds),
        target_policy=target,
        **linear,
    )
