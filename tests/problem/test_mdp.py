"""The MDP keeps what it is given, exactly and read-only, and refuses what is not one."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fegsam.errors import ProblemError
from fegsam.problem.mdp import MDP

TRANSITIONS = np.array([[[0.75, 0.25], [0.25, 0.75]], [[0.5, 0.5], [0.0, 1.0]]])
REWARDS = np.array([[1.0, 0.0], [-1.0, 0.5]])


def random_mdp(seed: int, states: int, actions: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    transitions = rng.random((states, actions, states)) * (
        rng.random((states, actions, states)) < 0.5
    )
    transitions[:, :, 0] += 0.1
    return transitions / transitions.sum(axis=2, keepdims=True), rng.normal(size=(states, actions))


def test_dense_transitions_are_stored_by_state_and_action():
    mdp = MDP(TRANSITIONS, REWARDS, 0.5)
    assert mdp.transitions.shape == (4, 2)
    np.testing.assert_array_equal(mdp.transitions.toarray().reshape(2, 2, 2), TRANSITIONS)
    assert (mdp.num_states, mdp.num_actions, mdp.discount, mdp.labels) == (2, 2, 0.5, None)
    assert repr(mdp) == "MDP(states=2, actions=2, discount=0.5, successors=7)"


@pytest.mark.parametrize(
    "form",
    [sparse.csr_array, sparse.coo_array, sparse.csc_matrix, sparse.lil_array, sparse.dok_array],
)
def test_every_sparse_form_gives_the_same_mdp_as_the_dense_one(form):
    dense = MDP(TRANSITIONS, REWARDS, 0.5).transitions
    given_sparse = MDP(form(TRANSITIONS.reshape(4, 2)), REWARDS, 0.5).transitions
    for part in ("data", "indices", "indptr"):
        left, right = getattr(dense, part), getattr(given_sparse, part)
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def test_duplicates_are_summed_and_explicit_zeros_dropped():
    entries = ([0.5, 0.5, 0.0, 1.0], ([0, 0, 1, 1], [1, 1, 1, 0]))
    mdp = MDP(sparse.coo_array(entries, shape=(2, 2)), [[0.0], [0.0]], 0.5)
    np.testing.assert_array_equal(mdp.transitions.indices, [1, 0])
    np.testing.assert_array_equal(mdp.transitions.data, [1.0, 1.0])


def test_long_indices_are_narrowed_so_that_equal_mdps_have_equal_bytes():
    wide = sparse.csr_array(TRANSITIONS.reshape(4, 2))
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert MDP(wide, REWARDS, 0.5).transitions.indices.dtype == np.int32


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    states=st.integers(1, 8),
    actions=st.integers(1, 4),
    error=st.floats(-9e-9, 9e-9),
)
def test_rows_off_by_up_to_1e_8_are_divided_by_their_sum(seed, states, actions, error):
    transitions, rewards = random_mdp(seed, states, actions)
    mdp = MDP(transitions * (1.0 + error), rewards, 0.9)
    np.testing.assert_allclose(
        mdp.transitions.sum(axis=1), 1.0, rtol=0, atol=states * np.finfo(float).eps
    )
    np.testing.assert_allclose(
        mdp.transitions.toarray().reshape(transitions.shape), transitions, rtol=1e-14
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), states=st.integers(1, 30), actions=st.integers(1, 4))
def test_rebuilding_an_mdp_from_its_parts_changes_no_bit(seed, states, actions):
    mdp = MDP(*random_mdp(seed, states, actions), 0.9)
    again = MDP(mdp.transitions, mdp.rewards, mdp.discount)
    np.testing.assert_array_equal(mdp.transitions.data, again.transitions.data)


def test_an_mdp_is_frozen_and_keeps_copies():
    transitions, rewards = TRANSITIONS.copy(), REWARDS.copy()
    mdp = MDP(transitions, rewards, 0.5)
    transitions[:], rewards[:] = 7.0, 7.0
    np.testing.assert_array_equal(mdp.transitions.toarray().ravel(), TRANSITIONS.ravel())
    for array in (
        mdp.rewards,
        mdp.transitions.data,
        mdp.transitions.indices,
        mdp.transitions.indptr,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        mdp.discount = 0.9  # type: ignore[misc]


def test_an_mdp_survives_pickling():
    mdp = pickle.loads(pickle.dumps(MDP(TRANSITIONS, REWARDS, 0.5, labels="ab")))
    np.testing.assert_array_equal(mdp.transitions.toarray().ravel(), TRANSITIONS.ravel())
    assert mdp.labels == ("a", "b")


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), states=st.integers(1, 8), actions=st.integers(1, 4))
def test_policy_chain_and_rewards_are_the_weighted_sums_of_their_definition(seed, states, actions):
    transitions, rewards = random_mdp(seed, states, actions)
    policy = np.random.default_rng(seed).dirichlet(np.ones(actions), states)
    mdp = MDP(transitions, rewards, 0.9)
    chain = mdp.policy_chain(policy)
    expected = np.einsum("sa,sat->st", policy, transitions)
    np.testing.assert_allclose(chain.toarray(), expected, rtol=1e-13)
    assert chain.has_sorted_indices
    np.testing.assert_allclose(
        mdp.policy_rewards(policy), (policy * rewards).sum(axis=1), rtol=1e-12, atol=1e-14
    )


def test_policy_chain_has_no_edge_for_actions_never_taken():
    chain = MDP(TRANSITIONS, REWARDS, 0.5).policy_chain([[1.0, 0.0], [0.0, 1.0]])
    assert chain.nnz == 3
    np.testing.assert_array_equal(chain.toarray(), [[0.75, 0.25], [0.0, 1.0]])


def broken(state: int, action: int, reached: int, value: float) -> np.ndarray:
    transitions = TRANSITIONS.copy()
    transitions[state, action, reached] = value
    return transitions


@pytest.mark.parametrize(
    ("transitions", "rewards", "discount", "message"),
    [
        (
            broken(1, 0, 0, 0.4),
            REWARDS,
            0.5,
            r"state 1, action 0 sums to 0\.9, .*divide the row by its sum",
        ),
        (TRANSITIONS * (1 + 2e-8), REWARDS, 0.5, r"state 0, action 0 sums to 1\.00000002"),
        (np.zeros((2, 2, 2)), REWARDS, 0.5, "state 0, action 0 sums to 0, "),
        (
            broken(0, 1, 1, -0.75),
            REWARDS,
            0.5,
            r"state 0, action 1 has probability -0\.75 at index 1, .*not negative",
        ),
        (
            broken(1, 1, 0, np.nan),
            REWARDS,
            0.5,
            "state 1, action 1 has probability nan at index 0, .*finite",
        ),
        (broken(1, 1, 0, np.inf), REWARDS, 0.5, "state 1, action 1 has probability inf at index 0"),
        (
            TRANSITIONS[:, :1],
            REWARDS,
            0.5,
            r"transitions has shape \(2, 1, 2\), .*call for \(2, 2, 2\)",
        ),
        (
            TRANSITIONS.reshape(4, 2),
            REWARDS,
            0.5,
            r"transitions has shape \(4, 2\), .*scipy sparse ones as \(S\*A, S\)",
        ),
        (
            sparse.csr_array(np.eye(3)),
            REWARDS,
            0.5,
            r"transitions has shape \(3, 3\), .*call for \(4, 2\)",
        ),
        (
            "nonsense",
            REWARDS,
            0.5,
            r"transitions is a str that cannot be read .*give an array of shape \(S, A, S\)",
        ),
        ([[1.0], [1.0, 2.0]], REWARDS, 0.5, "transitions is a list that cannot be read"),
        (
            TRANSITIONS + 0j,
            REWARDS,
            0.5,
            "transitions is a ndarray that cannot be read as an array of real numbers",
        ),
        (TRANSITIONS, [1.0, 2.0], 0.5, r"rewards has shape \(2,\), .*give shape \(S, A\)"),
        (TRANSITIONS, np.zeros((0, 2)), 0.5, r"rewards has shape \(0, 2\), .*at least one of each"),
        (
            TRANSITIONS,
            [[0.0, np.nan], [0.0, 0.0]],
            0.5,
            r"rewards\[0, 1\] is nan, but must be finite",
        ),
        (
            TRANSITIONS,
            [[0.0, 0.0], [np.inf, 0.0]],
            0.5,
            r"rewards\[1, 0\] is inf, but must be finite",
        ),
        (TRANSITIONS, REWARDS, 1.0, r"discount is 1\.0, but must lie strictly between 0 and 1"),
        (TRANSITIONS, REWARDS, 0.0, r"discount is 0\.0, "),
        (TRANSITIONS, REWARDS, float("nan"), "discount is nan, "),
        (TRANSITIONS, REWARDS, "high", "discount is 'high', "),
    ],
)
def test_bad_input_is_named_with_its_place_and_cure(transitions, rewards, discount, message):
    with pytest.raises(ProblemError, match=message):
        MDP(transitions, rewards, discount)


def test_labels_must_be_one_per_state():
    with pytest.raises(
        ProblemError, match="labels has 3 entries for 2 states: give one label per state"
    ):
        MDP(TRANSITIONS, REWARDS, 0.5, labels="abc")


@pytest.mark.parametrize("method", ["policy_chain", "policy_rewards"])
def test_a_policy_of_the_wrong_shape_is_refused(method):
    with pytest.raises(ProblemError, match=r"policy has shape \(1, 2\), .*give shape \(2, 2\)"):
        getattr(MDP(TRANSITIONS, REWARDS, 0.5), method)([[0.5, 0.5]])
