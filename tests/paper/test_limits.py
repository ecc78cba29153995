"""Where long runs end: at the exact fixed points, and at the answers in the textbook.

A constant step leaves a bias of first order in alpha (Markov noise, local steps between syncs).
Runs at alpha and alpha/2 on the same paths take it out: twice the finer average less the coarser is
the limit up to a term of second order, for which (alpha K)^2 of the size of the limit is allowed
beside 4 standard errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fegsam as fg
from helpers import golden

ALPHA, PERIOD = 0.02, 3
SEEDS = range(64)


def long_run_average(problem: Any, algorithm: Any, alpha: float, K: int, steps: int) -> np.ndarray:
    """(seeds, d): each seed's average over the second half of its run."""
    times = np.arange(steps // 2, steps + 1, round(0.25 / alpha))
    settings = {
        "step_size": alpha,
        "sync_period": K,
        "num_steps": steps,
        "seeds": SEEDS,
        "record": times,
    }
    return fg.run(
        problem, algorithm, **settings, record_params=True
    ).data.average_params.values.mean(axis=1)


def limits(
    problem: Any, algorithm: Any, alpha: float = ALPHA, K: int = PERIOD, steps: int = 30_000
) -> np.ndarray:
    """(seeds, d): each seed's limit, extrapolated to alpha = 0."""
    coarse, fine = (long_run_average(problem, algorithm, a, K, steps) for a in (alpha, alpha / 2))
    return 2 * fine - coarse


def allowance(limit: np.ndarray, alpha: float = ALPHA, K: int = PERIOD) -> float:
    return (alpha * K) ** 2 * max(1.0, np.abs(limit).max())


# --- A problem whose agents disagree --------------------------------------------------------------

WORLDS = (
    np.array(
        [
            [[[7, 1, 2], [1, 6, 3]], [[1, 8, 1], [3, 1, 6]], [[3, 5, 2], [7, 1, 2]]],
            [[[2, 3, 5], [5, 2, 3]], [[2, 6, 2], [1, 7, 2]], [[7, 2, 1], [3, 2, 5]]],
        ]
    )
    / 10
)
PAY = np.array([[[1.0, 0.0], [-1.0, 0.5], [0.5, 2.0]], [[0.0, 1.5], [-0.5, 0.5], [1.0, 0.0]]])
TARGET = np.array([[5, 5], [3, 7], [6, 4]]) / 10
BEHAVIOR = np.array([[[9, 1], [5, 5], [1, 9]], [[3, 7], [9, 1], [5, 5]]]) / 10
PHI = np.array([[1.0, 0.0], [1.0, 1.0], [-0.5, 1.0]])


def federation(worlds: int = 1) -> fg.Federation:
    mdps = [fg.MDP(WORLDS[k], PAY[k], 0.5) for k in range(worlds)]
    return fg.Federation(
        mdps if worlds > 1 else mdps[0],
        behavior_policies=BEHAVIOR,
        num_agents=3,
        assignment=[0, 1, 1],
        target_policy=TARGET,
        features=PHI,
    )


def curved_rule(params, y, kind, out):
    """A nonlinear contraction in both parameters, with noise inside and outside of it."""
    inside = params[1] - 0.5 * y
    out[0] = 0.5 * inside / (1.0 + abs(inside)) - params[0] + y
    out[1] = 0.25 * params[0] - params[1] + (kind + 1) * (0.5 - y)


NOISE = fg.MarkovNoise(
    [[[0.9, 0.1], [0.3, 0.7]], [[0.5, 0.5], [0.1, 0.9]]], num_agents=3, assignment=[0, 1, 1]
)
LINEAR = fg.LinearSA(
    [
        [[[-1.0, 0.3], [0.0, -0.5]], [[-1.5, 0.0], [0.2, -1.0]]],
        [[[-0.5, -0.3], [0.1, -1.0]], [[-1.0, 0.5], [0.0, -0.7]]],
    ],
    [[[1.0, 0.0], [-0.5, 1.0]], [[0.0, -1.0], [2.0, 0.5]]],
)
CURVED = fg.StochasticApproximation(curved_rule, 2, norm=float("inf"), assumptions={"gamma_c": 0.5})

LEARNERS = {
    "linear-sa": (NOISE, LINEAR),
    "nonlinear-sa": (NOISE, CURVED),
    "on-policy-td-n1": (federation(), fg.OnPolicyTD()),
    "on-policy-td-n3": (federation(), fg.OnPolicyTD(horizon=3)),
    "tabular-td-n1": (federation(), fg.OffPolicyTabularTD()),
    "tabular-td-n2": (federation(), fg.OffPolicyTabularTD(horizon=2)),
    "q-learning": (federation(), fg.QLearning()),
    "linear-td-n1": (federation(), fg.OffPolicyLinearTD()),
    "linear-td-n2": (federation(), fg.OffPolicyLinearTD(horizon=2)),
    "preconditioned-n1": (federation(), fg.OffPolicyLinearTD(preconditioned=True)),
    "preconditioned-n2": (federation(), fg.OffPolicyLinearTD(horizon=2, preconditioned=True)),
    "on-policy-td-two-worlds": (federation(worlds=2), fg.OnPolicyTD()),
    "tabular-td-two-worlds": (federation(worlds=2), fg.OffPolicyTabularTD()),
    "q-learning-two-worlds": (federation(worlds=2), fg.QLearning()),
    "linear-td-two-worlds": (federation(worlds=2), fg.OffPolicyLinearTD()),
    "preconditioned-two-worlds": (federation(worlds=2), fg.OffPolicyLinearTD(preconditioned=True)),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_long_run_average_is_at_the_fixed_point(name, assert_mean) -> None:
    problem, algorithm = LEARNERS[name]
    limit = fg.fixed_point(problem, algorithm)
    steps = (
        60_000 if name.startswith("q-learning") else 30_000
    )  # rare cells take longer to forget the start
    assert_mean(limits(problem, algorithm, steps=steps), limit, allowance(limit))


def test_the_fixed_points_of_the_plain_and_the_preconditioned_learner_are_told_apart() -> None:
    """Their gap is many times what the test above tolerates."""
    for horizon in (1, 2):
        plain, other = (
            fg.fixed_point(federation(), fg.OffPolicyLinearTD(horizon, preconditioned=choice))
            for choice in (False, True)
        )
        assert np.abs(plain - other).max() > 0.08


def test_iid_windows_lead_to_the_same_limit(assert_mean) -> None:
    problem, algorithm = federation(), fg.OffPolicyLinearTD()
    limit = fg.fixed_point(problem, algorithm)
    settings = {
        "sync_period": 1,
        "num_steps": 20_000,
        "seeds": SEEDS,
        "record": np.arange(10_000, 20_001, 20),
    }
    data = fg.run(
        problem, algorithm, step_size=ALPHA, **settings, record_params=True, sampling="iid"
    ).data
    # Synchronised at every step, independent windows leave no bias in a linear algorithm.
    assert_mean(data.average_params.mean("time"), limit)


# --- Textbook answers, by one agent ---------------------------------------------------------------


def test_single_agent_td_finds_the_golden_value(assert_mean) -> None:
    alone = golden.federation([golden.B1], num_agents=1)
    assert_mean(
        limits(alone, fg.OffPolicyTabularTD(), K=1), golden.VALUE, allowance(golden.VALUE, K=1)
    )


def test_single_agent_q_learning_finds_the_golden_optimum(assert_mean) -> None:
    alone = golden.federation([golden.B1], num_agents=1)
    assert_mean(
        limits(alone, fg.QLearning(), K=1), golden.OPTIMAL_Q, allowance(golden.OPTIMAL_Q, K=1)
    )


def test_td_finds_the_values_of_a_random_walk_on_a_ring(assert_mean) -> None:
    """Leaving state 0 pays one; the value of state j is the Green's function (b^j + b^(m-j)) /
    ((1-b^m) root)."""
    size, discount = 7, 0.8
    steps = np.arange(size)
    transitions = np.zeros((size, 1, size))
    transitions[steps, 0, (steps + 1) % size] = transitions[steps, 0, (steps - 1) % size] = 0.5
    walk = fg.Federation(
        fg.MDP(transitions, (steps == 0).astype(float)[:, None], discount),
        num_agents=1,
        target_policy=np.ones((size, 1)),
    )
    root = np.sqrt(1 - discount**2)
    base = (1 - root) / discount
    value = (base**steps + base ** (size - steps)) / ((1 - base**size) * root)
    np.testing.assert_allclose(fg.fixed_point(walk, fg.OffPolicyTabularTD()), value, rtol=1e-12)
    learned = limits(walk, fg.OffPolicyTabularTD(), alpha=0.05, K=1)
    assert_mean(learned, value, allowance(value, alpha=0.05, K=1))


# Sutton and Barto, Reinforcement Learning (2nd edition): the gridworld of Examples 3.5 and 3.8,
# gamma = 0.9.
RANDOM_VALUES = [
    [3.3, 8.8, 4.4, 5.3, 1.5],
    [1.5, 3.0, 2.3, 1.9, 0.5],
    [0.1, 0.7, 0.7, 0.4, -0.4],
    [-1.0, -0.4, -0.4, -0.6, -1.2],
    [-1.9, -1.3, -1.2, -1.4, -2.0],
]
OPTIMAL_VALUES = [
    [22.0, 24.4, 22.0, 19.4, 17.5],
    [19.8, 22.0, 19.8, 17.8, 16.0],
    [17.8, 19.8, 17.8, 16.0, 14.4],
    [16.0, 17.8, 16.0, 14.4, 13.0],
    [14.4, 16.0, 14.4, 13.0, 11.7],
]
ROUNDED = 0.05  # the book prints one decimal


def gridworld() -> fg.MDP:
    """North, south, east, west on 5x5 cells; off the grid costs 1; A pays 10 and leads to A', B
    pays 5 and to B'."""
    transitions, rewards = np.zeros((25, 4, 25)), np.zeros((25, 4))
    for state in range(25):
        row, column = divmod(state, 5)
        for action, (down, right) in enumerate([(-1, 0), (1, 0), (0, 1), (0, -1)]):
            there = row + down, column + right
            if (row, column) in ((0, 1), (0, 3)):
                there, rewards[state, action] = ((4, 1), 10) if column == 1 else ((2, 3), 5)
            elif not (0 <= there[0] < 5 and 0 <= there[1] < 5):
                there, rewards[state, action] = (row, column), -1
            transitions[state, action, 5 * there[0] + there[1]] = 1
    return fg.MDP(transitions, rewards, 0.9)


def test_td_finds_the_values_of_the_random_policy_in_the_textbook_gridworld(assert_mean) -> None:
    walk = fg.Federation(gridworld(), num_agents=1, target_policy=fg.policies.uniform(25, 4))
    book = np.ravel(RANDOM_VALUES)
    np.testing.assert_allclose(
        fg.fixed_point(walk, fg.OffPolicyTabularTD()), book, rtol=0, atol=ROUNDED
    )
    learned = limits(walk, fg.OffPolicyTabularTD(), alpha=0.05, K=1, steps=100_000)
    assert_mean(learned, book, ROUNDED + allowance(book, alpha=0.05, K=1))


@pytest.mark.parametrize(("num_agents", "K"), [(1, 1), (4, 10)])
def test_q_learning_solves_the_textbook_gridworld_exactly(num_agents, K) -> None:
    """Nothing is random but the path, so Q-learning converges at a constant step."""
    grid = gridworld()
    problem = fg.Federation(
        grid, behavior_policies=fg.policies.uniform(25, 4), num_agents=num_agents
    )
    data = fg.run(
        problem, fg.QLearning(), step_size=0.9, sync_period=K, num_steps=500_000, seeds=(0, 1)
    ).data
    optimal = fg.fixed_point(problem, fg.QLearning())
    np.testing.assert_allclose(
        optimal.reshape(25, 4).max(axis=1), np.ravel(OPTIMAL_VALUES), rtol=0, atol=ROUNDED
    )
    assert optimal.reshape(25, 4)[1].max() == pytest.approx(
        10 / (1 - 0.9**5), rel=1e-12
    )  # from A to A' and back
    for learned in data.final_params.values:
        np.testing.assert_allclose(learned, optimal, rtol=0, atol=1e-9)
        worth = fg.policy_value(grid, fg.policies.greedy(learned.reshape(25, 4)))
        np.testing.assert_allclose(worth, optimal.reshape(25, 4).max(axis=1), rtol=0, atol=1e-8)
