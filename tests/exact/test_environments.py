"""One MDP per kind of agent: the fixed points against the expected increments, summed window by
window.

The oracle shares no formula with the library: it enumerates every window (S_t, A_t, ..., S_{t+n})
that an agent can see, applies the update rule of the paper's pseudo-code with its importance
ratios, and averages under the stationary law.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import fegsam as fg

STATES, ACTIONS, DISCOUNT = 3, 2, 0.8
COUNTS = (3, 1, 2)


def federation(environments: int, seed: int = 0, unused: bool = False) -> fg.Federation:
    rng = np.random.default_rng(seed)
    mdps = [
        fg.MDP(
            rng.dirichlet(np.ones(STATES), (STATES, ACTIONS)),
            rng.normal(size=(STATES, ACTIONS)),
            DISCOUNT,
        )
        for _ in range(environments)
    ]
    counts = (3, 0, 2) if unused else COUNTS
    return fg.Federation(
        mdps if environments > 1 else mdps[0],
        0.1 + 0.8 * rng.dirichlet(np.ones(ACTIONS), (3, STATES)),
        num_agents=sum(counts),
        assignment=np.repeat(np.arange(3), counts),
        target_policy=rng.dirichlet(np.ones(ACTIONS), STATES),
        features=rng.normal(size=(STATES, 2)),
    )


def expected_increment(fed: Any, algorithm: Any, kind: int, theta: np.ndarray) -> np.ndarray:
    """(d,): the mean over all windows of what `theta` moves by, for step size one."""
    mdp, target = fed.mdps[fed.mdp_index(kind)], fed.target_policy
    on_policy = isinstance(algorithm, fg.OnPolicyTD)
    policy = target if on_policy else fed.behavior_policies[kind]
    kernel = mdp.transitions.toarray().reshape(STATES, ACTIONS, STATES)
    chain = np.einsum("sa,sax->sx", policy, kernel)
    law = np.linalg.matrix_power(chain, 2**12)[0]
    tabular = isinstance(algorithm, fg.OffPolicyTabularTD | fg.QLearning)
    phi = np.eye(STATES) if tabular else fed.features
    rows = phi
    if getattr(algorithm, "preconditioned", False):
        rows = phi @ np.linalg.inv(phi.T @ np.diag(law) @ phi)
    n = algorithm.window
    total = np.zeros_like(theta)
    for states in itertools.product(range(STATES), repeat=n + 1):
        for actions in itertools.product(range(ACTIONS), repeat=n):
            probability = law[states[0]]
            for s, a, after in zip(states, actions, states[1:], strict=False):
                probability *= policy[s, a] * kernel[s, a, after]
            if isinstance(algorithm, fg.QLearning):
                q, (s, a, after) = (
                    theta.reshape(STATES, ACTIONS),
                    (states[0], actions[0], states[1]),
                )
                error = mdp.rewards[s, a] + DISCOUNT * q[after].max() - q[s, a]
                total[s * ACTIONS + a] += probability * error
                continue
            error, product = 0.0, 1.0
            for k in range(n):
                s, a = states[k], actions[k]
                product *= 1.0 if on_policy else target[s, a] / policy[s, a]
                td_error = (
                    mdp.rewards[s, a] + DISCOUNT * phi[states[k + 1]] @ theta - phi[s] @ theta
                )
                error += DISCOUNT**k * product * td_error
            total += probability * error * rows[states[0]]
    return total


ALGORITHMS = [
    fg.QLearning(),
    *(
        make(n)
        for n in (1, 2, 3)
        for make in (
            fg.OnPolicyTD,
            fg.OffPolicyTabularTD,
            fg.OffPolicyLinearTD,
            lambda n: fg.OffPolicyLinearTD(n, preconditioned=True),
        )
    ),
]


@pytest.mark.parametrize("environments", [1, 3])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_expected_increments_vanish_at_the_fixed_points(algorithm: Any, environments: int) -> None:
    fed = federation(environments)
    common, own = fg.fixed_point(fed, algorithm), fg.agent_fixed_points(fed, algorithm)
    assert own.shape == (3, len(common))
    together = sum(
        count * expected_increment(fed, algorithm, k, common) for k, count in enumerate(COUNTS)
    )
    np.testing.assert_allclose(together, 0, atol=1e-12)
    for k in range(3):
        np.testing.assert_allclose(expected_increment(fed, algorithm, k, own[k]), 0, atol=1e-12)
    order = np.inf if algorithm.norm == "sup" else 2
    expected = np.array(COUNTS) / 6 @ np.linalg.norm(own - common, order, axis=1)
    assert fg.heterogeneity(fed, algorithm) == pytest.approx(expected, rel=1e-10, abs=1e-13)
    is_heterogeneous = environments > 1 or isinstance(algorithm, fg.OffPolicyLinearTD)
    assert (expected > 1e-3) == is_heterogeneous


@pytest.mark.parametrize("algorithm", [fg.QLearning(), fg.OffPolicyTabularTD()], ids=str)
def test_mean_iteration_arrives_at_the_fixed_point(algorithm: Any) -> None:
    fed = federation(environments=3, seed=1)
    theta = np.zeros(algorithm.dimension(fed))
    for _ in range(600):
        theta = (
            theta
            + sum(c * expected_increment(fed, algorithm, k, theta) for k, c in enumerate(COUNTS))
            / 6
        )
    np.testing.assert_allclose(fg.fixed_point(fed, algorithm), theta, atol=1e-10)


@pytest.mark.parametrize(
    "algorithm", [fg.QLearning(), fg.OffPolicyTabularTD(2), fg.OffPolicyLinearTD(2)], ids=str
)
def test_kind_without_agents_has_no_weight(algorithm: Any) -> None:
    fed = federation(environments=3, seed=2, unused=True)
    common = fg.fixed_point(fed, algorithm)
    together = 3 * expected_increment(fed, algorithm, 0, common) + 2 * expected_increment(
        fed, algorithm, 2, common
    )
    np.testing.assert_allclose(together, 0, atol=1e-12)


def test_equal_environments_give_back_the_common_answer() -> None:
    fed = federation(environments=1)
    copies = fg.Federation(
        [fed.mdps[0]] * 3,
        fed.behavior_policies,
        num_agents=6,
        assignment=fed.assignment,
        target_policy=fed.target_policy,
        features=fed.features,
    )
    for algorithm in ALGORITHMS:
        np.testing.assert_allclose(
            fg.fixed_point(copies, algorithm), fg.fixed_point(fed, algorithm), atol=1e-12
        )
