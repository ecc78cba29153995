"""The data of an agent on its own machine: a log, a live environment or a spool, for a charter.

A log or a spool is held to be the one that its agent began with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fegsam.data.charter import Charter
from fegsam.data.federation import Reader, Source
from fegsam.data.log import LogReader, LogSource
from fegsam.data.rows import Rows
from fegsam.data.saved import require_kind
from fegsam.data.spool_reader import SpoolSource
from fegsam.errors import ProblemError, shown


@dataclass(frozen=True)
class OwnData:
    """What one agent reads on its own machine.

    Examples
    --------
    >>> import fegsam as fg
    >>> OwnData(fg.LogSource("wards.parquet", by="ward"), "north").is_read_ahead
    True
    """

    source: Source
    value: Any = None
    """the value of a log's column `by` whose rows are the agent's"""

    def __post_init__(self) -> None:
        source = self.source
        if self.value is not None and isinstance(source, LogSource) and source.by is None:
            raise ProblemError(
                f"{source.path}: value is {shown(self.value)}, but no column is named whose "
                "values tell agents apart: give by, too"
            )

    @property
    def is_read_ahead(self) -> bool:
        """Whether rows are there before they are needed."""
        return isinstance(self.source, LogSource | SpoolSource)


class DataChanged(ProblemError):
    """A log is not the one that its agent began with."""


class UnchangedLog:
    """Reads a log as long as its files are those that the agent began with.

    The digest of the files is part of what `save` returns. It is computed again only when the
    disk's records of a file change.
    """

    def __init__(self, source: LogSource, reader: LogReader) -> None:
        self._source, self._reader = source, reader
        self._mark = self._seen()
        self._digest = source.digest()

    def _seen(self) -> list[tuple[int, int, int]]:
        """What changes when a file does."""
        found = [file.stat() for file in self._source.files]
        return [(each.st_ino, each.st_size, each.st_mtime_ns) for each in found]

    def read(self, count: int) -> Rows:
        mark = self._seen()
        if mark != self._mark:
            self._require(self._digest, self._source.digest())
            self._mark = mark
        return self._reader.read(count)

    def save(self) -> dict[str, np.ndarray]:
        digest = np.frombuffer(bytes.fromhex(self._digest), np.uint8)
        return {"digest": digest, **self._reader.save()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        require_kind(state, "digest", str(self._source.files[0]))
        self._require(state["digest"].tobytes().hex(), self._digest)
        self._reader.restore(state)

    def _require(self, began: str, now: str) -> None:
        if began != now:
            raise DataChanged(
                f"{self._source.files[0]}: it is not the file this agent began with: put it back"
            )


def private_reader(charter: Charter, data: OwnData, *, seed: int, agent: int) -> Reader:
    """The reader of an agent's data; a live source draws under `seed`.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> charter = Charter(num_agents=2, discount=0.9, num_states=2, num_actions=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(f"{folder}/a.csv", walk, go, episodes=20, length=50, seed=0)
    ...     reader = private_reader(charter, OwnData(LogSource(path)), seed=0, agent=1)
    ...     first, state = reader.read(3), reader.save()
    ...     with open(path, "a") as file:
    ...         _ = file.write("20,0,1,1.0,true,false,0.5\\n")
    ...     private_reader(charter, OwnData(LogSource(path)), seed=0, agent=1).restore(state)
    Traceback (most recent call last):
    fegsam.data.private.DataChanged: ...a.csv: it is not the file this agent began with: put it back
    """
    source, discount = data.source, charter.discount
    sizes = {"num_states": charter.num_states, "num_actions": charter.num_actions}
    if isinstance(source, LogSource):
        return UnchangedLog(source, source.open(discount=discount, agent=data.value, **sizes))
    if isinstance(source, SpoolSource):
        return source.open(discount=discount, **sizes)
    return source.open(discount=discount, seed=seed, agent=agent)
