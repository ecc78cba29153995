"""Policies are distributions over actions, drawn and built as their names say."""

from __future__ import annotations

import numpy as np
import pytest

from fegsam.errors import ProblemError
from fegsam.problem import policies


def test_uniform_gives_every_action_the_same_probability():
    np.testing.assert_array_equal(policies.uniform(3, 4), np.full((3, 4), 0.25))


def test_random_policies_are_uniform_on_the_simplex():
    actions, draws = 4, 40_000
    sample = policies.random(draws, actions, count=1, seed=3)[0]
    np.testing.assert_allclose(sample.sum(axis=1), 1.0, rtol=1e-14)
    assert sample.min() > 0
    # Moments of the flat Dirichlet law: mean 1/A, second moment 2/(A(A+1)), mixed moment
    # 1/(A(A+1)).
    np.testing.assert_allclose(sample.mean(axis=0), 1 / actions, rtol=0.02)
    np.testing.assert_allclose((sample**2).mean(axis=0), 2 / (actions * (actions + 1)), rtol=0.03)
    np.testing.assert_allclose(
        (sample[:, 0] * sample[:, 1]).mean(), 1 / (actions * (actions + 1)), rtol=0.03
    )


def test_random_policies_depend_on_the_seed_alone():
    first = policies.random(5, 2, count=3, seed=7)
    assert first.shape == (3, 5, 2)
    np.testing.assert_array_equal(first, policies.random(5, 2, count=3, seed=7))
    assert not np.array_equal(first, policies.random(5, 2, count=3, seed=8))


def test_greedy_takes_the_lowest_index_of_a_tie():
    np.testing.assert_array_equal(policies.greedy([[1, 3, 3], [2, 2, 2]]), [[0, 1, 0], [1, 0, 0]])


def test_epsilon_greedy_goes_from_greedy_to_uniform():
    q = np.random.default_rng(0).normal(size=(6, 3))
    np.testing.assert_array_equal(policies.epsilon_greedy(q, 0.0), policies.greedy(q))
    np.testing.assert_allclose(policies.epsilon_greedy(q, 1.0), policies.uniform(6, 3), rtol=1e-15)
    np.testing.assert_allclose(policies.epsilon_greedy([[0.0, 1.0]], 0.2), [[0.1, 0.9]], rtol=1e-15)


def test_a_checked_policy_is_a_read_only_copy():
    given = np.array([[0.25, 0.75]])
    checked = policies.check_policy(given, 1, 2, "target_policy")
    given[:] = 0
    np.testing.assert_array_equal(checked, [[0.25, 0.75]])
    assert not checked.flags.writeable


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([[0.5, 0.5], [0.5, 0.4]], r"target_policy in state 1 sums to 0\.9, but must sum to one"),
        ([[0.5, 0.5], [1.5, -0.5]], r"target_policy in state 1 has probability -0\.5 at index 1"),
        ([[np.nan, 0.5], [1.0, 0.0]], "target_policy in state 0 has probability nan at index 0"),
        (
            [[1.0, 0.0]],
            r"target_policy has shape \(1, 2\), but the MDP has 2 states and 2 actions: give "
            r"shape \(2, 2\)",
        ),
        ({"left": 1.0}, "target_policy is a dict that cannot be read as an array of real numbers"),
    ],
)
def test_a_bad_policy_is_named_with_its_state(policy, message):
    with pytest.raises(ProblemError, match=message):
        policies.check_policy(policy, 2, 2, "target_policy")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: policies.uniform(0, 2), "states is 0, but must be a whole number of at least 1"),
        (
            lambda: policies.uniform(2, 1.5),
            r"actions is 1\.5, but must be a whole "
            r"number",
        ),  # type: ignore[arg-type]
        (
            lambda: policies.random(2, 2, count=True, seed=0),
            "count is True, but must be a whole number",
        ),
        (
            lambda: policies.random(2, 2, count=1, seed=-1),
            "seed is -1, but must be a whole number of at least 0",
        ),
        (lambda: policies.greedy([1.0, 2.0]), r"q has shape \(2,\), .*give shape \(S, A\)"),
        (lambda: policies.greedy([[1.0, np.nan]]), r"q\[0, 1\] is nan"),
        (
            lambda: policies.epsilon_greedy([[1.0, 2.0]], 1.5),
            r"epsilon is 1\.5, but must lie between 0 and 1",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ProblemError, match=message):
        call()


def test_coverage_names_the_first_agent_kind_state_and_action_left_out():
    target = np.array([[0.5, 0.5], [0.0, 1.0]])
    covering = np.array([[0.1, 0.9], [0.0, 1.0]])
    policies.check_coverage(target, np.stack([target, covering]), "OffPolicyTabularTD")
    missing = np.array([[0.1, 0.9], [1.0, 0.0]])
    message = (
        r"OffPolicyTabularTD: agent kind 2 never takes action 1 in state 1, but target_policy "
        r"does with probability 1, and with its own importance ratios the agents would learn the "
        r"value of another policy: "
        r"make behavior_policies\[2, 1, 1\] positive"
    )
    with pytest.raises(ProblemError, match=message):
        policies.check_coverage(target, np.stack([covering, target, missing]), "OffPolicyTabularTD")
