"""`LogSource`: recorded data as an agent's transitions, and the reader that yields them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fegsam.data import files
from fegsam.data.columns import Decoder, Layout, Names, check_names, layout_of, without_codes
from fegsam.data.content import content_of
from fegsam.data.rows import Rows, joined, part
from fegsam.data.scanner import RowLimits, Scanner
from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import FloatArray, fraction, integer, real_array
from fegsam.problem.policies import check_policy

MissingFinal = Literal["error", "drop"]


class Found(NamedTuple):
    """A batch of a log with what is needed to read it."""

    file: int
    numbers: np.ndarray
    """the numbers of its rows in the file"""
    table: Any
    decoder: Decoder


@dataclass(frozen=True, eq=False)
class LogSource:
    """A log: one or several Parquet or CSV files with a row for each observation.

    An episode's last row has an empty action. Logs of transitions, with a column
    `next_observation`, are read, too. The columns are `episode`, `observation` (a whole number, or
    a list of numbers), `action`, `reward`, `terminated`, and optionally `step`, `truncated`,
    `behavior_probability`, `target_probability` and `next_observation`.

    Parameters
    ----------
    path : str or path, or a list of them
        A file, the files of one log in order, or a folder of files, which are read by name.
    columns : mapping
        The file's name of a column, where it is another one: ``{"action": "act"}``. An observation
        may be spread over several: ``{"observation": ["x", "y"]}``.
    by : str, optional
        A column; the rows with each of its values are the log of an agent of their own.
    passes : int
        The number of times that the log is read.
    missing_final : "error" or "drop"
        What to do with a truncated episode that lacks its last observation: refuse it, or leave out
        its last transition.
    policy : (S, A) array, optional
        The policy that chose the actions, for a log without `behavior_probability` whose
        observations are states.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> text = "episode,observation,action,reward,terminated\\n0,0,1,0.5,false\\n0,1,0,2,true\\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "log.csv"
    ...     written = path.write_text(text)
    ...     rows = LogSource(path).read(discount=0.9)
    >>> rows.observation, rows.reward, rows.discount, rows.gap
    (array([0, 1, 1]), array([0.5, 2. , 0. ]), array([0.9, 0. , 0. ]),
     array([False, False,  True]))
    """

    path: files.Paths
    columns: Names = field(default_factory=dict, kw_only=True)
    by: str | None = field(default=None, kw_only=True)
    passes: int = field(default=1, kw_only=True)
    missing_final: MissingFinal = field(default="error", kw_only=True)
    policy: ArrayLike | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        integer(self.passes, "passes")
        check_names(self.columns)
        if self.missing_final not in ("error", "drop"):
            raise ProblemError(
                f"missing_final is {shown(self.missing_final)}: give 'error' or 'drop'"
            )

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the log, in the order in which they are read."""
        return files.log_files(self.path)

    def layouts(self) -> tuple[Layout, ...]:
        """Where each file keeps its columns; an error if one is missing or of a wrong type."""
        names = check_names(self.columns)
        found = tuple(layout_of(file, files.schema(file), names, self.by) for file in self.files)
        # A file without a row, of which a CSV file says nothing, is read as the others are.
        width = next((layout.width for layout in found if not layout.is_empty), found[0].width)
        found = tuple(replace(each, width=width) if each.is_empty else each for each in found)
        for file, layout in zip(self.files, found, strict=True):
            if (layout.width, set(layout.names)) != (found[0].width, set(found[0].names)):
                raise ProblemError(
                    f"{file}: its columns differ from those of {self.files[0]}: store both alike"
                )
        self._require_one_kind(found)
        return found

    def _require_one_kind(self, layouts: tuple[Layout, ...]) -> None:
        """Raise where files name episodes or agents in two ways."""
        known: dict[str, tuple[Path, str]] = {}
        for file, layout in zip(self.files, layouts, strict=True):
            for name, kind in layout.kinds.items():
                other, before = known.setdefault(name, (file, kind))
                if kind != before:
                    raise ProblemError(
                        f"{file}: {name!r} holds {kind}, but in {other} it holds {before}: store "
                        "both alike"
                    )

    def digest(self) -> str:
        """The SHA-256 of the files, which tells whether a log has changed.

        >>> LogSource("there_is_no_such.csv").digest()
        Traceback (most recent call last):
        FileNotFoundError: ...
        """
        return files.digest(self.files)

    def fingerprint(self) -> str:
        """SHA-256 of what determines the rows: the files' content, and how they are read.

        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "log.csv"
        ...     path.touch()
        ...     LogSource(path).fingerprint() == LogSource(path, passes=2).fingerprint()
        False
        """
        read_as = (self.by, self.passes, self.missing_final, check_names(self.columns), self.policy)
        return hashlib.sha256(self.digest().encode() + content_of(read_as)).hexdigest()

    def agents(self) -> tuple[Any, ...]:
        """The values of the column `by`, in the order in which they appear; (None,) without it."""
        if self.by is None:
            return (None,)
        found: dict[Any, None] = {}
        for file, _ in zip(self.files, self.layouts(), strict=True):
            for batch in files.batches(file, [self.by], {}, 0):
                found |= dict.fromkeys(batch.table.column(0).unique().to_pylist())
        for agent in found:
            if isinstance(agent, int) and agent >= 2**63:
                raise ProblemError(
                    f"{self.files[0]}: {self.by!r} has {agent}, which does not fit in 64 bits with "
                    "a sign: store smaller numbers or text"
                )
        return tuple(found)

    def limits(
        self,
        *,
        discount: float = 1.0,
        num_states: int | None = None,
        num_actions: int | None = None,
    ) -> RowLimits:
        """What the rows are held to; -1 stands for a number that is not known."""
        if discount != 1.0:
            discount = fraction(discount, "discount")
        policy = self._checked_policy(num_states, num_actions)
        if policy is not None:
            num_states, num_actions = policy.shape
        return RowLimits(
            -1 if num_states is None else integer(num_states, "num_states"),
            -1 if num_actions is None else integer(num_actions, "num_actions"),
            discount,
            self.missing_final == "drop",
            policy,
        )

    def _checked_policy(self, num_states: int | None, num_actions: int | None) -> FloatArray | None:
        """The policy that chose the actions, or an error if it does not fit the log."""
        if self.policy is None:
            return None
        table = real_array(self.policy, "policy", "(S, A)")
        if table.ndim != 2:
            raise ProblemError(f"policy has shape {table.shape}: give shape (S, A)")
        shape = (num_states or table.shape[0], num_actions or table.shape[1])
        for file, layout in zip(self.files, self.layouts(), strict=True):
            if layout.width is not None:
                raise ProblemError(
                    f"{file}: the observations are not states, so that the table policy= does not "
                    "fit them: log behavior_probability"
                )
            if "behavior_probability" in layout.names:
                raise ProblemError(
                    f"{file}: behavior_probability is logged, and the policy that chose the "
                    "actions is given, too: leave one of them out"
                )
        return check_policy(table, *shape, "policy")

    def batches(self, file: int = 0, row: int = 0) -> Iterator[Found]:
        """The batches of all files, from a row of a file on."""
        decoder: Decoder | None = None
        for number, (path, layout) in enumerate(zip(self.files, self.layouts(), strict=True)):
            if number < file:
                continue
            decoder = Decoder(layout, decoder)
            start = row if number == file else 0
            for batch in files.batches(path, layout.file_columns, layout.csv_types(), start):
                numbers = np.arange(batch.first, batch.first + batch.table.num_rows)
                yield Found(number, numbers, batch.table, decoder)

    def open(
        self,
        *,
        discount: float,
        agent: Any = None,
        num_states: int | None = None,
        num_actions: int | None = None,
    ) -> LogReader:
        """A reader of the rows of one agent."""
        return LogReader(
            self,
            self.limits(discount=discount, num_states=num_states, num_actions=num_actions),
            agent,
        )

    def read(self, *, discount: float, agent: Any = None) -> Rows:
        """All rows of one pass at once, for logs that fit in memory."""
        once = LogSource(
            self.path,
            columns=self.columns,
            by=self.by,
            missing_final=self.missing_final,
            policy=self.policy,
        )
        return once.open(discount=discount, agent=agent).read(None)


class LogReader:
    """Reads an agent's rows in order, in pieces of any size, and tells where it is.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> text = "episode,observation,action,reward,terminated\\n0,0,1,0.5,false\\n0,1,0,2,true\\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "log.csv"
    ...     written = path.write_text(text)
    ...     reader = LogSource(path).open(discount=0.9)
    ...     first, state = reader.read(2), reader.save()
    ...     again = LogSource(path).open(discount=0.9)
    ...     again.restore(state)
    ...     print(first.reward, reader.read(9).gap, again.read(9).gap)
    [0.5 2. ] [ True] [ True]
    """

    def __init__(self, source: LogSource, limits: RowLimits, agent: Any) -> None:
        if source.by is not None and agent not in source.agents():
            raise ProblemError(
                f"{source.path}: no row has {agent!r} in {source.by!r}: name one of "
                f"{', '.join(map(repr, source.agents()[:8]))}"
            )
        self._source, self._limits, self._agent = source, limits, agent
        self._decoder: Decoder | None = None
        self._start(0, 0, 0, 0)

    def _start(self, turn: int, file: int, row: int, added: int) -> None:
        """Read on from a row of a file, or from the gap that was added behind it."""
        self._turn, self._at = turn, (file, row, added)
        self._skip = added
        self._from_start = (file, row) == (0, 0)
        self._found = self._source.batches(file, row)
        self._scanner = self._new_scanner()
        self._held: Rows | None = None
        self._used = 0

    def _new_scanner(self) -> Scanner:
        return Scanner(self._source.files, self._limits, from_start=self._from_start)

    def read(self, count: int | None) -> Rows:
        """The next `count` rows, fewer at the end of the last pass; all of them for None."""
        parts: list[Rows] = []
        missing = 2**62 if count is None else count
        while missing > 0 and len((rows := self.read_some(missing)).gap):
            parts.append(rows)
            missing -= len(rows.gap)
        return joined(parts) if parts else self._nothing()

    def read_some(self, most: int) -> Rows:
        """At least one and at most `most` rows, as many as need no copy; none at the end."""
        if not self._fill():
            return self._nothing()
        assert self._held is not None
        begin, self._used = self._used, min(len(self._held.gap), self._used + most)
        return part(self._held, begin, self._used)

    def save(self) -> dict[str, np.ndarray]:
        """Where the reader is: the pass, the file, the row and whether its gap comes next."""
        if self._held is not None and self._used < len(self._held.gap):
            where = self._scanner.origin(self._used)
            self._at = where
        elif self._held is not None and self._used:
            file, row, _ = self._scanner.origin(self._used - 1)
            self._at = (file, row, 2)
        return {"cursor": np.array([self._turn, *self._at], dtype=np.int64)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from what `save` returned."""
        turn, file, row, added = (int(number) for number in state["cursor"])
        self._start(turn, file, row, added)

    def _fill(self) -> bool:
        """Hold at least one unread row, unless the last pass is over."""
        while self._held is None or self._used >= len(self._held.gap):
            rows = self._next()
            if rows is None:
                if self._turn + 1 >= self._source.passes:
                    return False
                self._start(self._turn + 1, 0, 0, 0)
                continue
            if len(rows.gap):
                self._held, self._used = rows, self._skipped(rows)
        return True

    def _skipped(self, rows: Rows) -> int:
        """The rows that were read before a restored reader was saved."""
        used = 0
        while self._skip and used < len(rows.gap):
            where = self._scanner.origin(used)
            if (where.file, where.row) != self._at[:2] or where.added >= self._skip:
                self._skip = 0
                break
            used += 1
        return used

    def _next(self) -> Rows | None:
        """The rows of the next batch; None after the last."""
        for found in self._found:
            numbers, table = self._own(found)
            if len(numbers):
                self._decoder = found.decoder
                return self._scanner.feed(found.decoder, found.file, numbers, table)
        return self._scanner.finish()

    def _own(self, found: Found) -> tuple[np.ndarray, Any]:
        """The rows of this agent."""
        if self._source.by is None:
            return found.numbers, found.table
        import pyarrow.compute as pc

        column = without_codes(found.table.column(self._source.by))
        own = column.is_null() if self._agent is None else pc.equal(column, self._agent)  # pyright: ignore[reportAttributeAccessIssue]
        return found.numbers[
            own.fill_null(False).to_numpy(zero_copy_only=False)
        ], found.table.filter(own)

    def _nothing(self) -> Rows:
        # The rows that were decoded tell how long lists are.
        width = (self._decoder or self._source.layouts()[0]).width
        observation = np.zeros(0, np.int64) if width is None else np.zeros((0, width or 0))
        none = np.zeros(0)
        actions, gaps = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        return Rows(observation, actions, none, none, none, none, gaps)
