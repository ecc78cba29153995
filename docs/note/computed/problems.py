"""The named problems of the technical note."""

from __future__ import annotations

from typing import Any

import numpy as np

import fegsam as fg
from fegsam.comparison.scalars import unequal
from fegsam.comparison.suite import entry

TARGET = np.array([[2, 2], [1, 3]]) / 4
FIRST = np.array([[1, 3], [2, 2]]) / 4
SECOND = np.array([[3, 1], [2, 2]]) / 4
FEATURES = np.array([[1.0], [0.5]])


def two_states(agents: int = 2, policies: Any = (FIRST, SECOND), **changes: Any) -> fg.Federation:
    """Problem A: two states, two actions, discount 1/2, all probabilities multiples of 1/4.

    >>> two_states(10).num_agents
    10
    """
    settings: dict[str, Any] = {
        "num_agents": agents,
        "target_policy": TARGET,
        "features": FEATURES,
        "initial_distribution": [1.0, 0.0],
    }
    return fg.Federation(fg.examples.two_state(), np.array(policies), **(settings | changes))


pair = unequal
"""Problem B: two kinds of agents with one parameter, slopes 1 and 1/4, and coins for noise."""

garnet = entry("policies")
"""Problem C: six states, off-policy linear TD, two kinds of agents that prefer opposite actions."""

garnets = entry("environments")
"""Problem D: six states, linear TD, two kinds of agents with an MDP each."""


def nearly_tied(gap: float, agents: int) -> fg.Federation:
    """Problem E: four states, two actions, and in each state a second action worse by the gap.

    The rewards of the second action change, so V* does not.
    """
    mdp = fg.examples.garnet(4, 2, 3, 0.8, seed=0)
    explore = fg.policies.uniform(4, 2)
    values = fg.fixed_point(fg.Federation(mdp, explore, num_agents=1), fg.QLearning())
    values = values.reshape(4, 2)
    best = values.max(axis=1, keepdims=True)
    rewards = mdp.rewards + np.where(values < best, best - gap - values, 0.0)
    tied = fg.MDP(mdp.transitions, rewards, mdp.discount)
    return fg.Federation(tied, explore, num_agents=agents)
