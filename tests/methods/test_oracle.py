"""The oracle of the methods against the paper's pseudo-code, and against itself where two papers
write one method in two ways."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pseudocode_methods as oracle
from cases import ALGORITHMS, case
from helpers import philox

N, T = 5, 23
EQUAL = np.full(N, 1 / N)
EVERY = pytest.mark.parametrize("name", ALGORITHMS)
SAMPLINGS = pytest.mark.parametrize("sampling", ["markov", "iid"])


def run(name: str, rules: oracle.Rules, *, K: int = 4, alphas=(0.1,) * T, sampling="markov"):
    some = case(name, n=2, num_agents=N)
    assert some.field is not None
    field = some.field(*some.paths(9, T, sampling), kinds=some.problem.assignment)
    return oracle.federate(field, some.start, rules, periods=[K], alphas=alphas)


@SAMPLINGS
@EVERY
def test_without_a_method_it_is_the_papers_pseudocode(name, sampling) -> None:
    trace = run(name, oracle.Rules(oracle.mean(EQUAL), EQUAL), sampling=sampling)
    truth = case(name, n=2, num_agents=N).trace(9, alpha=0.1, K=4, T=T, sampling=sampling)
    np.testing.assert_allclose(trace.average, truth.average, rtol=0, atol=1e-13)
    np.testing.assert_allclose(trace.sync_error, truth.sync_error, rtol=0, atol=1e-13)
    assert trace.syncs == [4, 8, 12, 16, 20]


@pytest.mark.parametrize(
    "weights", [EQUAL, np.array([0.1, 0.3, 0.2, 0.15, 0.25])], ids=["1/N", "w"]
)
@EVERY
def test_scafflsa_is_option_ii_of_scaffold(name, weights) -> None:
    """Also where the step size falls: the sum of step sizes takes the place of alpha K."""
    alphas = [0.2 / (1 + t) ** 0.5 for t in range(T)]
    d = len(case(name, n=2).start)
    one, other = (
        run(name, oracle.Rules(oracle.mean(weights), weights, variates=variates), alphas=alphas)
        for variates in (oracle.Scafflsa(weights, d), oracle.Scaffold(weights, d))
    )
    np.testing.assert_allclose(one.average, other.average, rtol=0, atol=1e-13)
    plain = run(name, oracle.Rules(oracle.mean(weights), weights), alphas=alphas)
    assert np.abs(one.average - plain.average).max() > 1e-4


@pytest.mark.parametrize("name", ["alg3", "alg4"])
def test_importance_averaging_is_the_mean_of_all_targets(name) -> None:
    """Also where the step size falls."""
    alphas = [0.5 / (1 + t) ** 0.5 for t in range(T)]
    one, *others = (
        run(name, oracle.Rules(combine, EQUAL), alphas=alphas, K=6).average
        for combine in (
            oracle.importance_averaging(),
            oracle.mean_of_targets,
            oracle.exact_importance_averaging,
        )
    )
    for other in others:
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-13)
    plain = run(name, oracle.Rules(oracle.mean(EQUAL), EQUAL), alphas=alphas, K=6)
    assert np.abs(one - plain.average).max() > 1e-2


def test_rounding_keeps_the_mean() -> None:
    """Over a fine grid of uniform numbers; the error of dithered rounding has variance 1/12."""
    uniform = (np.arange(10_000) + 0.5) / 10_000
    for change in (0.0, 0.3, -1.7, 2.5):
        grid = np.full(len(uniform), change)
        up = oracle.rounded(grid, 0.4, uniform)
        np.testing.assert_allclose(up.mean(), change, rtol=0, atol=1e-4)
        np.testing.assert_allclose(up / 0.4, np.round(up / 0.4), rtol=0, atol=1e-12)
        error = oracle.dithered(grid, 0.4, uniform) - change
        np.testing.assert_allclose([error.mean(), error.var()], [0, 0.16 / 12], rtol=0, atol=1e-4)


def test_some_cells_keep_the_mean() -> None:
    change = np.array([1.0, -2.0, 0.5, 4.0])
    sent = [oracle.some_cells(change, kept) for kept in itertools.combinations(range(4), 2)]
    np.testing.assert_allclose(np.mean(sent, axis=0), change, rtol=0, atol=1e-15)


def test_every_agent_takes_part_as_often_as_the_others() -> None:
    """4000 rounds with 3 of 7 agents: the counts are within 4 standard errors."""
    rounds, share = 4000, 3 / 7
    counts = np.zeros(7)
    for r in range(rounds):
        counts[philox.drawn(5, 7, 3, r)] += 1
    assert counts.sum() == 3 * rounds
    assert np.abs(counts / rounds - share).max() < 4 * np.sqrt(share * (1 - share) / rounds)
    answered = sum(len(philox.answering(5, 7, 0.3, r)) for r in range(rounds)) / (7 * rounds)
    assert abs(answered - 0.3) < 4 * np.sqrt(0.21 / (7 * rounds))
