"""Who learns what: kinds, assignments, fingerprints, and every way to state a federation
wrongly."""

from __future__ import annotations

import dataclasses
import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse

from fegsam.errors import ProblemError
from fegsam.problem import examples, policies
from fegsam.problem.federation import Federation, MarkovNoise

MDP_2 = examples.two_state()
BEHAVIORS = np.array([[[0.25, 0.75], [0.5, 0.5]], [[0.75, 0.25], [0.5, 0.5]]])
TARGET = np.array([[0.5, 0.5], [0.25, 0.75]])
KERNEL = np.array([[0.75, 0.25], [0.5, 0.5]])


def test_agents_take_turns_among_the_kinds():
    fed = Federation(MDP_2, BEHAVIORS, num_agents=5)
    np.testing.assert_array_equal(fed.assignment, [0, 1, 0, 1, 0])
    np.testing.assert_array_equal(fed.kind_counts, [3, 2])
    assert (fed.num_agents, fed.num_kinds, fed.num_states, fed.num_actions, fed.discount) == (
        5,
        2,
        2,
        2,
        0.5,
    )


def test_an_assignment_may_leave_a_kind_without_agents():
    fed = Federation(MDP_2, BEHAVIORS, num_agents=3, assignment=[1, 1, 1])
    np.testing.assert_array_equal(fed.kind_counts, [0, 3])


def test_kinds_without_an_agent_are_warned_of_unless_an_assignment_is_given():
    mdp, uniform = examples.two_state(), policies.uniform(2, 2)
    several = np.stack([uniform] * 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Federation(mdp, several, num_agents=2, assignment=range(2))
        Federation(mdp, several, num_agents=4)
        MarkovNoise(several, num_agents=4)
    with pytest.warns(UserWarning, match="num_agents is 3, so kind 3 has no agent.*give"):
        Federation(mdp, several, num_agents=3)
    with pytest.warns(UserWarning, match="4 kernels and num_agents is 1.*kinds 1 to 3"):
        MarkovNoise(several, num_agents=1)


def test_one_policy_serves_all_kinds_of_environment():
    fed = Federation([MDP_2, MDP_2, MDP_2], BEHAVIORS[0], num_agents=4)
    assert fed.num_kinds == 3
    assert fed.behavior_policies is not None
    assert fed.behavior_policies.shape == (1, 2, 2)
    assert [fed.mdp_index(k) for k in range(3)] == [0, 1, 2]


def test_one_environment_serves_all_kinds_of_policy():
    fed = Federation(MDP_2, BEHAVIORS, num_agents=4)
    assert [fed.mdp_index(k) for k in range(2)] == [0, 0]


def test_what_is_left_out_is_none_and_the_start_is_uniform():
    fed = Federation(MDP_2, num_agents=1)
    assert fed.num_kinds == 1
    assert fed.behavior_policies is None
    assert fed.target_policy is None
    assert fed.features is None
    np.testing.assert_array_equal(fed.initial_distribution, [0.5, 0.5])


def full_federation(**changes):
    arguments = {
        "mdp": MDP_2,
        "behavior_policies": BEHAVIORS,
        "num_agents": 4,
        "target_policy": TARGET,
        "features": [[1.0], [0.5]],
        "initial_distribution": [1.0, 0.0],
    }
    return Federation(**(arguments | changes))


def test_a_federation_is_frozen_and_its_arrays_are_read_only():
    fed = full_federation()
    for field in dataclasses.fields(fed):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(fed, field.name, None)
        value = getattr(fed, field.name)
        if isinstance(value, np.ndarray):
            assert not value.flags.writeable, field.name


def test_equal_federations_have_equal_fingerprints_however_they_were_written():
    dense = full_federation()
    rebuilt = examples.MDP(
        sparse.coo_array(MDP_2.transitions), MDP_2.rewards.tolist(), 0.5, labels="ab"
    )
    assert (
        full_federation(mdp=rebuilt, assignment=np.array([0, 1, 0, 1], np.int8)).fingerprint()
        == dense.fingerprint()
    )
    assert pickle.loads(pickle.dumps(dense)).fingerprint() == dense.fingerprint()
    assert len(dense.fingerprint()) == 64


@pytest.mark.parametrize(
    "changes",
    [
        {"mdp": examples.two_state(discount=0.25)},
        {"mdp": examples.two_state(rewards=((1, 0), (-1, 0.25)))},
        {"mdp": examples.two_state(to_second=((0.25, 0.75), (0.5, 0.5)))},
        {"mdp": [MDP_2, MDP_2]},
        {"behavior_policies": BEHAVIORS[::-1]},
        {"behavior_policies": None},
        {"num_agents": 5},
        {"assignment": [0, 0, 1, 1]},
        {"target_policy": BEHAVIORS[0]},
        {"target_policy": None},
        {"features": [[1.0], [0.25]]},
        {"features": None},
        {"initial_distribution": None},
    ],
)
def test_any_change_of_the_problem_changes_its_fingerprint(changes):
    assert full_federation(**changes).fingerprint() != full_federation().fingerprint()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mdp": []}, r"mdp is \[\], but a federation needs an MDP or a sequence of them"),
        ({"mdp": 3}, "mdp is 3, but a federation needs an MDP"),
        ({"mdp": [MDP_2, "x"]}, "but a federation needs an MDP"),
        (
            {"mdp": [MDP_2, examples.two_state(discount=0.9)]},
            r"MDP 1 has discount 0\.9 and MDP 0 has 0\.5, .*give MDPs of equal discount",
        ),
        (
            {"mdp": [MDP_2, examples.garnet(3, 2, 2, 0.5, seed=0)]},
            "MDP 1 has num_states 3 and MDP 0 has 2, .*give MDPs of equal num_states",
        ),
        (
            {"mdp": [MDP_2, examples.garnet(2, 3, 2, 0.5, seed=0)]},
            "MDP 1 has num_actions 3 and MDP 0 has 2, .*give MDPs of equal num_actions",
        ),
        (
            {"mdp": [MDP_2] * 3},
            "there are 3 MDPs and 2 behavior_policies, .*give one of either, or as many of both",
        ),
        ({"num_agents": None}, "num_agents is missing, .*give num_agents=N"),
        ({"num_agents": 0}, "num_agents is 0, but must be a whole number of at least 1"),
        ({"num_agents": 2.5}, r"num_agents is 2\.5, but must be a whole number"),
        ({"assignment": [0, 1, 2, 0]}, r"assignment\[2\] is 2, but the kinds are numbered 0 to 1"),
        (
            {"assignment": [0, 1, 1, -1]},
            r"assignment\[3\] is -1, but the kinds are numbered 0 to 1",
        ),
        ({"assignment": [0, 1]}, r"assignment has shape \(2,\) .*give \(4,\) whole numbers"),
        ({"assignment": [0.0, 1.0, 0.0, 1.0]}, "assignment has shape .*type float64"),
        (
            {"behavior_policies": BEHAVIORS[:, :1]},
            r"behavior_policies has shape \(2, 1, 2\), .*give shape \(M, 2, 2\)",
        ),
        ({"behavior_policies": BEHAVIORS[:0]}, r"behavior_policies has shape \(0, 2, 2\)"),
        ({"behavior_policies": [0.5, 0.5]}, r"behavior_policies has shape \(2,\)"),
        (
            {"behavior_policies": BEHAVIORS * [[[1.0]], [[0.5]]]},
            r"behavior_policies of agent kind 1 in state 0 sums to 0\.5",
        ),
        (
            {"behavior_policies": [BEHAVIORS[0], [[0.5, 0.5], [-1.0, 2.0]]]},
            r"behavior_policies of agent kind 1 in state 1 has probability -1\.0 at index 0",
        ),
        ({"target_policy": TARGET * 2}, "target_policy in state 0 sums to 2"),
        ({"target_policy": TARGET[0]}, r"target_policy has shape \(2,\), .*give shape \(2, 2\)"),
        (
            {"features": [1.0, 0.5]},
            r"features has shape \(2,\), .*give shape \(2, d\) with d at least 1",
        ),
        (
            {"features": np.ones((3, 1))},
            r"features has shape \(3, 1\), but needs one row for each of the 2 states",
        ),
        ({"features": np.ones((2, 0))}, r"features has shape \(2, 0\)"),
        (
            {"features": [[1.0, 2.0], [2.0, 4.0]]},
            "features has 2 columns but rank 1, .*drop the columns",
        ),
        ({"features": np.ones((2, 3))}, "features has 3 columns but rank 1"),
        ({"features": np.zeros((2, 1))}, "features has 1 columns but rank 0"),
        ({"features": [[1.0], [np.nan]]}, r"features\[1, 0\] is nan"),
        ({"initial_distribution": [0.5, 0.4]}, r"initial_distribution sums to 0\.9"),
        (
            {"initial_distribution": [1.5, -0.5]},
            r"initial_distribution has probability -0\.5 at index 1",
        ),
        (
            {"initial_distribution": [1.0]},
            r"initial_distribution has shape \(1,\), .*give shape \(2,\)",
        ),
    ],
)
def test_bad_input_is_named_with_its_place_and_cure(changes, message):
    with pytest.raises(ProblemError, match=message):
        full_federation(**changes)


def test_features_of_full_rank_pass_however_badly_scaled():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(2, 2)) * [1e-8, 1.0]
    stored = full_federation(features=features).features
    np.testing.assert_array_equal(stored, features)


@pytest.mark.parametrize(
    "kernels",
    [
        KERNEL,
        KERNEL[None],
        sparse.csr_array(KERNEL),
        [sparse.coo_array(KERNEL)],
        [sparse.csc_matrix(KERNEL)],
        [KERNEL],
    ],
)
def test_every_form_of_the_kernel_gives_the_same_noise(kernels):
    noise = MarkovNoise(kernels, num_agents=3)
    assert (noise.num_agents, noise.num_kinds, noise.num_states) == (3, 1, 2)
    np.testing.assert_array_equal(noise.kernels[0].toarray(), KERNEL)
    assert noise.fingerprint() == MarkovNoise(KERNEL, num_agents=3).fingerprint()
    assert not noise.kernels[0].data.flags.writeable
    assert repr(noise) == "MarkovNoise(agents=3, kinds=1, states=2)"


def test_noise_has_kinds_as_a_federation_has():
    noise = MarkovNoise(
        [KERNEL, KERNEL.T[::-1].T[::-1], sparse.csr_array(KERNEL)],
        num_agents=4,
        assignment=[2, 0, 2, 0],
    )
    assert noise.num_kinds == 3
    np.testing.assert_array_equal(noise.kind_counts, [2, 0, 2])
    assert noise.fingerprint() != MarkovNoise(KERNEL, num_agents=4).fingerprint()


@pytest.mark.parametrize(
    ("kernels", "options", "message"),
    [
        (KERNEL * 0.9, {}, r"kernels\[0\] in state 0 sums to 0\.9"),
        (
            [KERNEL, [[1.0, 0.0], [2.0, -1.0]]],
            {},
            r"kernels\[1\] in state 1 has probability -1\.0 at index 1",
        ),
        (
            np.ones((2, 3)) / 3,
            {},
            r"kernels\[0\] has shape \(2, 3\), but every kernel must be square",
        ),
        (
            [sparse.eye_array(2), sparse.eye_array(3)],
            {},
            r"kernels\[1\] has shape \(3, 3\), .*of one size",
        ),
        (
            np.zeros((0, 2, 2)),
            {},
            r"kernels has shape \(0, 2, 2\), but must hold at least one chain",
        ),
        (1.0, {}, r"kernels has shape \(\), .*give shape \(M, Y, Y\) or \(Y, Y\)"),
        (np.zeros((1, 0, 0)), {}, r"kernels\[0\] has shape \(0, 0\)"),
        ("walk", {}, "kernels is a str that cannot be read"),
        (KERNEL, {"num_agents": None}, "num_agents is missing"),
        (
            KERNEL,
            {"assignment": [1, 0]},
            r"assignment\[0\] is 1, but the kinds are numbered 0 to 0",
        ),
        (KERNEL, {"initial_distribution": [1.0, 1.0]}, "initial_distribution sums to 2"),
    ],
)
def test_bad_noise_is_named_with_its_place_and_cure(kernels, options, message):
    with pytest.raises(ProblemError, match=message):
        MarkovNoise(kernels, **({"num_agents": 2} | options))


def test_many_agents_cost_one_number_each():
    fed = Federation(MDP_2, policies.random(2, 2, count=3, seed=0), num_agents=10**6)
    assert fed.assignment.nbytes == 8 * 10**6
    assert fed.kind_counts.sum() == 10**6
