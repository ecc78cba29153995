"""The fixed points against hand-computed fractions, against their definitions and against textbook
answers."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import fegsam as fg
from fegsam.exact.method_weights import answered_weights
from fegsam.prepare import prepare
from helpers import golden

# v* of the golden problem: on-policy, agent b1, agent b2, mixture of both, the paper's average of
# projections.
PROJECTED = {
    1: ("48/61", "232/295", "72/91", "520/659", "1192/1511"),
    2: ("2184/2783", "10584/13493", "3192/4049", "23352/29689", "53592/68149"),
}


def fractions(*texts: str) -> list[float]:
    return [float(Fraction(text)) for text in texts]


@pytest.mark.parametrize("horizon", [1, 2])
def test_projected_points_are_the_golden_fractions(horizon: int) -> None:
    fed = golden.federation()
    on_policy, b1, b2, mixture, average = fractions(*PROJECTED[horizon])
    off_policy = fg.OffPolicyLinearTD(horizon)
    np.testing.assert_allclose(fg.fixed_point(fed, fg.OnPolicyTD(horizon)), [on_policy], rtol=1e-14)
    np.testing.assert_allclose(fg.agent_fixed_points(fed, off_policy), [[b1], [b2]], rtol=1e-14)
    np.testing.assert_allclose(fg.fixed_point(fed, off_policy), [mixture], rtol=1e-14)
    np.testing.assert_allclose(
        fg.exact.projected_average_point(fed, off_policy), [average], rtol=1e-14
    )
    preconditioned = fg.OffPolicyLinearTD(horizon, preconditioned=True)
    np.testing.assert_allclose(fg.fixed_point(fed, preconditioned), [average], rtol=1e-14)
    np.testing.assert_allclose(
        fg.exact.projected_average_point(fed, preconditioned), [average], rtol=1e-14
    )
    assert fg.heterogeneity(fed, off_policy) == pytest.approx(
        (abs(b1 - mixture) + abs(b2 - mixture)) / 2, rel=1e-11
    )


def test_mixture_and_average_of_projections_differ() -> None:
    fed = golden.federation()
    assert fg.fixed_point(fed, fg.OffPolicyLinearTD())[0] == pytest.approx(0.789074355, abs=5e-10)
    assert fg.exact.projected_average_point(fed, fg.OffPolicyLinearTD())[0] == pytest.approx(
        0.788881535, abs=5e-10
    )


@pytest.mark.parametrize("horizon", [1, 2, 3, 7])
def test_tabular_td_has_the_value_of_the_target_policy_for_every_horizon(horizon: int) -> None:
    algorithm = fg.OffPolicyTabularTD(horizon)
    np.testing.assert_allclose(
        fg.fixed_point(golden.federation(), algorithm), golden.VALUE, rtol=1e-14
    )
    np.testing.assert_allclose(
        fg.agent_fixed_points(golden.federation(), algorithm), [golden.VALUE] * 2, rtol=1e-14
    )
    assert fg.heterogeneity(golden.federation(), algorithm) == 0.0


def test_q_learning_has_the_optimal_q() -> None:
    np.testing.assert_allclose(
        fg.fixed_point(golden.federation(), fg.QLearning()), golden.OPTIMAL_Q, rtol=1e-14
    )
    assert fg.agent_fixed_points(golden.federation(), fg.QLearning()).shape == (2, 4)
    assert fg.heterogeneity(golden.federation(), fg.QLearning()) == 0.0


def test_stationary_laws_are_those_of_the_policies_that_the_agents_follow() -> None:
    fed = golden.federation()
    laws = fg.exact.kind_stationary_laws(fed, fg.OffPolicyLinearTD())
    np.testing.assert_allclose(laws, [golden.STATIONARY_B1, golden.STATIONARY_B2], rtol=1e-14)
    laws = fg.exact.kind_stationary_laws(fed, fg.OnPolicyTD())
    np.testing.assert_allclose(laws, [golden.STATIONARY_TARGET] * 2, rtol=1e-14)
    assert [chain.shape for chain in fg.exact.kind_chains(fed, fg.OnPolicyTD())] == [(2, 2)] * 2


def test_with_as_many_features_as_states_every_point_is_the_value() -> None:
    mdp = fg.examples.garnet(7, 3, 4, discount=0.9, seed=3)
    target = fg.policies.random(7, 3, count=1, seed=4)[0]
    features = np.random.default_rng(5).normal(size=(7, 7))
    behaviors = fg.policies.random(7, 3, count=3, seed=6)
    fed = fg.Federation(mdp, behaviors, num_agents=5, target_policy=target, features=features)
    value = fg.policy_value(mdp, target)
    for horizon, preconditioned in itertools.product((1, 3), (False, True)):
        off_policy = fg.OffPolicyLinearTD(horizon, preconditioned)
        for point in (
            fg.fixed_point(fed, fg.OnPolicyTD(horizon)),
            fg.fixed_point(fed, off_policy),
            fg.exact.projected_average_point(fed, off_policy),
            *fg.agent_fixed_points(fed, off_policy),
        ):
            np.testing.assert_allclose(features @ point, value, atol=1e-11)


def test_projected_points_depend_on_the_horizon_and_tend_to_the_projected_value() -> None:
    fed = golden.federation()
    law, phi = golden.STATIONARY_TARGET, golden.FEATURES[:, 0]
    projected_value = (law * phi) @ golden.VALUE / ((law * phi) @ phi)
    distances = [
        abs(fg.fixed_point(fed, fg.OnPolicyTD(n))[0] - projected_value) for n in (1, 2, 3, 5, 60)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 1e-3
    assert distances[-1] < 1e-14


def test_agents_weigh_by_their_number() -> None:
    together = golden.federation(num_agents=4, assignment=[0, 1, 1, 1])
    weights = np.array([0.25, 0.75])
    law = weights @ np.array([golden.STATIONARY_B1, golden.STATIONARY_B2])
    chain, phi = together.mdps[0].policy_chain(golden.TARGET).toarray(), golden.FEATURES[:, 0]
    rewards = (golden.TARGET * golden.REWARDS).sum(axis=1)
    expected = (law * phi) @ rewards / ((law * phi) @ (phi - 0.5 * chain @ phi))
    assert fg.fixed_point(together, fg.OffPolicyLinearTD())[0] == pytest.approx(expected, rel=1e-14)
    only_b2 = golden.federation(num_agents=2, assignment=[1, 1])
    assert fg.fixed_point(only_b2, fg.OffPolicyLinearTD())[0] == pytest.approx(72 / 91, rel=1e-14)
    assert fg.heterogeneity(only_b2, fg.OffPolicyLinearTD()) == pytest.approx(0.0, abs=1e-15)


def test_random_walk_has_its_textbook_value() -> None:
    """From s, E[gamma^time; off the right end] = sinh((s+1) x) / sinh((S+1) x) with cosh x = 1 /
    gamma."""
    states, discount = 9, 0.95
    x = np.arccosh(1 / discount)
    s = np.arange(states)
    right, left = (
        np.sinh((s + 1) * x) / np.sinh((states + 1) * x),
        np.sinh((states - s) * x) / np.sinh((states + 1) * x),
    )
    restart = np.zeros(states)
    restart[states // 2 - 1 : states // 2 + 2] = 0.25, 0.5, 0.25
    # V = right / gamma + (left + right) * restart value
    again = restart @ right / discount / (1 - restart @ (left + right))
    value = fg.policy_value(
        fg.examples.random_walk(states, discount), fg.policies.uniform(states, 2)
    )
    np.testing.assert_allclose(value, right / discount + (left + right) * again, rtol=1e-13)


def test_bandit_is_worth_its_best_arm() -> None:
    mdp = fg.examples.bandit([1.0, 3.0, 2.0], discount=0.9)
    q = fg.fixed_point(fg.Federation(mdp, fg.policies.uniform(1, 3), num_agents=2), fg.QLearning())
    np.testing.assert_allclose(q, [28.0, 30.0, 29.0], rtol=1e-13)


def test_optimal_q_is_the_best_of_all_deterministic_policies() -> None:
    mdp = fg.examples.garnet(4, 3, 2, discount=0.95, seed=8, connected=True)
    values = []
    for choice in itertools.product(range(3), repeat=4):
        values.append(fg.policy_value(mdp, np.eye(3)[list(choice)]))
    best = np.max(values, axis=0)
    q = fg.fixed_point(fg.Federation(mdp, fg.policies.uniform(4, 3), num_agents=1), fg.QLearning())
    np.testing.assert_allclose(q, mdp.rewards.ravel() + 0.95 * (mdp.transitions @ best), rtol=1e-12)
    np.testing.assert_allclose(
        fg.policy_value(mdp, fg.policies.greedy(q.reshape(4, 3))), best, rtol=1e-12
    )


def test_equally_good_actions_do_not_keep_policy_iteration_going() -> None:
    mdp = fg.MDP(np.full((40, 3, 40), 1 / 40), np.ones((40, 3)), 0.99)
    q = fg.fixed_point(fg.Federation(mdp, fg.policies.uniform(40, 3), num_agents=1), fg.QLearning())
    np.testing.assert_allclose(q, 100.0, rtol=1e-12)


def average_unstable() -> tuple[fg.Federation, int]:
    data = np.load(Path(__file__).parents[1] / "fixtures" / "average_unstable.npz")
    mdp = fg.MDP(data["P"], data["R"], float(data["gamma"]))
    fed = fg.Federation(
        mdp, data["behaviours"], num_agents=4, target_policy=data["pi"], features=data["Phi"]
    )
    return fed, int(data["n"])


def test_stable_agents_with_an_unstable_average_are_refused() -> None:
    fed, horizon = average_unstable()
    with pytest.raises(fg.ProblemError, match=r"unstable.*real part 0\.0009.*fixed_point="):
        fg.fixed_point(fed, fg.OffPolicyLinearTD(horizon))
    with pytest.raises(fg.ProblemError, match="unstable"):
        fg.heterogeneity(fed, fg.OffPolicyLinearTD(horizon))
    # Each agent alone has its point, and on-policy learning of the same value is stable.
    assert np.isfinite(fg.agent_fixed_points(fed, fg.OffPolicyLinearTD(horizon))).all()
    assert np.isfinite(fg.fixed_point(fed, fg.OnPolicyTD(horizon))).all()


def noise(num_agents: int = 3) -> fg.MarkovNoise:
    return fg.MarkovNoise(
        [[[0.9, 0.1], [0.3, 0.7]], [[0.5, 0.5], [0.5, 0.5]]], num_agents=num_agents
    )


def test_linear_sa_solves_the_mean_equation() -> None:
    rng = np.random.default_rng(0)
    matrices, offsets = rng.normal(size=(2, 2, 3, 3)) - 4 * np.eye(3), rng.normal(size=(2, 2, 3))
    laws = np.array([[0.75, 0.25], [0.5, 0.5]])
    mean_matrices, mean_offsets = (
        np.einsum("ky,kyij->kij", laws, matrices),
        np.einsum("ky,kyi->ki", laws, offsets),
    )
    algorithm = fg.LinearSA(matrices, offsets)
    own = fg.agent_fixed_points(noise(), algorithm)
    common = fg.fixed_point(noise(), algorithm)
    for k in range(2):
        np.testing.assert_allclose(mean_matrices[k] @ own[k] + mean_offsets[k], 0, atol=1e-14)
    shares = np.array([2, 1]) / 3
    np.testing.assert_allclose(shares @ (mean_matrices @ common + mean_offsets), 0, atol=1e-14)
    expected = shares @ np.linalg.norm(own - common, axis=1)
    assert fg.heterogeneity(noise(), algorithm) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "matrix",
    [
        [[0.0, 1.0], [-1.0, 0.0]],
        [[1.0, 0.0], [0.0, -1.0]],
        [[0.0, 0.0], [0.0, 0.0]],
        [[-1.0, 1.0], [1.0, -1.0]],
    ],
)
def test_linear_sa_that_does_not_pull_back_is_refused(matrix: list[list[float]]) -> None:
    algorithm = fg.LinearSA(np.broadcast_to(matrix, (2, 2, 2)), np.ones((2, 2)))
    with pytest.raises(fg.ProblemError, match=r"unstable.*fixed_point="):
        fg.fixed_point(noise(), algorithm)


@pytest.mark.parametrize("matrix", [[[0.0, 0.0], [0.0, -1.0]], [[-1.0, 1.0], [1.0, -1.0]]])
def test_agent_without_a_single_fixed_point_is_named(matrix: list[list[float]]) -> None:
    good = np.broadcast_to(-np.eye(2), (2, 2, 2))
    algorithm = fg.LinearSA([good, np.broadcast_to(matrix, (2, 2, 2))], np.ones((2, 2, 2)))
    with pytest.raises(fg.ProblemError, match=r"agent kind\(s\) 1 is singular"):
        fg.agent_fixed_points(noise(), algorithm)


def test_chain_that_is_not_ergodic_is_refused_by_kind() -> None:
    periodic = fg.MarkovNoise([[[0.5, 0.5], [0.5, 0.5]], [[0.0, 1.0], [1.0, 0.0]]], num_agents=2)
    with pytest.raises(fg.ProblemError, match=r"agent kind 1.*period 2"):
        fg.fixed_point(periodic, fg.LinearSA(-np.ones((2, 1, 1)), np.ones((2, 1))))


def test_problem_that_does_not_fit_the_algorithm_is_refused() -> None:
    with pytest.raises(fg.ProblemError, match="MarkovNoise"):
        fg.fixed_point(noise(), fg.QLearning())
    with pytest.raises(fg.ProblemError, match="OnPolicyTD"):
        fg.exact.projected_average_point(golden.federation(), fg.OnPolicyTD())
    with pytest.raises(fg.ProblemError, match="NotOurs has no form, rule"):
        fg.fixed_point(noise(), NotOurs())  # type: ignore[arg-type]


class NotOurs:
    def check(self, problem: object) -> None:
        """Anything goes."""


def enumerated_weights(weights: list[float], some: fg.Participation) -> np.ndarray:
    """The mean weights of agents, from every set of agents that may answer."""
    size, found = len(weights), np.zeros(len(weights))
    for chosen in itertools.product((False, True), repeat=size):
        there = np.array(chosen)
        count = int(there.sum())
        if count == 0:
            continue
        chance = float(count == some.agents) / math.comb(size, count)
        if some.probability is not None:
            chance = some.probability**count * (1 - some.probability) ** (size - count)
        found[there] += chance * np.array(weights)[there] / np.array(weights)[there].sum()
    return found / found.sum()


@pytest.mark.parametrize(
    "some",
    [
        *(fg.Participation(agents) for agents in (1, 2, 5, 6)),
        *(fg.Participation(probability=chance) for chance in (1e-9, 0.3, 0.5, 1 - 1e-9)),
    ],
)
@pytest.mark.parametrize(
    "weights", [[0.3, 0.2, 0.2, 0.1, 0.1, 0.06, 0.04], [0.9, 0.1 - 6e-9, *[1.2e-9] * 5]]
)
def test_mean_weights_of_those_who_answer_are_those_of_an_enumeration(weights, some) -> None:
    found = answered_weights(np.array(weights), some)
    assert found == pytest.approx(enumerated_weights(weights, some), rel=1e-12, abs=1e-15)


def test_mean_weights_need_no_enumeration() -> None:
    weights = np.random.default_rng(0).dirichlet(np.full(60, 5.0))
    rare = answered_weights(weights, fg.Participation(probability=1e-9))
    assert rare == pytest.approx(1 / 60, rel=1e-6)
    nearly_all = answered_weights(weights, fg.Participation(probability=1 - 1e-12))
    assert nearly_all == pytest.approx(weights, rel=1e-9)
    # Without agent i the others are divided by 1 - w_i.
    shares = weights / (1.0 - weights[:, None])
    np.fill_diagonal(shares, 0.0)
    one_missing = shares.mean(axis=0)
    found = answered_weights(weights, fg.Participation(59))
    assert found == pytest.approx(one_missing, rel=1e-12)


PULLS = fg.LinearSA(
    [[[[-1.0]], [[-1.0]]], [[[-0.25]], [[-0.25]]]], [[[0.0], [2.0]], [[-0.5], [0.5]]]
)
UNEQUAL = fg.Mean((0.5, 0.3, 0.1, 0.06, 0.04))
SOME = {
    "a number": fg.Method(UNEQUAL, participation=fg.Participation(2, others="go_on")),
    "by chance": fg.Method(
        UNEQUAL, participation=fg.Participation(probability=0.4, others="go_on")
    ),
    "weights by kind": fg.Method(
        fg.Mean((0.5, 0.5)), participation=fg.Participation(3, others="go_on")
    ),
    "divided by all": fg.Method(
        UNEQUAL, participation=fg.Participation(2, others="go_on", divide_by="all")
    ),
    "all of them": fg.Method(UNEQUAL, participation=fg.Participation(5, others="go_on")),
    "control variates": fg.Method(
        UNEQUAL,
        fg.ControlVariates(of="kind"),
        participation=fg.Participation(2, others="go_on"),
    ),
    "unequal steps": fg.Method(
        UNEQUAL,
        participation=fg.Participation(2, others="go_on"),
        local_steps=fg.LocalSteps((1, 2), normalised=False),
    ),
}


@pytest.mark.parametrize("name", SOME)
def test_unequal_weights_of_some_agents_lead_to_the_fixed_point(name) -> None:
    """The mean after a long time, extrapolated to a step size of zero."""
    coins, method = fg.MarkovNoise([[[0.5, 0.5], [0.5, 0.5]]] * 2, num_agents=5), SOME[name]
    coarse, fine = (
        fg.exact.moments(
            coins,
            PULLS,
            step_size=step_size,
            sync_period=2,
            times=[int(120 / step_size)],
            method=method,
            order=1,
        ).mean[0]
        for step_size in (0.02, 0.01)
    )
    fixed = fg.fixed_point(coins, PULLS, method=method)
    assert 2 * fine - coarse == pytest.approx(fixed, abs=2e-5)
    settings = {"step_size": 0.1, "sync_period": 2, "num_steps": 10}
    job = prepare(coins, PULLS, method=method, **settings)
    assert job.truth is not None
    assert job.truth.fixed_point == pytest.approx(fixed, abs=1e-15)


def test_too_many_unequal_weights_get_one_sentence() -> None:
    coins = fg.MarkovNoise([[[0.5, 0.5], [0.5, 0.5]]] * 2, num_agents=20_000)
    weights = np.arange(1.0, 20_001.0) / np.arange(1.0, 20_001.0).sum()
    method = fg.Method(fg.Mean(weights), participation=fg.Participation(1000))
    with pytest.raises(fg.ProblemError, match=r"20000 groups .*; give Participation\(probability="):
        fg.fixed_point(coins, PULLS, method=method)
