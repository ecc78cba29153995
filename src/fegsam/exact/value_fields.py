"""Mean fields of the tabular algorithms 3 and 4.

Both are contractions in the sup norm, so they are solved with a certificate at any size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, diags_array

from fegsam.errors import ProblemError
from fegsam.exact.chains import look_ahead, n_step_rewards, visit_shares
from fegsam.exact.solvers import (
    DENSE_STATES,
    discounted_value,
    keeps_constants,
    optimal_q,
    sweep_to_the_end,
)
from fegsam.problem.checks import solve
from fegsam.problem.mdp import MDP


@dataclass(frozen=True, eq=False)
class TabularField:
    """The mean field of off-policy tabular TD: ``D_k (r_{n,k} + gamma^n P_k^n V - V)`` for kind k.

    P_k is the *target* policy's chain, or its part that continues where episodes end. With one
    environment the root is V^pi for all weights and all n (the paper's eq. BE_tabular). With
    several, the root solves ``V = sum_k omega_k (r_{n,k} + gamma^n P_k^n V)``, where omega_k(s) is
    the share of kind k in the visits to s.
    """

    chains: list[csr_array]
    """One (S, S) per environment"""
    rewards: list[np.ndarray]
    """One (S,) per environment"""
    visits: np.ndarray | None
    """(M, S): how often kind k visits each state; None if there is one environment"""
    discount: float
    horizon: int

    def __len__(self) -> int:
        return len(self.chains)

    def root(self, weights: np.ndarray) -> np.ndarray:
        """(S,): the root of the sum of the fields, weighted by `weights` (M or 1,)."""
        present = np.flatnonzero(weights)
        if self.visits is None or len(present) == 1:
            return discounted_value(
                self.chains[present[0]], self.rewards[present[0]], self.discount
            )
        shares = visit_shares(weights, self.visits)
        settings = self.discount, self.horizon
        offset = np.zeros(shares.shape[1])
        for k in present:
            offset += shares[k] * n_step_rewards(self.chains[k], self.rewards[k], *settings)

        def mixed_look_ahead(values: np.ndarray) -> np.ndarray:
            total = np.zeros_like(values)
            for k in present:
                total += (shares[k] * look_ahead(self.chains[k], *settings, values).T).T
            return total

        if len(offset) <= DENSE_STATES:
            identity = np.eye(len(offset))
            return solve(identity - mixed_look_ahead(identity), offset, "the agents' common values")
        return sweep_to_the_end(
            lambda value: offset + mixed_look_ahead(value),
            self.discount**self.horizon,
            offset,
            centred=all(keeps_constants(chain) for chain in self.chains),
        )


@dataclass(frozen=True, eq=False)
class QField:
    """The mean field of Q-learning: ``mu_k(s) pi_k(a|s) (R_k + gamma P_k max_a Q - Q)(s, a)``.

    With one environment the root is Q* for all weights. With several, it is Q* of the MDP that
    mixes them at each (s, a), in proportion to the kinds' shares of the visits to (s, a). Some kind
    that has a weight must visit every cell.
    """

    mdps: tuple[MDP, ...]
    visits: np.ndarray | None
    """(M, S*A): how often kind k takes each action in each state; None if there is one
    environment"""

    def __len__(self) -> int:
        return len(self.mdps)

    def root(self, weights: np.ndarray) -> np.ndarray:
        """(S*A,): the root of the sum of the fields, weighted by `weights` (M or 1,)."""
        present = np.flatnonzero(weights)
        first = self.mdps[present[0]]
        if self.visits is not None and len(present) == 1:
            self._require_visits(int(present[0]))
        if self.visits is None or len(present) == 1:
            return optimal_q(first.continuing, first.rewards, first.discount)
        shares = visit_shares(weights, self.visits)
        transitions = csr_array(first.transitions.shape)
        rewards = np.zeros(first.rewards.shape)
        for k in present:
            transitions = transitions + diags_array(shares[k]) @ self.mdps[k].continuing
            rewards += shares[k].reshape(rewards.shape) * self.mdps[k].rewards
        return optimal_q(csr_array(transitions), rewards, first.discount)

    def _require_visits(self, kind: int) -> None:
        """Raise unless a kind of agents alone visits every cell."""
        assert self.visits is not None
        missing = np.flatnonzero(self.visits[kind] <= 0)
        if len(missing):
            state, action = divmod(int(missing[0]), self.mdps[kind].num_actions)
            raise ProblemError(
                f"Agent kind {kind} never takes action {action} in state {state}, so in an MDP of "
                "its own it has no single fixed point of its own; ask for fixed_point, which is "
                "that of all agents, or give every kind every action."
            )
