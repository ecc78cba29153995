"""A history file is as it was written, or it is refused: at once, with a sentence of the package's
own."""

from __future__ import annotations

import os
import pathlib
import stat
import warnings

import netCDF4
import pytest
import xarray as xr

import fegsam as fg
from fegsam.history import storage
from fegsam.safe_files import SEAL, append_seal
from helpers import golden, processes
from helpers.damages import KINDS, damaged

COUNT = 512
"""Damaged files; each is refused in milliseconds."""


@pytest.fixture(scope="module")
def history() -> fg.History:
    return fg.run(
        golden.federation(),
        fg.OffPolicyTabularTD(2),
        step_size=0.1,
        sync_period=4,
        num_steps=10,
        record=3,
        seeds=range(3),
    )


@pytest.fixture
def path(history: fg.History, tmp_path: pathlib.Path) -> pathlib.Path:
    history.save(tmp_path / "run.nc")
    return tmp_path / "run.nc"


def make_old(path: pathlib.Path) -> pathlib.Path:
    """The file as versions before checksums wrote it."""
    with netCDF4.Dataset(path, "a") as file:
        file.delncattr("fegsam_seal")
    # Whatever else wrote to it, nothing of the seal is left.
    assert b"fegsam seal" not in path.read_bytes()
    return path


# --- With a checksum ------------------------------------------------------------------------------

CHECK = """
import pathlib
import fegsam as fg
from helpers.damages import damaged
path, count = pathlib.Path({path!r}), {count}
whole, history = path.read_bytes(), fg.load_history(path)
for what, content in damaged(whole, count):
    path.write_bytes(content)
    try:
        again = fg.load_history(path)
    except fg.ProblemError as error:
        assert str(path) in str(error) and "damaged" in str(error), error
        print("refused", what)
    else:
        assert content == whole, f"{{what}}: changed bytes went unnoticed"
        assert again.data.identical(history.data), what
        print("equal", what)
"""


def test_every_damaged_file_is_refused_or_equal_and_none_hangs(path) -> None:
    """In a process of its own, which is given up after a while: a reader that hangs does not come
    back to Python."""
    lines = processes.run(CHECK.format(path=str(path), count=COUNT)).splitlines()
    assert len(lines) == COUNT
    refused = {line.split()[1] for line in lines if line.startswith("refused")}
    assert refused == {kind.__name__[1:] for kind in KINDS}
    assert sum(line.startswith("refused") for line in lines) > 0.9 * COUNT


def test_every_bit_of_the_seal_counts(path, history) -> None:
    whole = path.read_bytes()
    for place in range(len(whole) - SEAL, len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(fg.ProblemError, match="damaged"):
            fg.load_history(path)
    for missing in range(1, SEAL + 1):
        path.write_bytes(whole[:-missing])
        with pytest.raises(fg.ProblemError, match="checksum, is missing or changed"):
            fg.load_history(path)
    path.write_bytes(whole)
    assert fg.load_history(path).data.identical(history.data)


def test_nothing_is_parsed_before_the_checksum_is_right(path, monkeypatch) -> None:
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 1
    path.write_bytes(changed)

    def parse(*_: object, **__: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr(netCDF4, "Dataset", parse)
    monkeypatch.setattr(xr, "open_dataset", parse)
    monkeypatch.setattr(xr, "load_dataset", parse)
    with pytest.raises(fg.ProblemError, match="its checksum is wrong"):
        fg.load_history(path)


def test_a_sealed_file_is_an_ordinary_netcdf_file(path, history) -> None:
    with xr.open_dataset(path) as opened:  # whatever engine xarray chooses
        assert opened.squared_error.equals(history.data.squared_error)
        assert opened.attrs["fegsam_seal"] == "the file ends in a SHA-256 of everything before it"


def test_a_cell_of_a_sweep_is_a_history_too(history, tmp_path) -> None:
    from fegsam.experiments.sweep.store import Store
    from helpers.small_cells import SmallCell

    store, cell = Store(tmp_path), SmallCell(2, 0.1)
    store.write(cell, history)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fg.load_history(store.path(cell)).data.identical(history.data)
    # Sealed by nobody in particular, the same data are no cell of this study.
    history.save(store.path(cell))
    assert store.read(cell) is None


def test_saving_waits_for_the_disk(history, tmp_path, monkeypatch) -> None:
    synced, replaced = [], []
    fsync, replace = os.fsync, os.replace

    def note_fsync(handle: int) -> None:
        synced.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def note_replace(*names: object) -> None:
        assert synced == ["file"]
        replaced.append(names[1])
        replace(*names)

    monkeypatch.setattr("os.fsync", note_fsync)
    monkeypatch.setattr("os.replace", note_replace)
    history.save(tmp_path / "run.nc")
    assert synced == ["file", "folder"]
    assert replaced == [tmp_path / "run.nc"]


# --- Without: files of earlier versions -----------------------------------------------------------


def test_an_old_file_is_read_with_a_note(path, history) -> None:
    make_old(path)
    with pytest.warns(UserWarning, match=r"run\.nc' has no checksum.*save it again") as caught:
        again = fg.load_history(path)
    assert caught[0].filename == __file__
    assert again.data.identical(history.data)
    again.save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fg.load_history(path)


def test_an_old_cell_of_a_sweep_is_still_read(history, tmp_path) -> None:
    """It ended in a checksum of its own kind."""
    import hashlib

    from fegsam.experiments.sweep.store import Store
    from helpers.small_cells import SmallCell

    store, cell = Store(tmp_path), SmallCell(2, 0.1)
    store.write(cell, history)
    content = make_old(store.path(cell)).read_bytes()
    store.path(cell).write_bytes(content + hashlib.sha256(content + cell.key.encode()).digest())
    again = store.read(cell)
    assert again is not None
    assert again.data.identical(history.data)
    store.path(cell).write_bytes(content + hashlib.sha256(content + b"another").digest())
    assert store.read(cell) is None


def test_an_old_file_over_which_the_reader_loops_for_ever_is_refused(path, monkeypatch) -> None:
    """HDF5 does not come back from a global heap ("GCOL") with zeros in the place of its
    objects."""
    content = bytearray(make_old(path).read_bytes())
    heap = content.index(b"GCOL") + 32
    content[heap : heap + 64] = bytes(64)
    path.write_bytes(content)
    monkeypatch.setattr(storage, "PATIENCE", 3.0)
    with pytest.raises(fg.ProblemError, match=r"run\.nc.*damaged"):
        fg.load_history(path)


def test_an_old_file_that_crashes_the_reader_is_refused(path, monkeypatch, tmp_path) -> None:
    crashing = tmp_path / "trial.py"
    crashing.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setattr(storage, "__file__", str(tmp_path / "storage.py"))
    with pytest.raises(fg.ProblemError, match="reading it crashes the reader"):
        fg.load_history(make_old(path))


@pytest.mark.slow
def test_no_damaged_old_file_hangs_or_raises_anything_else(path, monkeypatch) -> None:
    whole = make_old(path).read_bytes()
    monkeypatch.setattr(storage, "PATIENCE", 10.0)
    for what, content in damaged(whole, 240, seed=1):
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                fg.load_history(path)
            except fg.ProblemError as error:
                assert "run.nc" in str(error), what  # noqa: PT017


# --- What a file may ask for ----------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("dimension", ["time", "param"])
def test_arrays_of_terabytes_in_a_small_file_are_refused(tmp_path, sealed, dimension) -> None:
    path = tmp_path / "huge.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name in ("seed", "time", "param"):
            file.createDimension(name, 10**12 if name == dimension else 1)
        file.createVariable(dimension, "f8", (dimension,), chunksizes=(1000,))
        file.createVariable("final_params", "f8", ("seed", dimension), chunksizes=(1, 1000))
    assert path.stat().st_size < 10**6
    if sealed:
        append_seal(path)
    with pytest.raises(fg.ProblemError, match=r"huge\.nc.*need 16000000000000 bytes"):
        fg.load_history(path)


def test_a_pipe_or_a_device_is_not_waited_for(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe.nc")
    for path in (tmp_path / "pipe.nc", "/dev/zero"):
        with pytest.raises(fg.ProblemError, match="a pipe or a device, not a plain file"):
            fg.load_history(path)


# --- Where nothing can be written -----------------------------------------------------------------


def test_a_folder_that_cannot_be_written_to_is_named(history, tmp_path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    if os.access(folder, os.W_OK):  # the superuser may write anywhere but in /proc
        folder = pathlib.Path("/proc")
    with pytest.raises(
        fg.ProblemError, match=rf"'{folder}/run\.nc' cannot be written .*choose a folder"
    ):
        history.save(folder / "run.nc")


FULL = """
import pathlib, resource
import fegsam as fg
target = pathlib.Path({path!r})
history = fg.load_history(target)
before = target.read_bytes()
for room in {rooms}:
    # No file may grow beyond this; writing past it fails as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    try:
        history.save(target)
    except fg.ProblemError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert target.read_bytes() == before
    assert list(target.parent.iterdir()) == [target]
history.save(target)
fg.load_history(target)
"""


def test_a_full_disk_is_said_in_a_sentence_and_leaves_the_old_file(path) -> None:
    size = path.stat().st_size
    rooms = [0, 100, 5000, size - SEAL - 1, size - SEAL + 3, size - 1]
    lines = processes.run(FULL.format(path=str(path), rooms=rooms)).splitlines()
    assert len(lines) == len(rooms)
    assert all(
        "run.nc' cannot be written (" in line and "make room there" in line for line in lines
    )
