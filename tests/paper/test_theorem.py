"""The theorem on FeGSAM and the steps of its proof, beside exact expectations.

The bound of the theorem is a million times the error and more, so that it would hold with many a
wrong constant. The lemmas behind it are closer to the truth and hold for larger steps: the
consensus lemma, the weighted consensus proposition and the one-step drift are checked on their own,
and so is how much they give away. In the 2-norm the Lyapunov function is ``M(x) = ||x||^2 / (2
u_cm^2)``. Random problems have two or three states and one or two parameters (Algorithm 3: one for
each state).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fegsam as fg
from fegsam.theory.assumptions.assumptions import Assumptions, assumptions
from fegsam.theory.bound.bound import Bound, bound_from
from fegsam.theory.bound.conditions import largest_alpha, sync_conditions
from fegsam.theory.bound.constants import Constants, constants_from
from helpers import golden
from helpers.theorem_instances import FAMILIES, Instance, draw

# --- The theorem ----------------------------------------------------------------------------------


def beside_the_bound(family: str, seed: int) -> tuple[Bound, float]:
    """The bound of a random run that the theorem admits, and its exact squared error in the
    2-norm."""
    rng = np.random.default_rng([seed, FAMILIES.index(family)])
    problem, algorithm, given = draw(family, rng)
    period = int(rng.choice([1, 2, 5, 20]))
    alpha = largest_alpha(given, period if given.num_agents > 1 else 1) * rng.choice(
        [1.0, 10 ** rng.uniform(-3, 0)]
    )
    settings = {"step_size": alpha / given.beta, "sync_period": period}
    shortest = math.log10(max(1e4, 3 * constants_from(given, settings["step_size"]).tau))
    steps = int(10 ** rng.uniform(shortest, 10))
    bound = bound_from(given, num_steps=steps, **settings)
    assert bound.holds
    # Steps of the tabular algorithm are so small that all times weigh the same to rounding.
    decay = min(1 - alpha * bound.constants.phi_2 / 2, math.nextafter(1, 0))
    return bound, fg.exact.weighted_error(
        problem, algorithm, num_steps=steps, decay=decay, order=1, **settings
    )


def assert_above(family: str, seeds: range) -> None:
    """In the sup norm the squared error is at most that in the 2-norm, so the bound may be held
    against the latter."""
    for seed in seeds:
        bound, error = beside_the_bound(family, seed)
        assert 0 < error < (bound.total if bound.norm == "sup" else bound.total_2), (
            f"{family}, seed {seed}: {error} {bound}"
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_bound_is_above_the_exact_error_of_the_output(family) -> None:
    assert_above(family, range(5))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_bound_is_above_the_exact_error_of_the_output_on_many_problems(family) -> None:
    assert_above(family, range(5, 50))


@pytest.mark.parametrize("seed", range(3))
def test_bound_stays_as_far_above_where_rewards_are_scaled(seed) -> None:
    """Tabular noise is centred (m_4 = 0), so every term of the bound and the exact error scale by
    the square."""
    rng = np.random.default_rng([20, seed])
    problem, algorithm, given = draw("tabular", rng, num_agents=3)
    mdp = problem.mdps[0]
    kept = {"num_agents": 3, "target_policy": problem.target_policy}
    paid = fg.Federation(
        fg.MDP(mdp.transitions, 1e-3 * mdp.rewards, mdp.discount), problem.behavior_policies, **kept
    )
    settings: dict[str, Any] = {
        "step_size": largest_alpha(given, 4),
        "sync_period": 4,
        "num_steps": 10**6,
    }
    bounds = [fg.theory.error_bound(each, algorithm, **settings) for each in (problem, paid)]
    errors = [
        fg.exact.weighted_error(each, algorithm, decay=1 - 1e-9, order=1, **settings)
        for each in (problem, paid)
    ]
    assert_allclose(
        list(bounds[1].terms.values()), 1e-6 * np.array(list(bounds[0].terms.values())), rtol=1e-9
    )
    assert_allclose(errors[1], 1e-6 * errors[0], rtol=1e-9)


# --- The consensus lemma --------------------------------------------------------------------------


class Spread(NamedTuple):
    """Times within rounds, the exact expected sync error there, and what the consensus lemma
    (lem:consensus_error) allows."""

    phase: np.ndarray
    sync_error: np.ndarray
    allowed: np.ndarray


def consensus(instance: Instance, alpha: float, period: int, rounds: int = 5) -> Spread:
    problem, algorithm, given = instance
    c = constants_from(given, alpha / given.beta)
    assert sync_conditions(c, period)[0].holds  # c2a is all that the lemma asks for
    times = np.arange(rounds * period)
    found = fg.exact.moments(
        problem, algorithm, step_size=alpha / given.beta, sync_period=period, times=times
    )
    phase = times % period
    since_sync = np.array([found.mse[t - t % period : t].sum() for t in times])
    disagreement = 4 * c.m_3 * np.maximum(phase - 1, 0) * given.heterogeneity / c.B
    allowed = (
        5
        * alpha**2
        * phase
        * (c.B_tilde**2 * (1 + c.Lag + disagreement) + c.A_tilde_2 * since_sync)
    )
    return Spread(phase, found.sync_error, allowed)


def longest_step(given: Assumptions, period: int) -> float:
    """The largest alpha that passes c2a."""
    A_tilde = 2 * given.A_1**2 * (given.dimension if given.norm == "sup" else 1)
    return (1 - 1e-12) * math.sqrt(math.log(1.25) / (2 * (1 + A_tilde))) / (period - 1)


def assert_consensus(family: str, seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng([30, FAMILIES.index(family), seed])
        instance = draw(family, rng, num_agents=int(rng.integers(2, 5)))
        period = int(rng.integers(2, 12))
        alpha = min(0.5, longest_step(instance.given, period)) * rng.choice(
            [1.0, rng.uniform(0.1, 1)]
        )
        found = consensus(instance, alpha, period)
        # Of the sup norm only this is known: it is at least the 2-norm / sqrt(d).
        share = instance.given.dimension if instance.given.norm == "sup" else 1
        assert np.all(found.sync_error / share <= found.allowed), f"{family}, seed {seed}"


@pytest.mark.parametrize("family", FAMILIES)
def test_agents_part_no_further_than_the_consensus_lemma_allows(family) -> None:
    assert_consensus(family, range(5))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_agents_part_no_further_than_the_consensus_lemma_allows_on_many_problems(family) -> None:
    assert_consensus(family, range(5, 20))


def coins(offsets: Any, num_agents: int, kinds: int) -> Instance:
    """x += alpha (X - x), X one of the `offsets` (kinds, 2) by the toss of a coin: A_1 = A_2 =
    0."""
    problem = fg.MarkovNoise(np.full((kinds, 2, 2), 0.5), num_agents=num_agents)
    algorithm = fg.LinearSA(np.full((kinds, 2, 1, 1), -1.0), np.reshape(offsets, (kinds, 2, 1)))
    return Instance(problem, algorithm, assumptions(problem, algorithm))


def test_consensus_lemma_gives_away_a_factor_of_five_for_independent_noise() -> None:
    """After k steps agents that average coins are apart by alpha^2 k B^2, and the lemma has five
    times that."""
    found = consensus(coins([[1.0, -1.0]], 100, 1), alpha=1e-3, period=20)
    within = found.phase > 0
    assert_allclose(found.sync_error[within] / found.allowed[within], 0.2, rtol=0.05)


def test_consensus_lemma_gives_away_a_factor_of_twenty_for_agents_that_disagree() -> None:
    """Pulled apart by B each, two agents are apart by alpha^2 k^2 B^2; the lemma has 5 alpha^2 k
    B^2 (1 + 4 (k-1))."""
    found = consensus(coins([[1.0, 1.0], [-1.0, -1.0]], 2, 2), alpha=1e-4, period=200)
    last = found.phase == 199
    assert_allclose(found.sync_error[last] / found.allowed[last], 1 / 20, rtol=0.05)


# --- The weighted consensus proposition -----------------------------------------------------------


def weighted_consensus(instance: Instance, period: int) -> tuple[float, float]:
    """Both sides of prop:wtd_consensus_error at the largest step that passes c2a and c2b."""
    problem, algorithm, given = instance
    alpha = 0.5
    while not all(
        condition.holds
        for condition in sync_conditions(constants_from(given, alpha / given.beta), period)
    ):
        alpha *= 0.9
    c = constants_from(given, alpha / given.beta)
    tau, steps = int(c.tau), 4 * (period + int(c.tau)) + 1
    settings = {
        "step_size": alpha / given.beta,
        "sync_period": period,
        "times": np.arange(steps + 1),
    }
    found = fg.exact.moments(problem, algorithm, order=1, **settings)
    weights = (1 - alpha * c.phi_2 / 2) ** -np.arange(steps + 1.0)
    summed = np.append(0, np.cumsum(found.sync_error))
    t = np.arange(2 * tau, steps + 1)
    left = 2 * c.C_17 / c.phi_2 * (weights[t] @ (summed[t + 1] - summed[t - tau])) / weights.sum()
    local = 1 + c.Lag + 4 * c.m_3 * (period - 1) * given.heterogeneity / c.B
    right = 10 * c.C_17 / c.phi_2 * (alpha * c.B_tilde) ** 2 * local * (tau + 1) * (period - 1)
    return left, right + weights @ lyapunov(found.mse, c) / (2 * weights.sum())


def lyapunov(mse: np.ndarray, c: Constants) -> np.ndarray:
    return mse / (2 * c.u_cm**2)


def draw_two_norm(family: str, rng: np.random.Generator) -> Instance:
    while True:
        found = draw(family, rng, num_agents=int(rng.integers(2, 5)))
        if found.given.norm == "2":
            return found


@pytest.mark.parametrize("family", ["linear-sa", "on-policy", "linear"])
@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 17), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_weighted_sync_errors_obey_their_proposition(family, seeds) -> None:
    for seed in seeds:
        rng = np.random.default_rng([40, FAMILIES.index(family), seed])
        left, right = weighted_consensus(draw_two_norm(family, rng), int(rng.choice([2, 5, 30])))
        assert left <= right, f"{family}, seed {seed}"


# --- The one-step drift ---------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["linear-sa", "on-policy", "linear"])
@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 17), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_lyapunov_function_drifts_as_stated(family, seeds) -> None:
    """prop:intermediate_lem2 for t >= 2 tau, and M(theta_t) <= M_0 before, from starts near and
    far."""
    for seed in seeds:
        rng = np.random.default_rng([50, FAMILIES.index(family), seed])
        problem, algorithm, given = draw_two_norm(family, rng)
        alpha, period, distance = (
            largest_alpha(given, 1),
            int(rng.integers(1, 12)),
            10 ** rng.uniform(-3, 3),
        )
        start = fg.fixed_point(problem, algorithm) + distance * rng.normal(size=given.dimension)
        given = assumptions(problem, algorithm, initial_params=start)
        c = constants_from(given, alpha / given.beta)
        tau = int(c.tau)
        settings = {
            "step_size": alpha / given.beta,
            "sync_period": period,
            "initial_params": start,
            "order": 1,
        }
        found = fg.exact.moments(
            problem, algorithm, times=np.arange(2 * tau + 2 * period + 4), **settings
        )
        M, summed = lyapunov(found.mse, c), np.append(0, np.cumsum(found.sync_error))
        t = np.arange(2 * tau, len(M) - 1)
        apart = summed[t + 1] - summed[t - tau]
        noise = c.C_14 * alpha**4 + c.C_16 * alpha**2 / given.num_agents + alpha * c.C_17 * apart
        assert np.all(M[t + 1] <= (1 - alpha * c.phi_2) * M[t] + noise), f"{family}, seed {seed}"
        assert np.all(M[: 2 * tau + 1] <= c.M_0), f"{family}, seed {seed}"


@pytest.mark.parametrize("family", ["linear-sa", "on-policy", "linear"])
def test_far_from_the_fixed_point_the_drift_is_twice_the_stated_one_or_more(family) -> None:
    """Where noise does not count, M falls by alpha times 2 phi_2 or more; the proof spends half of
    it."""
    rates = []
    for seed in range(6):
        rng = np.random.default_rng([60, FAMILIES.index(family), seed])
        problem, algorithm, given = draw_two_norm(family, rng)
        alpha = largest_alpha(given, 1)
        c = constants_from(given, alpha / given.beta)
        start = fg.fixed_point(problem, algorithm) + 1e9 * rng.normal(size=given.dimension)
        settings = {
            "step_size": alpha / given.beta,
            "sync_period": 1,
            "initial_params": start,
            "order": 1,
        }
        late = 2 * int(c.tau) + np.arange(3)
        mse = fg.exact.moments(problem, algorithm, times=late, **settings).mse
        rates.extend((1 - mse[1:] / mse[:-1]) / (alpha * c.phi_2))
    assert min(rates) > 2 * (1 - 1e-3)
    assert min(rates) < 4


# --- What local steps leave -----------------------------------------------------------------------

MANY = 10**9


def test_floor_of_like_agents_grows_with_the_period_up_to_the_squared_bias_of_one() -> None:
    algorithm, alpha = fg.OnPolicyTD(), 0.05
    settings = {"step_size": alpha, "order": 1}
    floors = [
        fg.exact.stationary_error(
            golden.federation(num_agents=MANY), algorithm, sync_period=K, **settings
        )
        for K in (1, 2, 5, 50, 1000)
    ]
    alone = fg.exact.moments(
        golden.federation(num_agents=1), algorithm, sync_period=1, times=[10**6], **settings
    )
    bias = float(((alone.mean[0] - fg.fixed_point(golden.federation(), algorithm)) ** 2).sum())
    assert np.all(np.diff(floors) > 0)
    assert floors[0] < 1e-6 * bias
    assert_allclose(floors[-1], bias, rtol=0.01)
    assert floors[3] > 0.8 * bias


@pytest.mark.parametrize("K", [2, 3, 9, 100, 10_000])
def test_floor_of_unlike_agents_follows_the_periodic_mean_of_their_paths(K) -> None:
    """Independent noise: in K steps kind i goes 1 - (1 - alpha a_i)^K of the way to its own point,
    and the average balances."""
    pull, points, alpha = np.array([1.0, 3.0]), np.array([2.0, -1.0]), 1e-3
    matrices = np.broadcast_to(-pull[:, None, None, None], (2, 2, 1, 1))
    offsets = (pull * points)[:, None, None] + np.array([1.0, -1.0])[:, None]
    problem = fg.MarkovNoise(np.full((2, 2, 2), 0.5), num_agents=MANY)
    moved = 1 - (1 - alpha * pull) ** K
    root, balance = pull @ points / pull.sum(), moved @ points / moved.sum()
    floor = fg.exact.stationary_error(
        problem, fg.LinearSA(matrices, offsets), step_size=alpha, sync_period=K, order=1
    )
    assert_allclose(floor, (balance - root) ** 2, rtol=1e-4)
    if K < 10:  # alpha (K-1) / 2 times the mean of A_i b_i / Abar, up to a term of second order
        drift = alpha * (K - 1) / 2 * np.mean(pull * pull * (points - root)) / pull.mean()
        assert_allclose(floor, drift**2, rtol=4 * alpha * K)
    if K == 10_000:
        assert_allclose(floor, (points.mean() - root) ** 2, rtol=1e-3)


def test_floor_of_unlike_learners_that_seldom_meet_is_the_squared_mean_of_their_own_errors() -> (
    None
):
    """Algorithm 5 with policies that differ much, alpha K = 20: each agent is back where it would
    be alone."""
    policies = [[[0.95, 0.05], [0.9, 0.1]], [[0.05, 0.95], [0.1, 0.9]]]
    algorithm, settings = fg.OffPolicyLinearTD(), {"step_size": 0.02, "order": 1}

    def problem(which: Any, num_agents: int) -> Any:
        return golden.federation(which, num_agents=num_agents, features=[[1.0], [-2.0]])

    floor = fg.exact.stationary_error(
        problem(policies, MANY), algorithm, sync_period=1000, **settings
    )
    alone = [
        fg.exact.moments(
            problem([each], 1), algorithm, sync_period=1, times=[10**6], **settings
        ).mean[0]
        for each in policies
    ]
    root = fg.fixed_point(problem(policies, MANY), algorithm)
    assert_allclose(floor, ((np.mean(alone, axis=0) - root) ** 2).sum(), rtol=1e-4)


@pytest.mark.parametrize(("preconditioned", "n"), [(False, 1), (False, 2), (True, 1), (True, 2)])
def test_mean_in_the_long_run_tends_to_the_mixture_or_to_the_average_of_projections(
    preconditioned, n
) -> None:
    """Means at alpha and alpha / 2, extrapolated to zero, tell apart two points whose distance is
    2e-4."""
    problem, algorithm = golden.federation(), fg.OffPolicyLinearTD(n, preconditioned=preconditioned)
    settings = {"sync_period": 2, "times": [10**6], "order": 1}
    means = [
        fg.exact.moments(problem, algorithm, step_size=alpha, **settings).mean[0, 0]
        for alpha in (2e-3, 1e-3)
    ]
    limits = {
        (False, 1): 520 / 659,
        (False, 2): 23352 / 29689,
        (True, 1): 1192 / 1511,
        (True, 2): 53592 / 68149,
    }
    assert abs(means[1] - limits[preconditioned, n]) < 1e-3
    assert_allclose(2 * means[1] - means[0], limits[preconditioned, n], rtol=0, atol=1e-5)
