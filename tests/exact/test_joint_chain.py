"""The oracle `joint_chain` itself: against golden enumerations, closed forms and every joint path
replayed.

No library code runs here but the containers of the problems: `joint_chain` and `pseudocode` vouch
for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fegsam as fg
import pseudocode
from helpers import golden
from helpers.joint_chain import joint_moments

B1, B2 = golden.B1, golden.B2
DIGITS = {"rtol": 0, "atol": 1e-11}  # the golden numbers carry twelve decimals


def golden_moments(algorithm: Any, T: int, truth: Any = (0.0,), **changes: Any) -> Any:
    """Step size 1/2, sync period 2, zero start."""
    return joint_moments(golden.federation(**changes), algorithm, np.array(truth), 0.5, 2, T)


# --- Golden enumerations --------------------------------------------------------------------------


def test_linear_td_has_its_golden_moments() -> None:
    found = golden_moments(fg.OffPolicyLinearTD(), T=4)
    assert_allclose(found.mean[1:, 0], golden.ALG5_N1_MEAN, **DIGITS)
    assert_allclose(found.mse[1:], golden.ALG5_N1_SQUARE, **DIGITS)
    assert_allclose(found.sync_error[1:], golden.ALG5_N1_SYNC_ERROR, **DIGITS)


def test_linear_td_with_two_step_windows_has_its_golden_moments() -> None:
    found = golden_moments(fg.OffPolicyLinearTD(horizon=2), T=3)
    assert_allclose(found.mean[1:, 0], golden.ALG5_N2_MEAN, **DIGITS)
    assert_allclose(found.mse[1:], golden.ALG5_N2_SQUARE, **DIGITS)


@pytest.mark.parametrize(
    ("num_agents", "squares"),
    [(1, golden.ONE_AGENT_SQUARE), (2, golden.TWO_LIKE_AGENTS_SQUARE)],
    ids=["one", "two"],
)
def test_like_agents_have_their_golden_moments(num_agents, squares) -> None:
    found = golden_moments(fg.OffPolicyLinearTD(), T=4, policies=[B1], num_agents=num_agents)
    assert_allclose(found.mse[1:], squares, **DIGITS)


@pytest.mark.parametrize(
    ("horizon", "T", "law"), [(1, 3, golden.TABULAR_N1_T3), (2, 2, golden.TABULAR_N2_T2)]
)
def test_tabular_td_has_its_golden_moments(horizon, T, law) -> None:
    found = golden_moments(fg.OffPolicyTabularTD(horizon), T, golden.VALUE)
    assert_allclose(found.mean[-1], law[0], **DIGITS)
    assert_allclose(found.mse[-1], law[1], **DIGITS)


# --- Closed forms ---------------------------------------------------------------------------------


def averaging(values: Sequence[float]) -> fg.LinearSA:
    return fg.LinearSA(np.full((1, len(values), 1, 1), -1.0), np.reshape(values, (1, -1, 1)))


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("num_agents", [1, 3])
@pytest.mark.parametrize(
    "kernel", [[[0.5, 0.5], [0.5, 0.5]], [[0.75, 0.25], [0.25, 0.75]]], ids=["coin", "flip"]
)
def test_average_of_independent_draws_has_its_closed_form(kernel, num_agents, K) -> None:
    """The flip chain too, where every state is drawn afresh: sampling="iid"."""
    noise = fg.MarkovNoise(kernel, num_agents=num_agents)
    found = joint_moments(
        noise, averaging([2.0, -2.0]), np.zeros(1), 0.1, K, 10, [3.0], sampling="iid"
    )
    floor, t = 0.1 * 4 / (num_agents * 1.9), np.arange(11)
    assert_allclose(found.mse, (9 - floor) * 0.9 ** (2 * t) + floor, rtol=1e-13)
    assert_allclose(found.mean[:, 0], 3 * 0.9**t, rtol=1e-13)


@pytest.mark.parametrize(("num_agents", "K"), [(1, 1), (3, 1), (3, 7)])
def test_additive_markov_noise_reaches_its_stationary_error(num_agents, K) -> None:
    noise = fg.MarkovNoise([[0.75, 0.25], [0.25, 0.75]], num_agents=num_agents)
    found = joint_moments(noise, averaging([2.0, -2.0]), np.zeros(1), 0.1, K, 350)
    assert_allclose(found.mse[-1], 0.5550239234449761 / num_agents, rtol=1e-12)


# --- Every joint path of a problem whose agents differ in all that can differ ---------------------

RNG = np.random.default_rng(5)
KERNELS = np.array(
    [[[[0.3, 0.7], [0.6, 0.4]], [[1, 0], [0, 1]]], [[[0, 1], [1, 0]], [[1, 0], [0, 1]]]]
)  # some sure: few paths
REWARDS = RNG.normal(size=(2, 2, 2))
BEHAVIOR = 0.1 + 0.8 * RNG.dirichlet(np.ones(2), (2, 2))
TARGET = RNG.dirichlet(np.ones(2), 2)
PHI = RNG.normal(size=(2, 2))
FIRST = np.array([0.3, 0.7])
KINDS = [1, 0]
START = np.array([0.5, -1.0])
TRUTH = np.array([0.2, 0.1])
GAMMA, ALPHA, PERIOD = 0.8, 0.4, 2


def two_worlds() -> fg.Federation:
    mdps = [fg.MDP(KERNELS[k], REWARDS[k], GAMMA) for k in range(2)]
    tables = {"target_policy": TARGET, "features": PHI, "initial_distribution": FIRST}
    return fg.Federation(mdps, BEHAVIOR, num_agents=2, assignment=KINDS, **tables)


def paths(
    kernel: np.ndarray, policy: np.ndarray, first: np.ndarray, length: int
) -> Iterator[tuple[Any, Any, float]]:
    """Every path of `length` transitions: its states, its actions, its probability."""
    for s, *draws in product(range(2), repeat=2 * length + 1):
        actions, states = draws[::2], [s, *draws[1::2]]
        steps = zip(states[:-1], actions, states[1:], strict=True)
        chance = first[s] * prod(policy[s, a] * kernel[s, a, after] for s, a, after in steps)
        if chance > 0:
            yield np.array(states), np.array(actions), chance


def windows(
    kernel: np.ndarray, policy: np.ndarray, n: int, T: int
) -> Iterator[tuple[Any, Any, float]]:
    """Every sequence of T windows, each from the stationary law."""
    law = pseudocode.stationary_law(kernel, policy)
    for drawn in product(list(paths(kernel, policy, law, n)), repeat=T):
        states, actions, chances = zip(*drawn, strict=True)
        yield np.array(states), np.array(actions), prod(chances)


def replay(
    oracle: Any, per_agent: Sequence[Iterator[tuple[Any, Any, float]]], T: int, **tables: Any
) -> Any:
    """The weights of all joint paths, and the parameters (T+1, N, d) that the transcribed algorithm
    has on each."""
    weights, params = [], []
    for joint in product(*(list(agent) for agent in per_agent)):
        states, actions, chances = zip(*joint, strict=True)
        trace = oracle(
            states, actions, kinds=KINDS, alpha=ALPHA, K=PERIOD, T=T, start=START, **tables
        )
        weights.append(prod(chances))
        params.append(trace.params)
    return np.array(weights), np.array(params)


def assert_moments(found: Any, weights: np.ndarray, params: np.ndarray) -> None:
    average = params.mean(axis=2)
    assert_allclose(weights.sum(), 1, rtol=1e-13)
    assert_allclose(found.mean, np.tensordot(weights, average, 1), rtol=0, atol=1e-12)
    assert_allclose(found.mse, weights @ ((average - TRUTH) ** 2).sum(axis=2), rtol=1e-12)
    spread = ((params - average[:, :, None]) ** 2).sum(axis=3).mean(axis=2)
    assert_allclose(found.sync_error, weights @ spread, rtol=1e-12, atol=1e-15)


ORACLES = {
    "on-policy": (fg.OnPolicyTD, pseudocode.algorithm_2, {"features": PHI}),
    "tabular": (
        fg.OffPolicyTabularTD,
        pseudocode.algorithm_3,
        {"target": TARGET, "behavior": BEHAVIOR},
    ),
    "linear": (
        fg.OffPolicyLinearTD,
        pseudocode.algorithm_5,
        {"features": PHI, "target": TARGET, "behavior": BEHAVIOR},
    ),
}


@pytest.mark.parametrize("sampling", ["markov", "iid"])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", [*ORACLES, "preconditioned"])
def test_moments_are_those_of_all_joint_paths(name, n, sampling) -> None:
    """Two agents in two environments with two policies, a sync in the middle."""
    make, oracle, tables = ORACLES["linear" if name == "preconditioned" else name]
    algorithm = make(n)
    if name == "preconditioned":
        algorithm = make(n, preconditioned=True)
        inverses = [pseudocode.preconditioner(KERNELS[k], BEHAVIOR[k], PHI) for k in range(2)]
        tables = tables | {"preconditioners": inverses}
    T = 3 if sampling == "markov" else 3 - n
    followed = [TARGET if name == "on-policy" else BEHAVIOR[k] for k in range(2)]
    if sampling == "markov":
        per_agent = [paths(KERNELS[k], followed[k], FIRST, T + n - 1) for k in KINDS]
    else:
        per_agent = [windows(KERNELS[k], followed[k], n, T) for k in KINDS]
    law = replay(oracle, per_agent, T, rewards=REWARDS, gamma=GAMMA, n=n, **tables)
    found = joint_moments(two_worlds(), algorithm, TRUTH, ALPHA, PERIOD, T, START, sampling)
    assert_moments(found, *law)


def test_moments_of_linear_approximation_are_those_of_all_joint_paths() -> None:
    matrices, offsets = RNG.normal(size=(2, 2, 2, 2)), RNG.normal(size=(2, 2, 2))
    kernels, T = np.array([[[0.2, 0.8], [0.5, 0.5]], [[0.9, 0.1], [0.3, 0.7]]]), 4

    def walks(kernel: np.ndarray) -> Iterator[tuple[Any, Any, float]]:
        for states in product(range(2), repeat=T):
            moves = prod(kernel[s, after] for s, after in pairwise(states))
            yield np.array(states), None, FIRST[states[0]] * moves

    def oracle(states: Any, _: Any, **settings: Any) -> pseudocode.Trace:
        return pseudocode.algorithm_1_linear(states, matrices, offsets, **settings)

    noise = fg.MarkovNoise(kernels, num_agents=2, assignment=KINDS, initial_distribution=FIRST)
    found = joint_moments(noise, fg.LinearSA(matrices, offsets), TRUTH, ALPHA, PERIOD, T, START)
    assert_moments(found, *replay(oracle, [walks(kernels[k]) for k in KINDS], T))
