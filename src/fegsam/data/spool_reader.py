"""`SpoolSource`: a spool that grows while its agent learns, and the reader that follows it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fegsam.data.rows import Rows, joined
from fegsam.data.saved import require_kind
from fegsam.data.spool_format import (
    CLOSED,
    CUT,
    LAST,
    MARK,
    ROW,
    TERMINATED,
    Form,
    Header,
    read_header,
    read_records,
    records_in,
)
from fegsam.errors import ProblemError
from fegsam.problem.checks import fraction, integer
from fegsam.safe_files import open_plain

_AT_ONCE = 1 << 14
"""Records that are read together."""
_PLURAL = {"observation": "states", "action": "actions"}


@dataclass(frozen=True)
class SpoolSource:
    """What a plant's process writes to a `Spool`, as the data of one agent.

    Parameters
    ----------
    path : str or path

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     spool = fg.Spool(f"{folder}/plant.spool")
    ...     reader = fg.SpoolSource(spool.path).open(discount=0.9)
    ...     before = len(reader.read(10).gap)
    ...     spool.append(0, 1, 0.5, terminated=True)
    ...     spool.flush()
    ...     print(before, reader.read(10).gap, reader.closed)
    0 [False  True] False
    """

    path: str | os.PathLike[str]

    @property
    def width(self) -> int | None:
        """The numbers of an observation; None for state numbers."""
        return read_header(Path(self.path)).width

    def fingerprint(self) -> str:
        """The name that the spool has had since it was begun; what is appended does not change it.

        >>> import tempfile
        >>> import fegsam as fg
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     spool = fg.Spool(f"{folder}/plant.spool")
        ...     before = fg.SpoolSource(spool.path).fingerprint()
        ...     spool.close()
        ...     fg.SpoolSource(spool.path).fingerprint() == before
        True
        """
        return read_header(Path(self.path)).name

    def open(
        self, *, discount: float, num_states: int | None = None, num_actions: int | None = None
    ) -> SpoolReader:
        """A reader from the first row on. Rows beyond the given numbers are refused."""
        if discount != 1.0:
            discount = fraction(discount, "discount")
        most = (
            None if num_states is None else integer(num_states, "num_states"),
            None if num_actions is None else integer(num_actions, "num_actions"),
        )
        return SpoolReader(Path(self.path), discount, most)


class SpoolReader:
    """Reads the rows of a spool in order, as far as they have been written.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with fg.Spool(f"{folder}/plant.spool") as spool:
    ...         for state in range(4):
    ...             spool.append(state, 0, 1.0)
    ...     source = fg.SpoolSource(spool.path)
    ...     reader, again = source.open(discount=0.9), source.open(discount=0.9)
    ...     first = reader.read(2)
    ...     again.restore(reader.save())
    ...     print(first.observation, again.read(9).observation, again.closed)
    [0 1] [2 3] True
    """

    def __init__(self, path: Path, discount: float, most: tuple[int | None, int | None]) -> None:
        """Use `SpoolSource.open`."""
        self._path, self._discount, self._most = path, discount, most
        self._header: Header = read_header(path)
        self._form = Form(self._header.width)
        self._start(0, 0)

    def _start(self, cursor: int, before: int) -> None:
        """Read on from a record, which follows one with the sum `before`; all rows before it have
        been read."""
        self._cursor, self._before = cursor, before
        self._held = np.zeros(0, self._form.dtype)

    @property
    def closed(self) -> bool:
        """Whether the spool was closed and all of its rows have been read."""
        return bool(len(self._held) and self._held["kind"][0] == CLOSED)

    def read(self, count: int) -> Rows:
        """The next `count` rows; fewer where no more have been written."""
        missing = integer(count, "count", least=0)
        parts = [self._take(0)]
        while missing > 0:
            rows = self._take(missing)
            parts.append(rows)
            missing -= len(rows.gap)
            if missing > 0 and not self._fill():
                break
        return joined(parts)

    def save(self) -> dict[str, np.ndarray]:
        """Where the reader is: a record, the sum of the one before it, and the spool's name."""
        return {
            "cursor": np.array([self._cursor, self._before], np.int64),
            "spool": np.frombuffer(self._header.name.encode(), np.uint8),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from what `save` returned; an error if it is not the same spool any more."""
        require_kind(state, "spool", str(self._path))
        self._start(*(int(number) for number in state["cursor"]))
        if state["spool"].tobytes().decode() != self._header.name:
            raise self._changed()
        self._fill()

    def _take(self, most: int) -> Rows:
        """Up to `most` of the rows at hand."""
        kinds = self._held["kind"]
        content = np.flatnonzero((kinds == ROW) | (kinds == LAST) | (kinds == CUT))
        following = np.append(kinds[content[1:]], 0) if len(content) else kinds[:0]
        is_row = (kinds[content] == ROW) & (following > 0)
        ready = np.flatnonzero(is_row | (kinds[content] == LAST))
        chosen = ready[:most]
        at = content[chosen]
        rows = self._rows(at, (kinds[at] == LAST) | (following[chosen] == CUT))
        # The cursor stays before the next row, or before the record that closes the spool. It does
        # not pass the last mark, which may not be on the disk yet.
        left = (kinds == ROW) | (kinds == LAST) | (kinds == CLOSED)
        left[: at[-1] + 1 if len(at) else 0] = False
        passed = np.flatnonzero(kinds != MARK)
        end = int(passed[-1]) + 1 if len(passed) else 0
        self._advance(int(np.argmax(left)) if left.any() else end)
        return rows

    def _advance(self, count: int) -> None:
        if count:
            self._before = int(self._held["sum"][count - 1])
            self._cursor, self._held = self._cursor + count, self._held[count:]

    def _rows(self, at: np.ndarray, gap: np.ndarray) -> Rows:
        """The records at some places as rows."""
        found = self._held[at]
        for name, most in zip(("observation", "action"), self._most, strict=True):
            values = found[name]
            if most is not None and values.ndim == 1 and (values >= most).any():
                first = int(np.argmax(values >= most))
                raise ProblemError(
                    f"{self._path}, record {self._cursor + int(at[first])}: {name} is "
                    f"{values[first]}, but there are {most} {_PLURAL[name]} (0 to {most - 1}): "
                    "correct it or declare more"
                )
        stops = gap | (found["ends"] & TERMINATED > 0)
        return Rows(
            np.array(found["observation"]),
            np.where(gap, 0, found["action"]),
            np.where(gap, 0.0, found["reward"]),
            np.where(stops, 0.0, self._discount),
            np.where(gap, np.nan, found["behavior"]),
            np.full(len(at), np.nan),
            gap,
        )

    def _fill(self) -> bool:
        """Hold the records from the cursor to the last mark at hand; False if there are no more.

        Those that were held are read again: behind the last row that was read, a writer that
        begins anew after a crash may have put others in their place.
        """
        form, first = self._form, self._cursor
        with open_plain(self._path) as file:
            if not self._is_the_same(file):
                raise self._changed()
            count = _AT_ONCE
            while True:
                data = read_records(file, form, first, count)
                sound = form.valid(first, data) * form.size
                mark = form.last_mark(first, data[:sound])
                # Without a new mark among many records, the next one is further on.
                if mark >= len(self._held) or sound < count * form.size:
                    break
                count *= 2
            if sound < len(data):
                self._check_rest(file, first + sound // form.size)
        grown = mark >= len(self._held)
        self._held = np.frombuffer(data, form.dtype)[: mark + 1]
        return grown

    def _is_the_same(self, file: BinaryIO) -> bool:
        """Whether the file has this spool's name, and the record before the cursor."""
        if read_header(self._path) != self._header or records_in(file, self._form) < self._cursor:
            return False
        if self._cursor == 0:
            return True
        data = read_records(file, self._form, self._cursor - 1, 1)
        return np.frombuffer(data, self._form.dtype)["sum"].tolist() == [self._before]

    def _check_rest(self, file: BinaryIO, number: int) -> None:
        """Raise if an unsound record is followed by a mark, and so was sound when it was written.

        Otherwise it is being written, or its writer was stopped and will drop it.
        """
        end = records_in(file, self._form)
        data = read_records(file, self._form, number, end - number)
        if self._form.last_mark(number, data) >= 0:
            raise ProblemError(
                f"{self._path}, record {number}: it is damaged, but later ones are not: copy the "
                "file again"
            )

    def _changed(self) -> ProblemError:
        return ProblemError(
            f"{self._path} is not the spool that this agent began with, or is shorter: put it back"
        )
