"""The theory where transitions have discounts of their own: its constants against every window an
agent can see, its bound above the exact error, its small-step law beside exact moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fegsam as fg
from fegsam.exact.moments import weighted_error
from fegsam.theory.small_step.cell_noise import cell_noises
from helpers.joint_chain import agent_of

STATES, ACTIONS, GAMMA = 4, 2, 0.9
RNG = np.random.default_rng(11)
TRANSITIONS = RNG.dirichlet(np.ones(STATES), (STATES, ACTIONS))
REWARDS = RNG.uniform(-1, 1, (STATES, ACTIONS))
DISCOUNTS = GAMMA * RNG.choice([0.0, 0.4, 1.0], (STATES, ACTIONS, STATES))
TARGET = 0.2 + 0.6 * RNG.dirichlet(np.ones(ACTIONS), STATES)
PHI = np.column_stack([np.ones(STATES), RNG.uniform(-1, 1, STATES)])

TEMPORAL = [
    fg.OnPolicyTD(),
    fg.OnPolicyTD(2),
    fg.OffPolicyTabularTD(),
    fg.OffPolicyTabularTD(2),
    fg.OffPolicyLinearTD(2),
]


def federation(discount: Any = DISCOUNTS, num_agents: int = 4) -> Any:
    return fg.Federation(
        fg.MDP(TRANSITIONS, REWARDS, discount),
        (fg.policies.random(STATES, ACTIONS, count=2, seed=1) + TARGET) / 2,
        num_agents=num_agents,
        target_policy=TARGET,
        features=PHI,
    )


def size_of(algorithm: Any, array: np.ndarray) -> float:
    order = np.inf if algorithm.norm == "sup" else 2
    return float(np.linalg.norm(array, order))


@pytest.mark.parametrize("algorithm", TEMPORAL, ids=str)
def test_constants_cover_every_window(algorithm: Any) -> None:
    fed = federation()
    found = fg.theory.assumptions(fed, algorithm)
    assert found.holds
    assert found.level in ("sup", "identity")
    star, beta = fg.fixed_point(fed, algorithm), found.beta
    identity, largest, noise = np.eye(len(star)), 0.0, 0.0
    for kind in range(1 if isinstance(algorithm, fg.OnPolicyTD) else 2):
        edges = agent_of(fed, algorithm, kind, "iid").edges
        mean = identity + sum(edge.probability * edge.matrix for edge in edges) / beta
        assert size_of(algorithm, mean) <= found.contraction + 1e-12
        for edge in edges:
            largest = max(largest, size_of(algorithm, identity + edge.matrix / beta))
            noise = max(noise, size_of(algorithm, edge.matrix @ star + edge.offset) / beta)
    assert pytest.approx(noise, rel=1e-9) == found.B
    assert found.B_cap >= found.B
    assert largest <= found.A_1 * (1 + 1e-9) <= found.A_cap * (1 + 2e-9)
    assert found.is_sharp == (not isinstance(algorithm, fg.OnPolicyTD))
    if found.is_sharp:
        assert pytest.approx(largest, rel=1e-9) == found.A_1


def test_constants_of_q_learning_cover_every_transition() -> None:
    fed = federation()
    found = fg.theory.assumptions(fed, fg.QLearning())
    q = fg.fixed_point(fed, fg.QLearning()).reshape(STATES, ACTIONS)
    errors = REWARDS[:, :, None] + DISCOUNTS * q.max(axis=1) - q[:, :, None]
    assert pytest.approx(np.abs(errors).max(), rel=1e-9) == found.B
    discounted = (TRANSITIONS * DISCOUNTS).sum(axis=2)
    for policy in fed.behavior_policies:
        chain = np.einsum("sa,sat->st", policy, TRANSITIONS)
        visits = np.linalg.matrix_power(chain, 2**12)[0][:, None] * policy
        assert (1 - visits * (1 - discounted)).max() <= found.contraction + 1e-12


@pytest.mark.parametrize("algorithm", TEMPORAL[::2], ids=str)
def test_bound_is_above_the_exact_error(algorithm: Any) -> None:
    fed = federation()
    step = fg.theory.largest_step(fed, algorithm, sync_period=2)
    settings: dict[str, Any] = {"step_size": step, "sync_period": 2, "num_steps": 10**3}
    found = fg.theory.error_bound(fed, algorithm, **settings)
    assert found.holds
    decay = fg.theory.default_output_decay(fed, algorithm, step, 10**3)
    exact = weighted_error(fed, algorithm, decay=decay, order=1, **settings)
    assert found.beside(exact).ratio > 1


@pytest.mark.parametrize("algorithm", [*TEMPORAL[1::2], fg.TDC(2.0)], ids=str)
def test_small_step_law_is_beside_the_exact_error(algorithm: Any) -> None:
    fed = federation(num_agents=1)
    settings: dict[str, Any] = {"step_size": 1e-3, "sync_period": 1}
    law = fg.theory.small_step_law(fed, algorithm, **settings)
    exact = fg.exact.stationary_error(fed, algorithm, **settings)
    assert law.mse == pytest.approx(exact, rel=0.02)


def test_q_learning_with_one_action_has_the_law_of_evaluation() -> None:
    mdp = fg.MDP(TRANSITIONS[:, :1], REWARDS[:, :1], DISCOUNTS[:, :1])
    always = np.ones((STATES, 1))
    fed = fg.Federation(mdp, num_agents=3, target_policy=always)
    laws = [
        fg.theory.small_step_law(fed, algorithm, step_size=0.01, sync_period=3)
        for algorithm in (fg.QLearning(), fg.OffPolicyTabularTD())
    ]
    np.testing.assert_allclose(laws[0].covariance, laws[1].covariance, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(laws[0].markov_bias, laws[1].markov_bias, rtol=1e-9, atol=1e-15)


def test_maximum_pulls_by_the_discounted_flow() -> None:
    fed = federation()
    point = fg.fixed_point(fed, fg.QLearning())
    for kind, (_, noise) in enumerate(cell_noises(fg.QLearning(), fed, point)):
        chain = np.einsum("sa,sat->st", fed.behavior_policies[kind], TRANSITIONS)
        visits = np.linalg.matrix_power(chain, 2**12)[0][:, None] * fed.behavior_policies[kind]
        flow = visits[:, :, None] * TRANSITIONS * DISCOUNTS
        found = noise.discounted_flow.toarray()
        np.testing.assert_allclose(found, flow.reshape(found.shape), atol=1e-13)


def test_longer_look_ahead_contracts_as_its_norm_says() -> None:
    fed = federation()
    scan = fg.theory.scan_horizons(fed, fg.OffPolicyLinearTD(), range(1, 5))
    moved = np.einsum("sa,sat,sat->st", TARGET, TRANSITIONS, DISCOUNTS)
    for n, norm in zip(scan.horizons, scan.operator_norms, strict=True):
        ahead = np.linalg.matrix_power(moved, n)
        expected = []
        for policy in fed.behavior_policies:
            chain = np.einsum("sa,sat->st", policy, TRANSITIONS)
            root = np.sqrt(np.linalg.matrix_power(chain, 2**12)[0])
            expected.append(np.linalg.norm(root[:, None] * ahead / root, 2))
        assert norm == pytest.approx(max(expected), rel=1e-9)
    assert scan.levels[-1] == "identity"


def test_constants_that_the_paper_prints_are_refused() -> None:
    with pytest.raises(fg.ProblemError, match=r"for one discount.*use printed=False"):
        fg.theory.constants(federation(), fg.QLearning(), printed=True)
