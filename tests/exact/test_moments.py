"""Exact moments against the joint chain of all agents, golden enumerations, closed forms, long runs
and Monte Carlo."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fegsam as fg
from helpers import golden
from helpers.joint_chain import joint_moments

RNG = np.random.default_rng(20250301)
STATES, ACTIONS, GAMMA = 3, 2, 0.8


def _two_successors(rng: np.random.Generator) -> np.ndarray:
    """(S, A, S): each action leads to two states, which are never all the same for both actions."""
    table = np.zeros((STATES, ACTIONS, STATES))
    for s in range(STATES):
        for a in range(ACTIONS):
            chance = rng.uniform(0.2, 0.8)
            table[s, a, (s + a) % STATES], table[s, a, (s + a + 1) % STATES] = chance, 1 - chance
    return table


TRANSITIONS = np.array([_two_successors(RNG) for _ in range(2)])
REWARDS = RNG.normal(size=(2, STATES, ACTIONS))
BEHAVIOR = 0.15 + 0.7 * RNG.dirichlet(np.ones(ACTIONS), (2, STATES))
TARGET = 0.1 + 0.8 * RNG.dirichlet(np.ones(ACTIONS), STATES)
PHI = np.array([[1.0, 0.0], [0.5, 1.0], [-0.5, 0.7]])
FIRST = np.array([0.6, 0.0, 0.4])
KERNELS = 0.1 + 0.7 * RNG.dirichlet(np.ones(STATES), (2, STATES))
MATRICES = RNG.uniform(-0.5, 0.5, (2, STATES, 2, 2)) - 1.2 * np.eye(2)
OFFSETS = RNG.normal(size=(2, STATES, 2))
ALPHA = 0.2
START = {
    2: np.array([0.7, -1.1]),
    3: np.array([0.7, -1.1, 0.4]),
    4: np.array([0.7, -1.1, 0.4, 0.2]),
}

ALGORITHMS = {
    "linear-sa": fg.LinearSA(MATRICES, OFFSETS),
    "on-policy-n1": fg.OnPolicyTD(),
    "on-policy-n2": fg.OnPolicyTD(horizon=2),
    "tabular-n1": fg.OffPolicyTabularTD(),
    "tabular-n2": fg.OffPolicyTabularTD(horizon=2),
    "linear-n1": fg.OffPolicyLinearTD(),
    "linear-n2": fg.OffPolicyLinearTD(horizon=2),
    "preconditioned-n1": fg.OffPolicyLinearTD(preconditioned=True),
    "preconditioned-n2": fg.OffPolicyLinearTD(horizon=2, preconditioned=True),
    "tdc": fg.TDC(ratio=0.6),
}
ONE_STEP = [name for name in ALGORITHMS if not name.endswith("n2")]


def setting(name: str, assignment: Any, worlds: int = 1) -> tuple[Any, Any]:
    """A small problem for the algorithm: agents of kind 0 and 1 differ in policy, and in MDP where
    there are two worlds."""
    agents = {"num_agents": len(assignment), "assignment": np.array(assignment)}
    return problem_of(name, max(assignment) + 1, worlds, **agents)


def problem_of(name: str, kinds: int, worlds: int = 1, **agents: Any) -> tuple[Any, Any]:
    if name == "linear-sa":
        noise = fg.MarkovNoise(KERNELS[:kinds], initial_distribution=FIRST, **agents)
        return noise, fg.LinearSA(MATRICES[:kinds], OFFSETS[:kinds])
    mdps = [fg.MDP(TRANSITIONS[k], REWARDS[k], GAMMA) for k in range(worlds)]
    tables = {"target_policy": TARGET, "features": PHI, "initial_distribution": FIRST}
    return fg.Federation(
        mdps if worlds > 1 else mdps[0], BEHAVIOR[:kinds], **tables, **agents
    ), ALGORITHMS[name]


def assert_joint(
    problem: Any,
    algorithm: Any,
    alpha: float,
    K: int,
    T: int,
    rtol: float = 1e-12,
    sampling: str = "markov",
    **options: Any,
) -> None:
    """Every moment at every time, after a start that is not zero, is that of the joint chain."""
    star = fg.fixed_point(problem, algorithm)
    start = START[len(star)]
    truth = joint_moments(problem, algorithm, star, alpha, K, T, start, sampling)
    settings = {"step_size": alpha, "sync_period": K, "initial_params": start, "sampling": sampling}
    found = fg.exact.moments(problem, algorithm, times=np.arange(T + 1), **settings, **options)
    assert_allclose(found.mse, truth.mse, rtol=rtol)
    assert_allclose(found.mean, truth.mean, rtol=0, atol=rtol * np.abs(truth.mean).max())
    assert_allclose(found.sync_error, truth.sync_error, rtol=rtol, atol=rtol * truth.mse.max())


# --- The joint chain ------------------------------------------------------------------------------


@pytest.mark.parametrize(("K", "T"), [(1, 6), (5, 12), (20, 22)], ids=["K1", "K5", "K20"])
@pytest.mark.parametrize("assignment", [(0, 0), (0, 1, 1)], ids=["one-kind", "two-kinds"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_moments_are_those_of_the_joint_chain(name, assignment, K, T) -> None:
    assert_joint(*setting(name, assignment), ALPHA, K, T, order=len(assignment))


@pytest.mark.parametrize("name", ["on-policy-n2", "tabular-n1", "linear-n2", "tdc"])
def test_moments_of_agents_in_different_worlds_are_those_of_the_joint_chain(name) -> None:
    assert_joint(*setting(name, (1, 0, 1), worlds=2), ALPHA, 3, 8, order=3)


@pytest.mark.parametrize("name", ONE_STEP)
@pytest.mark.parametrize("assignment", [(0, 0, 0, 0), (0, 1, 1, 0)], ids=["one-kind", "two-kinds"])
def test_moments_of_four_agents_are_those_of_the_joint_chain(name, assignment) -> None:
    assert_joint(*setting(name, assignment), ALPHA, 2, 7, order=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name.endswith("n2")])
def test_moments_of_four_agents_with_two_step_windows_are_those_of_the_joint_chain(name) -> None:
    assert_joint(*setting(name, (0, 1, 1, 0)), ALPHA, 2, 5, order=4)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("K", [1, 4])
def test_moments_of_independent_windows_are_those_of_the_joint_chain(name, K) -> None:
    """Nothing is remembered, so that no order needs to be chosen."""
    assert_joint(*setting(name, (0, 1, 1)), ALPHA, K, 9, sampling="iid", order=3)


@pytest.mark.parametrize("name", ["linear-sa", "on-policy-n1", "tabular-n2", "linear-n1"])
def test_order_chosen_by_default_is_as_good_as_it_says(name) -> None:
    """R and R+1 agree to 1e-9."""
    assert_joint(*setting(name, (0, 1, 1)), ALPHA, 2, 8, rtol=1e-8)


@pytest.mark.parametrize("name", ONE_STEP)
def test_error_of_a_truncated_hierarchy_falls_with_its_order(name) -> None:
    problem, algorithm = setting(name, (0, 1, 1, 0))
    settings = {"step_size": ALPHA, "sync_period": 3, "times": [3, 6, 9, 12]}
    exact, *cut = (
        fg.exact.moments(problem, algorithm, order=order, **settings).mse for order in (4, 1, 2, 3)
    )
    gaps = [np.abs(mse / exact - 1).max() for mse in cut]
    assert gaps[0] < 2e-2
    assert gaps[1] < 1e-3
    assert gaps[1] < gaps[0]
    assert gaps[2] <= gaps[1]


# --- Golden enumerations --------------------------------------------------------------------------

DIGITS = {"rtol": 0, "atol": 2e-11}  # the golden numbers carry twelve decimals


def golden_moments(algorithm: Any, T: int, problem: Any = None) -> tuple[Any, np.ndarray]:
    """The moments at times 1..T at step size 1/2 and sync period 2, and E||vbar||^2 from them."""
    problem = golden.federation() if problem is None else problem
    found = fg.exact.moments(
        problem, algorithm, step_size=0.5, sync_period=2, times=np.arange(1, T + 1)
    )
    star = fg.fixed_point(problem, algorithm)
    return found, found.mse + 2 * found.mean @ star - star @ star


def test_linear_td_has_its_golden_moments() -> None:
    found, square = golden_moments(fg.OffPolicyLinearTD(), T=4)
    assert_allclose(found.mean[:, 0], golden.ALG5_N1_MEAN, **DIGITS)
    assert_allclose(square, golden.ALG5_N1_SQUARE, **DIGITS)
    assert_allclose(found.sync_error, golden.ALG5_N1_SYNC_ERROR, **DIGITS)


def test_linear_td_with_two_step_windows_has_its_golden_moments() -> None:
    found, square = golden_moments(fg.OffPolicyLinearTD(horizon=2), T=3)
    assert_allclose(found.mean[:, 0], golden.ALG5_N2_MEAN, **DIGITS)
    assert_allclose(square, golden.ALG5_N2_SQUARE, **DIGITS)


@pytest.mark.parametrize(
    ("num_agents", "squares"),
    [(1, golden.ONE_AGENT_SQUARE), (2, golden.TWO_LIKE_AGENTS_SQUARE)],
    ids=["one", "two"],
)
def test_like_agents_have_their_golden_moments(num_agents, squares) -> None:
    like = golden.federation([golden.B1], num_agents=num_agents)
    assert_allclose(golden_moments(fg.OffPolicyLinearTD(), T=4, problem=like)[1], squares, **DIGITS)


@pytest.mark.parametrize(
    ("horizon", "T", "law"), [(1, 3, golden.TABULAR_N1_T3), (2, 2, golden.TABULAR_N2_T2)]
)
def test_tabular_td_has_its_golden_moments(horizon, T, law) -> None:
    found, _ = golden_moments(fg.OffPolicyTabularTD(horizon), T)
    assert_allclose(found.mean[-1], law[0], **DIGITS)
    assert_allclose(found.mse[-1], law[1], **DIGITS)


# --- Scalar laws ----------------------------------------------------------------------------------


def averaging(values: Any) -> fg.LinearSA:
    """x += alpha * (X - x), where the noise state y means X = values[y]."""
    return fg.LinearSA(np.full((1, len(values), 1, 1), -1.0), np.reshape(values, (1, -1, 1)))


@pytest.mark.parametrize("K", [1, 4, 100])
@pytest.mark.parametrize("num_agents", [1, 5])
@pytest.mark.parametrize("sampling", ["markov", "iid"])
def test_average_of_independent_noise_has_its_closed_form_for_every_sync_period(
    sampling, num_agents, K
) -> None:
    flip = 0.5 if sampling == "markov" else 0.25  # drawn afresh, the flip chain too is a fair coin
    noise = fg.MarkovNoise([[1 - flip, flip], [flip, 1 - flip]], num_agents=num_agents)
    settings = {"step_size": 0.1, "sync_period": K, "initial_params": [3.0], "sampling": sampling}
    found = fg.exact.moments(noise, averaging([2.0, -2.0]), times=[0, 1, 2, 10], **settings)
    golden_squares = {
        1: [9.0, 7.33, 5.9773, 1.2791211219276353],
        5: [9.0, 7.298, 5.91938, 1.131176137437626],
    }
    assert_allclose(found.mse, golden_squares[num_agents], rtol=1e-12)
    assert_allclose(found.mean[:, 0], 3 * 0.9 ** np.array([0, 1, 2, 10]), rtol=1e-12)


@pytest.mark.parametrize(
    ("num_agents", "K", "error"),
    [(1, 1, 0.5550239234449761), (5, 1, 0.1110047846889952), (5, 7, 0.1110047846889952)],
)
def test_additive_markov_noise_has_its_stationary_error(num_agents, K, error) -> None:
    """Drawing the noise afresh would give 0.21 / N, and so would restarting it at a sync for K =
    1."""
    noise = fg.MarkovNoise([[0.75, 0.25], [0.25, 0.75]], num_agents=num_agents)
    settings = {"step_size": 0.1, "sync_period": K}
    assert_allclose(
        fg.exact.stationary_error(noise, averaging([2.0, -2.0]), **settings), error, rtol=1e-12
    )
    late = fg.exact.moments(noise, averaging([2.0, -2.0]), times=[400, 401], **settings)
    assert_allclose(late.mse, error, rtol=1e-12)


def test_problem_without_noise_has_no_error_but_its_start() -> None:
    """One state, one action: the value after t updates is known, and its mean square is its
    square."""
    mdp = fg.MDP([[[1.0]]], [[1.0]], 0.5)
    problem = fg.Federation(mdp, num_agents=3, target_policy=[[1.0]], features=[[1.0]])
    for algorithm in (fg.OnPolicyTD(), fg.OffPolicyTabularTD(horizon=2), fg.OffPolicyLinearTD()):
        rate = 1 - 0.2 * (1 - 0.5**algorithm.horizon)
        found = fg.exact.moments(
            problem, algorithm, step_size=0.2, sync_period=3, times=np.arange(8)
        )
        assert_allclose(found.mean[:, 0], 2 * (1 - rate ** np.arange(8)), rtol=0, atol=1e-14)
        assert_allclose(found.mse, 4 * rate ** (2 * np.arange(8)), rtol=1e-12)
        assert_allclose(found.sync_error, 0, atol=1e-14)


# --- The other questions --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear-sa", "tabular-n1", "linear-n2"])
def test_mean_squared_error_is_the_moments_at_every_time(name) -> None:
    problem, algorithm = setting(name, (0, 1, 1))
    settings = {"step_size": ALPHA, "sync_period": 4}
    every = fg.exact.mean_squared_error(problem, algorithm, num_steps=11, **settings)
    found = fg.exact.moments(problem, algorithm, times=np.arange(12), **settings)
    assert every.shape == (12,)
    assert_allclose(every, found.mse, rtol=1e-9)


@pytest.mark.parametrize("times", [[0], [3], [4], [7, 2, 2, 0], np.array([10, 11])], ids=str)
def test_times_are_answered_one_by_one_and_in_their_order(times) -> None:
    problem, algorithm = setting("linear-n1", (0, 1, 1))
    settings = {"step_size": ALPHA, "sync_period": 4, "order": 3, "initial_params": START[2]}
    every = fg.exact.moments(problem, algorithm, times=np.arange(12), **settings)
    found = fg.exact.moments(problem, algorithm, times=times, **settings)
    assert found.mean.shape == (len(times), 2)
    assert_allclose(found.mse, every.mse[times], rtol=1e-12)
    assert_allclose(found.mean, every.mean[times], rtol=1e-12)
    assert_allclose(found.sync_error, every.sync_error[times], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("K", [1, 6])
@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("linear-sa", 1),
        ("on-policy-n1", 1),
        ("tabular-n1", 1),
        ("linear-n1", 2),
        ("preconditioned-n2", 1),
    ],
)
def test_stationary_error_is_where_a_long_run_ends(name, order, K) -> None:
    problem, algorithm = setting(name, (0, 1, 1))
    settings = {"step_size": ALPHA, "sync_period": K, "order": order}
    start = START[algorithm.dimension(problem)]
    late = fg.exact.moments(problem, algorithm, times=[6000], initial_params=start, **settings)
    assert_allclose(
        fg.exact.stationary_error(problem, algorithm, **settings), late.mse[0], rtol=1e-9
    )


@pytest.mark.parametrize("K", [1, 4])
@pytest.mark.parametrize("decay", [0.5, 0.97])
@pytest.mark.parametrize(("name", "order"), [("linear-sa", 2), ("tabular-n1", 2), ("linear-n2", 1)])
def test_weighted_error_is_the_weighted_sum_of_the_errors(name, order, decay, K) -> None:
    problem, algorithm = setting(name, (0, 1, 1))
    settings = {"step_size": ALPHA, "sync_period": K, "order": order}
    for T in (1, 3, 30):
        mse = fg.exact.moments(problem, algorithm, times=np.arange(T), **settings).mse
        weights = decay ** -np.arange(float(T))
        found = fg.exact.weighted_error(problem, algorithm, num_steps=T, decay=decay, **settings)
        assert_allclose(found, weights @ mse / weights.sum(), rtol=1e-11)


@pytest.mark.parametrize("T", [10**10, 10**14])
def test_endless_run_ends_at_the_stationary_error(T) -> None:
    """Rounding must not add up over the rounds: one part in 2^52 for each of 10^14 would be 2%."""
    problem, algorithm = setting("on-policy-n1", (0, 0, 0))
    settings = {"step_size": ALPHA, "sync_period": 1, "order": 2}
    limit = fg.exact.stationary_error(problem, algorithm, **settings)
    assert_allclose(
        fg.exact.moments(problem, algorithm, times=[T], **settings).mse[0], limit, rtol=1e-9
    )
    weighted = fg.exact.weighted_error(problem, algorithm, num_steps=T, decay=1 - 1e-4, **settings)
    assert_allclose(weighted, limit, rtol=1e-9)


def test_agents_that_never_synchronise_stay_apart() -> None:
    """Every time asked for lies before the first synchronisation."""
    problem, algorithm = setting("linear-n1", (0, 1, 1))
    star = fg.fixed_point(problem, algorithm)
    truth = joint_moments(problem, algorithm, star, ALPHA, 1000, 6)
    for times in ([1], [3], [6], [2, 5]):
        found = fg.exact.moments(
            problem, algorithm, step_size=ALPHA, sync_period=1000, times=times, order=3
        )
        assert_allclose(found.sync_error, truth.sync_error[times], rtol=1e-11)
        assert_allclose(found.mse, truth.mse[times], rtol=1e-12)


@pytest.mark.slow
def test_weighted_error_is_the_mean_of_the_recorded_outputs(assert_mean) -> None:
    problem, algorithm = setting("linear-n1", (0, 1))
    settings = {"step_size": ALPHA, "sync_period": 3, "num_steps": 20}
    engine = fg.engines.Cpu(threads=1)
    outputs = fg.run(
        problem, algorithm, seeds=range(5000), output_decay=0.8, engine=engine, **settings
    ).data.output_squared_error
    assert_mean(outputs, fg.exact.weighted_error(problem, algorithm, decay=0.8, **settings))


# --- Monte Carlo ----------------------------------------------------------------------------------


def assert_monte_carlo(
    name: str, kinds: int, K: int, assert_mean: Any, num_agents: int = 5, worlds: int = 1
) -> None:
    """10^4 seeds, 20 times: the errors, the averages and the sync errors are within 4 standard
    errors."""
    assignment = [(i * i) % 3 % kinds for i in range(num_agents)]
    problem, algorithm = setting(name, assignment, worlds)
    times = np.unique(np.round(np.geomspace(1, 80, 30)).astype(int))[:20]
    start = START[algorithm.dimension(problem)]
    settings = {"step_size": 0.15, "sync_period": K, "initial_params": start}
    found = fg.exact.moments(problem, algorithm, times=times, **settings)
    options = {
        "num_steps": int(times[-1]),
        "record": times,
        "record_params": True,
        "engine": fg.engines.Cpu(threads=1),
    }
    data = fg.run(problem, algorithm, seeds=range(10_000), **settings, **options).data
    assert_mean(data.squared_error_2, found.mse)
    assert_mean(data.average_params, found.mean)
    assert_mean(data.sync_error, found.sync_error)


@pytest.mark.parametrize("name", ["tabular-n1", "linear-n2"])
def test_many_runs_have_the_exact_moments(name, assert_mean) -> None:
    assert_monte_carlo(name, 2, 5, assert_mean)


@pytest.mark.slow
@pytest.mark.parametrize("K", [1, 5, 20])
@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_many_runs_of_every_learner_have_the_exact_moments(name, kinds, K, assert_mean) -> None:
    assert_monte_carlo(name, kinds, K, assert_mean)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["on-policy-n1", "tabular-n2", "linear-n1", "preconditioned-n2"])
def test_many_runs_in_different_worlds_have_the_exact_moments(name, assert_mean) -> None:
    assert_monte_carlo(name, 2, 5, assert_mean, worlds=2)


# --- What more agents bring -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_agent_has_the_same_error_for_every_sync_period(name) -> None:
    problem, algorithm = setting(name, (0,))
    settings = {"step_size": ALPHA, "times": np.arange(25)}
    alone = fg.exact.moments(problem, algorithm, sync_period=1, **settings)
    for K in (2, 5, 20, 1000):
        found = fg.exact.moments(problem, algorithm, sync_period=K, **settings)
        assert_allclose(found.mse, alone.mse, rtol=1e-12)
        assert_allclose(found.mean, alone.mean, rtol=0, atol=1e-13)
        assert_allclose(found.sync_error, 0, atol=1e-13)
    stationary = [
        fg.exact.stationary_error(problem, algorithm, step_size=0.1, sync_period=K)
        for K in (1, 3, 8)
    ]
    assert_allclose(stationary, stationary[0], rtol=1e-10)


@pytest.mark.parametrize("name", ["linear-sa", "on-policy-n1", "tabular-n1", "linear-n1"])
@pytest.mark.parametrize("kinds", [1, 2])
def test_error_is_inverse_to_the_number_of_agents_where_every_step_is_averaged(name, kinds) -> None:
    """From 1 (or one of each kind) to 10^9 agents: the slope in log-log is -1 within 1%."""
    sizes = kinds * 10 ** np.arange(0, 10, 3)
    settings = {"step_size": 0.01, "sync_period": 1, "order": 1}
    errors = [
        fg.exact.stationary_error(*problem_of(name, kinds, num_agents=int(N)), **settings)
        for N in sizes
    ]
    slopes = np.diff(np.log(errors)) / np.diff(np.log(sizes))
    assert_allclose(slopes, -1, atol=0.01)


@pytest.mark.parametrize("kinds", [1, 2])
def test_local_steps_leave_an_error_that_no_number_of_agents_removes(kinds) -> None:
    """With Markov noise or different agents the average is biased between syncs, and the mean of
    10^9 agents is no better."""
    settings = {"step_size": 0.05, "sync_period": 5, "order": 1}
    errors = [
        fg.exact.stationary_error(*problem_of("linear-n1", kinds, num_agents=N), **settings)
        for N in (10**3, 10**7, 10**9)
    ]
    every = fg.exact.stationary_error(
        *problem_of("linear-n1", kinds, num_agents=10**9), **(settings | {"sync_period": 1})
    )
    assert errors[0] > errors[1] > errors[2] > 100 * every
    assert_allclose(errors[1], errors[2], rtol=0.01)


def test_independent_windows_of_like_agents_leave_no_such_error() -> None:
    """Without Markov noise and heterogeneity nothing but the variance is left."""
    settings = {"step_size": 0.05, "sync_period": 5, "times": [4000], "sampling": "iid"}
    few, many = (
        fg.exact.moments(*problem_of("linear-n1", 1, num_agents=N), **settings).mse[0]
        for N in (10**3, 10**6)
    )
    assert_allclose(few / many, 1000, rtol=0.01)


# --- Invariances ----------------------------------------------------------------------------------

SETTINGS = {"step_size": ALPHA, "sync_period": 3, "times": np.arange(9)}


def same(one: Any, other: Any, scale: float = 1.0) -> None:
    assert_allclose(one.mse * scale**2, other.mse, rtol=1e-11)
    assert_allclose(one.sync_error * scale**2, other.sync_error, rtol=1e-11, atol=1e-14 * scale**2)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "linear-sa"])
def test_the_names_of_the_states_do_not_matter(name) -> None:
    problem, algorithm = setting(name, (0, 1, 1))
    p = np.array([2, 0, 1])
    relabelled = fg.Federation(
        fg.MDP(TRANSITIONS[0][p][:, :, p], REWARDS[0][p], GAMMA),
        BEHAVIOR[:, p],
        num_agents=3,
        assignment=[0, 1, 1],
        target_policy=TARGET[p],
        features=PHI[p],
        initial_distribution=FIRST[p],
    )
    same(
        fg.exact.moments(problem, algorithm, **SETTINGS),
        fg.exact.moments(relabelled, algorithm, **SETTINGS),
    )


@pytest.mark.parametrize("name", ["linear-sa", "tabular-n1", "linear-n2", "preconditioned-n1"])
def test_the_order_of_the_agents_does_not_matter(name) -> None:
    first, *others = (
        fg.exact.moments(*setting(name, order), **SETTINGS)
        for order in ((0, 1, 1), (1, 0, 1), (1, 1, 0))
    )
    for other in others:
        same(first, other)
        assert_allclose(first.mean, other.mean, rtol=1e-12)


@pytest.mark.parametrize("name", ["tabular-n1", "linear-n2"])
def test_the_names_of_the_kinds_do_not_matter(name) -> None:
    problem, algorithm = setting(name, (0, 1, 1))
    renamed = fg.Federation(
        problem.mdps[0], BEHAVIOR[::-1], num_agents=3, assignment=[1, 0, 0],
        target_policy=TARGET, features=PHI, initial_distribution=FIRST,
    )  # fmt: skip
    same(
        fg.exact.moments(problem, algorithm, **SETTINGS),
        fg.exact.moments(renamed, algorithm, **SETTINGS),
    )


@pytest.mark.parametrize("name", ["tabular-n1", "linear-n2"])
def test_kinds_that_are_alike_are_one_kind(name) -> None:
    problem, algorithm = setting(name, (0, 0, 0))
    doubled = fg.Federation(
        problem.mdps[0], BEHAVIOR[[0, 0]], num_agents=3, assignment=[0, 1, 1],
        target_policy=TARGET, features=PHI, initial_distribution=FIRST,
    )  # fmt: skip
    same(
        fg.exact.moments(problem, algorithm, **SETTINGS),
        fg.exact.moments(doubled, algorithm, **SETTINGS),
    )


def test_a_kind_without_agents_does_not_matter() -> None:
    problem, algorithm = setting("linear-n1", (0, 0, 0))
    spare = fg.Federation(
        problem.mdps[0], BEHAVIOR, num_agents=3, assignment=[0, 0, 0],
        target_policy=TARGET, features=PHI, initial_distribution=FIRST,
    )  # fmt: skip
    same(
        fg.exact.moments(problem, algorithm, **SETTINGS),
        fg.exact.moments(spare, algorithm, **SETTINGS),
    )


@pytest.mark.parametrize(
    ("name", "scale"),
    [("on-policy-n2", 1e-3), ("tabular-n1", 1e6), ("linear-n1", 7.0), ("preconditioned-n1", 1e-3)],
)
def test_rewards_that_are_scaled_scale_the_errors_by_the_square(name, scale) -> None:
    problem, algorithm = setting(name, (0, 1, 1))
    paid = fg.Federation(
        fg.MDP(TRANSITIONS[0], scale * REWARDS[0], GAMMA),
        BEHAVIOR,
        num_agents=3,
        assignment=[0, 1, 1],
        target_policy=TARGET,
        features=PHI,
        initial_distribution=FIRST,
    )
    same(
        fg.exact.moments(problem, algorithm, **SETTINGS),
        fg.exact.moments(paid, algorithm, **SETTINGS),
        scale,
    )
    errors = [
        fg.exact.stationary_error(each, algorithm, step_size=0.1, sync_period=3, order=1)
        for each in (problem, paid)
    ]
    assert_allclose(errors[1], scale**2 * errors[0], rtol=1e-9)


@pytest.mark.parametrize("name", ["on-policy-n1", "linear-n2", "linear-sa"])
def test_parameters_that_are_turned_turn_the_mean_and_keep_the_errors(name) -> None:
    """A rotation Q of the features, phi -> Q phi, turns the parameters likewise."""
    problem, algorithm = setting(name, (0, 1, 1))
    Q = np.array([[0.6, -0.8], [0.8, 0.6]])
    if name == "linear-sa":
        turned, other = problem, fg.LinearSA(Q @ MATRICES @ Q.T, OFFSETS @ Q.T)
    else:
        other = algorithm
        turned = fg.Federation(
            problem.mdps[0], BEHAVIOR, num_agents=3, assignment=[0, 1, 1],
            target_policy=TARGET, features=PHI @ Q.T, initial_distribution=FIRST,
        )  # fmt: skip
    one, two = (
        fg.exact.moments(problem, algorithm, **SETTINGS),
        fg.exact.moments(turned, other, **SETTINGS),
    )
    same(one, two)
    assert_allclose(two.mean, one.mean @ Q.T, rtol=0, atol=1e-12)


def test_first_moment_obeys_jensen_and_syncs_leave_no_spread() -> None:
    for name in ALGORITHMS:
        problem, algorithm = setting(name, (0, 1, 1))
        found = fg.exact.moments(problem, algorithm, **SETTINGS)
        bias = ((found.mean - fg.fixed_point(problem, algorithm)) ** 2).sum(axis=1)
        assert np.all(bias <= found.mse * (1 + 1e-12))
        at_sync = SETTINGS["times"] % 3 == 0
        assert_allclose(found.sync_error[at_sync], 0, atol=1e-13)
        assert np.all(found.sync_error[~at_sync] > 1e-4)


# --- What is refused ------------------------------------------------------------------------------


def refused(
    message: str, call: Any = None, problem: Any = None, algorithm: Any = None, **changes: Any
) -> str:
    """One sentence of a `ProblemError` that matches `message`."""
    default = setting("linear-n1", (0, 1, 1))
    problem = default[0] if problem is None else problem
    algorithm = default[1] if algorithm is None else algorithm
    call = fg.exact.moments if call is None else call
    settings = {"step_size": 0.1, "sync_period": 2}
    if call is fg.exact.moments:
        settings["times"] = [3]
    with pytest.raises(fg.ProblemError, match=message) as caught:
        call(problem, algorithm, **(settings | changes))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("step_size is 0", {"step_size": 0.0}),
        ("step_size is -1", {"step_size": -1.0}),
        ("step_size is nan", {"step_size": float("nan")}),
        ("sync_period is 0", {"sync_period": 0}),
        (r"sync_period is 1\.5", {"sync_period": 1.5}),
        ("times.*-1", {"times": [-1]}),
        (r"times.*0\.5", {"times": [0.5]}),
        ("order is 0", {"order": 0}),
        ("sampling is 'random'", {"sampling": "random"}),
        ("initial_params.*3.*2", {"initial_params": [0.0, 0.0, 0.0]}),
        ("initial_params.*finite", {"initial_params": [0.0, float("nan")]}),
    ],
    ids=str,
)
def test_bad_settings_are_refused(message, changes) -> None:
    refused(message, **changes)


def test_bad_settings_of_the_other_questions_are_refused() -> None:
    refused("num_steps is 0", fg.exact.mean_squared_error, num_steps=0)
    refused("num_steps is 0", fg.exact.weighted_error, num_steps=0, decay=0.5)
    for decay in (0.0, 1.0, 1.5):
        refused("decay is", fg.exact.weighted_error, num_steps=5, decay=decay)


@pytest.mark.parametrize(
    "call", [fg.exact.moments, fg.exact.stationary_error], ids=["moments", "stationary"]
)
def test_algorithms_that_are_not_linear_are_refused(call) -> None:
    def rule(params, y, kind, out):
        out[0] = -params[0]

    refused("QLearning", call, algorithm=fg.QLearning())
    own = fg.StochasticApproximation(rule, 1, assumptions={"gamma_c": 0.5})
    refused(
        "StochasticApproximation",
        call,
        problem=fg.MarkovNoise([[1.0]], num_agents=1),
        algorithm=own,
    )
    refused("MarkovNoise", call, problem=fg.MarkovNoise([[1.0]], num_agents=1))


def test_too_large_a_problem_is_refused_with_its_size() -> None:
    """100 states, 5 actions and windows of 6 transitions are more than any memory holds."""
    mdp = fg.examples.garnet(100, 5, 5, discount=0.9, seed=0)
    large = fg.Federation(
        mdp,
        fg.policies.random(100, 5, count=1, seed=1)[0],
        num_agents=3,
        target_policy=fg.policies.uniform(100, 5),
    )
    message = refused("windows|modes", problem=large, algorithm=fg.OffPolicyTabularTD(horizon=6))
    assert re.search(r"\d", message)


def test_too_high_an_order_is_refused_with_its_size() -> None:
    mdp = fg.examples.garnet(50, 2, 3, discount=0.9, seed=0)
    large = fg.Federation(mdp, num_agents=8, target_policy=fg.policies.uniform(50, 2))
    message = refused("order", problem=large, algorithm=fg.OffPolicyTabularTD(), order=8)
    assert re.search(r"\d", message)


@pytest.mark.parametrize(
    ("name", "assignment", "K"),
    [
        ("linear-n1", (0, 0, 0), 3),
        pytest.param("tabular-n1", (0, 1, 1), 1, marks=pytest.mark.slow),
        pytest.param("linear-sa", (0, 1, 1), 2, marks=pytest.mark.slow),
    ],
)
def test_step_without_a_limit_is_refused_with_the_largest_stable_one(name, assignment, K) -> None:
    problem, algorithm = setting(name, assignment)
    options = {"problem": problem, "algorithm": algorithm, "sync_period": K}
    message = refused("spectral radius", fg.exact.stationary_error, step_size=30.0, **options)
    radius, largest = _numbers(message)
    assert radius > 1
    assert 0.1 < largest < 30
    assert np.isfinite(
        fg.exact.stationary_error(
            problem, algorithm, step_size=0.98 * largest, sync_period=K, order=1
        )
    )
    refused("spectral radius", fg.exact.stationary_error, step_size=1.02 * largest, **options)
    settings = {
        "step_size": 1.1 * largest,
        "sync_period": K,
        "times": [0, 200 * K, 400 * K],
        "order": 1,
    }
    blown_up = fg.exact.moments(problem, algorithm, **settings).mse
    assert blown_up[2] > blown_up[1] > blown_up[0]


def _numbers(message: str) -> tuple[float, float]:
    """The spectral radius and the largest stable step that the message names, the last of its
    numbers."""
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", message)]
    radius = float(re.search(r"spectral radius (?:of |is )?(\d[\d.e+-]*\d)", message)[1])
    return radius, numbers[-1]


def test_agents_whose_average_runs_away_are_refused() -> None:
    """Every one of them is stable on its own."""
    data = np.load(Path(__file__).parents[1] / "fixtures" / "average_unstable.npz")
    mdp = fg.MDP(data["P"], data["R"], float(data["gamma"]))
    problem = fg.Federation(
        mdp, data["behaviours"], num_agents=4, target_policy=data["pi"], features=data["Phi"]
    )
    algorithm = fg.OffPolicyLinearTD(int(data["n"]))
    for call in (fg.exact.moments, fg.exact.stationary_error):
        refused("eigenvalue|unstable|runs away|diverge", call, problem=problem, algorithm=algorithm)


def garnet_of_four(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return fg.Federation(
        fg.examples.garnet(4, 2, 2, discount=0.9, seed=seed),
        fg.policies.random(4, 2, count=2, seed=1),
        num_agents=50,
        target_policy=fg.policies.uniform(4, 2),
        features=np.linalg.qr(rng.normal(size=(4, 2)))[0],
    )


@pytest.mark.parametrize("seed", range(3))
def test_order_rises_until_another_one_would_change_nothing(seed) -> None:
    problem, settings = (
        garnet_of_four(seed),
        {"step_size": 0.2, "sync_period": 5, "times": [40, 400]},
    )
    found = fg.exact.moments(problem, fg.OffPolicyLinearTD(), **settings)
    finer = fg.exact.moments(problem, fg.OffPolicyLinearTD(), order=found.order + 1, **settings)
    assert found.order > 1
    assert found.truncation <= 1e-9
    assert_allclose(found.mse, finer.mse, rtol=1e-9)
