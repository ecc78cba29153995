"""Spools: a plant appends, a node follows, and neither kills nor torn records change a row."""

from __future__ import annotations

import os
import pathlib
import time

import numpy as np
import pytest

import fegsam as fg
from fegsam import ProblemError
from fegsam.data.spool_format import HEADER, Form
from helpers import processes
from helpers.logs import (
    Episode,
    expected_rows,
    found_rows,
    observation_log,
    random_episodes,
    write,
)


def append_all(spool: fg.Spool, episodes: list[Episode]) -> None:
    for episode in episodes:
        last = len(episode.actions) - 1
        for t, action in enumerate(episode.actions):
            ends = {}
            if t == last:
                ends = {"last": episode.observations[-1], "truncated": not episode.terminated}
                ends["terminated"] = episode.terminated
            spool.append(
                episode.observations[t],
                action,
                episode.rewards[t],
                behavior_probability=episode.probabilities[t],
                **ends,
            )


def rows_in(path: pathlib.Path) -> list[tuple]:
    return found_rows(fg.SpoolSource(path).open(discount=0.9).read(10**6))


@pytest.fixture
def path(tmp_path) -> pathlib.Path:
    return tmp_path / "plant.spool"


@pytest.mark.parametrize("width", [None, 1, 3])
@pytest.mark.parametrize("batch", [1, 4, 1000])
def test_rows_are_those_of_the_episodes(path, width, batch) -> None:
    episodes = random_episodes(seed=0, count=20, width=width or 0)
    with fg.Spool(path, width=width, batch=batch) as spool:
        append_all(spool, episodes)
    reader = fg.SpoolSource(path).open(discount=0.9)
    assert found_rows(reader.read(10**6)) == expected_rows(episodes, 0.9)
    assert reader.closed
    assert fg.SpoolSource(path).width == width


def test_a_reader_follows_a_spool_that_grows_and_sees_when_it_is_closed(path) -> None:
    spool = fg.Spool(path, batch=2, seconds=1000.0)
    reader = fg.SpoolSource(path).open(discount=0.9)
    counts = []
    for step in range(4):
        counts.append(len(reader.read(9).gap))
        spool.append(step, 0, 1.0)
    # Rows come in batches, and the last of a batch waits for what follows it.
    assert counts == [0, 0, 1, 0]
    assert len(reader.read(9).gap) == 2
    spool.flush()
    assert len(reader.read(9).gap) == 0
    assert not reader.closed
    spool.close()
    last = reader.read(9)
    assert (last.observation.tolist(), last.gap.tolist(), reader.closed) == ([3], [True], True)


def test_rows_are_shown_after_some_seconds_even_if_a_batch_is_long(path) -> None:
    spool = fg.Spool(path, batch=10**6, seconds=1e-9)
    spool.append(0, 0, 1.0)
    spool.append(1, 0, 1.0)
    assert len(rows_in(path)) == 1


def test_both_ends_at_once_terminate_and_a_terminated_row_needs_no_last_observation(path) -> None:
    with fg.Spool(path) as spool:
        spool.append(0, 1, 1.0, terminated=True, truncated=True, last=4)
        spool.append(2, 1, 1.0, terminated=True)
        spool.append(3, 1, 1.0, truncated=True, last=1)
    rows = fg.SpoolSource(path).open(discount=0.9).read(9)
    assert rows.observation.tolist() == [0, 4, 2, 2, 3, 1]
    assert rows.discount.tolist() == [0.0, 0.0, 0.0, 0.0, 0.9, 0.0]
    assert rows.gap.tolist() == [False, True] * 3
    assert np.isnan(rows.behavior).all()


@pytest.mark.parametrize("width", [None, 2])
def test_a_reader_that_is_saved_and_restored_anywhere_yields_the_rest(path, width) -> None:
    with fg.Spool(path, width=width, batch=3) as spool:
        append_all(spool, random_episodes(seed=1, count=6, width=width or 0))
        spool.append([0.0, 0.0] if width else 0, 1, 1.0)
    every = rows_in(path)
    for count in range(len(every) + 1):
        reader, again = (fg.SpoolSource(path).open(discount=0.9) for _ in range(2))
        assert found_rows(reader.read(count)) == every[:count]
        again.restore(reader.save())
        again.restore(again.save())
        assert again.closed == (count == len(every))
        assert found_rows(again.read(2)) + found_rows(again.read(99)) == every[count:]
        again.restore(again.save())
        assert again.closed


def test_cut_at_any_byte_the_rows_that_were_read_stay_and_the_spool_goes_on(
    path, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # hundreds of them take a while
    episodes = random_episodes(seed=2, count=3, longest=3)
    spool = fg.Spool(path, batch=2)
    append_all(spool, episodes)
    spool.flush()
    every, data = rows_in(path), path.read_bytes()
    assert every == expected_rows(episodes, 0.9)
    cut, seen = tmp_path / "cut.spool", set()
    for size in range(HEADER, len(data) + 1):
        cut.write_bytes(data[:size])
        reader = fg.SpoolSource(cut).open(discount=0.9)
        before = found_rows(reader.read(99))
        assert before == every[: len(before)]
        seen.add(len(before))
        with fg.Spool(cut) as going_on:
            going_on.append(4, 2, 9.0, terminated=True)
        after = rows_in(cut)
        assert before + found_rows(reader.read(99)) == after
        kept = after[:-2]
        # An action whose effect was lost becomes the end of its episode.
        assert kept[:-1] == every[: max(0, len(kept) - 1)]
        assert not kept or kept[-1] == (every[len(kept) - 1][0], 0, 0.0, 0.0, None, True)
        assert reader.closed
    assert len(seen) > 2


def test_rows_that_were_read_survive_a_crash_of_the_machine_at_any_byte(
    path, tmp_path, monkeypatch
) -> None:
    """Of what was written, a crash may leave only what had been forced to the disk."""
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: sizes.append(os.fstat(handle).st_size))
    spool = fg.Spool(path, batch=2)
    append_all(spool, random_episodes(seed=2, count=4, longest=3))
    spool.append(1, 1, 1.0)
    spool.flush()
    data, forced = path.read_bytes(), [HEADER, *sizes]
    cut, seen = tmp_path / "cut.spool", set()
    for size in range(HEADER + 1, len(data) + 1):
        cut.write_bytes(data[:size])
        following = fg.SpoolSource(cut).open(discount=0.9)
        before = found_rows(following.read(99))
        state = following.save()
        cut.write_bytes(data[: max(on_disk for on_disk in forced if on_disk < size)])
        restored = fg.SpoolSource(cut).open(discount=0.9)
        restored.restore(state)
        assert found_rows(restored.read(99)) == []
        with fg.Spool(cut) as going_on:
            going_on.append(4, 2, 9.0, terminated=True)
        after = rows_in(cut)
        for reader in (following, restored):
            assert before + found_rows(reader.read(99)) == after
            assert reader.closed
        seen.add(len(before))
    assert len(seen) > 4


def test_a_tail_of_noise_is_not_read_and_is_dropped_by_the_next_writer(path) -> None:
    spool = fg.Spool(path)
    spool.append(0, 1, 1.0, terminated=True)
    spool.flush()
    del spool
    with path.open("ab") as file:
        file.write(np.random.default_rng(0).bytes(10 * Form(None).size + 5))
    reader = fg.SpoolSource(path).open(discount=0.9)
    assert len(reader.read(9).gap) == 2
    with fg.Spool(path) as again:
        again.append(3, 1, 1.0, terminated=True)
    assert reader.read(9).observation.tolist() == [3, 3]


PLANT = """
import pathlib
import fegsam as fg
spool, step = fg.Spool(pathlib.Path({!r}), batch=50), 0
while True:
    spool.append(step, step % 3, float(step))
    step += 1
"""


def test_a_process_that_is_killed_loses_nothing_that_it_appended(path) -> None:
    with processes.started(PLANT.format(str(path))) as plant:
        while not path.exists() or path.stat().st_size < 20_000:
            assert plant.poll() is None, "the plant failed"
            time.sleep(0.001)
        reader = fg.SpoolSource(path).open(discount=0.9)
        first = reader.read(10**6).observation
        plant.kill()
    whole = (path.stat().st_size - HEADER) // Form(None).size
    with fg.Spool(path):
        rows = reader.read(10**6)
    states = np.concatenate([first, rows.observation, reader.read(9).observation])
    np.testing.assert_array_equal(states, np.arange(len(states)))
    assert len(states) > 0.95 * whole
    assert rows.gap.sum() == 1
    assert reader.closed


def test_a_run_on_a_spool_is_the_run_on_a_log_of_the_same(path, tmp_path) -> None:
    episodes = random_episodes(seed=4, count=30)
    log = write(tmp_path / "log.parquet", observation_log(episodes))
    spool = fg.Spool(path)
    append_all(spool, episodes[:20])
    spool.flush()
    settings = {"step_size": 0.1, "sync_period": 5, "engine": "reference"}

    def learned(source, num_steps, **more):
        data = fg.DataFederation(
            source,
            discount=0.9,
            num_states=5,
            num_actions=3,
            target_policy=fg.policies.uniform(5, 3),
            held_out=0.0,
        )
        return fg.run(data, fg.OffPolicyTabularTD(2), num_steps=num_steps, **settings, **more)

    begun = learned(fg.SpoolSource(path), 40)
    with pytest.raises(ProblemError, match="The data of this agent is used up"):
        learned(fg.SpoolSource(path), 80)
    append_all(spool, episodes[20:])
    spool.close()
    history = learned(fg.SpoolSource(path), 80, resume_from=begun)
    expected = learned(fg.LogSource(log), 80)
    np.testing.assert_array_equal(history.data.final_params, expected.data.final_params)
    with pytest.raises(ProblemError, match="a spool feeds one agent"):
        fg.DataFederation(fg.SpoolSource(path), discount=0.9, num_agents=2)


def test_damage_another_spool_and_a_shorter_one_are_refused(path, tmp_path) -> None:
    with fg.Spool(path, batch=1) as spool:
        append_all(spool, random_episodes(seed=3, count=3))
    reader = fg.SpoolSource(path).open(discount=0.9)
    reader.read(5)
    state, data = reader.save(), path.read_bytes()
    other = tmp_path / "other.spool"
    fg.Spool(other).close()
    with pytest.raises(ProblemError, match="not the spool that this agent began with"):
        fg.SpoolSource(other).open(discount=0.9).restore(state)
    path.write_bytes(data[: HEADER + 3 * Form(None).size])
    with pytest.raises(ProblemError, match="put it back"):
        fg.SpoolSource(path).open(discount=0.9).restore(state)
    at = HEADER + 2 * Form(None).size + 20
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(ProblemError, match="record 2: it is damaged, but later ones are not"):
        fg.SpoolSource(path).open(discount=0.9).read(99)


def test_a_spool_that_was_put_back_and_went_on_otherwise_is_refused(path) -> None:
    spool = fg.Spool(path, batch=1)
    spool.append(0, 1, 1.0, terminated=True)
    early = path.read_bytes()
    spool.append(1, 1, 1.0, terminated=True)
    reader = fg.SpoolSource(path).open(discount=0.9)
    assert len(reader.read(9).gap) == 4
    spool.close()
    path.write_bytes(early)
    with fg.Spool(path) as other:
        for _ in range(5):
            other.append(2, 1, 1.0, terminated=True)
    with pytest.raises(ProblemError, match="put it back"):
        fg.SpoolSource(path).open(discount=0.9).restore(reader.save())


def test_rows_beyond_the_declared_numbers_are_refused(path) -> None:
    with fg.Spool(path) as spool:
        spool.append(0, 1, 1.0)
        spool.append(5, 2, 1.0, terminated=True)
    source = fg.SpoolSource(path)
    with pytest.raises(ProblemError, match=r"record 1: observation is 5, but there are 5 states"):
        source.open(discount=0.9, num_states=5).read(9)
    with pytest.raises(ProblemError, match=r"record 1: action is 2, but there are 2 actions"):
        source.open(discount=0.9, num_actions=2).read(9)
    assert len(source.open(discount=0.9, num_states=6, num_actions=3).read(9).gap) == 3


def test_one_process_writes_and_a_closed_spool_stays_closed(path) -> None:
    spool = fg.Spool(path)
    with pytest.raises(ProblemError, match="open in another Spool"):
        fg.Spool(path)
    spool.close()
    spool.close()
    with pytest.raises(ProblemError, match="was closed: name another file"):
        fg.Spool(path)
    with pytest.raises(ProblemError, match="was closed: name another file"):
        spool.append(0, 0, 1.0)


def test_a_plant_that_fails_can_go_on_later(path) -> None:
    def fail() -> None:
        with fg.Spool(path) as spool:
            spool.append(0, 1, 1.0)
            spool.append(1, 1, 1.0)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with fg.Spool(path) as spool:
        spool.append(2, 1, 1.0, terminated=True)
    rows = fg.SpoolSource(path).open(discount=0.9).read(9)
    assert rows.observation.tolist() == [0, 1, 2, 2]
    assert rows.gap.tolist() == [False, True, False, True]


def test_a_disk_that_is_full_leaves_no_part_of_a_row(path, monkeypatch) -> None:
    spool = fg.Spool(path)
    spool.append(0, 1, 1.0)
    writes = [os.pwrite]

    def full(handle: int, data: bytes, place: int) -> int:
        if len(data) > 40:
            return writes[0](handle, data[:40], place)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    size = path.stat().st_size
    with pytest.raises(OSError, match="No space"):
        spool.append(1, 1, 1.0, terminated=True)
    assert path.stat().st_size == size
    monkeypatch.undo()
    spool.append(2, 1, 1.0, terminated=True)
    spool.close()
    assert [row[0] for row in rows_in(path)] == [0, 2, 2]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"observation": -1}, "observation is -1"),
        ({"observation": 0.5}, "observation is 0.5"),
        ({"action": -1}, "action is -1"),
        ({"reward": np.nan}, "reward is nan"),
        ({"behavior_probability": 0.0}, "but this action was taken"),
        ({"behavior_probability": -1.94}, "is -1.94, a logarithm or a density"),
        ({"terminated": "no"}, "terminated is 'no'"),
        ({"truncated": True}, "give last="),
        ({"last": 3}, "but the episode goes on"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_before_it_is_written(path, row, told) -> None:
    spool = fg.Spool(path)
    size = path.stat().st_size
    with pytest.raises(ProblemError, match=told):
        spool.append(**({"observation": 0, "action": 1, "reward": 1.0} | row))
    assert path.stat().st_size == size


def test_settings_and_files_that_cannot_be_used_are_refused(path, tmp_path) -> None:
    fg.Spool(path, width=2).close()
    with pytest.raises(ProblemError, match="was begun with 2"):
        fg.Spool(path)
    with pytest.raises(ProblemError, match="batch is 0"):
        fg.Spool(tmp_path / "new.spool", batch=0)
    with pytest.raises(ProblemError, match="does not exist: let its owner begin it"):
        fg.SpoolSource(tmp_path / "none.spool").open(discount=0.9)
    (tmp_path / "text").write_text("hello" * 99)
    with pytest.raises(ProblemError, match="is not a spool"):
        fg.SpoolSource(tmp_path / "text").open(discount=0.9)
    with pytest.raises(ProblemError, match="discount is 3"):
        fg.SpoolSource(path).open(discount=3)
    with pytest.raises(ProblemError, match=r"has shape \(3,\), but the spool was begun with width"):
        fg.Spool(tmp_path / "wide.spool", width=2).append([1.0, 2.0, 3.0], 0, 1.0)
