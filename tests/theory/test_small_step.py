"""The small-step law against the stationary moments of the chain of parameters and windows, solved
by brute force.

One agent, or two, with the windows that they see: the first and second moments of the parameters,
kept apart by what window comes next, close. They are enumerated here in plain Python from the
paper's formulas, with nothing from `fegsam.exact` but theta*, and their stationary values are what
the law must approach, at a relative error that falls in proportion to the step size.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import pytest

import fegsam as fg
from fegsam.theory.small_step.small_step import small_step_law
from helpers import golden


class Step(NamedTuple):
    """From one window to the next: with a probability, ``theta += alpha (matrix theta +
    offset)``."""

    source: Any
    target: Any
    probability: float
    matrix: np.ndarray
    offset: np.ndarray


class Moments(NamedTuple):
    mean: np.ndarray
    variance: float
    mse: float


def td_increment(
    fed: fg.Federation, algorithm: Any, kind: int, params: np.ndarray, window: tuple[int, ...]
) -> np.ndarray:
    """What Algorithms 2, 3 and 5 add for the window (S_t, A_t, ..., S_{t+n}), as the paper writes
    it."""
    phi = np.eye(fed.num_states) if isinstance(algorithm, fg.OffPolicyTabularTD) else fed.features
    rewards = fed.mdps[fed.mdp_index(kind)].rewards
    on_policy = isinstance(algorithm, fg.OnPolicyTD)
    behavior = algorithm.policies(fed)[kind % len(algorithm.policies(fed))]
    total, product = 0.0, 1.0
    for l in range(algorithm.horizon):
        s, a, after = window[2 * l : 2 * l + 3]
        product *= 1.0 if on_policy else fed.target_policy[s, a] / behavior[s, a]
        total += (
            fed.discount**l
            * product
            * (rewards[s, a] + fed.discount * phi[after] @ params - phi[s] @ params)
        )
    direction = phi[window[0]]
    if getattr(algorithm, "preconditioned", False):
        law = np.linalg.matrix_power(
            fed.mdps[fed.mdp_index(kind)].policy_chain(behavior).toarray(), 5000
        )[0]
        direction = np.linalg.solve(phi.T @ np.diag(law) @ phi, direction)
    return direction * total


def td_steps(fed: fg.Federation, algorithm: Any, kind: int, point: np.ndarray) -> list[Step]:
    policies = algorithm.policies(fed)
    policy = policies[kind % len(policies)]
    transitions = (
        fed.mdps[fed.mdp_index(kind)]
        .transitions.toarray()
        .reshape(fed.num_states, fed.num_actions, -1)
    )
    sizes = [
        range(fed.num_states),
        *[range(fed.num_actions), range(fed.num_states)] * algorithm.horizon,
    ]
    steps = []
    for window in itertools.product(*sizes):
        possible = all(policy[s, a] * transitions[s, a, r] > 0 for s, a, r in triples(window))
        if not possible:
            continue
        s, a, r = triples(window)[-1]
        offset = td_increment(fed, algorithm, kind, point, window)
        columns = [
            td_increment(fed, algorithm, kind, point + unit, window) - offset
            for unit in np.eye(len(point))
        ]
        chance = policy[s, a] * transitions[s, a, r]
        steps.append(
            Step((kind, *window[:-2]), (kind, *window[2:]), chance, np.array(columns).T, offset)
        )
    return steps


def triples(window: tuple[int, ...]) -> list[tuple[int, int, int]]:
    return [(window[l], window[l + 1], window[l + 2]) for l in range(0, len(window) - 2, 2)]


def noise_steps(
    noise: fg.MarkovNoise, algorithm: fg.LinearSA, kind: int, point: np.ndarray
) -> list[Step]:
    matrices, offsets = (
        algorithm.matrices[kind % len(algorithm.matrices)],
        algorithm.offsets[kind % len(algorithm.offsets)],
    )
    kernel = noise.kernels[kind].toarray()
    return [
        Step((kind, y), (kind, z), kernel[y, z], matrices[y], matrices[y] @ point + offsets[y])
        for y, z in itertools.product(range(len(kernel)), repeat=2)
        if kernel[y, z] > 0
    ]


def steps_of(problem: Any, algorithm: Any, kind: int, point: np.ndarray) -> list[Step]:
    return (noise_steps if isinstance(algorithm, fg.LinearSA) else td_steps)(
        problem, algorithm, kind, point
    )


def brute_force(problem: Any, algorithm: Any, *, step_size: float, sync_period: int = 1) -> Moments:
    """Stationary moments of the average just after a synchronisation, for one agent or two.

    x is the agents' parameters, one after the other, and a one. A pair of steps, one of each agent,
    moves ``x <- T x``; E[x x' 1{windows}] is mapped by the Kronecker products of the T, K times,
    then averaged.
    """
    point = fg.fixed_point(problem, algorithm)
    dimension, agents = len(point), problem.num_agents
    size = agents * dimension + 1
    moves = [steps_of(problem, algorithm, int(kind), point) for kind in problem.assignment]
    modes = {
        mode: i
        for i, mode in enumerate(
            itertools.product(*[sorted({step.source for step in own}) for own in moves])
        )
    }
    block = size**2
    once = np.zeros((len(modes), block, len(modes), block))
    for joint in itertools.product(*moves):
        move = np.eye(size)
        for agent, step in enumerate(joint):
            at = slice(agent * dimension, (agent + 1) * dimension)
            move[at, at] += step_size * step.matrix
            move[at, -1] = step_size * step.offset
        target, source = (
            modes[tuple(step.target for step in joint)],
            modes[tuple(step.source for step in joint)],
        )
        once[target, :, source] += np.prod([step.probability for step in joint]) * np.kron(
            move, move
        )
    mix = np.eye(size)
    mix[:-1, :-1] = np.kron(np.full((agents, agents), 1 / agents), np.eye(dimension))
    whole = np.kron(np.eye(len(modes)), np.kron(mix, mix))
    whole = whole @ np.linalg.matrix_power(once.reshape(whole.shape), sync_period)
    # The eigenvector of the eigenvalue one, with the probabilities of the windows, entry (1, 1) of
    # x x', adding up to one.
    system = np.eye(len(whole)) - whole
    total = np.zeros(len(whole))
    total[block - 1 :: block] = 1.0
    moments = np.linalg.solve(
        system + np.outer(np.eye(len(whole))[block - 1], total), np.eye(len(whole))[block - 1]
    )
    joint_moment = moments.reshape(len(modes), size, size).sum(axis=0)
    mean = joint_moment[:dimension, -1]
    square = float(np.trace(joint_moment[:dimension, :dimension]))
    return Moments(mean, square - float(mean @ mean), square)


def random_federation(
    seed: int, *, states: int = 3, mdps: int = 1, policies: int = 1, agents: int = 1
) -> fg.Federation:
    rng = np.random.default_rng(seed)

    def one_mdp() -> fg.MDP:
        return fg.MDP(
            rng.dirichlet(np.ones(states), size=(states, 2)), rng.normal(size=(states, 2)), 0.7
        )

    behavior = 0.6 * rng.dirichlet([1.0, 1.0], size=(policies, states)) + 0.2
    target = 0.6 * rng.dirichlet([1.0, 1.0], size=states) + 0.2
    features = rng.normal(size=(states, max(1, states - 1)))
    return fg.Federation(
        [one_mdp() for _ in range(mdps)],
        behavior,
        num_agents=agents,
        target_policy=target,
        features=features,
    )


def random_noise(
    seed: int, *, kinds: int = 1, agents: int = 1, dimension: int = 2
) -> tuple[fg.MarkovNoise, fg.LinearSA]:
    rng = np.random.default_rng(seed)
    kernels = rng.dirichlet(np.ones(3), size=(kinds, 3))
    matrices = -np.eye(dimension) + 0.3 * rng.normal(size=(kinds, 3, dimension, dimension))
    return fg.MarkovNoise(kernels, num_agents=agents), fg.LinearSA(
        matrices, rng.normal(size=(kinds, 3, dimension))
    )


TD = [
    fg.OnPolicyTD(1), fg.OnPolicyTD(2), fg.OffPolicyTabularTD(1), fg.OffPolicyTabularTD(2),
    fg.OffPolicyLinearTD(1), fg.OffPolicyLinearTD(2), fg.OffPolicyLinearTD(1, preconditioned=True),
]  # fmt: skip


def relative_errors(
    problem: Any, algorithm: Any, step_size: float, sync_period: int = 1
) -> np.ndarray:
    """Of the variance, the bias and the mean squared error."""
    law = small_step_law(problem, algorithm, step_size=step_size, sync_period=sync_period)
    truth = brute_force(problem, algorithm, step_size=step_size, sync_period=sync_period)
    return np.array(
        [
            abs(law.variance / truth.variance - 1),
            np.linalg.norm(law.bias - truth.mean) / np.linalg.norm(truth.mean),
            abs(law.mse / truth.mse - 1),
        ]
    )


def assert_falls_linearly(
    problem: Any, algorithm: Any, step_size: float, sync_period: int = 1
) -> None:
    """A quarter of the step leaves a quarter of the relative error, and that of the first is small
    already."""
    coarse = relative_errors(problem, algorithm, step_size, sync_period)
    fine = relative_errors(problem, algorithm, step_size / 4, sync_period)
    assert np.all(coarse < 0.1), (algorithm, coarse)
    assert np.all(fine <= 0.3 * coarse + 1e-6), (algorithm, coarse, fine)


# --- closed forms ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("flip", "correlation"), [(0.5, 0.0), (0.25, 0.5), (0.9, -0.8)])
@pytest.mark.parametrize(("agents", "sync_period"), [(1, 1), (5, 1), (5, 7)])
def test_averaged_coin_has_the_variance_of_the_textbook(
    flip: float, correlation: float, agents: int, sync_period: int
) -> None:
    noise = fg.MarkovNoise([[1 - flip, flip], [flip, 1 - flip]], num_agents=agents)
    average = fg.LinearSA([[[-1.0]], [[-1.0]]], [[2.0], [-2.0]])
    for step_size in (0.1, 1e-6):
        law = small_step_law(noise, average, step_size=step_size, sync_period=sync_period)
        kept = (1 - step_size) * correlation
        exact = step_size * 4 / (agents * (2 - step_size)) * (1 + kept) / (1 - kept)
        assert law.variance == pytest.approx(exact, rel=6 * step_size)
        assert law.variance == pytest.approx(
            step_size * 2 / agents * (1 + correlation) / (1 - correlation), rel=1e-12
        )
        np.testing.assert_allclose(law.bias, 0.0, atol=1e-15)
        assert law.rate == pytest.approx(step_size)


def test_weights_of_the_lags_follow_the_sync_period() -> None:
    """M = -1 + y/2, b = y, y = +-1 with correlation r: sum_j w_j E[M~(y_j) b(y_0)] = sum_j w_j r^j
    / 2, summed term by term."""
    correlation, agents, step_size = 0.9, 4, 1e-3
    stay = (1 + correlation) / 2
    noise = fg.MarkovNoise([[stay, 1 - stay], [1 - stay, stay]], num_agents=agents)
    algorithm = fg.LinearSA([[[-0.5]], [[-1.5]]], [[1.0], [-1.0]])
    for period in (1, 2, 3, 10, 100, 10**6):
        weights = [1 / agents + (1 - 1 / agents) * max(0.0, 1 - j / period) for j in range(1, 500)]
        expected = step_size * sum(w * correlation**j / 2 for j, w in enumerate(weights, start=1))
        law = small_step_law(noise, algorithm, step_size=step_size, sync_period=period)
        np.testing.assert_allclose(law.markov_bias, [expected], rtol=1e-12)
        assert not law.drift.any()


def test_drift_of_two_scalar_agents() -> None:
    """Without noise, x = -alpha (K-1)/2 mean(a_i b_i) / mean(a_i) at the fixed point of the
    mean."""
    noise = fg.MarkovNoise([[[1.0]], [[1.0]]], num_agents=2)
    algorithm = fg.LinearSA(
        [[[[-1.0]]], [[[-3.0]]]], [[[1.0]], [[1.0]]]
    )  # roots 1 and 1/3, theta* = 1/2
    law = small_step_law(noise, algorithm, step_size=1e-4, sync_period=11)
    offsets = np.array([1 - 0.5, 1 - 1.5])
    np.testing.assert_allclose(law.drift, -1e-4 * 5 * np.mean([-1, -3] * offsets) / -2, rtol=1e-12)
    assert law.variance == 0.0
    local = [
        (1 - 1e-4) ** 11,
        (1 - 3e-4) ** 11,
    ]  # the exact stationary point of eleven local steps and an average
    exact = np.mean([(1 - local[0]) * 1, (1 - local[1]) / 3]) / (1 - np.mean(local)) - 0.5
    np.testing.assert_allclose(law.bias, exact, rtol=5e-3)


# --- brute force ----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", TD, ids=str)
def test_one_agent_of_td_approaches_the_law_linearly(algorithm: Any) -> None:
    for seed in range(20):
        assert_falls_linearly(random_federation(seed, states=2), algorithm, 2e-3)


def test_one_agent_of_linear_sa_approaches_the_law_linearly() -> None:
    for seed in range(20):
        assert_falls_linearly(*random_noise(seed), 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", TD, ids=str)
def test_one_agent_with_several_features_approaches_the_law_linearly(algorithm: Any) -> None:
    for seed in range(20):
        assert_falls_linearly(random_federation(seed), algorithm, 1e-3)


KINDS = {
    "alike": {},
    "policies": {"policies": 2},
    "environments": {"mdps": 2},
    "both": {"mdps": 2, "policies": 2},
}


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("sync_period", [1, 5, 100])
def test_two_agents_approach_the_law_linearly(sync_period: int, kinds: str) -> None:
    for algorithm in (
        fg.OnPolicyTD(),
        fg.OffPolicyTabularTD(),
        fg.OffPolicyLinearTD(),
        fg.OffPolicyLinearTD(1, True),
    ):
        fed = random_federation(sync_period, states=2, agents=2, **KINDS[kinds])
        assert_falls_linearly(fed, algorithm, 1e-3 / sync_period**0.5, sync_period)


@pytest.mark.parametrize("sync_period", [1, 5, 100])
def test_two_unlike_agents_of_linear_sa_approach_the_law_linearly(sync_period: int) -> None:
    for seed in range(4):
        assert_falls_linearly(
            *random_noise(seed, kinds=2, agents=2, dimension=1), 2e-4, sync_period
        )


@pytest.mark.parametrize(
    "sync_period",
    [5, pytest.param(1, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.slow)],
)
def test_two_unlike_agents_that_look_two_steps_ahead_approach_the_law_linearly(
    sync_period: int,
) -> None:
    fed = random_federation(3, states=2, agents=2, policies=2)
    assert_falls_linearly(fed, fg.OffPolicyLinearTD(2), 1e-3 / sync_period**0.5, sync_period)


# --- exact moments of many agents -----------------------------------------------------------------


@pytest.mark.parametrize("agents", [1, 8])
@pytest.mark.parametrize("sync_period", [1, 5, 100])
def test_stationary_error_of_many_agents_is_within_one_percent(
    agents: int, sync_period: int
) -> None:
    fed = golden.federation(num_agents=agents)
    settings = {"step_size": 2e-3, "sync_period": sync_period}
    for algorithm in (fg.OnPolicyTD(), fg.OffPolicyLinearTD()):
        law = small_step_law(fed, algorithm, **settings)
        assert law.mse == pytest.approx(
            fg.exact.stationary_error(fed, algorithm, **settings), rel=0.01
        )


# --- what N and K do ------------------------------------------------------------------------------


def federation(agents: int, **changes: Any) -> fg.Federation:
    rng = np.random.default_rng(0)
    settings = {
        "behavior_policies": fg.policies.random(20, 3, count=4, seed=2),
        "num_agents": agents,
        "target_policy": fg.policies.uniform(20, 3),
        "features": rng.normal(size=(20, 3)),
    }
    return fg.Federation(fg.examples.garnet(20, 3, 4, discount=0.8, seed=1), **(settings | changes))


def test_a_single_agent_does_not_feel_the_sync_period() -> None:
    fed = federation(1)
    laws = [
        small_step_law(fed, fg.OffPolicyLinearTD(2), step_size=0.01, sync_period=k)
        for k in (1, 7, 10**6)
    ]
    assert (
        laws[0].mse
        == pytest.approx(laws[1].mse, rel=1e-13)
        == pytest.approx(laws[2].mse, rel=1e-13)
    )
    assert not any(law.drift.any() for law in laws)


def test_a_billion_agents_leave_no_variance_and_at_k_1_no_bias() -> None:
    def law(agents: int, sync_period: int) -> Any:
        return small_step_law(
            federation(agents), fg.OffPolicyLinearTD(), step_size=0.01, sync_period=sync_period
        )

    many = 10**9
    assert law(many, 1).variance == pytest.approx(law(4, 1).variance * 4 / many, rel=1e-12)
    np.testing.assert_allclose(law(many, 1).bias, law(4, 1).bias * 4 / many, rtol=1e-9)
    floor = law(many, 5)
    assert floor.mse == pytest.approx(float(floor.bias @ floor.bias), rel=1e-2)
    assert floor.mse > 1e4 * law(many, 1).mse
    assert floor.mse < law(many, 50).mse


def test_seldom_synchronised_like_agents_are_as_biased_as_one() -> None:
    like = {"behavior_policies": None}
    algorithm, settings = fg.OnPolicyTD(), {"step_size": 0.01, "sync_period": 10**6}
    one = small_step_law(federation(1, **like), algorithm, **settings)
    many = small_step_law(federation(1000, **like), algorithm, **settings)
    np.testing.assert_allclose(many.bias, one.bias, rtol=1e-4)
    assert many.variance == pytest.approx(one.variance / 1000, rel=1e-12)


def test_drift_needs_different_matrices_and_grows_with_the_sync_period() -> None:
    fed = federation(4)
    drifts = [
        small_step_law(fed, fg.OffPolicyLinearTD(), step_size=0.01, sync_period=k).drift
        for k in (1, 2, 11)
    ]
    assert not drifts[0].any()
    np.testing.assert_allclose(drifts[2], 10 * drifts[1], rtol=1e-12)
    # The same moves with other rewards: other fixed points, but no drift.
    mdp = fg.examples.garnet(20, 3, 4, discount=0.8, seed=1)
    mdps = [fg.MDP(mdp.transitions, factor * mdp.rewards, 0.8) for factor in (1, 2)]
    paid = fg.Federation(mdps, num_agents=2, target_policy=fed.target_policy, features=fed.features)
    assert fg.heterogeneity(paid, fg.OnPolicyTD()) > 0.1
    law = small_step_law(paid, fg.OnPolicyTD(), step_size=0.01, sync_period=11)
    assert np.linalg.norm(law.drift) < 1e-12


def test_rewards_scale_the_error_by_their_square() -> None:
    mdp = fg.examples.garnet(20, 3, 4, discount=0.8, seed=1)
    laws = []
    for factor in (1.0, 3.0):
        scaled = fg.MDP(mdp.transitions, factor * mdp.rewards, 0.8)
        fed = fg.Federation(scaled, fg.policies.random(20, 3, count=2, seed=2), num_agents=6,
                            target_policy=fg.policies.uniform(20, 3))  # fmt: skip
        laws.append(small_step_law(fed, fg.OffPolicyTabularTD(2), step_size=0.01, sync_period=4))
    assert laws[1].mse == pytest.approx(9 * laws[0].mse, rel=1e-10)
    np.testing.assert_allclose(laws[1].covariance, 9 * laws[0].covariance, rtol=1e-8, atol=1e-15)


def test_like_kinds_count_as_one_and_kinds_without_agents_not_at_all() -> None:
    policies = fg.policies.random(20, 3, count=2, seed=2)
    settings = {"step_size": 0.01, "sync_period": 6}
    algorithm = fg.OffPolicyLinearTD()
    plain = small_step_law(
        federation(6, behavior_policies=policies, assignment=[0, 0, 1, 1, 1, 1]),
        algorithm,
        **settings,
    )
    doubled = federation(6, behavior_policies=policies[[0, 1, 1, 0]], assignment=[0, 3, 1, 2, 2, 1])
    spare = federation(6, behavior_policies=policies[[0, 1, 0]], assignment=[0, 0, 1, 1, 1, 1])
    for fed in (doubled, spare):
        law = small_step_law(fed, algorithm, **settings)
        np.testing.assert_allclose(law.bias, plain.bias, rtol=1e-9)
        assert law.variance == pytest.approx(plain.variance, rel=1e-12)


def test_tabular_td_is_linear_td_with_unit_features() -> None:
    tabular, linear = (
        small_step_law(federation(4, features=np.eye(20)), algorithm, step_size=0.01, sync_period=3)
        for algorithm in (fg.OffPolicyTabularTD(2), fg.OffPolicyLinearTD(2))
    )
    np.testing.assert_allclose(tabular.covariance, linear.covariance, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(tabular.bias, linear.bias, rtol=1e-8)
    assert tabular.rate == pytest.approx(linear.rate)


def test_mean_matrix_and_rate_agree_with_the_mean_field() -> None:
    from fegsam.exact.mean_fields import mean_field
    from fegsam.theory.small_step.noises import agent_noises

    fed = federation(4)
    for algorithm in (fg.OffPolicyLinearTD(2), fg.OffPolicyLinearTD(1, preconditioned=True)):
        field: Any = mean_field(algorithm, fed)
        noises = agent_noises(algorithm, fed, fg.fixed_point(fed, algorithm))
        for (share, noise), matrix in zip(noises, field.matrices, strict=True):
            assert share == 0.25
            np.testing.assert_allclose(noise.mean_matrix, -matrix, atol=1e-13)
        law = small_step_law(fed, algorithm, step_size=0.01, sync_period=1)
        assert law.rate == pytest.approx(
            0.01 * np.linalg.eigvals(field.matrices.mean(axis=0)).real.min()
        )


def two_kinds(rates: tuple[float, float], agents: int = 4) -> tuple[fg.MarkovNoise, fg.LinearSA]:
    """Agents without noise that move towards 1 and 0 at these rates."""
    noise = fg.MarkovNoise([[[1.0]]] * 2, num_agents=agents)
    return noise, fg.LinearSA(
        np.array([[[[-rate]]] for rate in rates]), np.array([[[rates[0]]], [[0.0]]])
    )


def test_the_drift_is_exact_to_first_order_where_the_law_holds() -> None:
    """After a synchronisation, theta = sum_i (1 - F_i^K) theta_i / sum_i (1 - F_i^K) with F_i = 1 -
    alpha a_i."""
    alpha, rates = 1e-4, (1.0, 2.0)
    theta = rates[0] / sum(rates)
    for period in (2, 10, 100, 1000, 1300, 1400, 10**4, 10**6):
        law = small_step_law(*two_kinds(rates), step_size=alpha, sync_period=period)
        gains = [-math.expm1(period * math.log1p(-alpha * rate)) for rate in rates]
        exact = gains[0] / sum(gains) - theta
        assert law.stiffness == pytest.approx(alpha * (period - 1) * 1.5 / 2, rel=1e-12)
        assert law.holds == (law.stiffness <= 0.1) == (not law.limits)
        if law.holds:
            assert law.drift[0] == pytest.approx(exact, rel=max(law.stiffness, 1e-3))
        if period > 10**5:
            assert abs(law.drift[0]) > 10 * abs(exact)
            assert "the law is a guide" in str(law)


def test_agents_that_do_not_drift_are_not_stiff() -> None:
    settings = {"step_size": 1e-2, "sync_period": 10**5}
    assert small_step_law(*two_kinds((1.0, 1.0)), **settings).holds
    assert small_step_law(*two_kinds((1.0, 2.0), agents=1), **settings).holds
    assert small_step_law(
        federation(4, behavior_policies=fg.policies.uniform(20, 3)),
        fg.OffPolicyLinearTD(),
        **settings,
    ).holds
    assert small_step_law(*two_kinds((1.0, 2.0)), step_size=1e-2, sync_period=1).stiffness == 0


def halve(params: Any, y: Any, kind: Any, out: Any) -> None:
    out[0] = params[0] / 2


def test_what_has_no_law_says_so() -> None:
    fed = federation(2)
    noise = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=1)
    rule = fg.StochasticApproximation(halve, dim=1, assumptions={"gamma_c": 0.5})
    with pytest.raises(fg.ProblemError, match="StochasticApproximation is not linear"):
        small_step_law(noise, rule, step_size=0.1, sync_period=1)
    with pytest.raises(fg.ProblemError, match="step_size"):
        small_step_law(fed, fg.OnPolicyTD(), step_size=-0.1, sync_period=1)
    with pytest.raises(fg.ProblemError, match="sync_period"):
        small_step_law(fed, fg.OnPolicyTD(), step_size=0.1, sync_period=0)
    mdp = fg.examples.garnet(6000, 1, 2, discount=0.8, seed=0)
    large = fg.Federation(mdp, num_agents=1, target_policy=fg.policies.uniform(6000, 1))
    with pytest.raises(fg.ProblemError, match="6000 parameters"):
        small_step_law(large, fg.OffPolicyTabularTD(), step_size=0.1, sync_period=1)
