"""The examples are the environments they are named after."""

from __future__ import annotations

import itertools
import sys
import tracemalloc
from typing import Any, ClassVar

import numpy as np
import pytest

from fegsam.errors import ProblemError
from fegsam.problem import examples, policies
from fegsam.problem.markov_chain import check_ergodic, stationary_law
from fegsam.problem.mdp import MDP


def optimal_values(mdp: MDP) -> np.ndarray:
    values = np.zeros(mdp.num_states)
    for _ in range(100_000):
        worth = mdp.rewards + mdp.discount * (mdp.transitions @ values).reshape(mdp.rewards.shape)
        updated = worth.max(axis=1)
        if np.abs(updated - values).max() < 1e-12:
            break
        values = updated
    return values


def policy_values(mdp: MDP, policy: np.ndarray) -> np.ndarray:
    chain = mdp.policy_chain(policy).toarray()
    return np.linalg.solve(
        np.eye(mdp.num_states) - mdp.discount * chain, mdp.policy_rewards(policy)
    )


# Garnet


@pytest.mark.parametrize("branching", [1, 2, 7, 10])
def test_garnet_rows_have_exactly_the_asked_successors(branching):
    mdp = examples.garnet(10, 3, branching, 0.9, seed=1)
    assert (np.diff(mdp.transitions.indptr) == branching).all()
    assert mdp.rewards.min() >= 0
    assert mdp.rewards.max() <= 1


def test_garnet_depends_on_the_seed_alone():
    first, same, other = (examples.garnet(20, 2, 3, 0.9, seed=s) for s in (4, 4, 5))
    np.testing.assert_array_equal(first.transitions.toarray(), same.transitions.toarray())
    np.testing.assert_array_equal(first.rewards, same.rewards)
    assert not np.array_equal(first.rewards, other.rewards)


def test_garnet_successors_are_uniform_among_all_subsets():
    states, branching = 5, 2
    transitions = examples.garnet(states, 10_000, branching, 0.9, seed=0).transitions
    rows = transitions.indices.reshape(-1, branching)
    subsets = list(itertools.combinations(range(states), branching))
    counts = np.array([(rows == subset).all(axis=1).sum() for subset in subsets])
    expected = len(rows) / len(subsets)
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 27.9  # the 0.999 quantile with 9 degrees of freedom


def test_garnet_probabilities_are_uniform_spacings():
    branching = 4
    data = examples.garnet(10_000, 2, branching, 0.9, seed=2).transitions.data.reshape(
        -1, branching
    )
    np.testing.assert_allclose(data.mean(axis=0), 1 / branching, rtol=0.02)
    np.testing.assert_allclose((data**2).mean(axis=0), 2 / (branching * (branching + 1)), rtol=0.04)


def test_garnet_of_two_hundred_thousand_states_takes_memory_in_proportion_to_its_successors():
    tracemalloc.start()
    mdp = examples.garnet(200_000, 2, 5, 0.9, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert mdp.transitions.nnz == 2_000_000
    assert peak < 100 * mdp.transitions.nnz


@pytest.mark.parametrize(("states", "actions", "branching"), [(200, 1, 2), (50, 2, 1), (30, 3, 2)])
def test_a_connected_garnet_is_ergodic_where_a_plain_one_is_not(states, actions, branching):
    uniform = policies.uniform(states, actions)
    refused = 0
    for seed in range(10):
        check_ergodic(
            examples.garnet(states, actions, branching, 0.9, seed, connected=True).policy_chain(
                uniform
            ),
            "garnet",
        )
        try:
            check_ergodic(
                examples.garnet(states, actions, branching, 0.9, seed).policy_chain(uniform),
                "garnet",
            )
        except ProblemError:
            refused += 1
    assert refused > 0


def test_connecting_a_garnet_changes_no_number_of_successors_and_no_reward():
    plain = examples.garnet(100, 2, 3, 0.9, seed=3)
    connected = examples.garnet(100, 2, 3, 0.9, seed=3, connected=True)
    np.testing.assert_array_equal(plain.rewards, connected.rewards)
    np.testing.assert_array_equal(plain.transitions.indptr, connected.transitions.indptr)


# Textbook environments


@pytest.mark.parametrize("states", range(3, 21))
def test_the_random_walk_is_ergodic_for_every_length(states):
    check_ergodic(
        examples.random_walk(states, 0.9).policy_chain(policies.uniform(states, 2)), "random walk"
    )


def test_the_random_walk_pays_once_in_twice_the_mean_length_of_an_episode():
    mdp = examples.random_walk(19, 0.95)
    uniform = policies.uniform(19, 2)
    law = stationary_law(mdp.policy_chain(uniform))
    np.testing.assert_allclose(law, law[::-1], rtol=1e-12)
    # From the i-th of S states a walk leaves after i (S + 1 - i) steps on average, on either side
    # alike.
    length = 10 * 10 / 2 + 9 * 11 / 2
    np.testing.assert_allclose(law @ mdp.policy_rewards(uniform), 1 / (2 * length), rtol=1e-12)


def test_river_swim_upstream_has_the_law_of_detailed_balance():
    states = 6
    mdp = examples.river_swim(states, 0.95)
    law = stationary_law(mdp.policy_chain(np.tile([0.0, 1.0], (states, 1))))
    up = np.array([0.6] + [0.35] * (states - 2))
    down = np.array([0.05] * (states - 2) + [0.4])
    np.testing.assert_allclose(law[1:] / law[:-1], up / down, rtol=1e-12)
    np.testing.assert_array_equal(mdp.rewards[[0, -1]], [[0.005, 0.0], [0.0, 1.0]])


def test_river_swim_of_two_states_has_both_ends():
    np.testing.assert_array_equal(
        examples.river_swim(2, 0.9).transitions.toarray(), [[1, 0], [0.4, 0.6], [1, 0], [0.4, 0.6]]
    )


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 6), (3, 4)])
def test_the_shortest_way_through_a_grid_without_slips_has_its_closed_form(rows, columns):
    discount = 0.9
    mdp = examples.grid_world(rows, columns, discount, slip=0.0)
    steps = rows + columns - 2
    np.testing.assert_allclose(
        optimal_values(mdp)[0], discount**steps / (1 - discount ** (steps + 1)), rtol=1e-9
    )
    assert mdp.labels is not None
    assert mdp.labels[-1] == (rows - 1, columns - 1)


def test_slips_go_sideways_and_walls_hold():
    mdp = examples.grid_world(3, 3, 0.9, slip=0.2)
    rows = mdp.transitions.toarray().reshape(9, 4, 9)
    np.testing.assert_allclose(rows[4, 0, [1, 3, 5]], [0.8, 0.1, 0.1])  # up, from the centre
    np.testing.assert_allclose(
        rows[0, 0, [0, 1]], [0.9, 0.1]
    )  # up, from the corner: the wall and the left wall hold
    check_ergodic(mdp.policy_chain(policies.uniform(9, 4)), "grid world")


def test_the_two_state_example_has_its_known_answers():
    mdp = examples.two_state()
    laws = {
        (3 / 8, 5 / 8): [[1 / 4, 3 / 4], [1 / 2, 1 / 2]],
        (1 / 2, 1 / 2): [[3 / 4, 1 / 4], [1 / 2, 1 / 2]],
        (5 / 13, 8 / 13): [[1 / 2, 1 / 2], [1 / 4, 3 / 4]],
    }
    for law, policy in laws.items():
        np.testing.assert_allclose(stationary_law(mdp.policy_chain(policy)), law, rtol=1e-14)
    target = np.array([[1 / 2, 1 / 2], [1 / 4, 3 / 4]])
    np.testing.assert_allclose(policy_values(mdp, target), [23 / 29, 11 / 29], rtol=1e-14)
    np.testing.assert_allclose(optimal_values(mdp), [11 / 6, 7 / 6], rtol=1e-10)


def test_a_bandit_is_worth_its_best_arm_for_ever():
    mdp = examples.bandit([0.25, 1.0, -3.0], 0.75)
    assert (mdp.num_states, mdp.num_actions) == (1, 3)
    np.testing.assert_allclose(optimal_values(mdp), [4.0], rtol=1e-10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: examples.garnet(5, 2, 6, 0.9, seed=0),
            "branching is 6, .*there are 5 states: give at most 5",
        ),
        (
            lambda: examples.garnet(0, 2, 1, 0.9, seed=0),
            "states is 0, but must be a whole number of at least 1",
        ),
        (lambda: examples.garnet(5, 2, 2, 1.5, seed=0), r"discount is 1\.5"),
        (lambda: examples.garnet(5, 2, 2, 0.5, seed=-1), "seed is -1"),
        (
            lambda: examples.random_walk(2, 0.9),
            "states is 2, but must be a whole number of at least 3",
        ),
        (
            lambda: examples.river_swim(1, 0.9),
            "states is 1, but must be a whole number of at least 2",
        ),
        (lambda: examples.grid_world(3, 0, 0.9), "columns is 0"),
        (lambda: examples.grid_world(3, 3, 0.9, slip=2), "slip is 2, but must lie between 0 and 1"),
        (
            lambda: examples.two_state(to_second=[0.5, 0.5]),
            r"to_second has shape \(2,\), .*give shape \(2, A\)",
        ),
        (
            lambda: examples.two_state(to_second=[[1.5, 0], [0, 1]]),
            "state 0, action 0 has probability -0.5",
        ),
        (lambda: examples.bandit([], 0.9), r"rewards has shape \(0,\), .*give shape \(A,\)"),
        (lambda: examples.bandit([[1.0]], 0.9), r"rewards has shape \(1, 1\)"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ProblemError, match=message):
        call()


# Gymnasium


@pytest.fixture
def gymnasium():
    return pytest.importorskip("gymnasium")


@pytest.mark.parametrize(
    ("env_id", "options", "states"),
    [
        ("FrozenLake-v1", {}, 16),
        ("FrozenLake-v1", {"is_slippery": False}, 16),
        ("FrozenLake-v1", {"desc": ["SFF", "HHH", "FFG"]}, 6),
        ("FrozenLake8x8-v1", {}, 64),
        ("Taxi-v4", {}, 404),
        ("Taxi-v4", {"is_rainy": True}, 404),
        ("CliffWalking-v1", {}, 38),
        ("CliffWalkingSlippery-v1", {}, 38),
    ],
)
def test_toy_text_tables_are_read_as_they_stand(gymnasium, env_id, options, states):
    mdp = examples.from_gymnasium(env_id, 0.9, **options)
    env = gymnasium.make(env_id, **options).unwrapped
    assert mdp.num_states == states
    labels: Any = mdp.labels
    rows = mdp.transitions.toarray().reshape(states, mdp.num_actions, states)
    start = env.initial_state_distrib[list(labels)]
    assert start.sum() == pytest.approx(1.0, abs=1e-12)
    visited = [results for state in labels for results in env.P[state].values()]
    ending = {
        reached
        for results in visited
        for chance, reached, _, ends in results
        if ends and chance > 0
    }
    for index, state in enumerate(labels):
        for action, results in env.P[state].items():
            expected, reward = np.zeros(env.observation_space.n), 0.0
            for chance, reached, paid, _ in results:
                expected[reached] += chance
                reward += chance * paid
            if state in ending:
                np.testing.assert_allclose(rows[index, action], start, atol=1e-15)
                assert mdp.rewards[index, action] == 0.0
            else:
                np.testing.assert_allclose(rows[index, action], expected[list(labels)], atol=1e-15)
                assert mdp.rewards[index, action] == pytest.approx(reward, abs=1e-12)
    check_ergodic(mdp.policy_chain(policies.uniform(states, mdp.num_actions)), env_id)


def test_optimal_values_of_deterministic_lakes_and_cliffs_include_the_next_episode(gymnasium):
    # Six steps with 1 at the last, a step out of the goal, and so on.
    lake = examples.from_gymnasium("FrozenLake-v1", 0.9, is_slippery=False)
    np.testing.assert_allclose(optimal_values(lake)[0], 0.9**5 / (1 - 0.9**7), rtol=1e-9)
    # Thirteen steps along the cliff at -1 each, and a free one back to the start (state 36 of
    # Gymnasium).
    cliff = examples.from_gymnasium("CliffWalking-v1", 0.9)
    assert cliff.labels is not None
    start = optimal_values(cliff)[cliff.labels.index(36)]
    np.testing.assert_allclose(start, -(1 - 0.9**13) / 0.1 / (1 - 0.9**14), rtol=1e-9)


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        ("NoSuchLake-v1", {}, "Gymnasium cannot make 'NoSuchLake-v1'"),
        ("FrozenLake-v1", {"wet": True}, "Gymnasium cannot make 'FrozenLake-v1': .*wet"),
        (
            "Blackjack-v1",
            {},
            "Blackjack-v1 does not publish its transition table.*use FrozenLake, Taxi or "
            "CliffWalking",
        ),
        (
            "Taxi-v4",
            {"fickle_passenger": True},
            "Taxi-v4 with fickle_passenger=True .*use fickle_passenger=False",
        ),
    ],
)
def test_environments_that_are_no_finite_mdp_are_refused(gymnasium, env_id, options, message):
    with pytest.raises(ProblemError, match=message):
        examples.from_gymnasium(env_id, 0.9, **options)


def test_a_state_that_ends_episodes_only_sometimes_is_refused(gymnasium, monkeypatch):
    class Half:
        P: ClassVar = {
            0: {0: [(0.5, 1, 0.0, True), (0.5, 1, 0.0, False)]},
            1: {0: [(1.0, 0, 0.0, False)]},
        }
        initial_state_distrib = np.array([1.0, 0.0])

        @property
        def unwrapped(self):
            return self

    monkeypatch.setattr(gymnasium, "make", lambda env_id, **options: Half())
    with pytest.raises(
        ProblemError,
        match="Half-v0: state 1 ends the episode after some transitions and not after others",
    ):
        examples.from_gymnasium("Half-v0", 0.9)


def test_without_gymnasium_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ProblemError, match=r"pip install 'fegsam\[gymnasium\]'"):
        examples.from_gymnasium("FrozenLake-v1", 0.9)
