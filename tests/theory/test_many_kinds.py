"""Assumptions of federations with many policies: the constants of the worst kind, found for all
kinds at once."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import fegsam as fg
from fegsam.problem import chains
from fegsam.problem.chains import chain_stacks, distinct_chains
from fegsam.problem.mixing import largest_mixing_constants, mixing_constants
from fegsam.theory import assumptions

ALGORITHMS = [
    fg.QLearning(),
    fg.OffPolicyTabularTD(),
    fg.OffPolicyTabularTD(horizon=3),
    fg.OffPolicyLinearTD(),
    fg.OffPolicyLinearTD(horizon=2),
    fg.OffPolicyLinearTD(preconditioned=True),
]


def policies(count: int, states: int, seed: int, *, gaps: bool) -> np.ndarray:
    """Random ones; with `gaps` every other leaves out an action here and there, so that kinds
    differ in what they can do."""
    rng = np.random.default_rng(seed)
    found = rng.dirichlet(np.ones(3), (count, states))
    if gaps:
        left_out = rng.random((count, states)) < 0.3
        left_out[::2] = False
        found[left_out, 2] = 0.0
    return found / found.sum(axis=2, keepdims=True)


def federation(behavior: np.ndarray, mdps: Any) -> fg.Federation:
    states = behavior.shape[1]
    target = np.tile([0.5, 0.5, 0.0], (states, 1))
    features = np.random.default_rng(9).normal(size=(states, 2))
    return fg.Federation(
        mdps, behavior, num_agents=len(behavior), target_policy=target, features=features
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
@pytest.mark.parametrize("several", [False, True])
def test_the_constants_are_those_of_the_worst_kind(algorithm: Any, several: bool) -> None:
    """Against federations of one kind each, which share the fixed point where there is one
    environment."""
    behavior = policies(7, 5, seed=1, gaps=not isinstance(algorithm, fg.QLearning))
    mdps = [fg.examples.garnet(5, 3, 3, 0.8, seed=s) for s in range(7 if several else 1)]
    fed = federation(behavior, mdps if several else mdps[0])
    whole = assumptions(fed, algorithm)
    alone = [
        assumptions(federation(behavior[[k]], mdps[k % len(mdps)]), algorithm) for k in range(7)
    ]
    assert whole.mixing.rho == pytest.approx(max(one.mixing.rho for one in alone), rel=1e-8)
    assert whole.mixing.m == pytest.approx(max(one.mixing.m for one in alone), rel=1e-8)
    assert whole.is_sharp
    if whole.level == "sup":
        assert whole.contraction == pytest.approx(max(one.contraction for one in alone), rel=1e-13)
        assert pytest.approx(max(one.A_1 for one in alone), rel=1e-13) == whole.A_1
        if not several:
            assert pytest.approx(max(one.B for one in alone), rel=1e-11) == whole.B
    points = fg.agent_fixed_points(fed, algorithm) - fg.fixed_point(fed, algorithm)
    if whole.weight is None:
        expected = np.linalg.norm(points, np.inf if whole.norm == "sup" else 2, axis=1)
        np.testing.assert_allclose(whole.agent_heterogeneity, expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("several", [False, True])
def test_stacks_are_the_chains(several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stack is made in pieces of 200 entries."""
    monkeypatch.setattr(chains, "STACK_ENTRIES", 200)
    behavior = policies(9, 5, seed=2, gaps=True)
    mdps = [fg.examples.garnet(5, 3, 2, 0.8, seed=s) for s in range(9 if several else 1)]
    fed = federation(behavior, mdps if several else mdps[0])
    stacks = list(chain_stacks(fed, behavior))
    assert len(stacks) > 1
    expected = np.stack([chain.toarray() for chain in distinct_chains(fed, behavior)])
    np.testing.assert_allclose(np.concatenate(stacks), expected, rtol=1e-15)


def test_mixing_of_a_stack_is_the_largest_of_its_chains() -> None:
    """Fast and slow chains together, which leave the stack at different times."""
    rng = np.random.default_rng(3)
    rates = np.array([0.0, 0.3, 0.5, 0.9, 0.99, 0.9999, 1 - 1e-7])[:, None, None]
    stack = rates * np.eye(4) + (1 - rates) * rng.dirichlet(np.ones(4), (7, 4))
    for some in (slice(0, 3), slice(2, 7), slice(0, 7)):
        pairs = [mixing_constants(sparse.csr_array(chain)) for chain in stack[some]]
        found = largest_mixing_constants(stack[some])
        assert found.rho == pytest.approx(max(pair.rho for pair in pairs), rel=1e-8)
        assert found.m == pytest.approx(max(pair.m for pair in pairs), rel=1e-8)


def test_equal_graphs_are_checked_once_and_the_first_bad_kind_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[str] = []
    genuine = chains.check_ergodic
    monkeypatch.setattr(
        chains,
        "check_ergodic",
        lambda chain, who, *cure: (checked.append(who), genuine(chain, who, *cure)),
    )
    stay = fg.MDP([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]], np.zeros((2, 2)), 0.5)
    behavior = np.random.default_rng(4).dirichlet(np.ones(2), (50, 2))
    assumptions(fg.Federation(stay, behavior, num_agents=50), fg.QLearning())
    assert checked == ["agent kind 0"]
    behavior[20] = behavior[30] = [[1.0, 0.0], [0.5, 0.5]]  # state 0 is never left
    with pytest.raises(fg.ProblemError, match="agent kind 20: its chain is reducible"):
        chains.check_chains(fg.Federation(stay, behavior, num_agents=50), behavior)


def test_memory_grows_in_proportion_to_the_kinds() -> None:
    """4000 kinds: a matrix of kinds by kinds alone would take 128 MB."""
    behavior = policies(4000, 4, seed=5, gaps=False)
    fed = federation(behavior, fg.examples.garnet(4, 3, 2, 0.8, seed=0))
    assumptions(federation(behavior[:2], fed.mdps[0]), fg.OffPolicyLinearTD())
    tracemalloc.start()
    assumptions(fed, fg.OffPolicyLinearTD())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64e6


def test_a_kind_without_a_fixed_point_leaves_the_heterogeneity_open() -> None:
    """The second kind has mean matrix zero, so it has no fixed point of its own, but the average
    has one."""
    noise = fg.MarkovNoise(np.full((3, 2, 2), 0.5), num_agents=3)
    algorithm = fg.LinearSA(
        np.array([[[[-1.0]]] * 2, [[[1.0]], [[-1.0]]], [[[-1.0]]] * 2]), np.ones((3, 2, 1))
    )
    found = assumptions(noise, algorithm)
    assert found.level == "average-only"
    assert np.isnan(found.agent_heterogeneity).all()
