"""The mean field of on-policy control, whose policy depends on the parameters.

At action values Q all agents act by the policy pi of Q. Under pi, kind k visits cell (s, a) in a
share m_k(s, a) of its steps, and the mean step is ``sum_k w_k m_k (R_k + gamma P_k pi Q - Q)``. Its
root for a fixed pi is the value of pi in the MDP that mixes the kinds' MDPs at each cell, in
proportion to w_k m_k. We iterate: the policy of Q, then its value. Nothing ensures convergence; if
the changes do not shrink, each is taken in part only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, diags_array

from fegsam.errors import ProblemError
from fegsam.exact.chains import visit_shares
from fegsam.exact.solvers import discounted_value
from fegsam.problem.acting import Acting
from fegsam.problem.markov_chain import check_ergodic, stationary_law
from fegsam.problem.mdp import MDP

_MOST = 2000
"""Iterations before the search is given up."""
_ACCURACY = 1e-11
"""The largest change, relative to the largest value, at which the search ends."""
_SMALLEST_PART = 1 / 256


@dataclass(frozen=True, eq=False)
class ActingField:
    """The expected increments of agents that act by `acting` in their `mdps`."""

    mdps: tuple[MDP, ...]
    acting: Acting

    def __len__(self) -> int:
        return len(self.mdps)

    def root(self, weights: np.ndarray) -> np.ndarray:
        """(S*A,): the root of the sum of the fields, weighted by `weights` (M or 1,)."""
        values, part, before = np.zeros_like(self.mdps[0].rewards), 1.0, np.inf
        for _ in range(_MOST):
            change = self._evaluated(values, weights) - values
            size = float(np.abs(change).max())
            if size <= _ACCURACY * max(1.0, float(np.abs(values).max())):
                return values.ravel()
            if size >= before:
                part = max(part / 2, _SMALLEST_PART)
            values, before = values + part * change, size
        raise ProblemError(
            f"The action values under {self.acting!r} did not settle in {_MOST} iterations, so no "
            "fixed point was found; act with a higher temperature or epsilon, or pass a point to "
            "measure against as run(..., fixed_point=...)."
        )

    def _evaluated(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(S, A): the worth of the policy of `values`."""
        policy = self.acting.probabilities(values)
        transitions, rewards = self._mixture(policy, weights)
        discount = self.mdps[0].discount
        states, actions = policy.shape
        rows = np.repeat(np.arange(states), actions)
        acting = csr_array(
            (policy.ravel(), (rows, np.arange(states * actions))), shape=(states, states * actions)
        )
        chain = csr_array(acting @ transitions)
        worth = discounted_value(chain, (policy * rewards).sum(axis=1), discount)
        return rewards + discount * (transitions @ worth).reshape(rewards.shape)

    def _mixture(self, policy: np.ndarray, weights: np.ndarray) -> tuple[csr_array, np.ndarray]:
        """(S*A, S) and (S, A): the MDP that mixes those of the kinds at each cell.

        Of its transitions it has the part that continues.
        """
        present = np.flatnonzero(weights)
        first = self.mdps[present[0]]
        if len(present) == 1:
            return first.continuing, first.rewards
        visits = np.zeros((len(weights), policy.size))
        for k in present:
            chain = self.mdps[k].policy_chain(policy)
            check_ergodic(chain, f"agent kind {k}")
            visits[k] = (stationary_law(chain)[:, None] * policy).ravel()
        shares = visit_shares(weights, visits)
        transitions, rewards = csr_array(first.transitions.shape), np.zeros(first.rewards.shape)
        for k in present:
            transitions = transitions + diags_array(shares[k]) @ self.mdps[k].continuing
            rewards += shares[k].reshape(rewards.shape) * self.mdps[k].rewards
        return csr_array(transitions), rewards
