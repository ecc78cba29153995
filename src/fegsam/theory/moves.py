"""The transitions that an agent can make, and what the worst of all windows of n of them can do, by dynamic programming."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fegsam.algorithms.alg3_off_policy_tabular_td import OffPolicyTabularTD
from fegsam.algorithms.alg5_off_policy_linear_td import OffPolicyLinearTD
from fegsam.algorithms.td import importance_ratios, stacked_rewards
from fegsam.problem.federation import Federation


@dataclass(frozen=True, eq=False)
class Moves:
    """Every transition (s, a, s') that a kind of agent can make, sorted by s; each state has at least one."""

    state: np.ndarray
    action: np.ndarray
    next: np.ndarray
    ratio: np.ndarray
    """One on-policy and in Q-learning"""
    reward: np.ndarray

    def largest_errors(self, values: np.ndarray, discount: float, horizon: int) -> np.ndarray:
        """(n, S): the largest |E| of the windows of 1, ..., n transitions from each state, at `values` (S,)."""
        error = self.reward + discount * values[self.next] - values[self.state]
        high, low = np.zeros(len(values)), np.zeros(len(values))
        largest = np.empty((horizon, len(values)))
        for length in range(horizon):
            high = self.largest_from_each(self.ratio * (error + discount * high[self.next]))
            low = -self.largest_from_each(-self.ratio * (error + discount * low[self.next]))
            largest[length] = np.maximum(high, -low)
        return largest

    def largest_weights(self, sizes: np.ndarray, discount: float, horizon: int, first: float) -> np.ndarray:
        """(S,): the largest ``|first - rho_t| sizes(S_t) + sum_{0<l<=n} |c_l| sizes(S_l)`` of the windows from each state."""
        weights = sizes
        for length in range(1, horizon + 1):
            own = np.abs((first if length == horizon else 1.0) - self.ratio) * sizes[self.state]
            weights = self.largest_from_each(own + discount * self.ratio * weights[self.next])
        return weights

    def count(self, horizon: int) -> float:
        """How many windows of so many transitions there are."""
        paths = np.ones(int(self.state[-1]) + 1)
        for _ in range(horizon):
            paths = np.bincount(self.state, paths[self.next])
        return float(paths.sum())

    def largest_from_each(self, amounts: np.ndarray) -> np.ndarray:
        """(S,): the largest of `amounts`, one for each move, from each state."""
        return np.maximum.reduceat(amounts, np.flatnonzero(np.r_[True, np.diff(self.state) > 0]))


def kind_moves(problem: Federation, algorithm: Any) -> Iterator[Moves]:
    """The moves of each kind of agent, once where all kinds make the same.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.MDP([[[0.5, 0.5]], [[1.0, 0.0]]], [[0.0], [1.0]], 0.5), [[1.0], [1.0]], num_agents=3)
    >>> [moves] = kind_moves(fed, fg.QLearning())
    >>> moves.state, moves.next
    (array([0, 0, 1]), array([0, 1, 0]))
    """
    policies = algorithm.policies(problem)
    rewards = stacked_rewards(problem)
    is_weighted = isinstance(algorithm, OffPolicyTabularTD | OffPolicyLinearTD)
    ratios = importance_ratios(problem, algorithm) if is_weighted else np.ones_like(policies)
    for kind in range(max(len(problem.mdps), len(policies))):
        transitions = problem.mdps[kind % len(problem.mdps)].transitions
        cell = np.repeat(np.arange(problem.num_states * problem.num_actions), np.diff(transitions.indptr))
        possible = policies[kind % len(policies)].ravel()[cell] > 0
        cell = cell[possible]
        yield Moves(
            state=cell // problem.num_actions,
            action=cell % problem.num_actions,
            next=transitions.indices[possible].astype(np.int64),
            ratio=ratios[kind % len(ratios)].ravel()[cell],
            reward=rewards[kind % len(rewards)].ravel()[cell],
        )
