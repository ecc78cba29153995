"""The problems that the claims are checked on: for each of the five algorithms a Garnet, a
structured one and FrozenLake.

All are small enough that `fegsam.exact` answers in seconds, so that sampled curves can be held
against exact ones. A `Case` is one algorithm on one of them, for any number of agents. `behavior`
says how the agents differ: not at all, or by private behaviour policies.
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
from fegsam.problem.mdp import MDP
from fegsam.reproduction.mean_q_learning import MeanQLearning
from fegsam.theory.small_step.noises import agent_noises

ALGORITHMS = {
    1: "Linear stochastic approximation",
    2: "On-policy TD",
    3: "Off-policy tabular TD",
    4: "Q-learning",
    5: "Off-policy linear TD",
}
"""By the paper's numbers."""
HAVE_EXACT = (1, 2, 3, 5)
"""Linear in their parameters, so that `fegsam.exact` knows their error."""


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
        One for which the noise, not the start, decides the error after some tens of thousands of
        steps at most.
    relaxation : float
        Steps in which the slowest part of the mean error falls by the factor e, at `step_size`.
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
        """For file names."""
        return f"{self.number}-{self.place.lower().replace(' ', '-')}"

    @property
    def has_exact(self) -> bool:
        return self.number in HAVE_EXACT


def cases(quick: bool, numbers: Iterable[int] = tuple(ALGORITHMS), *, kinds: int = 1) -> list[Case]:
    """Every algorithm on three problems, or in the quick run on the Garnet alone.

    Parameters
    ----------
    quick : bool
    numbers : iterable of int
        Of the algorithms.
    kinds : int
        How many different behaviour policies the agents of Algorithms 3, 4 and 5 have.

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
    # Three by three for tables, whose rarest cell sets the pace.
    options = {"desc": ["SFF", "FHF", "FFG"]} if tabular else {}
    return examples.from_gymnasium("FrozenLake-v1", discount=0.8, **options)


def small_lake(rows: list[str], discount: float, *, priced: bool = False) -> MDP:
    """FrozenLake on a map of its own; `priced`, each of its moves has another price, so that no two
    are equally good.

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
    """(kinds, S, A): uniform policies mixed with random ones, which count for `share`.

    >>> behaviors(4, 2, 3).shape
    (3, 4, 2)
    """
    return (1 - share) * policies.uniform(states, actions) + share * policies.random(
        states, actions, count=kinds, seed=7
    )


def relaxation(number: int, problem: Problem, algorithm: Algorithm, step_size: float) -> float:
    """Steps in which the slowest part of the mean error falls by the factor e."""
    rates = np.linalg.eigvals(-mean_matrix(number, problem, algorithm)).real
    return float(1.0 / (step_size * rates.min()))


def mean_matrix(number: int, problem: Problem, algorithm: Algorithm) -> np.ndarray:
    """(d, d): how the mean increment of an agent changes with the parameters, at the fixed
    point."""
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
"""Where the common one is large against the small rewards, or slow."""


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
    """The algorithm, and what N agents run it on: the uniform policy is evaluated, `own` are the
    policies they follow.

    >>> regression, federate = ingredients(1, examples.two_state(), None, np.ones((2, 1)))
    >>> federate(4).num_agents
    4
    """
    target = policies.uniform(mdp.num_states, mdp.num_actions)
    if number == 1:
        # Least mean squares: fit the reward by features along the path of the uniform policy.
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
    return algorithm, lambda agents: Federation(
        mdp, followed, num_agents=agents, target_policy=target, **linear
    )
