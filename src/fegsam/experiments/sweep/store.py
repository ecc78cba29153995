"""The stored cells of a sweep: one file each, complete or absent.

    DIR/study.toml                                   the study, as it was given
    DIR/cells/num_agents=4,step_size=0.1-<key>.nc    one cell's history: NetCDF, then a checksum
    DIR/.lock, DIR/.lock.pid                         the process that uses the directory

A file gets its name only when all of it is on the disk, so a sweep may be killed at any moment. It
ends with a seal (see `safe_files`) that names the cell's key as its owner: a file that was
truncated, changed or renamed to another cell's name is detected before anything is read from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fegsam.errors import ProblemError
from fegsam.experiments.spec.array_values import CELLS
from fegsam.history.history import History
from fegsam.history.storage import parse_history, save_history
from fegsam.locks import Locked, lock
from fegsam.safe_files import DamagedError, label_of, read_plain, sealed_by, whole

if TYPE_CHECKING:
    from fegsam.experiments.spec.cells import Cell

_CHECKSUM = hashlib.sha256().digest_size
_LONGEST = 120
"""Characters of a file name that describe the cell; the key after them identifies it."""


def describe(cell: Cell) -> str:
    """The place of a cell in the grid, for people: ``num_agents=4, step_size=0.1``."""
    return ", ".join(f"{axis}={value}" for axis, value in cell.axes.items()) or "the only cell"


class Store:
    """The results of one study in a directory.

    Parameters
    ----------
    directory : path
        It is created with the first result.

    Examples
    --------
    >>> import tempfile, types
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> history = fg.run(fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=100)
    >>> cell = types.SimpleNamespace(axes={"num_agents": 4}, key=64 * "a")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder)
    ...     before = store.read(cell)
    ...     store.write(cell, history)
    ...     print(before, store.path(cell).name, store.read(cell).data.equals(history.data))
    None num_agents=4-aaaaaaaaaaaaaaaa.nc True
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = pathlib.Path(directory)
        self._cells = self.directory / CELLS
        self._study = self.directory / "study.toml"

    def path(self, cell: Cell) -> pathlib.Path:
        """The file of a cell, which may not exist."""
        readable = re.sub(r"[^\w.,=+-]", "", describe(cell).replace(", ", ",").replace(" ", "_"))
        return self._cells / f"{readable[:_LONGEST]}-{cell.key[:16]}.nc"

    def write(self, cell: Cell, history: History) -> None:
        """Store a cell's history durably: it survives a crash of the process or the machine."""
        with self._usable():
            self._cells.mkdir(parents=True, exist_ok=True)
        save_history(history, self.path(cell), owner=cell.key)

    def read(self, cell: Cell) -> History | None:
        """A cell's history, or None if its file is missing or damaged."""
        return parse_history(self.path(cell)) if self.is_whole(cell) else None

    def is_whole(self, cell: Cell) -> bool:
        """Whether a cell's file exists and is undamaged."""
        try:
            label = sealed_by(self.path(cell))
            return (
                label == label_of(cell.key) if label is not None else self._has_old_checksum(cell)
            )
        except (OSError, DamagedError):
            return False

    def _has_old_checksum(self, cell: Cell) -> bool:
        """Whether an old file is undamaged: it ends with a SHA-256 of its content and the key."""
        content = memoryview(read_plain(self.path(cell)))
        state = hashlib.sha256(content[:-_CHECKSUM])
        state.update(cell.key.encode())
        return content[-_CHECKSUM:] == state.digest()

    def done(self, cells: Iterable[Cell]) -> list[Cell]:
        """The cells whose files exist and are undamaged."""
        return [cell for cell in cells if self.is_whole(cell)]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other sweeps out of the directory; the lock of a dead process does not count."""
        try:
            own = lock(self.directory / ".lock")
        except Locked as other:
            raise ProblemError(
                f"A sweep is at work in {str(self.directory)!r} (process {other}); wait for it, "
                "or choose another directory."
            ) from None
        except OSError as error:
            raise ProblemError(
                f"{str(self.directory)!r} cannot be written to ({error}); choose another directory."
            ) from error
        with own:
            yield

    def adopt(self, text: str, cells: Sequence[Cell]) -> None:
        """Make this the directory of a study, unless it holds results of another study.

        Results of this study stay, so its grid may have grown since. Incomplete files of a killed
        sweep are removed.
        """
        own = {self.path(cell).name for cell in cells}
        found = sorted(
            file.name for file in self._cells.glob("*.nc") if not file.name.startswith(".")
        )
        foreign = next((name for name in found if name not in own), None)
        content = text.encode()
        with self._usable():
            known = read_plain(self._study) if self._study.exists() else None
        if foreign is not None or (known not in (None, content) and not found):
            what = (
                f"{foreign!r} among them"
                if foreign is not None
                else "its study.toml is not this one"
            )
            raise ProblemError(
                f"{str(self.directory)!r} belongs to another study ({what}); choose another "
                "directory, or remove that one."
            )
        with self._usable():
            for leftover in [*self._cells.glob(".*.nc*"), *self.directory.glob(".study.toml.*")]:
                leftover.unlink()
            if known != content:
                with whole(self._study) as temporary:
                    temporary.write_bytes(content)

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """Turn an OSError into a ProblemError."""
        try:
            yield
        except OSError as error:
            place = str(error.filename or self.directory)
            raise ProblemError(
                f"{place!r} cannot be used ({error.strerror or error}); make room there, or choose "
                "another directory."
            ) from error
