"""Stored cells are whole or not there, and say whose they are."""

from __future__ import annotations

import dataclasses
import os
import pathlib

import numpy as np
import pytest
import xarray as xr

from fegsam.errors import ProblemError
from fegsam.experiments.sweep.store import Store
from fegsam.history import History
from helpers import processes
from helpers.small_cells import SmallCell, grid

CELL, OTHER = grid(agents=(2,)).cells()


@pytest.fixture(scope="module")
def history() -> History:
    return CELL.run("reference")


@pytest.fixture
def store(tmp_path: pathlib.Path, history: History) -> Store:
    store = Store(tmp_path / "results")
    store.write(CELL, history)
    return store


def test_a_cell_comes_back_with_the_same_bits_and_settings(
    store: Store, history: History, assert_same_bits
) -> None:
    again = store.read(CELL)
    assert again is not None
    assert_same_bits(again, history)
    for name in (f.name for f in dataclasses.fields(history.settings)):
        np.testing.assert_equal(getattr(again.settings, name), getattr(history.settings, name))
    assert store.read(OTHER) is None
    assert store.done([CELL, OTHER]) == [CELL]


def test_the_file_says_what_it_is_and_any_reader_of_netcdf_opens_it(
    store: Store, history: History
) -> None:
    assert store.path(CELL).name == f"num_agents=2,step_size=0.1-{CELL.key[:16]}.nc"
    with xr.open_dataset(store.path(CELL), engine="netcdf4") as data:
        assert data.squared_error.equals(history.data.squared_error)


@pytest.mark.parametrize("value", ["../../etc/passwd", "a b/c\0d", "x" * 400, ""])
def test_no_axis_leads_out_of_the_directory(
    tmp_path: pathlib.Path, history: History, value: str
) -> None:
    store = Store(tmp_path)
    cell = SmallCell(2, 0.1, axes={"start": value})
    store.write(cell, history)
    assert store.path(cell).parent == tmp_path / "cells"
    assert store.read(cell) is not None


def test_any_change_to_a_file_is_noticed(store: Store) -> None:
    path = store.path(CELL)
    whole = path.read_bytes()
    for place in np.random.default_rng(0).integers(len(whole), size=200):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert not store.is_whole(CELL), f"bit of byte {place}"
    for length in (0, 1, 31, 32, 33, len(whole) // 2, len(whole) - 32, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert store.read(CELL) is None, f"cut to {length} bytes"
    path.write_bytes(whole + b"\0")
    assert store.read(CELL) is None
    path.write_bytes(whole)
    assert store.read(CELL) is not None


def test_another_cells_file_is_not_taken_for_ones_own(store: Store) -> None:
    store.path(CELL).rename(store.path(OTHER))
    assert store.read(OTHER) is None


def test_a_process_that_dies_while_writing_leaves_a_whole_file_or_none(
    tmp_path: pathlib.Path,
) -> None:
    """The process dies at the n-th call that changes the disk, as if it were killed there."""
    code = f"""
import os, pathlib
from helpers.small_cells import grid
from fegsam.experiments.sweep.store import Store
cell = grid(agents=(2,)).cells()[0]
history = cell.run("reference")
history.save(pathlib.Path({str(tmp_path)!r}) / "warm.nc")
def dies_at(name, count):
    original, calls = getattr(os, name), [0]
    def call(*arguments, **options):
        calls[0] += 1
        if calls[0] == count:
            os._exit(9)
        return original(*arguments, **options)
    setattr(os, name, call)
for name, count in [("fsync", 1), ("replace", 1), ("fsync", 2), ("close", 1), ("unlink", 1)]:
    child = os.fork()
    if child == 0:
        dies_at(name, count)
        Store(pathlib.Path({str(tmp_path)!r}) / f"{{name}}{{count}}").write(cell, history)
        os._exit(0)
    print(name, count, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    died = dict(line.rsplit(" ", 1) for line in processes.run(code).splitlines())
    assert [died[moment] for moment in ("fsync 1", "replace 1", "fsync 2")] == ["9"] * 3
    whole = {}
    for moment in died:
        store = Store(tmp_path / moment.replace(" ", ""))
        whole[moment] = store.is_whole(CELL)
        assert whole[moment] or not store.path(CELL).exists()
        store.adopt("", [CELL])
        left = [file.name for file in (store.directory / "cells").iterdir()]
        assert left == [store.path(CELL).name] * whole[moment], moment
    assert not whole["replace 1"], "not before it has its name"
    assert whole["fsync 2"], "and then at once"


HOLD = """
import time
from fegsam.experiments.sweep.store import Store
with Store({!r}).held():
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_sweep_is_refused_until_the_first_is_gone_however_it_went(
    tmp_path: pathlib.Path,
) -> None:
    with processes.started(HOLD.format(str(tmp_path))) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with (
            pytest.raises(
                ProblemError, match=rf"at work in '{tmp_path}' \(process {process.pid}\)"
            ),
            Store(tmp_path).held(),
        ):
            pass
        process.kill()
        process.wait()
        with Store(tmp_path).held():
            pass


def test_a_directory_belongs_to_one_study(store: Store) -> None:
    text = "[study]\nname = 'one'\n"
    store.adopt(text, [CELL])
    assert (store.directory / "study.toml").read_text() == text
    with pytest.raises(
        ProblemError, match=r"belongs to another study .*num_agents=2,step_size=0.1"
    ):
        store.adopt("[study]\nname = 'two'\n", [OTHER])
    assert (store.directory / "study.toml").read_text() == text
    assert store.is_whole(CELL)


def test_a_study_may_grow(store: Store) -> None:
    store.adopt("small", [CELL])
    store.adopt("larger", [CELL, OTHER])
    assert (store.directory / "study.toml").read_text() == "larger"
    assert store.is_whole(CELL)


def test_a_study_that_lies_there_is_not_overwritten(tmp_path: pathlib.Path) -> None:
    (tmp_path / "study.toml").write_text("somebody's own")
    with pytest.raises(ProblemError, match=r"study\.toml is not this one"):
        Store(tmp_path).adopt("another", [CELL])
    assert (tmp_path / "study.toml").read_text() == "somebody's own"
    Store(tmp_path).adopt("somebody's own", [CELL])


def test_where_nothing_can_be_written_the_error_says_so(
    tmp_path: pathlib.Path, history: History
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ProblemError, match="cannot be written to"), Store(tmp_path / "file").held():
        pass
    with pytest.raises(ProblemError, match="cannot be used"):
        Store(tmp_path / "file").write(CELL, history)
    os.mkfifo(tmp_path / "study.toml")
    with pytest.raises(
        ProblemError, match=r"study\.toml' cannot be used \(it is a pipe or a device"
    ):
        Store(tmp_path).adopt("text", [CELL])
