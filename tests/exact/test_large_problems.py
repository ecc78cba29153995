"""Large sparse problems: solved in seconds, with an error that the residual certifies."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy.sparse import csr_array

import fegsam as fg
from fegsam.exact import solvers

STATES, ACTIONS, BRANCHING = 100_000, 5, 5


@pytest.fixture(scope="module", params=[0.9, 0.99])
def garnet(request: pytest.FixtureRequest) -> fg.MDP:
    return fg.examples.garnet(STATES, ACTIONS, BRANCHING, request.param, seed=0, connected=True)


def certified_error(image: np.ndarray, point: np.ndarray, modulus: float) -> float:
    return float(np.abs(image - point).max()) / (1 - modulus)


def test_optimal_q_of_a_large_garnet_is_certified(garnet: fg.MDP) -> None:
    fed = fg.Federation(garnet, fg.policies.uniform(STATES, ACTIONS), num_agents=2)
    began = time.perf_counter()
    q = fg.fixed_point(fed, fg.QLearning())
    assert time.perf_counter() - began < 60
    image = garnet.rewards.ravel() + garnet.discount * (
        garnet.transitions @ q.reshape(STATES, ACTIONS).max(axis=1)
    )
    assert certified_error(image, q, garnet.discount) <= 1e-10


def test_policy_value_of_a_large_garnet_is_certified(garnet: fg.MDP) -> None:
    policy = fg.policies.random(STATES, ACTIONS, count=1, seed=1)[0]
    began = time.perf_counter()
    value = fg.policy_value(garnet, policy)
    assert time.perf_counter() - began < 60
    image = garnet.policy_rewards(policy) + garnet.discount * (garnet.policy_chain(policy) @ value)
    assert certified_error(image, value, garnet.discount) <= 1e-10


def test_two_large_environments_are_mixed_with_a_certificate() -> None:
    states, horizon, discount = 20_000, 3, 0.95
    mdps = [fg.examples.garnet(states, 2, 4, discount, seed, connected=True) for seed in (0, 1)]
    target = fg.policies.uniform(states, 2)
    fed = fg.Federation(mdps, num_agents=3, target_policy=target)
    value = fg.fixed_point(fed, fg.OffPolicyTabularTD(horizon))
    laws = fg.exact.kind_stationary_laws(fed, fg.OffPolicyTabularTD(horizon))
    shares = np.array([[2], [1]]) * laws / (2 * laws[0] + laws[1])
    image = np.zeros(states)
    for mdp, share in zip(mdps, shares, strict=True):
        ahead = value
        for _ in range(horizon):
            ahead = mdp.policy_rewards(target) + discount * (mdp.policy_chain(target) @ ahead)
        image += share * ahead
    assert certified_error(image, value, discount**horizon) <= 1e-10


def test_features_of_a_large_garnet() -> None:
    states = 20_000
    mdp = fg.examples.garnet(states, 2, 4, 0.95, seed=0, connected=True)
    target, phi = fg.policies.uniform(states, 2), np.random.default_rng(0).normal(size=(states, 4))
    fed = fg.Federation(mdp, num_agents=2, target_policy=target, features=phi)
    v = fg.fixed_point(fed, fg.OnPolicyTD(horizon=2))
    law = fg.exact.kind_stationary_laws(fed, fg.OnPolicyTD())[0]
    ahead = phi @ v
    for _ in range(2):
        ahead = mdp.policy_rewards(target) + 0.95 * (mdp.policy_chain(target) @ ahead)
    np.testing.assert_allclose(phi.T @ (law * (ahead - phi @ v)), 0, atol=1e-12)


def walk(states: int, discount: float) -> fg.MDP:
    """Action 0 steps left or right with equal chances, action 1 the same for a price; only the
    right end pays."""
    i = np.arange(states)
    columns = np.stack([np.maximum(i - 1, 0), np.minimum(i + 1, states - 1)], axis=1)
    columns = np.repeat(columns, 2, axis=0)
    transitions = csr_array(
        (np.full(4 * states, 0.5), columns.ravel(), np.arange(0, 4 * states + 1, 2))
    )
    rewards = np.zeros((states, 2))
    rewards[-1, 0] = 1.0
    rewards[:, 1] = -0.5
    return fg.MDP(transitions, rewards, discount)


def walk_value(states: int, discount: float) -> np.ndarray:
    """V(i) is proportional to x^(i+1/2) + x^-(i+1/2), gamma (x + 1/x) = 2; the right end fixes the
    factor."""
    x = (1 + np.sqrt(1 - discount**2)) / discount
    i = np.arange(states + 1)
    shape = x ** (i - states) + x ** (-i - states - 1.0)  # divided by x^(states + 1/2)
    return shape[:-1] * 2 / discount / (shape[-1] - shape[-2])


@pytest.mark.parametrize(
    ("states", "discount"),
    [(400, 0.999), (3000, 0.999), (20_000, 0.95)],
    ids=["dense elimination", "sparse elimination", "sweeps alone"],
)
def test_slowly_mixing_walk_has_its_closed_form(states: int, discount: float) -> None:
    expected = walk_value(states, discount)
    value = fg.policy_value(walk(states, discount), np.tile([1.0, 0.0], (states, 1)))
    np.testing.assert_allclose(value, expected, atol=2e-10)
    fed = fg.Federation(walk(states, discount), fg.policies.uniform(states, 2), num_agents=1)
    q = fg.fixed_point(fed, fg.QLearning()).reshape(states, 2)
    np.testing.assert_allclose(q[:, 0], expected, atol=2e-10)
    np.testing.assert_allclose(q[:-1, 1], expected[:-1] - 0.5, atol=2e-10)


def test_large_values_are_certified_relative_to_their_size() -> None:
    mdp = fg.examples.garnet(2000, 2, 3, 0.999, seed=0, connected=True)
    rich = fg.MDP(mdp.transitions, 1e6 * mdp.rewards, 0.999)
    policy = fg.policies.uniform(2000, 2)
    value = fg.policy_value(rich, policy)
    np.testing.assert_allclose(value, 1e6 * fg.policy_value(mdp, policy), rtol=1e-10)


def test_sweeps_end_at_once_where_nothing_is_discounted_away() -> None:
    np.testing.assert_array_equal(
        solvers.sweep_to_the_end(lambda x: np.ones(3), 0.0, np.zeros(3)), 1.0
    )


def test_missing_certificate_is_said() -> None:
    with pytest.raises(fg.ProblemError, match=r"3 unknowns.*fixed_point="):
        solvers.sweep_to_the_end(lambda x: 2 * x + 1, 0.5, np.arange(3.0))
