"""Algorithms 1 to 5 of the paper, TDC and SARSA, transcribed line by line: the oracle that every
engine is held to.

Plain Python and NumPy, sharing no code with the library. Nothing is drawn here: the noise is
replayed. Agent i's path is `states[i]` = S_0 .. S_{T+n-1} and `actions[i]` = A_0 .. A_{T+n-2};
where each step has a window of its own (i.i.d. sampling) `states[i]` is (T, n+1) and `actions[i]`
is (T, n). S and A are the window of step t, so that S[j] is the paper's S_l at l = t+j. Agent i is
of kind `kinds[i]`, by which `rewards`, `behavior`, `G` and `b` are indexed. `gamma` is a number, or
the discounts of all transitions, (S, A, S) for each kind. The pseudo-code draws
A_{t+n} and S_{t+n+1} in iteration t and first uses them in iteration t+1, so T iterations see T+n-1
transitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

Operator = Callable[[np.ndarray, int], np.ndarray]
Offset = Callable[[int], np.ndarray]
Paths = Sequence[np.ndarray]


class Trace:
    """theta^i_t of every agent at every time 0..T, each appended after the synchronisation of that
    time."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []

    def append(self, theta: np.ndarray) -> None:
        self.rows.append(theta.copy())

    @property
    def params(self) -> np.ndarray:
        """(T+1, N, d)"""
        return np.array(self.rows)

    @property
    def average(self) -> np.ndarray:
        """(T+1, d): theta_t = (1/N) sum_i theta^i_t."""
        return self.params.mean(axis=1)

    @property
    def sync_error(self) -> np.ndarray:
        """(T+1,): Omega_t = (1/N) sum_i ||theta^i_t - theta_t||_2^2."""
        return ((self.params - self.average[:, None, :]) ** 2).sum(axis=2).mean(axis=1)


def window(path: np.ndarray, t: int, length: int) -> list[int]:
    """The `length` entries that step t sees: from entry t of the one path, or row t where every
    step has its own."""
    return (path[t] if path.ndim == 2 else path[t : t + length]).tolist()


def initial(start: np.ndarray | None, agents: int, dim: int) -> np.ndarray:
    return (
        np.zeros((agents, dim))
        if start is None
        else np.tile(np.asarray(start, dtype=float), (agents, 1))
    )


def discounts(gamma, kind: int, S: list[int], A: list[int]) -> list[float]:
    """The discount of each transition of a window."""
    if isinstance(gamma, float):
        return [gamma] * len(A)
    return [gamma[kind][S[j], A[j], S[j + 1]] for j in range(len(A))]


def algorithm_1(
    states: Paths,
    G: Sequence[Operator],
    b: Sequence[Offset],
    *,
    kinds,
    alpha: float,
    K: int,
    T: int,
    start: np.ndarray,
) -> Trace:
    """Federated stochastic approximation with Markovian noise (FeGSAM); y^i_t is entry t of
    `states[i]`."""
    N, trace = len(states), Trace()
    theta = initial(start, N, len(start))
    trace.append(theta)
    for t in range(T):
        for i in range(N):
            k, y = kinds[i], states[i][t]
            theta[i] = theta[i] + alpha * (G[k](theta[i], y) - theta[i] + b[k](y))
        if (t + 1) % K == 0:
            theta[:] = theta.mean(axis=0)
        trace.append(theta)
    return trace


def algorithm_1_linear(
    states: Paths, matrices: np.ndarray, offsets: np.ndarray, **settings
) -> Trace:
    """Algorithm 1 with G(theta, y) = theta + A(y) theta; `matrices` (M, Y, d, d), `offsets` (M, Y,
    d)."""
    G = [lambda theta, y, A=A: theta + A[y] @ theta for A in matrices]
    b = [lambda y, c=c: c[y] for c in offsets]
    return algorithm_1(states, G, b, **settings)


def algorithm_2(
    states: Paths,
    actions: Paths,
    *,
    rewards,
    gamma,
    features,
    kinds,
    n: int,
    alpha: float,
    K: int,
    T: int,
    start=None,
) -> Trace:
    """Federated n-step TD, on-policy, function approximation."""
    N, phi, trace = len(states), features, Trace()
    v = initial(start, N, phi.shape[1])
    trace.append(v)
    for t in range(T):
        for i in range(N):
            R, S, A = rewards[kinds[i]], window(states[i], t, n + 1), window(actions[i], t, n)
            g = discounts(gamma, kinds[i], S, A)
            e = [R[S[j], A[j]] + g[j] * phi[S[j + 1]] @ v[i] - phi[S[j]] @ v[i] for j in range(n)]
            E = sum(prod(g[:j]) * e[j] for j in range(n))
            v[i] = v[i] + alpha * phi[S[0]] * E
        if (t + 1) % K == 0:
            v[:] = v.mean(axis=0)
        trace.append(v)
    return trace


def algorithm_3(
    states: Paths,
    actions: Paths,
    *,
    rewards,
    gamma,
    target,
    behavior,
    kinds,
    n: int,
    alpha: float,
    K: int,
    T: int,
    start=None,
) -> Trace:
    """Federated n-step TD, off-policy, tabular."""
    N, trace = len(states), Trace()
    V = initial(start, N, len(target))
    trace.append(V)
    for t in range(T):
        for i in range(N):
            R, S, A = rewards[kinds[i]], window(states[i], t, n + 1), window(actions[i], t, n)
            ratio = [
                target[s, a] / behavior[kinds[i]][s, a] for s, a in zip(S[:-1], A, strict=True)
            ]
            g = discounts(gamma, kinds[i], S, A)
            e = [R[S[j], A[j]] + g[j] * V[i, S[j + 1]] - V[i, S[j]] for j in range(n)]
            V[i, S[0]] = V[i, S[0]] + alpha * sum(
                prod(g[:j]) * prod(ratio[: j + 1]) * e[j] for j in range(n)
            )
        if (t + 1) % K == 0:
            V[:] = V.mean(axis=0)
        trace.append(V)
    return trace


def algorithm_4(
    states: Paths,
    actions: Paths,
    *,
    rewards,
    gamma,
    kinds,
    alpha: float,
    K: int,
    T: int,
    start=None,
) -> Trace:
    """Federated Q-learning; cell s*|A| + a of the flat parameters is Q(s, a)."""
    N, (num_states, num_actions), trace = len(states), rewards[0].shape, Trace()
    flat = initial(start, N, num_states * num_actions)
    Q = flat.reshape(N, num_states, num_actions)
    trace.append(flat)
    for t in range(T):
        for i in range(N):
            R, (s, s_next), (a,) = (
                rewards[kinds[i]],
                window(states[i], t, 2),
                window(actions[i], t, 1),
            )
            [g] = discounts(gamma, kinds[i], [s, s_next], [a])
            Q[i, s, a] = Q[i, s, a] + alpha * (R[s, a] + g * max(Q[i, s_next]) - Q[i, s, a])
        if (t + 1) % K == 0:
            Q[:] = Q.mean(axis=0)
        trace.append(flat)
    return trace


def algorithm_5(
    states: Paths,
    actions: Paths,
    *,
    rewards,
    gamma,
    features,
    target,
    behavior,
    kinds,
    n: int,
    alpha: float,
    K: int,
    T: int,
    start=None,
    preconditioners=None,
) -> Trace:
    """Federated n-step TD, off-policy, function approximation.

    With `preconditioners` (one matrix per kind, see `preconditioner`) agent i's increment is
    multiplied by its own.
    """
    N, phi, trace = len(states), features, Trace()
    v = initial(start, N, phi.shape[1])
    trace.append(v)
    for t in range(T):
        for i in range(N):
            R, S, A = rewards[kinds[i]], window(states[i], t, n + 1), window(actions[i], t, n)
            ratio = [
                target[s, a] / behavior[kinds[i]][s, a] for s, a in zip(S[:-1], A, strict=True)
            ]
            g = discounts(gamma, kinds[i], S, A)
            e = [R[S[j], A[j]] + g[j] * phi[S[j + 1]] @ v[i] - phi[S[j]] @ v[i] for j in range(n)]
            E = sum(prod(g[:j]) * prod(ratio[: j + 1]) * e[j] for j in range(n))
            direction = (
                phi[S[0]] if preconditioners is None else preconditioners[kinds[i]] @ phi[S[0]]
            )
            v[i] = v[i] + alpha * direction * E
        if (t + 1) % K == 0:
            v[:] = v.mean(axis=0)
        trace.append(v)
    return trace


def tdc(
    states: Paths,
    actions: Paths,
    *,
    rewards,
    gamma,
    features,
    target,
    behavior,
    ratio: float,
    kinds,
    alpha: float,
    K: int,
    T: int,
    start=None,
) -> Trace:
    """Federated TDC (Sutton et al., 2009, their Section 5), one step; `ratio` is their beta over
    alpha. The flat parameters are theta, then w."""
    N, d, trace = len(states), features.shape[1], Trace()
    flat = initial(start, N, 2 * d)
    theta, w = flat[:, :d], flat[:, d:]
    trace.append(flat)
    for t in range(T):
        for i in range(N):
            (s, s_next), (a,) = window(states[i], t, 2), window(actions[i], t, 1)
            phi, phi_next = features[s], features[s_next]
            rho = target[s, a] / behavior[kinds[i]][s, a]
            [g] = discounts(gamma, kinds[i], [s, s_next], [a])
            delta = rewards[kinds[i]][s, a] + g * theta[i] @ phi_next - theta[i] @ phi
            dot = phi @ w[i]
            theta[i] += alpha * (rho * delta * phi - g * rho * phi_next * dot)
            w[i] += ratio * alpha * (rho * delta - dot) * phi
        if (t + 1) % K == 0:
            flat[:] = flat.mean(axis=0)
        trace.append(flat)
    return trace


def sarsa(
    first: Sequence[int],
    move: Callable[[int, int, int, int], int],
    act: Callable[[int, int, np.ndarray], int],
    *,
    rewards,
    gamma,
    kinds,
    alpha: float,
    K: int,
    T: int,
    start: np.ndarray,
) -> Trace:
    """Federated SARSA. Agent i begins in state first[i]; `move(i, t, s, a)` is S_{t+1}, and `act(i,
    t, values)` is A_t by the action values of S_t, both from noise that is replayed."""
    N, (num_states, num_actions), trace = len(first), rewards[0].shape, Trace()
    flat = initial(start, N, num_states * num_actions)
    Q = flat.reshape(N, num_states, num_actions)
    trace.append(flat)
    S = list(first)
    A = [act(i, 0, Q[i, S[i]]) for i in range(N)]
    for t in range(T):
        for i in range(N):
            s, a = S[i], A[i]
            s_next = move(i, t, s, a)
            a_next = act(i, t + 1, Q[i, s_next])
            [g] = discounts(gamma, kinds[i], [s, s_next], [a])
            target = rewards[kinds[i]][s, a] + g * Q[i, s_next, a_next]
            Q[i, s, a] = Q[i, s, a] + alpha * (target - Q[i, s, a])
            S[i], A[i] = s_next, a_next
        if (t + 1) % K == 0:
            Q[:] = Q.mean(axis=0)
        trace.append(flat)
    return trace


def stationary_law(transitions: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """mu with mu P^pi = mu, sum one; `transitions` (S, A, S), `policy` (S, A)."""
    chain = np.einsum("sa,sat->st", policy, transitions)
    size = len(chain)
    return np.linalg.lstsq(
        np.vstack([chain.T - np.eye(size), np.ones(size)]), np.r_[np.zeros(size), 1.0], rcond=None
    )[0]


def preconditioner(
    transitions: np.ndarray, behavior: np.ndarray, features: np.ndarray
) -> np.ndarray:
    """(Phi' D Phi)^{-1} with D the stationary law of one kind's behaviour policy in its own
    environment."""
    mu = stationary_law(transitions, behavior)
    return np.linalg.inv(features.T @ (mu[:, None] * features))
