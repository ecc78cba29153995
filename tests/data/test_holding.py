"""Held-out episodes: whole ones, the right share, and the same however the data is read."""

from __future__ import annotations

import numpy as np
import pytest

import fegsam as fg
from fegsam import ProblemError
from fegsam.data import SplitReader, hold_out, read_held_out
from helpers.logs import found_rows, observation_log, random_episodes, write


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("held_out")
    return write(folder / "log.parquet", observation_log(random_episodes(seed=0, count=600)))


def pieces(rows) -> list[list[tuple]]:
    """The rows of each episode."""
    found, ends = found_rows(rows), np.flatnonzero(rows.gap) + 1
    return [found[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 0.5, 0.8])
def test_every_episode_is_whole_and_on_one_side(path, share) -> None:
    rows = fg.LogSource(path).read(discount=0.9)
    learning, held_out = hold_out(rows, share, seed=1)
    parts = pieces(learning), pieces(held_out)
    assert abs(len(parts[1]) - 600 * share) <= 1
    assert sorted(map(str, parts[0] + parts[1])) == sorted(map(str, pieces(rows)))


def test_one_of_every_ten_is_held_out_and_every_place_has_its_turn(path) -> None:
    marks = np.arange(40_000)
    gap = np.ones(40_000, bool)
    rows = fg.data.Rows(marks, *np.zeros((5, 40_000)), gap)
    held = hold_out(rows, 0.1, seed=0).held_out.observation
    np.testing.assert_array_equal(held // 10, np.arange(4000))
    counts = np.bincount(held % 10)
    assert ((counts - 400.0) ** 2 / 400.0).sum() < 27.9  # chi squared, 9 degrees: one in a thousand


def test_seeds_and_agents_hold_out_other_episodes(path) -> None:
    rows = fg.LogSource(path).read(discount=0.9)
    found = [
        found_rows(hold_out(rows, 0.1, seed=seed, agent=agent).held_out)
        for seed in (0, 1, 2**64 - 1)
        for agent in (0, 1)
    ]
    assert len({str(one) for one in found}) == 6


@pytest.mark.parametrize("size", [1, 7, 100, 5000])
@pytest.mark.parametrize("held_out", [False, True])
def test_a_reader_in_pieces_yields_the_same_rows(path, size, held_out) -> None:
    source = fg.LogSource(path)
    expected = hold_out(source.read(discount=0.9), 0.2, seed=3, agent=5)[held_out]
    reader = SplitReader(source.open(discount=0.9), 0.2, seed=3, agent=5, held_out=held_out)
    parts = []
    while len((rows := reader.read(size)).gap):
        parts += found_rows(rows)
        assert len(rows.gap) == size or not len(reader.read(1).gap)
    assert parts == found_rows(expected)


def test_a_restored_reader_continues_where_the_saved_one_was(path) -> None:
    source = fg.LogSource(path, passes=2)
    rng = np.random.default_rng(0)

    def opened() -> SplitReader:
        return SplitReader(source.open(discount=0.9), 0.2, seed=3, episodes=600)

    whole = found_rows(opened().read(10**6))
    reader, read = opened(), []
    while len(read) < len(whole):
        again = opened()
        again.restore(reader.save())
        reader = again
        read += found_rows(reader.read(int(rng.integers(1, 2000))))
    assert read == whole


def test_each_pass_is_divided_in_the_same_way(path) -> None:
    once = hold_out(fg.LogSource(path).read(discount=0.9), 0.2, seed=3).learning
    reader = fg.LogSource(path, passes=3).open(discount=0.9)
    found = SplitReader(reader, 0.2, seed=3, episodes=600).read(10**6)
    assert found_rows(found) == 3 * found_rows(once)


def test_held_out_rows_are_collected_up_to_a_number_by_whole_episodes(path, monkeypatch) -> None:
    monkeypatch.setattr("fegsam.data.holding.AT_ONCE", 50)
    source = fg.LogSource(path)
    expected = found_rows(hold_out(source.read(discount=0.9), 0.2, seed=3).held_out)
    every = read_held_out(source.open(discount=0.9), 0.2, seed=3)
    assert found_rows(every) == expected
    some = read_held_out(source.open(discount=0.9), 0.2, seed=3, most=100)
    assert 100 <= len(some.gap) < 150
    assert some.gap[-1]
    assert found_rows(some) == expected[: len(some.gap)]


def test_data_without_a_held_out_episode_is_refused(tmp_path) -> None:
    log = write(tmp_path / "log.csv", observation_log(random_episodes(seed=0, count=1)))
    told = "no episode of 1 is held out at the fraction 0.001: hold out more"
    with pytest.raises(ProblemError, match=told):
        read_held_out(fg.LogSource(log).open(discount=0.9), 0.001, seed=0)
    with pytest.raises(ProblemError, match="held_out is 1"):
        read_held_out(fg.LogSource(log).open(discount=0.9), 1.0, seed=0)
