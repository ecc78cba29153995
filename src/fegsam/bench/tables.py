"""The input of the baselines: the engines' alias tables and the rewards of Q-learning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fegsam.engines.job import Job


class BaselineTables(NamedTuple):
    """Q-learning of N agents as arrays.

    Row ``(mdp * S + s) * A + a`` holds the successors of s under a.
    """

    num_states: int
    num_actions: int
    agent_policy: np.ndarray
    """(N,) uint32: the policy that each agent follows."""
    agent_mdp: np.ndarray
    """(N,) uint32: the MDP of each agent."""
    policy_threshold: np.ndarray
    """(policies * S * A,) uint32, entry ``(policy * S + s) * A + j``."""
    policy_alias: np.ndarray
    """(policies * S * A,) uint32."""
    row_start: np.ndarray
    """(rows + 1,) uint64."""
    threshold: np.ndarray
    """(entries,) uint32."""
    stay: np.ndarray
    """(entries,) uint32: the successor of each entry."""
    go: np.ndarray
    """(entries,) uint32: its alias."""
    rewards: np.ndarray
    """(rows,) float64."""
    discount: float

    @property
    def num_agents(self) -> int:
        return len(self.agent_policy)


def q_learning_tables(plan: Job) -> BaselineTables:
    agents, chain = plan.agents, plan.chain
    return BaselineTables(
        num_states=int(chain.num_states),
        num_actions=int(chain.num_actions),
        agent_policy=agents.policies[agents.kinds],
        agent_mdp=agents.mdps[agents.kinds],
        policy_threshold=chain.policy[0::2].copy(),
        policy_alias=chain.policy[1::2].copy(),
        row_start=np.append(chain.row[0::2], len(chain.entry) // 3).astype(np.uint64),
        threshold=chain.entry[0::3].copy(),
        stay=chain.entry[1::3].copy(),
        go=chain.entry[2::3].copy(),
        rewards=np.ascontiguousarray(plan.tables.rewards, np.float64).ravel(),
        discount=float(plan.tables.discount),
    )
