"""Ergodicity, stationary laws and mixing constants, against brute force and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import pdist

from fegsam.errors import ProblemError
from fegsam.problem import examples, markov_chain, policies
from fegsam.problem.federation import MarkovNoise
from fegsam.problem.markov_chain import check_ergodic, stationary_law
from fegsam.problem.mixing import MixingConstants, mixing_constants

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=40, deadline=None, derandomize=True)


def random_chain(seed: int, states: int, density: float) -> sparse.csr_array:
    """A random chain on a random graph, with a cycle through all states and a loop: ergodic."""
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=(states, states)) * (rng.random((states, states)) < density)
    weights[np.arange(states), (np.arange(states) + 1) % states] += 0.1
    weights[0, 0] += 0.1
    return sparse.csr_array(weights / weights.sum(axis=1, keepdims=True))


def line(states: int, right: float, left: float) -> sparse.csr_array:
    """A birth-and-death chain; its law is geometric with ratio right / left."""
    stay = np.full(states, 1.0 - right - left)
    stay[0] += left
    stay[-1] += right
    diagonals = np.array([np.full(states, left), stay, np.full(states, right)])
    return sparse.csr_array(sparse.dia_array((diagonals, [-1, 0, 1]), shape=(states, states)))


def two_garnets(states: int, link: float) -> sparse.csr_array:
    """Two random chains that meet in their first states, over links of weight `link` there and 3
    `link` back."""
    uniform = policies.uniform(states, 2)
    parts = [
        examples.garnet(states, 2, 5, 0.9, seed, connected=True).policy_chain(uniform)
        for seed in (0, 1)
    ]
    chain = sparse.block_diag(parts, format="lil")
    chain[[0], :] *= 1.0 - link
    chain[[states], :] *= 1.0 - 3.0 * link
    chain[0, states], chain[states, 0] = link, 3.0 * link
    return sparse.csr_array(chain)


# Ergodicity


@FEW
@given(seed=SEEDS, states=st.integers(1, 7), density=st.floats(0.05, 0.6))
def test_a_chain_passes_exactly_when_a_power_of_its_graph_is_positive(seed, states, density):
    rng = np.random.default_rng(seed)
    graph = rng.random((states, states)) < density
    graph[np.arange(states), rng.integers(0, states, states)] = True
    chain = sparse.csr_array(graph / graph.sum(axis=1, keepdims=True))
    # Wielandt: an irreducible aperiodic graph of n nodes is positive at the power (n - 1)^2 + 1.
    primitive = (np.linalg.matrix_power(graph.astype(object), (states - 1) ** 2 + 1) > 0).all()
    if primitive:
        check_ergodic(chain, "agent kind 0")
    else:
        with pytest.raises(
            ProblemError, match=r"agent kind 0: its chain (is reducible|has period)"
        ):
            check_ergodic(chain, "agent kind 0")


@FEW
@given(seed=SEEDS, period=st.integers(2, 5), width=st.integers(1, 4))
def test_the_period_is_named(seed, period, width):
    rng = np.random.default_rng(seed)
    states = period * width
    shuffled = rng.permutation(states)
    chain = np.zeros((states, states))
    for phase in range(period):
        here = shuffled[phase * width : (phase + 1) * width]
        there = shuffled[(phase + 1) % period * width :][:width]
        chain[np.ix_(here, there)] = rng.dirichlet(np.ones(width), width)
    with pytest.raises(
        ProblemError, match=f"agent kind 3: its chain has period {period}, but must be aperiodic"
    ):
        check_ergodic(sparse.csr_array(chain), "agent kind 3")


def test_the_smallest_closed_class_is_named():
    chain = np.zeros((5, 5))
    chain[0, [1, 3]] = chain[1, [0, 2]] = chain[2, [0, 4]] = 0.5
    chain[3, 4] = chain[4, 3] = 1.0
    message = (
        r"agent kind 2: its chain is reducible: "
        r"states \[3, 4\] form a closed class that never reaches state 0: give"
    )
    with pytest.raises(ProblemError, match=message):
        check_ergodic(sparse.csr_array(chain), "agent kind 2")


def test_a_large_closed_class_is_abridged():
    chain = sparse.block_diag(
        [sparse.csr_array([[0.5, 0.5], [0.5, 0.5]]), random_chain(0, 20, 0.3)], format="lil"
    )
    chain[0, :] = 0.0
    chain[0, 5] = 1.0
    chain[1, 5], chain[1, 0], chain[1, 1] = 0.5, 0.5, 0.0
    with pytest.raises(
        ProblemError, match=r"states \[2, 3, 4, 5, 6, \.\.\. 20 in all\] .* never reaches state 0"
    ):
        check_ergodic(sparse.csr_array(chain), "every agent")


def test_read_only_kernels_are_fine():
    noise = MarkovNoise([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.5, 0.5, 0.0]], num_agents=1)
    check_ergodic(noise.kernels[0], "agent kind 0")
    np.testing.assert_allclose(stationary_law(noise.kernels[0]), [0.2, 0.4, 0.4], rtol=1e-14)


@pytest.mark.parametrize(
    "chain", [random_chain(5, 12, 0.3), line(250, 0.8, 0.1), sparse.csr_array(np.eye(3)[[1, 2, 0]])]
)
def test_compiled_and_interpreted_loops_agree(chain):
    for compiled, arguments in (
        (markov_chain.eliminate, lambda: (chain.toarray(),)),
        (markov_chain.chain_period, lambda: (chain.indptr, chain.indices)),
    ):
        interpreted = getattr(compiled, "py_func", compiled)
        np.testing.assert_allclose(compiled(*arguments()), interpreted(*arguments()), rtol=1e-13)


# Stationary laws


@FEW
@given(seed=SEEDS, states=st.integers(1, 40), density=st.floats(0.02, 1.0))
def test_the_law_of_a_small_chain_is_its_left_eigenvector(seed, states, density):
    chain = random_chain(seed, states, density)
    law = stationary_law(chain)
    values, vectors = np.linalg.eig(chain.toarray().T)
    vector = np.real(vectors[:, np.argmin(np.abs(values - 1.0))])
    np.testing.assert_allclose(law, vector / vector.sum(), rtol=1e-7, atol=1e-11)
    assert law.min() > 0
    assert math.isclose(law.sum(), 1.0, rel_tol=1e-14)
    assert np.abs(law @ chain.toarray() - law).sum() < 1e-14


def test_elimination_keeps_all_digits_where_an_eigensolver_loses_them():
    # A reversible chain with symmetric weights w has the law of its row sums, whatever the link
    # between its halves.
    rng = np.random.default_rng(2)
    weights = np.zeros((8, 8))
    for half in (slice(0, 4), slice(4, 8)):
        part = rng.uniform(0.5, 1.5, (4, 4))
        weights[half, half] = part + part.T
    weights[0, 4] = weights[4, 0] = 1e-13
    sums = np.array([math.fsum(row) for row in weights])
    exact = sums / math.fsum(sums)
    chain = sparse.csr_array(weights / sums[:, None])
    np.testing.assert_allclose(stationary_law(chain), exact, rtol=1e-13)
    values, vectors = np.linalg.eig(chain.toarray().T)
    vector = np.real(vectors[:, np.argmin(np.abs(values - 1.0))])
    assert np.abs(vector / vector.sum() / exact - 1.0).max() > 1e-6


@pytest.mark.parametrize("ratio", [0.05, 7.0])
def test_laws_that_span_three_hundred_orders_keep_relative_precision(ratio):
    states = 200
    left = 0.5 / (1.0 + ratio)
    law = stationary_law(line(states, right=ratio * left, left=left))
    np.testing.assert_allclose(law[1:] / law[:-1], ratio, rtol=1e-11)


@pytest.mark.parametrize("ratio", [0.1, 10.0])
def test_a_law_beyond_floating_point_is_refused(ratio):
    left = 0.5 / (1.0 + ratio)
    with pytest.raises(
        ProblemError,
        match=r"the stationary probability of state .* is too small for a floating-point number",
    ):
        stationary_law(line(450, right=ratio * left, left=left))


def test_a_large_chain_that_mixes_fast_agrees_with_elimination():
    chain = random_chain(1, 700, 0.01)
    law = stationary_law(chain)
    np.testing.assert_allclose(law, markov_chain.eliminate(chain.toarray()), rtol=1e-10)
    assert np.abs(chain.T @ law - law).sum() <= 1e-13


def test_a_large_sparse_chain_is_certified_without_dense_memory():
    states = 100_000
    mdp = examples.garnet(states, 2, 5, 0.9, seed=0, connected=True)
    chain = mdp.policy_chain(policies.uniform(states, 2))
    check_ergodic(chain, "every agent")
    law = stationary_law(chain)
    assert np.abs(chain.T @ law - law).sum() <= 1e-13
    assert law.min() > 0
    assert math.isclose(law.sum(), 1.0, rel_tol=1e-12)


def test_a_long_line_that_mixes_in_millions_of_steps_has_its_geometric_law():
    law = stationary_law(line(30_000, 0.3, 0.3003))
    np.testing.assert_allclose(law[1:] / law[:-1], 0.3 / 0.3003, rtol=1e-9)


def test_a_nearly_periodic_ring_has_its_law():
    states = 2000
    ring = sparse.lil_array((states, states))
    ring[np.arange(states), (np.arange(states) + 1) % states] = 1.0
    ring[0, 1], ring[0, 2] = 0.5, 0.5
    check_ergodic(sparse.csr_array(ring), "every agent")
    exact = np.ones(states)
    exact[1] = 0.5
    np.testing.assert_allclose(
        stationary_law(sparse.csr_array(ring)), exact / exact.sum(), rtol=1e-9
    )


@pytest.mark.parametrize(("link", "precision"), [(1e-3, 1e-9), (1e-6, 1e-5)])
def test_flows_balance_between_large_parts_that_hardly_communicate(link, precision):
    states = 1500
    chain = two_garnets(states, link)
    law = stationary_law(chain)
    assert np.abs(chain.T @ law - law).sum() <= 1e-13
    assert math.isclose(law[0], 3.0 * law[states], rel_tol=precision)


def test_a_law_that_cannot_be_certified_is_refused_with_its_residual(monkeypatch):
    uniform = np.full(600, 1 / 600)
    monkeypatch.setattr(markov_chain, "solve_large_chain", lambda kernel: (uniform, 1e-6))
    with pytest.raises(
        ProblemError,
        match=r"a chain of 600 states was found only to a residual of 1\.0e-06 instead of",
    ):
        stationary_law(line(600, 0.3, 0.31))


# Mixing constants


def assert_certified(chain: sparse.csr_array, pair: MixingConstants, last: int = 200) -> None:
    law, power = stationary_law(chain), np.eye(len(chain.indptr) - 1)
    for time in range(last + 1):
        promised = pair.m * pair.rho**time + 1e-13
        assert 0.5 * np.abs(power - law).sum(axis=1).max() <= promised
        if len(law) > 1:
            assert 0.5 * pdist(power, "cityblock").max() <= promised
        power = power @ chain.toarray()


@FEW
@given(seed=SEEDS, states=st.integers(1, 12), density=st.floats(0.05, 1.0))
def test_the_pair_bounds_total_variation_at_every_time(seed, states, density):
    chain = random_chain(seed, states, density)
    pair = mixing_constants(chain)
    assert pair.m >= 1.0
    assert 0.0 <= pair.rho < 1.0
    assert_certified(chain, pair)


def test_the_pair_bounds_total_variation_of_deterministic_cycles_with_a_shortcut():
    chain = np.roll(np.eye(9), 1, axis=1)
    chain[0, 1], chain[0, 2] = 0.5, 0.5
    assert_certified(sparse.csr_array(chain), mixing_constants(sparse.csr_array(chain)), last=400)


@pytest.mark.parametrize("flip", [0.4, 0.1, 1e-3, 1e-6, 1e-9])
def test_two_symmetric_states_have_the_pair_one_and_their_eigenvalue(flip):
    pair = mixing_constants(sparse.csr_array([[1 - flip, flip], [flip, 1 - flip]]))
    assert math.isclose(math.log(pair.rho), math.log1p(-2 * flip), rel_tol=0.05)
    assert 1.0 <= pair.m < 1.2


def test_the_rate_is_near_the_second_eigenvalue_of_a_slow_chain():
    chain = line(40, 0.3, 0.3)
    second = np.sort(np.abs(np.linalg.eigvals(chain.toarray())))[-2]
    pair = mixing_constants(chain)
    assert math.log(pair.rho) < 0.9 * math.log(second)
    assert_certified(chain, pair, last=2000)


def test_identical_rows_mix_in_one_step():
    assert mixing_constants(sparse.csr_array(np.tile([0.1, 0.2, 0.7], (3, 1)))) == MixingConstants(
        m=1.0, rho=0.0
    )
    assert mixing_constants(sparse.csr_array([[1.0]])) == MixingConstants(m=1.0, rho=0.0)
    # The same up to rounding, as weighted sums of equal rows come out.
    chain = examples.two_state().policy_chain([[1 / 4, 3 / 4], [1 / 2, 1 / 2]])
    assert mixing_constants(chain).rho == 0.0


def test_many_states_are_certified_too():
    chain = random_chain(3, 300, 0.02)
    assert_certified(chain, mixing_constants(chain), last=40)


def test_a_smaller_target_never_asks_for_a_slower_rate():
    chain = random_chain(8, 10, 0.2)
    rates = [mixing_constants(chain, target).rho for target in (1e-1, 1e-3, 1e-9)]
    assert rates == sorted(rates, reverse=True)


def test_mixing_constants_refuse_what_they_cannot_certify():
    with pytest.raises(ProblemError, match="mixing constants: its chain has period 2"):
        mixing_constants(sparse.csr_array([[0.0, 1.0], [1.0, 0.0]]))
    with pytest.raises(
        ProblemError, match="a chain of 2001 states, but dense powers are affordable up to 2000"
    ):
        mixing_constants(line(2001, 0.3, 0.3))
    with pytest.raises(
        ProblemError,
        match=r"the chain has not mixed after .* steps, and rounding errors hide what follows",
    ):
        mixing_constants(sparse.csr_array([[1 - 2e-16, 2e-16], [2e-16, 1 - 2e-16]]))
    with pytest.raises(ProblemError, match="target is 0, but must lie strictly between 0 and 1"):
        mixing_constants(line(3, 0.3, 0.3), target=0)
