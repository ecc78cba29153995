"""`Spool`: what the process of a plant writes while it runs."""

from __future__ import annotations

import fcntl
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from fegsam.data.spool_format import (
    CLOSED,
    CUT,
    HEADER,
    LAST,
    MARK,
    ROW,
    TERMINATED,
    TRUNCATED,
    Form,
    Record,
    create,
    read_header,
    read_records,
    records_in,
)
from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import finite_array, flag, integer, positive

_AT_ONCE = 4096
"""Records that are read together when a spool is opened again."""


class Spool:
    """A file to which the owner of a plant that cannot be replayed appends what happens.

    One process writes; any number of readers (`SpoolSource`) follow it. What was appended survives
    a kill of the process at any moment. Rows are forced to the disk in batches, and readers see
    them from then on, so that a row that was read survives a crash of the machine, too. A process
    that was killed opens the spool again and goes on with a new episode; an action whose effect was
    not recorded does not count.

    Parameters
    ----------
    path : str or path
        A new file, or a spool that was not closed.
    width : int, optional
        The numbers of an observation; None if observations are state numbers from 0 on.
    batch : int
        Rows between two writes to the disk.
    seconds : float
        The longest time between two writes to the disk while rows are appended.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with fg.Spool(f"{folder}/plant.spool") as spool:
    ...         spool.append(0, 1, 0.5, behavior_probability=0.8)
    ...         spool.append(2, 0, 1.0, terminated=True, last=3)
    ...     reader = fg.SpoolSource(f"{folder}/plant.spool").open(discount=0.9)
    ...     rows = reader.read(10)
    >>> rows.observation, rows.discount, rows.gap, reader.closed
    (array([0, 2, 3]), array([0.9, 0. , 0. ]), array([False, False,  True]), True)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        width: int | None = None,
        batch: int = 1000,
        seconds: float = 1.0,
    ) -> None:
        self.path: Path = Path(path)
        self._batch, self._seconds = integer(batch, "batch"), positive(seconds, "seconds")
        width = None if width is None else integer(width, "width", most=10**6)
        create(self.path, width)
        found = read_header(self.path).width
        if found != width:
            raise ProblemError(f"width is {width}, but {self.path} was begun with {found}: give it")
        self._width, self._form = width, Form(width)
        self._file = open(self.path, "r+b", buffering=0)  # noqa: SIM115  it stays open
        self._lock()
        try:
            self._recover()
        except BaseException:
            self._file.close()
            raise

    def append(
        self,
        observation: Any,
        action: int,
        reward: float,
        terminated: bool = False,
        truncated: bool = False,
        *,
        last: Any = None,
        behavior_probability: float | None = None,
    ) -> None:
        """Append an action that was taken with an observation, and its reward.

        Parameters
        ----------
        observation : int or (k,) array
        action : int
            Its number, from 0 on.
        reward : float
        terminated, truncated : bool
            Whether the episode ended with it, or was cut; the next row begins another episode.
        last : int or (k,) array, optional
            The observation after the action. It is needed where `truncated` alone is set.
        behavior_probability : float, optional
            The probability with which the action was chosen.
        """
        ended, cut = flag(terminated, "terminated"), flag(truncated, "truncated")
        records = [
            Record(
                ROW,
                TERMINATED * ended + TRUNCATED * cut,
                integer(action, "action", least=0),
                float(finite_array(reward, "reward", "()")),
                _chance(behavior_probability),
                self._numbers(observation, "observation"),
            )
        ]
        if ended or cut:
            if last is None and not ended:
                raise ProblemError(
                    "truncated is set, but last is missing, so the step cannot be bootstrapped: "
                    "give last=, the observation after the action"
                )
            final = observation if last is None else last
            records.append(Record(LAST, observation=self._numbers(final, "last")))
        elif last is not None:
            raise ProblemError(
                f"last is {shown(last)}, but the episode goes on: set terminated or truncated, or "
                "append it with its action"
            )
        self._write(records)
        self._is_open = not (ended or cut)
        self._waiting += 1
        if self._waiting >= self._batch or time.monotonic() - self._marked >= self._seconds:
            self.flush()

    def flush(self) -> None:
        """Force all rows to the disk, and show them to the readers."""
        if self._waiting:
            os.fsync(self._file.fileno())
            self._write([Record(MARK, int(self._is_open))])
        self._waiting, self._marked = 0, time.monotonic()

    def close(self) -> None:
        """End the spool for good: its readers see that nothing more will come."""
        if self._file.closed:
            return
        if self._is_open:
            self._write([Record(CUT)])
        os.fsync(self._file.fileno())
        self._write([Record(CLOSED)])
        os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        elif not self._file.closed:  # the plant failed: its owner may go on later
            self.flush()
            self._file.close()

    def _lock(self) -> None:
        """Keep other writers out until the file is closed, however this process ends."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ProblemError(
                f"{self.path} is open in another Spool: close that one, or name another file"
            ) from None

    def _recover(self) -> None:
        """Find the last sound record, drop what is torn behind it, and end an open episode."""
        self._number, self._waiting, self._is_open = self._begin_after_mark()
        os.ftruncate(self._file.fileno(), HEADER + self._number * self._form.size)
        if self._is_open:
            self._write([Record(CUT)])
            self._is_open, self._waiting = False, self._waiting + 1
        self.flush()

    def _begin_after_mark(self) -> tuple[int, int, bool]:
        """The number of sound records, those after the last mark, and whether an episode is open.

        What comes before the last mark is known to be sound.
        """
        form, end = self._form, records_in(self._file, self._form)
        is_open, first = False, 0
        while end > 0:
            begin = max(0, end - _AT_ONCE)
            data = read_records(self._file, form, begin, end - begin)
            mark = form.last_mark(begin, data)
            if mark >= 0:
                found = np.frombuffer(data, form.dtype)[mark]
                if found["kind"] == CLOSED:
                    raise ProblemError(f"{self.path} was closed: name another file")
                is_open, first = bool(found["ends"]), begin + mark + 1
                break
            end = begin
        data = read_records(self._file, form, first, records_in(self._file, form) - first)
        kinds = np.frombuffer(data, form.dtype)["kind"][: form.valid(first, data)]
        count = len(kinds)
        return first + count, count, bool(kinds[-1] == ROW) if count else is_open

    def _numbers(self, value: Any, name: str) -> tuple[Any, ...]:
        if self._width is None:
            return (integer(value, name, least=0),)
        numbers = finite_array(value, name, f"({self._width},)")
        if numbers.shape != (self._width,):
            raise ProblemError(
                f"{name} has shape {numbers.shape}, but the spool was begun with width="
                f"{self._width}: give so many numbers"
            )
        return tuple(numbers.tolist())

    def _write(self, records: list[Record]) -> None:
        """Write records as one; if that fails, none of them is left."""
        if self._file.closed:
            raise ProblemError(f"{self.path} was closed: name another file")
        data = b"".join(self._form.pack(self._number + i, each) for i, each in enumerate(records))
        place = HEADER + self._number * self._form.size
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self._file.fileno(), data[done:], place + done)
        except OSError:
            os.ftruncate(self._file.fileno(), place)
            raise
        self._number += len(records)


def _chance(value: float | None) -> float:
    if value is None:
        return math.nan
    chance = float(finite_array(value, "behavior_probability", "()"))
    if chance == 0.0:
        raise ProblemError(
            "behavior_probability is 0, but this action was taken: give the chance it had"
        )
    if not 0.0 < chance <= 1.0:
        raise ProblemError(
            f"behavior_probability is {chance:.4g}, a logarithm or a density: give a probability"
        )
    return chance
