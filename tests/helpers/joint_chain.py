"""Exact moments of a run of very few agents, from the joint chain of all of them: the oracle for
`fegsam.exact.moments`.

Plain NumPy, sharing no code with the library; slow, and meant to be checked by eye. What agent i
still remembers of its path when step t begins is its mode z^i_t = (S_t, A_t, ..., A_{t+n-2},
S_{t+n-1}) (for Algorithm 1, y_t). A step draws one action and one state more, which completes the
window of step t, and the mode moves on by one. Given the modes of all agents at time t, these draws
are independent of the parameters and of each other. Stack

    x_t = (theta^1_t - theta*, ..., theta^N_t - theta*, 1),    D = N d + 1.

An agent's update is x <- T x, where the (D, D) matrix T depends on its window alone, and the
averaging of a synchronisation is such a matrix too. So the moments E[x x' 1{z^1 = a_1, ..., z^N =
a_N}], one (D, D) matrix for each joint mode, are mapped exactly from one time to the next. There
are (modes)^N of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np


@dataclass(frozen=True)
class JointMoments:
    """At times 0..T, each after the synchronisation of that time."""

    mse: np.ndarray
    """(T+1,): E||theta_t - theta*||_2^2 of the average theta_t"""
    mean: np.ndarray
    """(T+1, d): E theta_t"""
    sync_error: np.ndarray
    """(T+1,): E Omega_t = E (1/N) sum_i ||theta^i_t - theta_t||_2^2"""


@dataclass(frozen=True)
class Edge:
    """One way for an agent to pass through a step: a window of its path."""

    source: int
    target: int
    """numbers of its modes before and after"""
    probability: float
    """given the source"""
    matrix: np.ndarray
    offset: np.ndarray
    """(d, d), (d,): the parameters move by step_size * (matrix @ params + offset)"""


@dataclass(frozen=True)
class Agent:
    first: np.ndarray
    """(modes,): the law of its mode at time 0"""
    edges: list[Edge]


def joint_moments(
    problem: Any,
    algorithm: Any,
    theta_star: np.ndarray,
    step_size: float,
    sync_period: int,
    num_steps: int,
    initial_params: np.ndarray | None = None,
    sampling: str = "markov",
) -> JointMoments:
    """The moments of `fg.run` with the same arguments, for Algorithms 1 (linear), 2, 3, 5 and
    TDC."""
    theta_star = np.asarray(theta_star, dtype=float)
    N, d = problem.num_agents, len(theta_star)
    kinds = [agent_of(problem, algorithm, kind, sampling) for kind in range(problem.num_kinds)]
    agents = [kinds[kind] for kind in problem.assignment]
    steps = [
        [(edge, update_matrix(edge, i, N, theta_star, step_size)) for edge in agent.edges]
        for i, agent in enumerate(agents)
    ]

    start = np.zeros(d) if initial_params is None else np.asarray(initial_params, dtype=float)
    x = np.append(np.tile(start - theta_star, N), 1.0)
    moments = np.outer(x, x)
    for agent in reversed(agents):
        moments = np.multiply.outer(
            agent.first, moments
        )  # axes: one for each agent's mode, then D, D

    rows = [readings(moments, N, theta_star)]
    for t in range(num_steps):
        for i in range(N):
            moments = move(moments, i, steps[i])
        if (t + 1) % sync_period == 0:
            averaging = averaging_matrix(N, d)
            moments = averaging @ moments @ averaging.T
        rows.append(readings(moments, N, theta_star))
    mse, mean, sync_error = zip(*rows, strict=True)
    return JointMoments(np.array(mse), np.array(mean), np.array(sync_error))


# --- One step of the joint chain ------------------------------------------------------------------


def move(moments: np.ndarray, i: int, edges: list[tuple[Edge, np.ndarray]]) -> np.ndarray:
    """Agent i passes through its step; axis i of `moments` is its mode."""
    before = np.moveaxis(moments, i, 0)
    after = np.zeros_like(before)
    for edge, matrix in edges:
        after[edge.target] += edge.probability * (matrix @ before[edge.source] @ matrix.T)
    return np.moveaxis(after, 0, i)


def update_matrix(
    edge: Edge, i: int, N: int, theta_star: np.ndarray, step_size: float
) -> np.ndarray:
    """(D, D): T of agent i on an edge; block i moves by step_size * (matrix @ block + matrix @
    theta* + offset)."""
    d = len(theta_star)
    T = np.eye(N * d + 1)
    block = slice(i * d, (i + 1) * d)
    T[block, block] += step_size * edge.matrix
    T[block, -1] += step_size * (edge.matrix @ theta_star + edge.offset)
    return T


def averaging_matrix(N: int, d: int) -> np.ndarray:
    """(D, D): every agent's block becomes the mean of all blocks."""
    D = N * d + 1
    S = np.zeros((D, D))
    S[: N * d, : N * d] = np.kron(np.full((N, N), 1 / N), np.eye(d))
    S[-1, -1] = 1.0
    return S


def readings(
    moments: np.ndarray, N: int, theta_star: np.ndarray
) -> tuple[float, np.ndarray, float]:
    """E||theta_t - theta*||^2, E theta_t and E Omega_t from the moments of all joint modes."""
    d = len(theta_star)
    total = moments.sum(axis=tuple(range(N)))
    average = np.kron(np.full((1, N), 1 / N), np.eye(d))  # (d, N d): the mean of the blocks
    squares = total[:-1, :-1]
    mse = float(np.trace(average @ squares @ average.T))
    mean = theta_star + average @ total[:-1, -1]
    sync_error = 0.0
    for i in range(N):
        gap = np.kron(np.eye(1, N, i), np.eye(d)) - average
        sync_error += float(np.trace(gap @ squares @ gap.T)) / N
    return mse, mean, sync_error


# --- One agent's windows --------------------------------------------------------------------------


def agent_of(problem: Any, algorithm: Any, kind: int, sampling: str) -> Agent:
    """The modes and edges of an agent of some kind; with i.i.d. windows there is a single mode,
    nothing is remembered."""
    name = type(algorithm).__name__
    make = {"LinearSA": noise_agent, "TDC": tdc_agent}.get(name, td_agent)
    agent, stationary = make(problem, algorithm, kind)
    if sampling == "markov":
        return agent
    assert sampling == "iid"
    edges = [
        Edge(0, 0, stationary[e.source] * e.probability, e.matrix, e.offset) for e in agent.edges
    ]
    return Agent(np.ones(1), edges)


def noise_agent(problem: Any, algorithm: Any, kind: int) -> tuple[Agent, np.ndarray]:
    """Algorithm 1: the update of step t reads y_t, then the chain moves."""
    kernel = problem.kernels[kind].toarray()
    matrices, offsets = (
        table[kind % len(table)] for table in (algorithm.matrices, algorithm.offsets)
    )
    edges = [
        Edge(y, after, kernel[y, after], matrices[y], offsets[y])
        for y, after in product(range(len(kernel)), repeat=2)
        if kernel[y, after] > 0
    ]
    return Agent(np.array(problem.initial_distribution), edges), stationary(kernel)


def td_agent(problem: Any, algorithm: Any, kind: int) -> tuple[Agent, np.ndarray]:
    """Algorithms 2, 3 and 5: an edge is a window (S_t, A_t, ..., S_{t+n}) that the kind can see."""
    name, n = type(algorithm).__name__, algorithm.horizon
    mdp = problem.mdps[kind % len(problem.mdps)]
    rewards, gamma, target = mdp.rewards, discounts(mdp), problem.target_policy
    states, actions = range(rewards.shape[0]), range(rewards.shape[1])
    kernel = mdp.transitions.toarray().reshape(len(states), len(actions), len(states))
    policy = target
    if name != "OnPolicyTD" and problem.behavior_policies is not None:
        policy = problem.behavior_policies[kind % len(problem.behavior_policies)]
    law = stationary(np.einsum("sa,sat->st", policy, kernel))
    phi = np.eye(len(states)) if name == "OffPolicyTabularTD" else problem.features
    directions = phi
    if getattr(algorithm, "preconditioned", False):
        directions = phi @ np.linalg.inv(phi.T @ np.diag(law) @ phi)

    def chance(path: tuple[int, ...]) -> float:
        """Of a path (s, a, s, ..., a, s), given its first state."""
        return float(
            np.prod(
                [
                    policy[s, a] * kernel[s, a, after]
                    for s, a, after in zip(path[::2], path[1::2], path[2::2], strict=False)
                ]
            )
        )

    letters = [states, actions]
    modes = [
        path for path in product(*(letters[k % 2] for k in range(2 * n - 1))) if chance(path) > 0
    ]
    number = {mode: m for m, mode in enumerate(modes)}
    edges = []
    for mode, a, after in product(modes, actions, states):
        window = (*mode, a, after)
        probability = policy[mode[-1], a] * kernel[mode[-1], a, after]
        if probability == 0:
            continue
        slope, reward, weight = np.zeros(phi.shape[1]), 0.0, 1.0
        # E = sum_j gamma^j (ratios up to j) (R_j + gamma phi_{j+1}'v - phi_j'v) = reward + slope'v
        for j in range(n):
            s, chosen, s_next = window[2 * j : 2 * j + 3]
            weight *= 1.0 if name == "OnPolicyTD" else target[s, chosen] / policy[s, chosen]
            reward += weight * rewards[s, chosen]
            slope += weight * (gamma[s, chosen, s_next] * phi[s_next] - phi[s])
            weight *= gamma[s, chosen, s_next]
        direction = directions[window[0]]
        edges.append(
            Edge(
                number[mode],
                number[window[2:]],
                probability,
                np.outer(direction, slope),
                direction * reward,
            )
        )
    first = np.array([problem.initial_distribution[mode[0]] * chance(mode) for mode in modes])
    at_rest = np.array([law[mode[0]] * chance(mode) for mode in modes])
    return Agent(first, edges), at_rest


def tdc_agent(problem: Any, algorithm: Any, kind: int) -> tuple[Agent, np.ndarray]:
    """TDC: an edge is a transition, which moves theta (first block) and w (second)."""
    mdp = problem.mdps[kind % len(problem.mdps)]
    states, actions = mdp.rewards.shape
    kernel = mdp.transitions.toarray().reshape(states, actions, states)
    policy = problem.behavior_policies[kind % len(problem.behavior_policies)]
    eta, d = algorithm.ratio, problem.features.shape[1]
    edges = []
    for s, a, after in product(range(states), range(actions), range(states)):
        chance = policy[s, a] * kernel[s, a, after]
        if chance == 0:
            continue
        phi, ahead, gamma = (
            problem.features[s],
            problem.features[after],
            discounts(mdp)[s, a, after],
        )
        rho = problem.target_policy[s, a] / policy[s, a]
        matrix, offset = np.zeros((2 * d, 2 * d)), np.zeros(2 * d)
        matrix[:d, :d] = rho * np.outer(phi, gamma * ahead - phi)
        matrix[:d, d:] = -gamma * rho * np.outer(ahead, phi)
        matrix[d:, :d] = eta * rho * np.outer(phi, gamma * ahead - phi)
        matrix[d:, d:] = -eta * np.outer(phi, phi)
        offset[:d] = rho * mdp.rewards[s, a] * phi
        offset[d:] = eta * rho * mdp.rewards[s, a] * phi
        edges.append(Edge(s, after, chance, matrix, offset))
    law = stationary(np.einsum("sa,sat->st", policy, kernel))
    return Agent(np.array(problem.initial_distribution), edges), law


def discounts(mdp: Any) -> np.ndarray:
    """(S, A, S): the discount of each transition."""
    each = mdp.discount if mdp.discounts is None else mdp.discounts
    return np.broadcast_to(each, (*mdp.rewards.shape, len(mdp.rewards)))


def stationary(kernel: np.ndarray) -> np.ndarray:
    """The stationary distribution."""
    size = len(kernel)
    equations = np.vstack([kernel.T - np.eye(size), np.ones(size)])
    return np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0), rcond=None)[0]
