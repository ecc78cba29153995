"""What a truncated hierarchy says about itself, against the true next order."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fegsam as fg
from helpers.truncation_problems import claims


@pytest.mark.parametrize("seed", range(8))
def test_claimed_truncation_is_at_least_half_of_the_true_one(seed) -> None:
    """Slow chains, where orders differ most. What is not claimed is NaN, with a sentence."""
    made, _ = claims(seed)
    assert [claim for claim in made if not claim.holds] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 200))
def test_claimed_truncation_of_two_hundred_problems_is_at_least_half_of_the_true_one(seed) -> None:
    made, _ = claims(seed)
    assert [claim for claim in made if not claim.holds] == []


def test_claims_are_made_at_several_orders_and_withheld_at_others() -> None:
    """The test above compares something: claims above zero, and NaN."""
    every = [claims(seed) for seed in range(8)]
    assert sum(claim.true > 1e-11 for made, _ in every for claim in made) >= 5
    assert sum(silent for _, silent in every) >= 5


def slow_walk() -> tuple[fg.Federation, fg.OnPolicyTD]:
    """45 states that are seldom left: the second order changes the error by two percent."""
    rng = np.random.default_rng(0)
    kernel = 0.9 * np.eye(45) + 0.1 * rng.dirichlet(np.full(45, 0.2), 45)
    mdp = fg.MDP(kernel[:, None, :], rng.normal(size=(45, 1)), 0.9)
    features = np.linalg.qr(rng.normal(size=(45, 3)))[0] * np.sqrt(15)
    return fg.Federation(
        mdp, num_agents=4, target_policy=np.ones((45, 1)), features=features
    ), fg.OnPolicyTD()


def test_truncation_of_a_slow_walk_is_what_the_second_order_changes() -> None:
    problem, algorithm = slow_walk()
    settings = {"step_size": 0.3, "sync_period": 1, "times": [400]}
    found = fg.exact.moments(problem, algorithm, **settings)
    first, second = (
        fg.exact.moments(problem, algorithm, order=order, **settings) for order in (1, 2)
    )
    assert found.order == 2
    assert_allclose(found.truncation, abs(first.mse[0] / second.mse[0] - 1), rtol=1e-6)
    assert found.truncation > 1e-3
    assert math.isnan(first.truncation)
    assert "order=" in first.note


def test_every_exact_answer_says_its_order_and_truncation() -> None:
    problem, algorithm = slow_walk()
    settings = {"step_size": 0.3, "sync_period": 1}
    quick = fg.exact.stationary_error(problem, algorithm, patience=1e-3, **settings)
    assert (quick.order, math.isnan(quick.truncation)) == (1, True)
    assert "patience=" in quick.note
    whole = fg.exact.weighted_error(
        problem, algorithm, num_steps=20, decay=0.9, patience=1.0, **settings
    )
    assert whole.order == 2
    assert 0 < whole.truncation < 0.1
    copy = pickle.loads(pickle.dumps(whole))
    assert (copy, copy.order, copy.truncation) == (whole, whole.order, whole.truncation)


def test_nothing_is_left_out_of_a_single_agent_or_of_independent_windows() -> None:
    coin = fg.MarkovNoise([[0.9, 0.1], [0.1, 0.9]], num_agents=1)
    average = fg.LinearSA([[[-1.0]], [[-0.5]]], [[0.0], [1.0]])
    assert fg.exact.stationary_error(coin, average, step_size=0.1, sync_period=1).truncation == 0.0
    many = fg.MarkovNoise([[0.9, 0.1], [0.1, 0.9]], num_agents=1000)
    found = fg.exact.moments(
        many, average, step_size=0.1, sync_period=3, times=[50], sampling="iid"
    )
    assert (found.order, found.truncation, found.note) == (0, 0.0, "")
