"""Exact moments of problems that are large in one direction: many kinds, long periods, many states,
long windows."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fegsam as fg
from helpers import processes


def garnet(
    states: int, dimension: int, kinds: int, num_agents: int, branching: int = 3
) -> fg.Federation:
    mdp = fg.examples.garnet(states, 2, branching, discount=0.9, seed=0, connected=True)
    uniform = fg.policies.uniform(states, 2)
    policies = (fg.policies.random(states, 2, count=kinds, seed=1) + uniform) / 2
    features = np.random.default_rng(0).normal(size=(states, dimension)) / np.sqrt(dimension)
    return fg.Federation(
        mdp, policies, num_agents=num_agents, target_policy=uniform, features=features
    )


def test_hundreds_of_like_kinds_are_one_kind() -> None:
    one = garnet(5, 2, kinds=1, num_agents=600)
    many = fg.Federation(
        one.mdps[0], np.repeat(one.behavior_policies, 300, axis=0), num_agents=600,
        target_policy=one.target_policy, features=one.features,
    )  # fmt: skip
    settings = {"step_size": 0.1, "sync_period": 4}
    single, several = (
        fg.exact.moments(each, fg.OffPolicyLinearTD(), times=[3, 40, 401], order=1, **settings)
        for each in (one, many)
    )
    assert_allclose(several.mse, single.mse, rtol=1e-10)
    assert_allclose(several.sync_error, single.sync_error, rtol=1e-9, atol=1e-14)
    limits = [
        fg.exact.stationary_error(each, fg.OffPolicyLinearTD(), order=1, **settings)
        for each in (one, many)
    ]
    assert_allclose(limits[1], limits[0], rtol=1e-9)


def test_weighted_error_of_long_periods_has_its_closed_form() -> None:
    """Ten rounds of 10^4 steps; an average of independent noise has the same error for every
    period."""
    coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=5)
    average = fg.LinearSA([[[-1.0]], [[-1.0]]], [[2.0], [-2.0]])
    a, T, decay = 0.01, 10**5, 1 - 1e-4
    settings = {
        "step_size": a,
        "sync_period": 10**4,
        "num_steps": T,
        "decay": decay,
        "initial_params": [3.0],
    }
    floor, t = a * 4 / (5 * (2 - a)), np.arange(T)
    errors = (9 - floor) * (1 - a) ** (2.0 * t) + floor
    weights = decay ** (T - 1.0 - t)
    assert_allclose(
        fg.exact.weighted_error(coin, average, **settings),
        weights @ errors / weights.sum(),
        rtol=1e-10,
    )


def test_independent_windows_obey_the_recursion_of_their_own_second_moments() -> None:
    """Ten kinds, 40,000 steps: E[x x'] of the average alone, step by step, with no modes."""
    problem, a, period, steps = garnet(8, 2, kinds=10, num_agents=20), 0.01, 10, 40_000
    algorithm = fg.OffPolicyLinearTD()
    star = fg.fixed_point(problem, algorithm)
    found = fg.exact.moments(
        problem, algorithm, step_size=a, sync_period=period, times=[steps], sampling="iid"
    )
    kinds = [second_moments(problem, kind, star, a) for kind in range(10)]
    firsts = [np.linalg.matrix_power(first, period) for first, _ in kinds]
    seconds = [np.linalg.matrix_power(second, period) for _, second in kinds]
    mean, size = sum(firsts) / 10, len(star) + 1
    alone = (
        sum(second - np.kron(first, first) for first, second in zip(firsts, seconds, strict=True))
        / 10
        / 20
    )
    x = np.append(-star, 1.0)
    late = np.linalg.matrix_power(alone + np.kron(mean, mean), steps // period) @ np.kron(x, x)
    assert_allclose(found.mse[0], np.trace(late.reshape(size, size)[:-1, :-1]), rtol=1e-8)
    assert found.order == 0


def second_moments(
    problem: fg.Federation, kind: int, star: np.ndarray, a: float
) -> tuple[np.ndarray, np.ndarray]:
    """E[T] (D, D) and E[T kron T] of one step of Algorithm 5 with n = 1, its window drawn
    afresh."""
    mdp, policy, target, phi = (
        problem.mdps[0],
        problem.behavior_policies[kind],
        problem.target_policy,
        problem.features,
    )
    states, actions = policy.shape
    table = mdp.transitions.toarray().reshape(states, actions, states)
    law = np.linalg.matrix_power(np.einsum("sa,sat->st", policy, table), 4096)[0]
    first = np.zeros((len(star) + 1,) * 2)
    second = np.zeros((len(first) ** 2,) * 2)
    for s, action, after in np.ndindex(table.shape):
        weight = law[s] * policy[s, action] * table[s, action, after]
        ratio = target[s, action] / policy[s, action]
        slope = ratio * (mdp.discount * phi[after] - phi[s])
        T = np.eye(len(first))
        T[:-1, :-1] += a * np.outer(phi[s], slope)
        T[:-1, -1] += a * phi[s] * (ratio * mdp.rewards[s, action] + slope @ star)
        first += weight * T
        second += weight * np.kron(T, T)
    return first, second


def test_limit_of_a_thousand_states_is_that_of_the_small_step_law() -> None:
    """Which is right to first order in the step size."""
    problem = garnet(1000, 10, kinds=1, num_agents=10, branching=5)
    settings = {"step_size": 0.02, "sync_period": 2}
    law = fg.theory.small_step_law(problem, fg.OnPolicyTD(), **settings)
    assert_allclose(
        fg.exact.stationary_error(problem, fg.OnPolicyTD(), order=1, **settings), law.mse, rtol=0.02
    )


WINDOWS_OF_TEN = """
import resource
import numpy as np
import fegsam as fg

problem = fg.Federation(
    fg.examples.garnet(10, 2, 2, discount=0.9, seed=0, connected=True),
    fg.policies.random(10, 2, count=2, seed=1),
    num_agents=20,
    target_policy=fg.policies.uniform(10, 2),
    features=np.random.default_rng(0).normal(size=(10, 3)),
)
settings = dict(step_size=0.01, sync_period=10, times=[4])
resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))
try:
    fg.exact.moments(problem, fg.OffPolicyLinearTD(10), **settings)
except fg.ProblemError as refused:
    print(refused)
"""


def test_memory_is_asked_for_only_after_it_was_checked() -> None:
    """Windows of ten transitions of two kinds would need more than the two gigabytes that the
    process may have."""
    refusal = processes.run(WINDOWS_OF_TEN)
    assert re.search(r"windows of 10 transitions.*smaller horizon", refusal)


@pytest.mark.parametrize("question", ["moments", "weighted_error"])
def test_readings_of_hours_are_refused_with_their_cost(question) -> None:
    """Two states: the round itself is a matrix's power, and reading within it goes step by step."""
    coin = fg.MarkovNoise([[0.9, 0.1], [0.1, 0.9]], num_agents=2)
    average = fg.LinearSA([[[-1.0]], [[-0.5]]], [[0.0], [1.0]])
    more = {
        "moments": {"times": [10**9 - 1]},
        "weighted_error": {"num_steps": 10**10, "decay": 0.9},
    }[question]
    with pytest.raises(fg.ProblemError, match="patience="):
        getattr(fg.exact, question)(coin, average, step_size=0.1, sync_period=10**9, **more)


def test_work_of_hours_is_refused_with_its_cost() -> None:
    problem = garnet(300, 12, kinds=2, num_agents=4)
    with pytest.raises(fg.ProblemError, match=r"about .* s for .*patience="):
        fg.exact.stationary_error(
            problem, fg.OffPolicyLinearTD(), step_size=0.01, sync_period=10**9
        )


def test_absurd_orders_and_times_are_refused() -> None:
    coin = fg.MarkovNoise([[0.9, 0.1], [0.1, 0.9]], num_agents=10**9)
    average = fg.LinearSA([[[-1.0]], [[-0.5]]], [[0.0], [1.0]])
    settings = {"step_size": 0.1, "sync_period": 1}
    with pytest.raises(fg.ProblemError, match="order 5000"):
        fg.exact.moments(coin, average, times=[3], order=5000, **settings)
    for times in (np.array([2**63 + 5, 3], dtype=np.uint64), [2**63], [[1.0], [1.0, 2.0]]):
        with pytest.raises(fg.ProblemError, match="times is"):
            fg.exact.moments(coin, average, times=times, **settings)
    with pytest.raises(fg.ProblemError, match=r"num_steps.*exact\.moments"):
        fg.exact.mean_squared_error(coin, average, num_steps=10**9, **settings)


def test_weighted_error_of_a_run_that_settles_is_that_of_its_powers() -> None:
    """30 states have too many moments for powers of a matrix: the rounds are taken one by one until
    they change nothing."""
    problem = garnet(30, 3, kinds=1, num_agents=6)
    settings = {"step_size": 0.5, "sync_period": 2, "decay": 1 - 1e-4, "order": 1}
    T = 20_000
    found = fg.exact.weighted_error(problem, fg.OnPolicyTD(), num_steps=T, **settings)
    times = np.arange(3000)
    early = fg.exact.moments(
        problem, fg.OnPolicyTD(), times=times, step_size=0.5, sync_period=2, order=1
    ).mse
    errors = np.concatenate([early, np.resize(early[-2:], T - len(early))])
    weights = settings["decay"] ** (T - 1.0 - np.arange(T))
    assert_allclose(found, weights @ errors / weights.sum(), rtol=1e-9)
