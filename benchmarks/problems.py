"""The problems that are timed: Garnets whose agents follow behaviour policies of four kinds."""

from __future__ import annotations

import fegsam as fg

KINDS = 4
ACTIONS = 5
DISCOUNT = 0.9


def garnet_federation(num_agents: int, *, states: int = 100, branching: int | None = None) -> fg.Federation:
    """Every state can follow every other unless `branching` says how many can."""
    mdp = fg.examples.garnet(states, ACTIONS, states if branching is None else branching, discount=DISCOUNT, seed=0)
    return fg.Federation(mdp, fg.policies.random(states, ACTIONS, count=KINDS, seed=1), num_agents=num_agents)
