"""The small-step law of Q-learning: against LinearSA with the linearised rule, tabular TD,
quadrature and runs."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import fegsam as fg
from fegsam.exact import stationary_error
from fegsam.theory import SmallStepLaw, complexity, small_step_law
from fegsam.theory.small_step.curvature import copy_covariances, expected_excess
from fegsam.theory.small_step.lyapunov import stationary_covariance
from helpers import golden

Q = fg.QLearning()


def linearised(fed: fg.Federation) -> tuple[fg.MarkovNoise, fg.LinearSA]:
    """Q-learning near Q* as Algorithm 1: the chain of transitions (s, a, s'), its matrices and
    offsets, term by term."""
    states, actions, point = fed.num_states, fed.num_actions, fg.fixed_point(fed, Q)
    best = point.reshape(states, actions).argmax(axis=1)
    policies = Q.policies(fed)
    seen = [(s, a, t) for s in range(states) for a in range(actions) for t in range(states)]
    kernels, matrices, offsets = [], [], []
    for kind in range(fed.num_kinds):
        mdp, policy = fed.mdps[fed.mdp_index(kind)], policies[kind % len(policies)]
        table = mdp.transitions.toarray().reshape(states, actions, states)
        kernel = np.array(
            [
                [policy[s, a] * table[s, a, t] if s == before[2] else 0.0 for s, a, t in seen]
                for before in seen
            ]
        )
        matrix, offset = (
            np.zeros((len(seen), len(point), len(point))),
            np.zeros((len(seen), len(point))),
        )
        for y, (s, a, t) in enumerate(seen):
            matrix[y, s * actions + a, t * actions + best[t]] += fed.discount
            matrix[y, s * actions + a, s * actions + a] -= 1
            offset[y, s * actions + a] = mdp.rewards[s, a]
        met = kernel.sum(axis=0) > 0
        kernels.append(kernel[np.ix_(met, met)])
        matrices.append(matrix[met])
        offsets.append(offset[met])
    noise = fg.MarkovNoise(np.stack(kernels), num_agents=fed.num_agents)
    return noise, fg.LinearSA(np.stack(matrices), np.stack(offsets))


def dense(
    seed: int, *, mdps: int = 1, policies: int = 1, agents: int = 4, actions: int = 2
) -> fg.Federation:
    """Three states that all transitions reach."""
    rng = np.random.default_rng(seed)
    worlds = [
        fg.MDP(rng.dirichlet(np.ones(3), (3, actions)), rng.uniform(-1, 1, (3, actions)), 0.7)
        for _ in range(mdps)
    ]
    followed = rng.dirichlet(np.ones(actions), (policies, 3))
    return fg.Federation(
        worlds[0] if mdps == 1 else worlds,
        followed[0] if policies == 1 else followed,
        num_agents=agents,
    )


@pytest.mark.parametrize("kinds", [{}, {"policies": 2}, {"mdps": 2, "policies": 2}, {"actions": 3}])
@pytest.mark.parametrize("period", [1, 7])
def test_the_linear_part_is_the_law_of_the_linearised_rule(
    kinds: dict[str, int], period: int
) -> None:
    for seed in range(3):
        fed = dense(seed, **kinds)
        found = small_step_law(fed, Q, step_size=1e-3, sync_period=period)
        expected = small_step_law(*linearised(fed), step_size=1e-3, sync_period=period)
        scale = np.abs(expected.covariance).max()
        np.testing.assert_allclose(
            found.covariance, expected.covariance, rtol=1e-9, atol=1e-11 * scale
        )
        size = np.abs(expected.bias).max()
        np.testing.assert_allclose(
            found.markov_bias, expected.markov_bias, rtol=1e-8, atol=1e-9 * size
        )
        np.testing.assert_allclose(found.drift, expected.drift, rtol=1e-8, atol=1e-9 * size)
        assert found.rate == pytest.approx(expected.rate, rel=1e-9)


def test_exact_moments_of_the_linearised_rule_approach_the_law() -> None:
    """On the golden problem the gaps are so large that nothing but the linear part is left."""
    fed = golden.federation()
    errors = []
    for step in (4e-3, 1e-3):
        law = small_step_law(fed, Q, step_size=step, sync_period=2)
        assert law.holds
        assert np.abs(law.curvature_bias).max() < 1e-12
        errors.append(
            abs(
                law.mse / float(stationary_error(*linearised(fed), step_size=step, sync_period=2))
                - 1
            )
        )
    assert errors[1] < 2e-3
    assert errors[1] == pytest.approx(errors[0] / 4, rel=0.3)


def test_one_action_is_tabular_td() -> None:
    mdp = fg.examples.garnet(5, 1, 3, 0.8, seed=0)
    fed = fg.Federation(mdp, num_agents=3, target_policy=np.ones((5, 1)))
    for period in (1, 20):
        found, expected = (
            small_step_law(fed, a, step_size=0.01, sync_period=period)
            for a in (Q, fg.OffPolicyTabularTD())
        )
        np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(found.bias, expected.bias, rtol=1e-8, atol=1e-13)
        assert found.gap_ratio == math.inf


def nearly_tied(gap: float, agents: int, actions: int = 2) -> fg.Federation:
    """Rewards that leave V* as it is and bring every other action within about `gap` of the best
    one."""
    mdp = fg.examples.garnet(4, actions, 3, 0.8, seed=0)
    values = fg.fixed_point(
        fg.Federation(mdp, fg.policies.uniform(4, actions), num_agents=1), Q
    ).reshape(4, actions)
    best = values.max(axis=1, keepdims=True)
    wanted = best - gap * (1 + 0.1 * np.arange(4 * actions).reshape(4, actions))
    rewards = mdp.rewards + np.where(values < best, wanted - values, 0.0)
    tied = fg.MDP(mdp.transitions, rewards, 0.8)
    return fg.Federation(tied, fg.policies.uniform(4, actions), num_agents=agents)


def measured(
    fed: fg.Federation, law: SmallStepLaw, seeds: int = 32
) -> tuple[np.ndarray, np.ndarray]:
    """Per seed, over 60 times the memory of the average: its mean error (seeds, d), and its mean
    squared error (seeds,)."""
    point = fg.fixed_point(fed, Q)
    begin, end = int(8 / law.rate), int(68 / law.rate)
    times = np.arange(begin, end, ((end - begin) // 1000) | 1)
    history = fg.run(
        fed,
        Q,
        step_size=law.step_size,
        sync_period=law.sync_period,
        num_steps=end,
        seeds=range(seeds),
        record=times,
        record_params=True,
        initial_params=point,
    )
    errors = history.data["average_params"].values - point
    return errors.mean(axis=1), (errors**2).sum(axis=2).mean(axis=1)


def standard_errors(samples: np.ndarray, expected: Any) -> float:
    """How many standard errors the mean of the samples lies from `expected`."""
    return abs(float(samples.mean() - expected)) / float(
        samples.std(ddof=1) / math.sqrt(len(samples))
    )


@pytest.mark.parametrize(("agents", "period"), [(1, 1), (4, 1), (4, 10)])
def test_runs_far_from_ties_have_the_laws_error(agents: int, period: int) -> None:
    """The law is of first order: 4 standard errors, and a part of the mse of the order of the
    step."""
    fed = dense(5, policies=2 if agents > 1 else 1, agents=agents)
    law = small_step_law(fed, Q, step_size=0.02, sync_period=period)
    assert law.holds
    mean, mse = measured(fed, law)
    along = mean @ law.bias / np.linalg.norm(law.bias)
    assert standard_errors(along, np.linalg.norm(law.bias)) < 4
    assert abs(mse.mean() / law.mse - 1) < 0.02 + 4 * mse.std(ddof=1) / mse.mean() / math.sqrt(
        len(mse)
    )


@pytest.mark.parametrize(
    ("agents", "period", "gap", "actions"), [(1, 1, 0.02, 2), (1, 1, 0.02, 3), (16, 60, 0.01, 2)]
)
def test_runs_near_a_tie_have_the_curvature_of_the_maximum(
    agents: int, period: int, gap: float, actions: int
) -> None:
    """The bias along the curvature is the law's within 4 standard errors and a tenth, and far from
    what it would be without."""
    fed = nearly_tied(gap, agents, actions)
    law = small_step_law(fed, Q, step_size=0.1, sync_period=period)
    assert not law.holds
    direction = law.curvature_bias / np.linalg.norm(law.curvature_bias)
    along = measured(fed, law)[0] @ direction
    error = along.std(ddof=1) / math.sqrt(len(along))
    assert abs(along.mean() - law.bias @ direction) < 4 * error + 0.1 * np.linalg.norm(
        law.curvature_bias
    )
    assert abs(along.mean() - (law.bias - law.curvature_bias) @ direction) > 6 * error


def test_rare_synchronisation_adds_the_noise_of_each_copy() -> None:
    """One agent's copy has the same covariance at every phase; many agents' copies tend to that of
    an agent alone."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(3, 3)) - 3 * np.eye(3)
    root = rng.normal(size=(3, 3))
    gamma = root @ root.T
    alone = 1e-4 * stationary_covariance(matrix, gamma)
    for weight, found in copy_covariances(matrix, gamma, alone, 1e-4, 1000):
        assert weight == pytest.approx(1 / 8)
        np.testing.assert_allclose(found, alone, rtol=1e-3, atol=1e-3 * np.abs(alone).max())
    phases = list(copy_covariances(matrix, gamma, alone / 1e6, 1e-4, 10**6))
    np.testing.assert_allclose(phases[-1][1], alone, rtol=2e-3, atol=1e-3 * np.abs(alone).max())
    [(weight, found)] = copy_covariances(matrix, gamma, alone / 7, 1e-4, 1)
    assert weight == 1
    np.testing.assert_allclose(found, alone / 7, rtol=1e-12)
    assert sum(
        weight for weight, _ in copy_covariances(matrix, gamma, alone, 1e-4, 29)
    ) == pytest.approx(1)
    stepped = [found for _, found in copy_covariances(matrix, gamma, alone / 7, 1e-2, 5)]
    step, expected = np.eye(3) + 1e-2 * matrix, alone / 7
    for found in stepped:
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        expected = step @ expected @ step.T + 1e-4 * gamma


def test_expected_excess_is_that_of_gaussian_maxima() -> None:
    """Closed forms for ties, and a grid for two actions that overtake with correlation."""
    for count, expected in ((1, 1 / math.sqrt(math.pi)), (2, 3 / (2 * math.sqrt(math.pi)))):
        spreads = np.ones((1, count, count)) + np.eye(
            count
        )  # differences of independent standard normal values
        assert expected_excess(np.zeros((1, count)), spreads)[0] == pytest.approx(
            expected, rel=1e-3
        )
    grid = np.linspace(-9, 9, 1801)
    density = norm.pdf(grid) * (grid[1] - grid[0])
    for gaps, correlation in (([0.3, 0.5], 0.5), ([2.0, 1.0], -0.4), ([0.0, 3.0], 0.9)):
        spread = np.array([[1.0, 2 * correlation], [2 * correlation, 4.0]])
        first = grid[:, None] - gaps[0]
        second = 2 * (correlation * grid[:, None] + math.sqrt(1 - correlation**2) * grid) - gaps[1]
        expected = density @ np.maximum(0, np.maximum(first, second)) @ density
        assert expected_excess(np.array([gaps]), spread[None])[0] == pytest.approx(
            expected, rel=2e-3
        )
    assert expected_excess(np.array([[1.0, 2.0]]), np.zeros((1, 2, 2)))[0] == 0.0


def test_the_curvature_vanishes_exponentially_as_the_step_shrinks() -> None:
    """At a gap of u standard deviations, halving the step makes it sqrt(2) u."""
    fed = nearly_tied(0.05, agents=1)
    laws = [small_step_law(fed, Q, step_size=step, sync_period=1) for step in (0.1, 0.05, 0.025)]
    sizes = [np.linalg.norm(law.curvature_bias) for law in laws]
    assert laws[1].gap_ratio == pytest.approx(math.sqrt(2) * laws[0].gap_ratio, rel=1e-12)
    assert sizes[1] < sizes[0] / 10
    assert sizes[2] < sizes[1] / 100
    assert [law.holds for law in laws] == [False, True, True]
    assert "standard deviations, below 3" in str(laws[0])
    assert "the law holds" in str(laws[2])


@pytest.mark.parametrize("agents", [1, 4])
@pytest.mark.parametrize("accuracy", [1e-2, 1e-3])
def test_a_plan_near_a_tie_keeps_its_accuracy_and_says_that_the_law_is_a_guide(
    agents: int, accuracy: float
) -> None:
    """The bias goes as sqrt(alpha) there, so the step of a linear rule would be too large."""
    fed = nearly_tied(0.001, agents)
    with pytest.warns(
        RuntimeWarning,
        match="small-step law is only a guide to this plan, since the smallest action gap is",
    ):
        plan = complexity(fed, Q, accuracy=accuracy)
    assert sum(plan.parts.values()) <= accuracy
    at_one = small_step_law(fed, Q, step_size=plan.step_size, sync_period=1)
    assert 0.24 * accuracy < at_one.mse <= 0.25 * accuracy * (1 + 1e-8)


def test_a_plan_far_from_ties_needs_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = complexity(dense(5), Q, accuracy=1e-3)
    assert sum(plan.parts.values()) <= 1e-3


def test_two_environments_that_seldom_meet_are_beyond_the_law() -> None:
    """Each agent reaches its own Q*, so their average tends to the mean of the two; the law's drift
    goes on growing with K."""
    worlds = [fg.examples.garnet(4, 2, 3, 0.8, seed=seed) for seed in (1, 2)]
    policy = fg.policies.uniform(4, 2)
    fed = fg.Federation(worlds, policy, num_agents=2)
    own = [fg.fixed_point(fg.Federation(world, policy, num_agents=1), Q) for world in worlds]
    farthest = np.linalg.norm(np.mean(own, axis=0) - fg.fixed_point(fed, Q))
    law = small_step_law(fed, Q, step_size=3e-4, sync_period=10**6)
    assert law.gap_ratio > 3
    assert np.linalg.norm(law.drift) > 5 * farthest
    assert not law.holds
    assert "above 0.1, where the drift levels off" in str(law)
    assert "the law holds" not in str(law)
    assert small_step_law(fed, Q, step_size=3e-4, sync_period=100).holds


def test_equally_good_actions_are_refused_with_a_cure() -> None:
    lake = fg.MDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), 0.5)
    with pytest.raises(
        fg.ProblemError,
        match=r"not unique: in state 0 the actions 0 and 1 .* give the actions rewards",
    ):
        small_step_law(
            fg.Federation(lake, fg.policies.uniform(2, 2), num_agents=1),
            Q,
            step_size=0.1,
            sync_period=1,
        )
