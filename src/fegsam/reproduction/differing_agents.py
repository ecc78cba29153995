"""Agents that differ by their behaviour policies (Algorithm 5) or their environments (the others).

`strength` between 0 and 1 says how much. At 0 all agents are alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import fegsam as fg
from fegsam.algorithms.rule import Algorithm
from fegsam.problem import policies
from fegsam.problem.federation import Federation
from fegsam.problem.mdp import MDP
from fegsam.reproduction.problems import Case, environment, relaxation, small_lake, smooth_features

_MOST = 0.8
"""The share of the moves that differ, at strength 1."""


def preferences(actions: int) -> np.ndarray:
    """(2, A): two distributions on the actions that have no action in common.

    They choose from the outer and the inner half of the actions; of two actions each chooses one.

    >>> preferences(4)
    array([[0.5, 0. , 0. , 0.5],
           [0. , 0.5, 0.5, 0. ]])
    """
    first = np.zeros(actions)
    first[: (actions + 1) // 4 or 1] = first[actions - actions // 4 :] = 1.0
    return np.stack([first / first.sum(), (1 - first) / (1 - first).sum()])


def by_policies(place: str, strength: float, step_size: float) -> Case:
    """Off-policy linear TD whose agents behave in opposite ways."""
    mdp = environment(place, tabular=False)
    target, phi = (
        policies.uniform(mdp.num_states, mdp.num_actions),
        smooth_features(mdp.num_states, 2),
    )
    own = [
        (1 - _MOST * strength) * target + _MOST * strength * preferred
        for preferred in preferences(mdp.num_actions)
    ]
    return _case(
        5,
        f"{place}, opposite policies",
        fg.OffPolicyLinearTD(),
        step_size,
        own=own,
        mdps=mdp,
        target=target,
        features=phi,
    )


def by_environments(
    number: int, place: str, strength: float, step_size: float, *, only_rewards: bool = False
) -> Case:
    """TD or Q-learning in two environments: a wind replaces some moves, or other states pay."""
    mdp = _small(place) if number in (3, 4) else environment(place, tabular=False)
    states, actions = mdp.num_states, mdp.num_actions
    mdps = [_other_rewards(mdp, end, strength) for end in (0, states - 1)]
    if not only_rewards:
        mdps = [_windy(mdp, wind, _MOST * strength) for wind in preferences(actions)]
    algorithm = {2: fg.OnPolicyTD(), 3: fg.OffPolicyTabularTD(), 4: fg.QLearning()}[number]
    what = "rewards alone differ" if only_rewards else "environments differ"
    return _case(
        number,
        f"{place}, {what}",
        algorithm,
        step_size,
        own=None,
        mdps=mdps,
        target=policies.uniform(states, actions),
        features=smooth_features(states, 2) if number == 2 else None,
    )


def _small(place: str) -> MDP:
    """A small environment for tables, whose rarest cell determines the speed."""
    if not place.startswith("FrozenLake"):
        return environment(place, tabular=True)
    return small_lake(["SF", "HG"], 0.8, priced=place.endswith("at a price"))


def _windy(mdp: MDP, wind: np.ndarray, share: float) -> MDP:
    """The MDP in which a `share` of the moves draws its action from the distribution `wind`."""
    moves = mdp.transitions.toarray().reshape(mdp.num_states, mdp.num_actions, -1)
    blown = np.einsum("sat,a->st", moves, wind)
    return MDP((1 - share) * moves + share * blown[:, None, :], mdp.rewards, mdp.discount)


def _other_rewards(mdp: MDP, paid: int, strength: float) -> MDP:
    """The MDP with an additional reward in one state."""
    bonus = np.zeros((mdp.num_states, mdp.num_actions))
    bonus[paid] = strength
    return MDP(mdp.transitions, mdp.rewards + bonus, mdp.discount)


def _case(
    number: int,
    place: str,
    algorithm: Algorithm,
    step_size: float,
    *,
    own: Any,
    mdps: Any,
    target: Any,
    features: Any,
) -> Case:
    def federate(agents: int) -> Federation:
        return Federation(mdps, own, num_agents=agents, target_policy=target, features=features)

    return Case(
        number,
        place,
        algorithm,
        federate,
        step_size,
        relaxation(number, federate(2), algorithm, step_size),
    )
