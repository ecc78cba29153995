"""Problems whose fixed point is known to a test and hidden from what the test looks at."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import fegsam as fg
from fegsam.data import HeldOut, Rows

STATES, ACTIONS, DISCOUNT = 8, 3, 0.8


def simulated_rows(mdp, policy, *, episodes, length, rng, starts=None) -> Rows:
    """Rows of truncated episodes, which begin in the behaviour's stationary distribution."""
    states, actions = mdp.num_states, mdp.num_actions
    first = stationary(mdp, policy) if starts is None else starts
    seen = np.zeros((episodes, length + 1), np.int64)
    done = np.zeros((episodes, length + 1), np.int64)
    seen[:, 0] = rng.choice(states, p=first, size=episodes)
    chosen = policy.cumsum(axis=1)
    reached = mdp.transitions.toarray().cumsum(axis=1)
    for t in range(length):
        words = rng.random((2, episodes, 1))
        done[:, t] = np.minimum((chosen[seen[:, t]] < words[0]).sum(axis=1), actions - 1)
        cells = seen[:, t] * actions + done[:, t]
        seen[:, t + 1] = np.minimum((reached[cells] < words[1]).sum(axis=1), states - 1)
    gap = np.tile(np.arange(length + 1) == length, episodes)
    seen, done = seen.ravel(), np.where(gap, 0, done.ravel())
    nothing = np.full(len(gap), np.nan)
    return Rows(
        seen,
        done,
        np.where(gap, 0.0, mdp.rewards[seen, done]),
        np.where(gap, 0.0, mdp.discount),
        np.where(gap, np.nan, policy[seen, done]),
        nothing,
        gap,
    )


def stationary(mdp, policy) -> np.ndarray:
    """The stationary distribution of a policy's chain."""
    chain = mdp.policy_chain(policy).toarray()
    system = np.vstack([chain.T - np.eye(len(chain)), np.ones(len(chain))])
    return np.linalg.lstsq(system, np.append(np.zeros(len(chain)), 1.0), rcond=None)[0]


class Problem(NamedTuple):
    """A federation and an algorithm, with what only a test may know."""

    algorithm: Any
    federation: Any
    options: dict
    """of `HeldOut`"""
    policies: np.ndarray
    """(N, S, A): what the agents follow"""

    def fixed_point(self) -> np.ndarray:
        """By plain linear algebra, or value iteration."""
        dim = STATES * ACTIONS if self.options.get("kind") == "control" else self.features.shape[1]
        if self.options.get("kind") == "control":
            q = np.zeros(dim)
            for _ in range(400):
                q = q + self._errors(q)
            return q
        offset = self.mean_update(np.zeros(dim))
        slope = np.stack([self.mean_update(row) - offset for row in np.eye(dim)], axis=1)
        return np.linalg.solve(slope, -offset)

    @property
    def features(self) -> np.ndarray:
        found = self.options.get("features")
        return np.eye(STATES) if found is None else found.phi

    @property
    def weighting(self) -> np.ndarray:
        """(S): the mean of the agents' stationary distributions."""
        mdp = self.federation.mdps[0]
        return np.mean([stationary(mdp, policy) for policy in self.policies], axis=0)

    def _errors(self, params) -> np.ndarray:
        """The Bellman error in each state, or in each pair."""
        mdp = self.federation.mdps[0]
        if self.options.get("kind") == "control":
            best = params.reshape(STATES, ACTIONS).max(axis=1)
            return mdp.rewards.ravel() + DISCOUNT * (mdp.transitions @ best) - params
        target = self.federation.target_policy
        chain, paid = mdp.policy_chain(target).toarray(), mdp.policy_rewards(target)
        values = here = self.features @ params
        for _ in range(self.options.get("horizon", 1)):
            values = paid + DISCOUNT * chain @ values
        return values - here

    def mean_update(self, params) -> np.ndarray:
        return self.features.T @ (self.weighting * self._errors(params))

    def squared_error(self, params) -> float:
        off = params - self.fixed_point()
        return float(off @ off if "features" in self.options else (off**2).max())

    def residual(self, params) -> float:
        if "features" not in self.options:
            return float((self._errors(params) ** 2).max())
        update = self.mean_update(params)
        gram = (self.features * self.weighting[:, None]).T @ self.features
        return float(update @ np.linalg.solve(gram, update))

    def held_out(self, rng, episodes=64, length=100) -> HeldOut:
        rows = [
            simulated_rows(
                self.federation.mdps[0], policy, episodes=episodes, length=length, rng=rng
            )
            for policy in self.policies
        ]
        return HeldOut(rows, **self.options)


AGENTS = 3


def hidden_problem(number: int) -> Problem:
    """One of ten: tables and features, values and control, n from 1 to 3."""
    rng = np.random.default_rng(number)
    mdp = fg.examples.garnet(STATES, ACTIONS, branching=3, discount=DISCOUNT, seed=number)
    target = fg.policies.random(STATES, ACTIONS, count=1, seed=number)[0]
    private = fg.policies.random(STATES, ACTIONS, count=AGENTS, seed=100 + number)
    private = 0.5 * private + 0.5 / ACTIONS
    phi = np.column_stack([np.ones(STATES), rng.normal(size=(STATES, 3))]) / 2.0
    horizon = 1 + number % 3
    common = {"num_agents": AGENTS, "target_policy": target}
    off = {"off_policy": True, "target_policy": target, "horizon": horizon, "num_states": STATES}
    if number < 3:
        fed = fg.Federation(mdp, private, **common)
        return Problem(fg.OffPolicyTabularTD(horizon), fed, off, private)
    features = {"features": fg.features.table(phi)}
    if number < 5:
        fed = fg.Federation(mdp, features=phi, **common)
        options = features | {"horizon": horizon}
        return Problem(fg.OnPolicyTD(horizon), fed, options, np.tile(target, (AGENTS, 1, 1)))
    if number < 7:
        fed = fg.Federation(mdp, private, features=phi, **common)
        return Problem(fg.OffPolicyLinearTD(horizon), fed, off | features, private)
    fed = fg.Federation(mdp, private, num_agents=AGENTS)
    options = {"kind": "control", "num_states": STATES, "num_actions": ACTIONS}
    return Problem(fg.QLearning(), fed, options, private)
