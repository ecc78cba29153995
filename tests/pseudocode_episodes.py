"""The algorithms on recorded episodes, written from what an episode is: the oracle for data.

Plain Python and NumPy, sharing no code with the library. An episode is its observations o_0..o_T,
actions, rewards, the probabilities with which the actions were chosen, and whether it terminated.
Nothing here knows rows, gaps or windows: a step looks ahead n transitions, or to the episode's end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from helpers.logs import Episode

Step = Callable[[np.ndarray, Episode, int], np.ndarray]
"""What a step at time t of an episode adds to the parameters, without the step size."""


def discounts(episode: Episode, gamma: float) -> list[float]:
    """The discount of what follows each transition."""
    found = [gamma] * len(episode.actions)
    if episode.terminated:
        found[-1] = 0.0
    return found


def values(phi, gamma: float, n: int, target=None) -> Step:
    """n-step TD with ``V(o) = phi(o) @ theta``; with importance ratios if there is a target."""

    def step(theta, episode, t):
        seen, ends = episode.observations, min(t + n, len(episode.actions))
        weight, total = 1.0, 0.0
        for l in range(t, ends):
            if target is not None:
                weight *= target(seen[l])[episode.actions[l]] / episode.probabilities[l]
            follows = discounts(episode, gamma)[l]
            error = episode.rewards[l] + follows * phi(seen[l + 1]) @ theta - phi(seen[l]) @ theta
            total += weight * error
            weight *= follows
        return total * phi(seen[t])

    return step


def control(states: int, actions: int, gamma: float) -> Step:
    """Q-learning."""

    def step(theta, episode, t):
        q, out = theta.reshape(states, actions), np.zeros((states, actions))
        s, a = episode.observations[t], episode.actions[t]
        best = q[episode.observations[t + 1]].max()
        out[s, a] = episode.rewards[t] + discounts(episode, gamma)[t] * best - q[s, a]
        return out.ravel()

    return step


def gradient_corrected(phi, gamma: float, ratio: float, target) -> Step:
    """TDC on (theta, w)."""

    def step(params, episode, t):
        theta, w = np.split(params, 2)
        here, there = phi(episode.observations[t]), phi(episode.observations[t + 1])
        rho = target(episode.observations[t])[episode.actions[t]] / episode.probabilities[t]
        follows = discounts(episode, gamma)[t]
        error = rho * (episode.rewards[t] + follows * there @ theta - here @ theta)
        main = error * here - follows * rho * there * (here @ w)
        return np.concatenate([main, ratio * (error - here @ w) * here])

    return step


def federated(step: Step, agents, dim: int, alpha: float, K: int, T: int) -> np.ndarray:
    """(T + 1, d): the averages of agents, each with its list of episodes, that average every K."""
    theta = np.zeros((len(agents), dim))
    order = [
        [(episode, t) for episode in own for t in range(len(episode.actions))] for own in agents
    ]
    averages = [theta.mean(axis=0)]
    for t in range(T):
        for i in range(len(agents)):
            theta[i] = theta[i] + alpha * step(theta[i], *order[i][t])
        if (t + 1) % K == 0:
            theta[:] = theta.mean(axis=0)
        averages.append(theta.mean(axis=0))
    return np.array(averages)
