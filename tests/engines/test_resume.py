"""A run that is broken off and resumed equals the unbroken run bit for bit, checkpoint included.

The tests named `tiny` are small enough to run with the compiled code interpreted
(NUMBA_DISABLE_JIT=1, -k tiny).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fegsam as fg
from cases import ALGORITHMS, case, large
from helpers.bursts import bursts, quietly

SEEDS = (3, 2**63 + 11)
ALPHA = 0.1
EVERY = pytest.mark.parametrize("name", ALGORITHMS)
EACH_ENGINE = pytest.mark.parametrize("engine", ["reference", "cpu"])


@pytest.fixture
def assert_equals_unbroken(assert_same_bits) -> Callable[[fg.History, fg.History], None]:
    def check(resumed: fg.History, whole: fg.History) -> None:
        assert_same_bits(resumed, whole)
        assert resumed.settings.record.tolist() == whole.settings.record.tolist()
        finite = whole.data.diverged_at.values < 0  # no run goes on from the others
        if finite.any():
            one, other = resumed.checkpoint, whole.checkpoint
            assert one.time == other.time
            np.testing.assert_array_equal(one.params[finite], other.params[finite])
            np.testing.assert_array_equal(one.states[finite], other.states[finite])

    return check


# --- Where it is broken ---------------------------------------------------------------------------


@EACH_ENGINE
@pytest.mark.parametrize("sampling", ["markov", "iid"])
@EVERY
def test_tiny_run_broken_at_any_time_equals_the_unbroken_one(
    name, sampling, engine, assert_equals_unbroken
) -> None:
    small = case(name, n=3, num_agents=3)
    settings = {"alpha": ALPHA, "K": 4, "seeds": SEEDS, "engine": engine, "sampling": sampling}
    whole = small.run(**settings, T=11)
    for broken_at in range(1, 12):
        first = small.run(**settings, T=broken_at)
        assert_equals_unbroken(small.run(**settings, T=11, resume_from=first), whole)


@EACH_ENGINE
@EVERY
def test_tiny_run_of_one_agent_goes_on_from_where_it_ended(
    name, engine, assert_equals_unbroken
) -> None:
    alone = case(name, n=2, num_agents=1)
    settings = {"alpha": ALPHA, "K": 4, "seeds": SEEDS, "engine": engine}
    first = alone.run(**settings, T=6)
    assert first.checkpoint.time == 6
    assert_equals_unbroken(
        alone.run(**settings, T=11, resume_from=first), alone.run(**settings, T=11)
    )


@EACH_ENGINE
@pytest.mark.parametrize("stops", [(3, 5, 13), (4, 8, 13), (5, 7, 13), (13, 13, 13)], ids=str)
@EVERY
def test_tiny_run_broken_before_at_or_after_a_sync_twice_equals_the_unbroken_one(
    name, stops, engine, assert_equals_unbroken
) -> None:
    small = case(name, n=2, num_agents=3)
    settings = {"alpha": ALPHA, "K": 4, "seeds": SEEDS, "engine": engine}
    history = None
    for stop in stops:
        history = small.run(**settings, T=stop, resume_from=history)
    assert_equals_unbroken(history, small.run(**settings, T=13))


@EACH_ENGINE
def test_tiny_run_resumed_from_files_equals_the_unbroken_one(
    engine, tmp_path, assert_equals_unbroken
) -> None:
    small = case("alg5", n=2, num_agents=4)
    settings = {"alpha": ALPHA, "K": 4, "seeds": SEEDS, "engine": engine}
    history = None
    for stop in (3, 8, 13):
        history = small.run(**settings, T=stop, resume_from=history)
        history.save(tmp_path / f"{stop}.nc")
        stored = fg.load_history(tmp_path / f"{stop}.nc")
        assert_equals_unbroken(stored, history)
        history = stored
    assert_equals_unbroken(history, small.run(**settings, T=13))


@EVERY
@pytest.mark.parametrize("broken_at", [50, 77])
def test_large_run_resumed_at_a_sync_or_within_a_round_equals_the_unbroken_one(
    name, broken_at, assert_equals_unbroken
) -> None:
    large = case(name, n=2, num_agents=200)
    settings = {"alpha": ALPHA, "K": 25, "seeds": SEEDS, "engine": "cpu"}
    first = large.run(**settings, T=broken_at)
    assert_equals_unbroken(
        large.run(**settings, T=110, resume_from=first), large.run(**settings, T=110)
    )


@pytest.mark.parametrize("times", [range(91), (0, 37, 75, 90)], ids=["every-time", "few-times"])
@pytest.mark.parametrize(
    ("num_agents", "broken_at"), [(5, 47), (67, 10), (130, 41), (130, 85), (1, 50)]
)
@pytest.mark.parametrize("name", ["alg3", "alg4"])
def test_run_on_a_large_table_resumed_anywhere_equals_the_unbroken_one(
    name, num_agents, broken_at, times, assert_equals_unbroken
) -> None:
    """The rest of a round may touch few cells of the table where the whole round touches many."""
    some = case(name, n=2, num_agents=num_agents, world=large())
    settings = {"alpha": ALPHA, "K": 40, "seeds": range(8), "engine": "cpu"}
    first = some.run(**settings, T=broken_at, record=[t for t in times if t <= broken_at])
    resumed = some.run(**settings, T=90, record=list(times), resume_from=first)
    assert_equals_unbroken(resumed, some.run(**settings, T=90, record=list(times)))


def test_an_engine_takes_over_from_another_and_two_threads_from_one(
    assert_equals_unbroken,
) -> None:
    some = case("alg4", num_agents=200)
    settings = {"alpha": ALPHA, "K": 25, "seeds": SEEDS}
    one, two = (fg.engines.Cpu(threads=threads) for threads in (1, 2))
    whole = some.run(**settings, T=110, engine=one)
    first = some.run(**settings, T=60, engine=one)
    assert_equals_unbroken(some.run(**settings, T=110, engine=two, resume_from=first), whole)
    plain = some.run(**settings, T=110, engine="reference", resume_from=first)
    np.testing.assert_allclose(
        plain.data.average_params, whole.data.average_params, rtol=0, atol=1e-12
    )


# --- What is run, and what is kept ----------------------------------------------------------------


def test_only_the_rest_is_run_and_the_first_history_stays_as_it_was(assert_same_bits) -> None:
    some = case("alg3", num_agents=3)
    settings = {"alpha": ALPHA, "K": 4, "seeds": range(6), "output_decay": 1e-12}
    first, before = (some.run(**settings, T=10) for _ in range(2))
    starts = []

    def engine(job):
        starts.append((job.start.time, job.settings.seeds))
        return fg.engines.Reference()(job)

    some.run(**settings, T=20, engine=engine, resume_from=first)
    # The output time is almost surely the last: it lies in the rest.
    assert starts == [(8, tuple(range(6)))]
    assert_same_bits(first, before)


def test_a_history_resumed_with_no_more_steps_is_given_back(assert_equals_unbroken) -> None:
    some = case("alg4", num_agents=3)
    settings = {"alpha": ALPHA, "K": 4, "T": 10, "seeds": SEEDS, "record": [0, 5, 10]}
    history = some.run(**settings)
    assert_equals_unbroken(some.run(**settings, resume_from=history), history)


@pytest.mark.parametrize(
    ("before", "after", "times"),
    [
        ([0, 3, 10], None, [0, 3, *range(10, 21)]),
        ([2], [2, 15], [2, 15]),
        (5, [5, 10, 11, 20], [5, 10, 11, 20]),
        ([7], [12], [12]),
    ],
)
def test_times_recorded_before_are_kept_and_those_asked_for_are_added(before, after, times) -> None:
    some = case("alg2", num_agents=3)
    settings = {"alpha": ALPHA, "K": 4, "seeds": SEEDS}
    first = some.run(**settings, T=10, record=before)
    resumed = some.run(**settings, T=20, record=after, resume_from=first).data
    assert resumed.time.values.tolist() == times
    whole = some.run(**settings, T=20).data.sel(time=times)
    np.testing.assert_allclose(resumed.average_params, whole.average_params, rtol=0, atol=1e-12)


# --- Output times in the part that is done --------------------------------------------------------


@EACH_ENGINE
@pytest.mark.parametrize("num_agents", [1, 3])
@EVERY
def test_tiny_output_in_the_part_that_is_done_equals_the_unbroken_runs(
    name, num_agents, engine, assert_equals_unbroken
) -> None:
    """The output time depends on the length of the run, so that a longer one may ask for an average
    that the first part did not keep."""
    some = case(name, n=2, num_agents=num_agents)
    settings = {"alpha": ALPHA, "K": 4, "seeds": range(12), "engine": engine, "record": [0, 9]}
    settings["output_decay"] = 0.999
    first = some.run(**settings, T=9)
    settings["record"] = [0, 9, 14]
    whole = some.run(**settings, T=14)
    drawn, known = whole.data.output_time.values, first.data.output_time.values
    start = first.checkpoint.time
    assert ((drawn < start) & (drawn != known)).any()
    assert (drawn >= start).any()
    assert_equals_unbroken(some.run(**settings, T=14, resume_from=first), whole)


def test_only_seeds_whose_output_was_not_kept_are_run_again_up_to_it() -> None:
    some = case("alg4", num_agents=3)
    settings = {"alpha": ALPHA, "K": 4, "seeds": range(40), "output_decay": 0.999}
    first = some.run(**settings, T=20)
    calls = []

    def engine(job):
        calls.append((job.start.time, job.settings.seeds, job.settings.stop_at_output))
        return fg.engines.Reference()(job)

    longer = some.run(**settings, T=22, engine=engine, resume_from=first).data
    drawn, known = longer.output_time.values, first.data.output_time.values
    again = np.flatnonzero((drawn < 20) & (drawn != known))
    assert 0 < len(again) < 40
    assert ((drawn < 20) & (drawn == known)).any()
    assert calls == [(20, tuple(range(40)), False), (0, tuple(again.tolist()), True)]


# --- Seeds that have diverged ---------------------------------------------------------------------


@EACH_ENGINE
@pytest.mark.parametrize("num_agents", [1, 3])
@pytest.mark.parametrize("K", [1, 10, 40])
@pytest.mark.parametrize("broken_at", [9, 20, 23])
def test_a_partly_diverged_run_resumed_equals_the_unbroken_one(
    num_agents, K, broken_at, engine, assert_equals_unbroken
) -> None:
    """Also where a seed has diverged and its output, drawn anew for the longer run, lies in its
    finite part."""
    some = bursts(num_agents, chance=0.02)
    settings = {
        "alpha": 1.0,
        "K": K,
        "seeds": range(60),
        "fixed_point": [0.0],
        "engine": engine,
        "output_decay": 0.96,
    }
    first = quietly(lambda: some.run(**settings, T=broken_at))
    whole = quietly(lambda: some.run(**settings, T=30))
    gone, later = first.data.diverged_at.values >= 0, whole.data.diverged_at.values >= 0
    assert 0 < gone.sum() < later.sum() < 60
    assert_equals_unbroken(quietly(lambda: some.run(**settings, T=30, resume_from=first)), whole)


@EACH_ENGINE
def test_a_run_of_which_nothing_is_left_can_be_resumed(engine, assert_equals_unbroken) -> None:
    some = bursts(num_agents=3, chance=0.5)
    settings = {"alpha": 1.0, "K": 4, "seeds": range(3), "fixed_point": [0.0], "engine": engine}
    first, whole = (quietly(lambda T=T: some.run(**settings, T=T)) for T in (20, 30))
    assert np.all(first.data.diverged_at >= 0)
    assert_equals_unbroken(some.run(**settings, T=30, resume_from=first), whole)
