"""Small problems for the tests of the errata, and what is exact about them in dense NumPy: nothing
here calls the library's theory.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import fegsam as fg

COUNT = 200
"""Random problems on which a corrected formula must hold."""


def random_laws(
    rng: np.random.Generator, *shape: int, least: float = 0.05, power: float = 1.0
) -> np.ndarray:
    """Probabilities along the last axis: `least` plus a power of exponential variables, over their
    sum."""
    weights = least + rng.exponential(size=shape) ** power
    return weights / weights.sum(axis=-1, keepdims=True)


def random_federation(
    rng: np.random.Generator,
    *,
    states: int = 3,
    actions: int = 2,
    kinds: int = 2,
    discount: float = 0.7,
    num_features: int | None = None,
    least: float = 0.05,
    power: float = 1.0,
    **changes: Any,
) -> Any:
    """Random transitions, rewards in [-1, 1], target and behaviour policies; features where their
    number is given."""
    laws = functools.partial(random_laws, rng, least=least, power=power)
    mdp = fg.MDP(laws(states, actions, states), rng.uniform(-1, 1, (states, actions)), discount)
    settings: dict[str, Any] = {
        "behavior_policies": laws(kinds, states, actions),
        "num_agents": kinds,
        "target_policy": laws(states, actions),
        "features": None if num_features is None else rng.normal(size=(states, num_features)),
    }
    return fg.Federation(mdp, **(settings | changes))


def random_federations(seed: int, *, count: int = COUNT, **settings: Any) -> Iterator[Any]:
    """`count` random federations of 2 to 4 states with discounts from 0.3 to 0.9, unless said
    otherwise."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        drawn = {"states": int(rng.integers(2, 5)), "discount": float(rng.uniform(0.3, 0.9))}
        yield random_federation(rng, **(drawn | settings))


@dataclass(frozen=True)
class Agent:
    """One kind of agent, dense: how it walks and what it wants to know."""

    transitions: np.ndarray
    """(S, A, S)"""
    rewards: np.ndarray
    """(S, A)"""
    discount: float
    policy: np.ndarray
    """(S, A): what it follows"""
    target: np.ndarray
    """(S, A): what it evaluates"""

    @property
    def chain(self) -> np.ndarray:
        """(S, S): its states under its own policy"""
        return np.einsum("sa,sat->st", self.policy, self.transitions)

    @property
    def target_chain(self) -> np.ndarray:
        """(S, S): under the target policy"""
        return np.einsum("sa,sat->st", self.target, self.transitions)

    @property
    def pair_chain(self) -> np.ndarray:
        """(S A, S A): its states and actions under its own policy"""
        size = self.policy.size
        return np.einsum("sat,tb->satb", self.transitions, self.policy).reshape(size, size)

    @property
    def law(self) -> np.ndarray:
        """(S,): stationary"""
        return stationary(self.chain)

    @property
    def ratios(self) -> np.ndarray:
        """(S, A): importance ratios, zero where it never acts so"""
        return np.divide(
            self.target, self.policy, out=np.zeros_like(self.policy), where=self.policy > 0
        )

    @property
    def value(self) -> np.ndarray:
        """(S,): V of the target policy"""
        mean_rewards = (self.target * self.rewards).sum(axis=1)
        return np.linalg.solve(
            np.eye(len(mean_rewards)) - self.discount * self.target_chain, mean_rewards
        )

    def surprises(self, values: np.ndarray) -> np.ndarray:
        """(S, A, S): R + gamma v(s') - v(s)"""
        return self.rewards[:, :, None] + self.discount * values - values[:, None, None]

    def expected(self, values: np.ndarray, steps: int) -> np.ndarray:
        """(S,): the mean of an importance-weighted temporal difference of n = `steps`
        steps, ``T^n v - v``"""
        mean = np.einsum("sa,sat,sat->s", self.target, self.transitions, self.surprises(values))
        found = np.zeros_like(mean)
        for _ in range(steps):
            found = mean + self.discount * self.target_chain @ found
        return found


def agents(problem: Any, *, on_policy: bool = False) -> list[Agent]:
    """The kinds of a problem; on-policy there is one, which follows the target policy."""
    mdp = problem.mdps[0]
    transitions = mdp.transitions.toarray().reshape(
        problem.num_states, problem.num_actions, problem.num_states
    )
    followed = problem.target_policy[None] if on_policy else problem.behavior_policies
    target = problem.target_policy
    return [
        Agent(transitions, mdp.rewards, mdp.discount, policy, policy if target is None else target)
        for policy in followed
    ]


def stationary(kernel: np.ndarray) -> np.ndarray:
    """The stationary distribution of an ergodic kernel, by least squares."""
    size = len(kernel)
    equations = np.vstack([kernel.T - np.eye(size), np.ones(size)])
    return np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0), rcond=None)[0]


def total_variation(kernel: np.ndarray, times: int) -> np.ndarray:
    """(times,): the largest distance of a row of ``kernel^t`` from the stationary law, t = 0, 1,
    ..."""
    law, power, found = stationary(kernel), np.eye(len(kernel)), np.empty(times)
    for t in range(times):
        found[t] = np.abs(power - law).sum(axis=1).max() / 2
        power = power @ kernel
    return found


@dataclass(frozen=True)
class Paths:
    """Every window of n transitions that an agent can see, with the n-step differences of its
    parts."""

    agent: Agent
    states: np.ndarray
    """(E, n + 1)"""
    actions: np.ndarray
    """(E, n)"""

    @property
    def length(self) -> int:
        return self.actions.shape[1]

    def difference(self, values: np.ndarray, first: int, tail: np.ndarray) -> np.ndarray:
        """(E,): the importance-weighted difference from position `first` on; `tail` (S,) is what
        follows the last state."""
        surprises, ratios = self.agent.surprises(values), self.agent.ratios
        found = tail[self.states[:, -1]]
        for l in reversed(range(first, self.length)):
            s, a, after = self.states[:, l], self.actions[:, l], self.states[:, l + 1]
            found = ratios[s, a] * (surprises[s, a, after] + self.agent.discount * found)
        return found

    def steps(self, rows: np.ndarray, features: np.ndarray) -> np.ndarray:
        """(E, d, d): M of the increment ``M theta + c``"""
        functional = np.zeros((len(self.states), features.shape[1]))
        weight = np.ones(len(self.states))
        for l in range(self.length):
            weight = weight * self.agent.ratios[self.states[:, l], self.actions[:, l]]
            ahead = (
                self.agent.discount * features[self.states[:, l + 1]] - features[self.states[:, l]]
            )
            functional += weight[:, None] * ahead
            weight = weight * self.agent.discount
        return rows[self.states[:, 0], :, None] * functional[:, None, :]

    def noise(self, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """(E, d): the increment at the parameters whose values are given, b before it is divided by
        beta"""
        return rows[self.states[:, 0]] * self.difference(values, 0, np.zeros(len(values)))[:, None]

    def mean_noise(self, rows: np.ndarray, values: np.ndarray, lag: int) -> np.ndarray:
        """(E, d): the mean of that increment `lag` steps after each window, given the window"""
        n = self.length
        if lag <= n:
            found = self.difference(values, lag, self.agent.expected(values, lag))
            return rows[self.states[:, lag]] * found[:, None]
        ahead = np.linalg.matrix_power(self.agent.chain, lag - n) @ (
            rows * self.agent.expected(values, n)[:, None]
        )
        return ahead[self.states[:, -1]]


def paths(agent: Agent, length: int) -> Paths:
    """All windows of `length` transitions that have positive probability."""
    size, choices, _ = agent.transitions.shape
    grid = np.indices((size,) + (choices, size) * length).reshape(2 * length + 1, -1)
    states, actions = grid[0::2].T, grid[1::2].T
    possible = np.ones(len(states), dtype=bool)
    for l in range(length):
        s, a, after = states[:, l], actions[:, l], states[:, l + 1]
        possible &= agent.policy[s, a] * agent.transitions[s, a, after] > 0
    return Paths(agent, states[possible], actions[possible])
