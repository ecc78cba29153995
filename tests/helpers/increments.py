"""What one agent adds in one step, for each algorithm of the paper: theta <- theta + alpha F.

Plain NumPy, sharing no code with the library. A `Field` replays paths, in the form in which
`pseudocode` takes them. F(i, k, theta) is agent i's increment at its own k-th step, and cell(i, k)
is the one cell that it changes there, for the algorithms that have one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from pseudocode import Paths, window


@dataclass(frozen=True)
class Field:
    F: Callable[[int, int, np.ndarray], np.ndarray]
    cell: Callable[[int, int], int] | None = None


def linear(states: Paths, _: Any, *, matrices, offsets, kinds: Sequence[int]) -> Field:
    """Algorithm 1 with F = A(y) theta + b(y)."""

    def F(i: int, k: int, theta: np.ndarray) -> np.ndarray:
        y = int(np.ravel(states[i])[k])
        return matrices[kinds[i]][y] @ theta + offsets[kinds[i]][y]

    return Field(F)


def tanh(states: Paths, _: Any, *, kinds: Sequence[int]) -> Field:
    """Algorithm 1 with G_j = tanh(theta_{j+1} + y/5) / 2 and b_j = 0.3 (kind + 1) (y - 1)."""

    def F(i: int, k: int, theta: np.ndarray) -> np.ndarray:
        y = int(np.ravel(states[i])[k])
        return 0.5 * np.tanh(np.roll(theta, -1) + y / 5) - theta + 0.3 * (kinds[i] + 1) * (y - 1)

    return Field(F)


def q_learning(states: Paths, actions: Paths, *, rewards, gamma: float, kinds) -> Field:
    num_actions = rewards[0].shape[1]

    def cell(i: int, k: int) -> int:
        return window(states[i], k, 2)[0] * num_actions + window(actions[i], k, 1)[0]

    def F(i: int, k: int, theta: np.ndarray) -> np.ndarray:
        Q, (s, s_next), (a,) = (
            theta.reshape(-1, num_actions),
            window(states[i], k, 2),
            window(actions[i], k, 1),
        )
        out = np.zeros_like(Q)
        out[s, a] = rewards[kinds[i]][s, a] + gamma * Q[s_next].max() - Q[s, a]
        return out.ravel()

    return Field(F, cell)


def n_step_td(
    states: Paths,
    actions: Paths,
    *,
    rewards,
    gamma: float,
    kinds,
    n: int,
    features=None,
    target=None,
    behavior=(),
    preconditioners=None,
) -> Field:
    """Algorithms 2 (no `target`), 3 (no `features`) and 5; the tabular one changes cell S_t."""
    tabular = features is None
    phi = np.eye(len(rewards[0])) if features is None else features

    def ratio(i: int, s: int, a: int) -> float:
        return 1.0 if target is None else target[s, a] / behavior[kinds[i]][s, a]

    def F(i: int, k: int, v: np.ndarray) -> np.ndarray:
        S, A = window(states[i], k, n + 1), window(actions[i], k, n)
        values = [phi[s] @ v for s in S]
        E = 0.0
        for j in range(n):
            e = rewards[kinds[i]][S[j], A[j]] + gamma * values[j + 1] - values[j]
            E += gamma**j * prod(ratio(i, S[l], A[l]) for l in range(j + 1)) * e
        direction = phi[S[0]]
        return E * (direction if preconditioners is None else preconditioners[kinds[i]] @ direction)

    return Field(F, (lambda i, k: window(states[i], k, 1 + n)[0]) if tabular else None)


def tdc(
    states: Paths,
    actions: Paths,
    *,
    rewards,
    gamma: float,
    features,
    target,
    behavior,
    ratio: float,
    kinds,
) -> Field:
    """TDC; the flat parameters are theta, then w."""

    def F(i: int, k: int, flat: np.ndarray) -> np.ndarray:
        (s, s_next), (a,) = window(states[i], k, 2), window(actions[i], k, 1)
        theta, w = np.split(flat, 2)
        rho = target[s, a] / behavior[kinds[i]][s, a]
        values = features @ theta
        delta = rewards[kinds[i]][s, a] + gamma * values[s_next] - values[s]
        dot = features[s] @ w
        main = rho * delta * features[s] - gamma * rho * dot * features[s_next]
        return np.concatenate([main, ratio * (rho * delta - dot) * features[s]])

    return Field(F)
