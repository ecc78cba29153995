"""The random numbers of every engine against published vectors, and the draws against the
distributions that they are made from."""

from __future__ import annotations

import dataclasses
from itertools import product

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fegsam as fg
from cases import KERNELS, KINDS, SMALL, case
from fegsam import randomness
from fegsam.history.history import Checkpoint
from fegsam.randomness import (
    FIRST_STATE,
    IID,
    OUTPUT_TIME,
    PATH,
    build_alias,
    choose,
    philox,
    words,
)
from helpers.philox import philox as philox_in_python
from helpers.philox import words as words_in_python

# Random123's kat_vectors for philox4x32, 10 rounds: counter, key, words.
KNOWN_ANSWERS = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]
ANSWERS = pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [[[int(w, 16) for w in part.split()] for part in row] for row in KNOWN_ANSWERS],
)


def u64(*values: int) -> list[np.uint64]:
    return [np.uint64(value) for value in values]


@numba.njit
def compiled_philox(c0, c1, c2, c3, k0, k1):
    return philox(c0, c1, c2, c3, k0, k1)


@numba.njit
def compiled_words(seed, agent, t, purpose):
    return words(seed, agent, t, purpose)


# --- Philox4x32-10 --------------------------------------------------------------------------------


@ANSWERS
def test_philox_gives_its_published_answers_in_plain_python(counter, key, expected) -> None:
    assert list(philox_in_python(counter, key)) == expected
    assert [int(word) for word in philox(*u64(*counter, *key))] == expected


@ANSWERS
def test_philox_gives_its_published_answers_when_compiled(counter, key, expected) -> None:
    assert list(compiled_philox(*u64(*counter, *key))) == expected


def test_philox_gives_its_published_answers_on_arrays() -> None:
    rows = [[int(w, 16) for part in row for w in part.split()] for row in KNOWN_ANSWERS]
    columns = np.array(rows, np.uint64).T
    for word, expected in zip(philox(*columns[:6]), columns[6:], strict=True):
        assert word.dtype == np.uint64
        np.testing.assert_array_equal(word, expected)


# --- The words of a step --------------------------------------------------------------------------

SEEDS = (0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 2, 2**64 - 1)
TIMES = (0, 1, 2, 3, 2**32, 2**33 - 1, 2**33, 2**33 + 1, 2**40 + 7, 2**62 + 1)


@pytest.mark.parametrize("form", [words, compiled_words], ids=["interpreted", "compiled"])
def test_words_depend_on_every_bit_of_seed_agent_time_and_purpose_as_promised(form) -> None:
    for seed, agent, t, purpose in product(
        SEEDS, (0, 5, 2**32 - 1), TIMES, (PATH, FIRST_STATE, OUTPUT_TIME, IID)
    ):
        got = form(*u64(seed, agent, t), purpose)
        assert tuple(map(int, got)) == words_in_python(seed, agent, t, int(purpose)), (
            seed,
            agent,
            t,
            purpose,
        )


def test_words_of_many_times_at_once_are_those_of_each() -> None:
    times = np.array(TIMES, np.uint64)
    first, second = words(np.uint64(2**64 - 1), np.uint64(3), times, PATH)
    expected = [words_in_python(2**64 - 1, 3, t, int(PATH)) for t in TIMES]
    np.testing.assert_array_equal(np.stack([first, second], axis=1), np.array(expected, np.uint64))


def test_two_steps_share_a_block_and_have_its_four_words() -> None:
    for pair in (0, 1, 7, 2**32 + 3):
        block = philox(*u64(pair % 2**32, pair >> 32, 11, 0), *u64(5, 0))
        even, odd = (words(*u64(5, 11, t), PATH) for t in (2 * pair, 2 * pair + 1))
        assert (*even, *odd) == block


def test_streams_of_purposes_agents_and_seeds_never_meet() -> None:
    """No pair of words occurs twice among 100 steps of each of 144 streams; by chance that has
    probability 1e-11."""
    streams = product((0, 1, 2**32, 2**64 - 1), range(9), (PATH, FIRST_STATE, OUTPUT_TIME, IID))
    times = np.arange(100, dtype=np.uint64)
    drawn = [words(*u64(seed, agent), times, purpose) for seed, agent, purpose in streams]
    pairs = {(int(a), int(b)) for stream in drawn for a, b in zip(*stream, strict=True)}
    assert len(pairs) == 144 * 100


def test_words_are_uniform_and_those_of_a_step_independent() -> None:
    """The upper three bits of a step's two words make 64 equally likely cells, and so do those of
    one word at two steps."""
    times = np.arange(20_000, dtype=np.uint64)
    for seed in (0, 2**64 - 1):
        first, second = (
            np.asarray(w >> np.uint64(29), int) for w in words(*u64(seed, 0), times, PATH)
        )
        for one, other in ((first, second), (first[:-1], first[1:]), (second[:-1], first[1:])):
            assert stats.chisquare(np.bincount(8 * one + other, minlength=64)).pvalue > 1e-4


@pytest.mark.parametrize("name", ["alg1-linear", "alg4", "alg5"])
def test_engines_walk_the_same_paths_beyond_2_to_the_33_steps(name) -> None:
    """There the upper word of the counter is no longer zero. Other words are drawn than at the
    start of a run."""
    small, late = case(name, n=2, num_agents=3), 2**33
    found = {}

    def from_late(job):
        states = np.zeros((1, 3), np.uint32)
        for begin in (0, late):
            start = Checkpoint(begin, job.start.params, states)
            shifted = dataclasses.replace(
                job.settings, num_steps=begin + 20, record=np.arange(begin, begin + 21)
            )
            outputs = np.array([begin])
            moved = dataclasses.replace(job, settings=shifted, start=start, output_times=outputs)
            for engine in (fg.engines.Reference(), fg.engines.Cpu(threads=1)):
                found[begin, engine.name] = engine(moved).data.average_params.values[0]
        return None

    small.run(alpha=0.1, K=4, T=20, engine=from_late)
    for begin in (0, late):
        np.testing.assert_allclose(
            found[begin, "cpu"], found[begin, "reference"], rtol=0, atol=1e-12
        )
    assert np.abs(found[late, "cpu"] - found[0, "cpu"]).max() > 1e-3


# --- Alias tables ---------------------------------------------------------------------------------


def alias_row(law: np.ndarray) -> np.ndarray:
    """(b, 3): threshold, outcome, other outcome."""
    size = len(law)
    table = np.empty((size, 3), np.uint32)
    build_alias(
        np.array([0, size]), np.asarray(law, np.float64), np.arange(size, dtype=np.uint32), table
    )
    return table


def counts(table: np.ndarray) -> list[int]:
    """How many of the 2^32 words draw each outcome, exactly: word w draws from entry j where j 2^32
    <= w b < (j + 1) 2^32."""
    size = len(table)
    drawn = [0] * size
    for j, (threshold, outcome, other) in enumerate(table.tolist()):
        begin, middle, end = (
            -(-edge // size) for edge in (j << 32, (j << 32) + threshold, (j + 1) << 32)
        )
        drawn[outcome] += middle - begin
        drawn[other] += end - middle
    return drawn


WEIGHTS = st.one_of(
    st.just(0.0),
    st.floats(1e-3, 1.0),
    st.floats(1e-300, 1e-9),  # next to impossible
    st.sampled_from(
        [1.0, 0.5, 1e-17, 2.0**-32, 2.0**-33, 1e9]
    ),  # equal ones, the edge of a word, next to certain
)


@given(st.lists(WEIGHTS, min_size=1, max_size=40).filter(lambda weights: sum(weights) > 1e-200))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_alias_tables_have_the_law_they_are_made_from(weights) -> None:
    """Each entry that an outcome has a part in can be off by one word in 2^32, and no impossible
    outcome has any."""
    law = np.array(weights) / np.sum(weights)
    table = alias_row(law)
    drawn = counts(table)
    assert sum(drawn) == 2**32
    for outcome, probability in enumerate(law):
        parts = int(((table[:, 1] == outcome) | (table[:, 2] == outcome)).sum())
        assert abs(drawn[outcome] / 2**32 - probability) <= (parts + 1) * 2**-32 + 1e-14
        if probability == 0.0:
            assert drawn[outcome] == 0


@given(st.floats(0.0, 1.0))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_law_of_two_outcomes_is_exact_to_2_to_the_minus_31(probability) -> None:
    assert (
        abs(counts(alias_row(np.array([probability, 1 - probability])))[0] / 2**32 - probability)
        <= 2**-31
    )


def test_a_word_draws_the_outcome_that_the_table_counts_it_for() -> None:
    """At every edge between two outcomes, where an error of one would show."""
    rng = np.random.default_rng(5)
    for size in (1, 2, 3, 7, 16):
        law = rng.dirichlet(np.full(size, 0.4))
        table = alias_row(law)
        edges = [edge for j in range(size) for edge in (j << 32, (j << 32) + int(table[j, 0]))] + [
            size << 32
        ]
        near = {
            w
            for edge in edges
            for w in range(-(-edge // size) - 2, -(-edge // size) + 3)
            if 0 <= w < 2**32
        }
        for word in near:
            entry, low = divmod(word * size, 2**32)
            expected = table[entry, 1] if low < table[entry, 0] else table[entry, 2]
            assert choose(np.uint64(word), np.uint64(0), np.uint64(size), table.ravel()) == expected


def test_rows_of_one_table_do_not_touch_each_other() -> None:
    rng = np.random.default_rng(2)
    sizes = [3, 1, 5, 2]
    laws = [rng.dirichlet(np.ones(size)) for size in sizes]
    start = np.concatenate([[0], np.cumsum(sizes)])
    outcomes = np.concatenate([np.arange(size) for size in sizes]).astype(np.uint32)
    together = np.empty((sum(sizes), 3), np.uint32)
    build_alias(start, np.concatenate(laws), outcomes, together)
    for row, law in enumerate(laws):
        np.testing.assert_array_equal(together[start[row] : start[row + 1]], alias_row(law))


def test_an_index_is_drawn_as_an_outcome_is() -> None:
    table = alias_row(np.array([0.1, 0.0, 0.55, 0.35]))
    rng = np.random.default_rng(3)
    for word in rng.integers(0, 2**32, 200, dtype=np.uint64):
        drawn = choose(word, np.uint64(0), np.uint64(4), table.ravel())
        index = table[:, (0, 2)].ravel()
        assert randomness.choose_index(word, np.uint64(0), np.uint64(4), index) == drawn


# --- Paths against their laws ---------------------------------------------------------------------


def assert_law(counted: np.ndarray, law: np.ndarray) -> None:
    """Counts along the last axis come from the laws there, by one chi-square test; what is
    impossible never happened."""
    counted, law = (
        counted.reshape(-1, counted.shape[-1]),
        np.broadcast_to(law, counted.shape).reshape(-1, counted.shape[-1]),
    )
    assert np.all(counted[law == 0] == 0)
    expected = counted.sum(axis=1, keepdims=True) * law
    possible = law > 0
    assert expected[possible].min() > 5, "too few draws for the test"
    statistic = ((counted - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = possible.sum() - len(law)
    assert stats.chi2.sf(statistic, freedom) > 1e-4


@pytest.mark.parametrize("differ", ["policies", "both"])
def test_actions_and_next_states_of_each_kind_have_their_laws(differ) -> None:
    some = case("alg4", num_agents=5, differ=differ)
    states, actions = SMALL.behavior.shape[1:]
    for kind in range(KINDS):
        agent = int(np.flatnonzero(some.problem.assignment == kind)[0])
        path = fg.sample_path(some.problem, some.algorithm, seed=1, agent=agent, num_steps=15_000)
        here, there = path.states[:-1], path.states[1:]
        taken = np.zeros((states, actions), int)
        np.add.at(taken, (here, path.actions), 1)
        assert_law(taken, SMALL.behavior[kind])
        reached = np.zeros((states, actions, states), int)
        np.add.at(reached, (here, path.actions, there), 1)
        assert_law(reached, SMALL.transitions[kind if differ == "both" else 0])


def test_markov_noise_of_each_kind_has_its_kernel() -> None:
    some = case("alg1-linear", num_agents=5)
    for kind in range(KINDS):
        agent = int(np.flatnonzero(some.problem.assignment == kind)[0])
        path = fg.sample_path(
            some.problem, some.algorithm, seed=2, agent=agent, num_steps=6000
        ).states
        moved = np.zeros(KERNELS.shape[1:], int)
        np.add.at(moved, (path[:-1], path[1:]), 1)
        assert_law(moved, KERNELS[kind])


def test_first_states_of_many_agents_have_the_initial_law() -> None:
    some = case("alg4", num_agents=1500)
    first = [
        fg.sample_path(some.problem, some.algorithm, seed=4, agent=i, num_steps=1).states[0]
        for i in range(1500)
    ]
    assert_law(np.bincount(first, minlength=len(SMALL.first)), SMALL.first)


def test_independent_windows_begin_in_the_stationary_law_and_move_by_the_kernel() -> None:
    law = np.array([0.2, 0.3, 0.5])
    kernel = 0.9 * np.eye(3) + 0.1 * law  # sticky, so that a path would betray itself
    noise = fg.MarkovNoise(kernel, num_agents=2)
    algorithm = fg.LinearSA(-np.ones((3, 1, 1)), np.zeros((3, 1)))
    drawn = fg.sample_path(
        noise, algorithm, seed=3, agent=1, num_steps=6000, sampling="iid"
    ).states[:, 0]
    pairs = np.zeros((3, 3), int)
    np.add.at(pairs, (drawn[:-1], drawn[1:]), 1)
    assert_law(pairs, law)  # whatever came before
