"""Exact answers where transitions have discounts of their own: against Gymnasium's meaning of an
end, the joint chain, dense algebra, and the same numbers where all discounts are equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.sparse.linalg import spsolve

import fegsam as fg
from helpers.joint_chain import agent_of, joint_moments

STATES, ACTIONS, GAMMA = 3, 2, 0.8
RNG = np.random.default_rng(7)
TRANSITIONS = RNG.dirichlet(np.ones(STATES), (2, STATES, ACTIONS))
TRANSITIONS[:, :, 0, 0] = 0.0
TRANSITIONS /= TRANSITIONS.sum(axis=3, keepdims=True)
REWARDS = RNG.normal(size=(2, STATES, ACTIONS))
BEHAVIOR = 0.15 + 0.7 * RNG.dirichlet(np.ones(ACTIONS), (2, STATES))
TARGET = 0.1 + 0.8 * RNG.dirichlet(np.ones(ACTIONS), STATES)
PHI = np.array([[1.0, 0.0], [0.5, 1.0], [-0.5, 0.7]])
DISCOUNTS = GAMMA * RNG.choice([0.0, 0.5, 1.0], (2, STATES, ACTIONS, STATES))
DISCOUNTS[:, 0, 1, 1], DISCOUNTS[:, 1, 1, 2] = GAMMA, 0.0
COUNTS = np.array([1, 2])

TEMPORAL = [
    fg.OnPolicyTD(2),
    fg.OffPolicyTabularTD(),
    fg.OffPolicyTabularTD(2),
    fg.OffPolicyLinearTD(2),
    fg.OffPolicyLinearTD(2, preconditioned=True),
    fg.TDC(0.6),
]


def federation(discounts: Any, worlds: int = 1, **changes: Any) -> fg.Federation:
    mdps = [fg.MDP(TRANSITIONS[k], REWARDS[k], discounts[k]) for k in range(worlds)]
    settings: dict[str, Any] = {
        "num_agents": 3,
        "assignment": [0, 1, 1],
        "target_policy": TARGET,
        "features": PHI,
        "initial_distribution": [0.6, 0.0, 0.4],
    }
    return fg.Federation(mdps, BEHAVIOR, **(settings | changes))


def mean_increment(problem: Any, algorithm: Any, kind: int, params: np.ndarray) -> np.ndarray:
    """The mean over all windows of what `params` moves by, for step size one."""
    edges = agent_of(problem, algorithm, kind, "iid").edges
    return sum(edge.probability * (edge.matrix @ params + edge.offset) for edge in edges)


def optimal(rewards: np.ndarray, kernel: np.ndarray, discounts: np.ndarray) -> np.ndarray:
    """(S, A): by value iteration."""
    q = np.zeros_like(rewards)
    for _ in range(400):
        q = rewards + (kernel * discounts * q.max(axis=1)).sum(axis=2)
    return q


# --- Gymnasium's meaning of an end ----------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"])
def test_values_are_those_of_episodes_that_stop(env_id: str) -> None:
    """What follows an end is worth 0: value iteration on Gymnasium's own table."""
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make(env_id).unwrapped
    table = [
        (s, a, *result)
        for s, by_action in env.P.items()
        for a, results in by_action.items()
        for result in results
    ]
    s, a, p, after, reward, end = (np.array(column) for column in zip(*table, strict=True))
    actions = env.action_space.n
    q, v = np.zeros((env.observation_space.n, actions)), np.zeros(env.observation_space.n)
    for _ in range(400):
        best, mean = np.where(end, 0.0, q.max(axis=1)[after]), np.where(end, 0.0, v[after])
        q, v = np.zeros_like(q), np.zeros_like(v)
        np.add.at(q, (s, a), p * (reward + 0.9 * best))
        np.add.at(v, s, p * (reward + 0.9 * mean) / actions)
    mdp = fg.examples.from_gymnasium(env_id, 0.9, ends="stop")
    kept = np.array(mdp.labels)
    last = kept[np.isin(kept, after[end])]
    q[last], v[last] = 0.0, 0.0
    uniform = fg.policies.uniform(mdp.num_states, actions)
    found = fg.fixed_point(fg.Federation(mdp, uniform, num_agents=1), fg.QLearning())
    assert_allclose(found.reshape(-1, actions), q[kept], rtol=0, atol=1e-12 * np.abs(q).max())
    assert_allclose(fg.policy_value(mdp, uniform), v[kept], rtol=0, atol=1e-12 * np.abs(v).max())
    again = fg.examples.from_gymnasium(env_id, 0.9)
    assert again.discounts is None
    assert (again.transitions != mdp.transitions).nnz == 0
    assert np.abs(fg.policy_value(again, uniform) - v[kept]).max() > 1e-3


# --- Fixed points ---------------------------------------------------------------------------------


@pytest.mark.parametrize("worlds", [1, 2])
@pytest.mark.parametrize("algorithm", [*TEMPORAL, fg.OnPolicyTD(3)], ids=str)
def test_mean_increments_vanish_at_the_fixed_points(algorithm: Any, worlds: int) -> None:
    fed = federation(DISCOUNTS, worlds)
    common, own = fg.fixed_point(fed, algorithm), fg.agent_fixed_points(fed, algorithm)
    together = sum(
        count * mean_increment(fed, algorithm, k, common) for k, count in enumerate(COUNTS)
    )
    assert_allclose(together, 0, atol=1e-12)
    for k in range(2):
        assert_allclose(mean_increment(fed, algorithm, k, own[k]), 0, atol=1e-12)
    order = np.inf if algorithm.norm == "sup" else 2
    distance = COUNTS / 3 @ np.linalg.norm(own - common, order, axis=1)
    assert fg.heterogeneity(fed, algorithm) == pytest.approx(distance, rel=1e-10, abs=1e-13)


def test_q_learning_has_the_optimal_values_of_the_mixture() -> None:
    one = optimal(REWARDS[0], TRANSITIONS[0], DISCOUNTS[0])
    assert_allclose(fg.fixed_point(federation(DISCOUNTS), fg.QLearning()), one.ravel(), atol=1e-12)
    fed = federation(DISCOUNTS, worlds=2)
    q = fg.fixed_point(fed, fg.QLearning()).reshape(STATES, ACTIONS)
    total = np.zeros_like(q)
    for k, count in enumerate(COUNTS):
        chain = np.einsum("sa,sat->st", BEHAVIOR[k], TRANSITIONS[k])
        visits = np.linalg.matrix_power(chain, 2**12)[0][:, None] * BEHAVIOR[k]
        target = REWARDS[k] + (TRANSITIONS[k] * DISCOUNTS[k] * q.max(axis=1)).sum(axis=2)
        total += count * visits * (target - q)
    assert_allclose(total, 0, atol=1e-12)


def test_sarsa_has_the_value_of_its_own_policy() -> None:
    policy = fg.policies.Softmax(0.5)
    q = fg.fixed_point(federation(DISCOUNTS), fg.Sarsa(policy)).reshape(STATES, ACTIONS)
    weights = np.exp(q / 0.5)
    value = (weights / weights.sum(axis=1, keepdims=True) * q).sum(axis=1)
    target = REWARDS[0] + (TRANSITIONS[0] * DISCOUNTS[0] * value).sum(axis=2)
    assert_allclose(q, target, atol=1e-10)


@pytest.mark.parametrize("states", [700, 6000])
def test_many_states_with_rare_ends_have_certified_values(states: int) -> None:
    """Constants are not kept here, so that a centred sweep would go astray."""
    rng = np.random.default_rng(states)
    chances = rng.random((states, 3))
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.repeat(np.arange(states), 3)
    after = rng.integers(0, states, 3 * states)
    moves = sparse.csr_array((chances.ravel(), (rows, after)), shape=(states, states))
    discount = np.where(rng.random(states) < 0.3, 0.0, 0.95)
    mdp = fg.MDP(moves, rng.random((states, 1)), discount)
    always = np.ones((states, 1))
    inner = sparse.eye_array(states) - moves @ sparse.diags_array(discount)
    truth: Any = spsolve(sparse.csc_array(inner), mdp.rewards[:, 0])
    assert_allclose(fg.policy_value(mdp, always), truth, rtol=0, atol=1e-9)
    fed = fg.Federation(mdp, always, num_agents=1)
    assert_allclose(fg.fixed_point(fed, fg.QLearning()), truth, rtol=0, atol=1e-9)


# --- Moments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", TEMPORAL, ids=str)
@pytest.mark.parametrize(("worlds", "sampling"), [(1, "markov"), (2, "markov"), (2, "iid")])
def test_moments_are_those_of_the_joint_chain(algorithm: Any, worlds: int, sampling: Any) -> None:
    fed = federation(DISCOUNTS, worlds, num_agents=2, assignment=[0, 1])
    star = fg.fixed_point(fed, algorithm)
    truth = joint_moments(fed, algorithm, star, 0.2, 3, 7, np.zeros_like(star), sampling)
    found = fg.exact.moments(
        fed, algorithm, step_size=0.2, sync_period=3, times=np.arange(8), sampling=sampling, order=2
    )
    assert_allclose(found.mse, truth.mse, rtol=1e-12)
    assert_allclose(found.mean, truth.mean, rtol=0, atol=1e-12 * np.abs(truth.mean).max())
    assert_allclose(found.sync_error, truth.sync_error, rtol=1e-12, atol=1e-12 * truth.mse.max())


def test_actions_that_differ_in_their_discounts_alone_are_kept_apart() -> None:
    """They pay the same, lead to the same states and have the same ratio."""
    moves = np.repeat(TRANSITIONS[0][:, 1:], 2, axis=1)
    mdp = fg.MDP(moves, np.repeat(REWARDS[0][:, 1:], 2, axis=1), [[[0.8], [0.0]]])
    fed = fg.Federation(mdp, num_agents=1, target_policy=fg.policies.uniform(STATES, 2))
    algorithm = fg.OffPolicyTabularTD(2)
    star = fg.fixed_point(fed, algorithm)
    truth = joint_moments(fed, algorithm, star, 0.2, 1, 6)
    found = fg.exact.moments(fed, algorithm, step_size=0.2, sync_period=1, times=np.arange(7))
    assert_allclose(found.mse, truth.mse, rtol=1e-12)


# --- Equal discounts ------------------------------------------------------------------------------

ALMOST = np.full((2, STATES, ACTIONS, STATES), GAMMA)
ALMOST[:, :, 0, 0] = 0.3  # no transition leads there
SAME = np.full(2, GAMMA)


@pytest.mark.parametrize("algorithm", [*TEMPORAL, fg.QLearning()], ids=str)
def test_equal_discounts_in_an_array_give_the_numbers_of_one(algorithm: Any) -> None:
    varied, plain = federation(ALMOST, worlds=2), federation(SAME, worlds=2)
    assert varied.discounts is not None
    assert plain.discounts is None
    star = fg.fixed_point(plain, algorithm)
    assert_allclose(fg.fixed_point(varied, algorithm), star, rtol=1e-12)
    if not isinstance(algorithm, fg.QLearning):
        runs = [
            fg.exact.moments(fed, algorithm, step_size=0.2, sync_period=3, times=[5], order=2)
            for fed in (varied, plain)
        ]
        assert_allclose(runs[0].mse, runs[1].mse, rtol=1e-12)


def test_one_value_in_an_array_is_one_discount() -> None:
    same = fg.MDP(TRANSITIONS[0], REWARDS[0], np.full((STATES, 1, STATES), GAMMA))
    plain = fg.MDP(TRANSITIONS[0], REWARDS[0], GAMMA)
    assert same.discounts is None
    assert same.discount == GAMMA
    assert same.continuing is same.transitions
    prints = [fg.Federation(mdp, num_agents=1).fingerprint() for mdp in (same, plain)]
    assert prints[0] == prints[1]
