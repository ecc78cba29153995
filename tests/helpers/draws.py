"""Problems as plain arrays for the tests of the errata, with the dense matrices that the
algorithms' means are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import fegsam as fg
import pseudocode
from helpers import golden


@dataclass(frozen=True)
class Draw:
    """One environment, a target policy and a behaviour policy for each kind of agent."""

    transitions: np.ndarray
    """(S, A, S)"""
    rewards: np.ndarray
    """(S, A)"""
    gamma: float
    target: np.ndarray
    """(S, A)"""
    behavior: np.ndarray
    """(M, S, A)"""
    features: np.ndarray
    """(S, d)"""

    def federation(self, num_agents: int | None = None) -> fg.Federation:
        """As the library sees it, by default with one agent of each kind."""
        return fg.Federation(
            fg.MDP(self.transitions, self.rewards, self.gamma),
            self.behavior,
            num_agents=num_agents or len(self.behavior),
            target_policy=self.target,
            features=self.features,
        )

    def chain(self, policy: np.ndarray) -> np.ndarray:
        """(S, S)"""
        return np.einsum("sa,sat->st", policy, self.transitions)

    def law(self, policy: np.ndarray) -> np.ndarray:
        """(S,): stationary."""
        return pseudocode.stationary_law(self.transitions, policy)

    def mean_matrix(self, policy: np.ndarray, n: int = 1) -> np.ndarray:
        """(d, d): Phi' D (I - gamma^n P^n) Phi, D the law of `policy` and P the target policy's
        chain."""
        ahead = self.gamma**n * np.linalg.matrix_power(self.chain(self.target), n)
        return self.features.T @ (
            self.law(policy)[:, None] * (self.features - ahead @ self.features)
        )

    def mean_offset(self, policy: np.ndarray, n: int = 1) -> np.ndarray:
        """(d,): Phi' D r_n."""
        P, reward = self.chain(self.target), (self.target * self.rewards).sum(axis=1)
        ahead = sum(self.gamma**k * np.linalg.matrix_power(P, k) @ reward for k in range(n))
        return self.features.T @ (self.law(policy) * ahead)


GOLDEN = Draw(
    golden.TRANSITIONS,
    golden.REWARDS,
    golden.DISCOUNT,
    golden.TARGET,
    np.array([golden.B1, golden.B2]),
    golden.FEATURES,
)


def draw(
    seed: int,
    states: int = 3,
    dim: int = 2,
    *,
    gamma: float | None = None,
    skew: float = 1.0,
    least: float = 0.15,
) -> Draw:
    """Two actions and two behaviour policies; every policy takes every action with a probability of
    `least` or more."""
    rng = np.random.default_rng([seed, states, dim])
    policies = least + (1 - 2 * least) * rng.dirichlet(np.full(2, skew), (3, states))
    return Draw(
        rng.dirichlet(np.full(states, skew), (states, 2)),
        rng.uniform(-1, 1, (states, 2)),
        rng.uniform(0.4, 0.9) if gamma is None else gamma,
        policies[0],
        policies[1:],
        rng.normal(size=(states, dim)),
    )
