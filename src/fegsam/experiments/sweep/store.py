"""Where a sweep keeps its cells: one file each, whole or not there.

    DIR/study.toml                                   the study, as it was given
    DIR/cells/num_agents=4,step_size=0.1-<key>.nc    one cell's history: NetCDF, then a checksum
    DIR/.lock, DIR/.lock.pid                         the process that is at work here

A file gets its name only when all of it is on the disk, so that a sweep may be killed at any
moment. It ends in a seal (see `safe_files`) with the cell's key as its owner: a file that was cut,
changed or moved to another cell's name is noticed before anything is read from it.
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
"""Characters of a file name that say what the cell is; the key behind them tells cells apart."""


def describe(cell: Cell) -> str:
    """Where in the grid a cell is, for people: ``num_agents=4, step_size=0.1``."""
    return ", ".join(f"{axis}={value}" for axis, value in cell.axes.items()) or "the only cell"


class Store:
    """The results of one study in a directory.

    Parameters
    ----------
    directory : path
        Made when the first result comes.

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
        """The file of a cell, whether it is there or not."""
        readable = re.sub(r"[^\w.,=+-]", "", describe(cell).replace(", ", ",").replace(" ", "_"))
        return self._cells / f"{readable[:_LONGEST]}-{cell.key[:16]}.nc"

    def write(self, cell: Cell, history: History) -> None:
        """Keep a cell's history: after this it stays, whatever happens to the process or the
        machine."""
        with self._usable():
            self._cells.mkdir(parents=True, exist_ok=True)
        save_history(history, self.path(cell), owner=cell.key)

    def read(self, cell: Cell) -> History | None:
        """A cell's history, or None where there is none or its file is damaged."""
        return parse_history(self.path(cell)) if self.is_whole(cell) else None

    def is_whole(self, cell: Cell) -> bool:
        """Whether a cell's file is there and as it was written."""
        try:
            label = sealed_by(self.path(cell))
            return (
                label == label_of(cell.key) if label is not None else self._has_old_checksum(cell)
            )
        except (OSError, DamagedError):
            return False

    def _has_old_checksum(self, cell: Cell) -> bool:
        """Files of versions before seals end in the SHA-256 of the rest and of the cell's key."""
        content = memoryview(read_plain(self.path(cell)))
        state = hashlib.sha256(content[:-_CHECKSUM])
        state.update(cell.key.encode())
        return content[-_CHECKSUM:] == state.digest()

    def done(self, cells: Iterable[Cell]) -> list[Cell]:
        """Those of `cells` whose files are whole."""
        return [cell for cell in cells if self.is_whole(cell)]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else may run a sweep here meanwhile; the lock of a process that died is free."""
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
        """Make this the directory of a study, unless it holds another's results.

        What belongs to the study stays, so that its grid may have grown since. What a killed sweep
        left half written goes.
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
