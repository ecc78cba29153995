"""Whether the error converges: `stationary_error` and `moments` against the joint chain of all
agents as one dense matrix."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fegsam as fg
from helpers.stability_problems import Drawn, JointRound, disagreement, largest_stable


@pytest.mark.parametrize("seed", range(16))
def test_library_and_joint_chain_agree_on_whether_and_where_the_error_converges(seed) -> None:
    """On the side of stability every time, on the value to 1e-8, and the step that a refusal
    advises is stable."""
    assert disagreement(seed) == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16, 1000))
def test_library_and_joint_chain_agree_on_a_thousand_problems(seed) -> None:
    assert disagreement(seed) == ""


SLOW = [[0.9, 0.1], [0.1, 0.9]]
PUSHED = fg.LinearSA([[[-2.0]], [[0.5]]], [[0.0], [1.0]])


@pytest.mark.parametrize(("num_agents", "step_size"), [(2, 0.25), (3, 0.28)])
def test_error_that_converges_only_at_order_one_is_refused(num_agents, step_size) -> None:
    """The moments of one agent's mode alone would converge; those of all agents do not."""
    noise = fg.MarkovNoise(SLOW, num_agents=num_agents)
    settings = {"step_size": step_size, "sync_period": 1}
    assert (
        fg.exact.stationary_error(
            noise, PUSHED, step_size=0.9 * step_size / num_agents, sync_period=1
        )
        > 0
    )
    with pytest.raises(fg.ProblemError, match="grows without bound"):
        fg.exact.stationary_error(noise, PUSHED, **settings)
    early, late = fg.exact.moments(noise, PUSHED, times=[2000, 8000], **settings).mse
    assert late > 1e6 * early > 0


@pytest.mark.parametrize("seed", [3, 4, 6, 8, 9])
def test_off_policy_learners_on_small_garnets_are_judged_as_the_joint_chain_judges_them(
    seed,
) -> None:
    features = np.linalg.qr(np.random.default_rng(seed).normal(size=(4, 2)))[0]
    problem = fg.Federation(
        fg.examples.garnet(4, 2, 2, discount=0.9, seed=seed),
        fg.policies.random(4, 2, count=2, seed=1),
        num_agents=2,
        target_policy=fg.policies.uniform(4, 2),
        features=features,
    )
    drawn = Drawn(problem, fg.OffPolicyLinearTD(), 2)
    limit = largest_stable(drawn)
    for factor in (0.5, 0.95, 1.02, 1.5):
        settings = {"step_size": factor * limit, "sync_period": 2}
        if factor > 1:
            with pytest.raises(fg.ProblemError, match="grows without bound"):
                fg.exact.stationary_error(problem, drawn.algorithm, **settings)
        else:
            truth = JointRound(drawn, factor * limit).stationary_error()
            assert_allclose(
                fg.exact.stationary_error(problem, drawn.algorithm, **settings), truth, rtol=1e-8
            )


def test_asymmetry_between_like_agents_does_not_grow() -> None:
    """A thousand rounds, one by one, of parts that must not depend on the order of the agents."""
    noise = fg.MarkovNoise([[0.99, 0.01], [0.02, 0.98]], num_agents=3)
    algorithm = fg.LinearSA([[[-1.5]], [[-0.3]]], [[0.0], [1.0]])
    settings = {"step_size": 0.5, "sync_period": 1}
    late = fg.exact.moments(noise, algorithm, times=[3000], **settings).mse[0]
    assert_allclose(fg.exact.stationary_error(noise, algorithm, **settings), late, rtol=1e-9)


def test_error_beyond_all_numbers_is_infinite_and_said() -> None:
    noise = fg.MarkovNoise(SLOW, num_agents=2)
    with pytest.warns(fg.DivergenceWarning, match=r"step_size=9.*smaller step"):
        found = fg.exact.moments(noise, PUSHED, step_size=9.0, sync_period=1, times=[0, 1000])
    assert math.isfinite(found.mse[0])
    assert math.isinf(found.mse[1])
    with pytest.warns(fg.DivergenceWarning, match="infinite"):
        assert math.isinf(
            fg.exact.weighted_error(
                noise, PUSHED, step_size=9.0, sync_period=1, num_steps=1000, decay=0.9
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fg.exact.moments(noise, PUSHED, step_size=0.1, sync_period=1, times=[1000])


def test_coordinate_that_grows_is_not_hidden_by_a_large_one_that_has_settled() -> None:
    """The second coordinate starts at 1e-12 and diverges; the first stays at 1e8 squared."""
    noise = fg.MarkovNoise(np.full((3, 3), 0.2) + 0.4 * np.eye(3), num_agents=4)
    matrices = np.array([np.diag([-1.0, each]) for each in (-4.2, -1.0, 3.4)])
    algorithm = fg.LinearSA(matrices, [[1e8, 1e-12], [-1e8, -1e-12], [0.0, 0.0]])
    settings = {"step_size": 0.5, "sync_period": 1, "order": 4}
    found = [fg.exact.moments(noise, algorithm, times=[T], **settings).mse[0] for T in (419, 440)]
    assert 1e90 < found[0] < found[1]


@pytest.mark.parametrize("step_size", [1e-9, 1e-12, 1e-15])
def test_limit_that_rounding_would_spoil_is_refused(step_size) -> None:
    coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    average = fg.LinearSA([[[-1.0]], [[-1.0]]], [[0.0], [1.0]])
    with pytest.raises(fg.ProblemError, match=r"lost in rounding.*small_step_law"):
        fg.exact.stationary_error(coin, average, step_size=step_size, sync_period=1)
    found = fg.exact.stationary_error(coin, average, step_size=1e-6, sync_period=1)
    assert_allclose(found, 1e-6 / (2 - 1e-6) / 8, rtol=1e-8)


def test_round_that_forgets_everything_has_a_limit() -> None:
    """With step 1 the average is replaced by the last noise, in 18 parameters: one round leaves
    nothing of the start."""
    coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    replace = fg.LinearSA(np.tile(-np.eye(18), (2, 1, 1)), np.array([np.zeros(18), np.ones(18)]))
    assert_allclose(
        fg.exact.stationary_error(coin, replace, step_size=1.0, sync_period=1), 18 / 8, rtol=1e-12
    )
