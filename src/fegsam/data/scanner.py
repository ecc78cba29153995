"""One agent's way through its log: batches go in, checked rows and gaps come out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fegsam.data import scan
from fegsam.data.columns import Decoder, Layout
from fegsam.data.damage import Place, Row, damage
from fegsam.data.episodes import SeenEpisodes
from fegsam.data.files import arrow
from fegsam.data.rows import Rows, part
from fegsam.data.scan import EMPTY, Logged
from fegsam.errors import ProblemError
from fegsam.problem.checks import FloatArray

_NONE = np.zeros(0)


class RowLimits(NamedTuple):
    """What the rows of a log are held to."""

    num_states: int = -1
    """-1 where it is not known"""
    num_actions: int = -1
    discount: float = 1.0
    drop: bool = False
    """leave out truncated transitions without a last observation"""
    policy: FloatArray | None = None
    """(S, A): the probabilities of actions, where the log has none"""


class Origin(NamedTuple):
    """Where a row comes from."""

    file: int
    row: int
    added: int
    """1 for a gap that follows the row and that the log does not have"""


class _Piece(NamedTuple):
    """A batch, or the last row of one, with the place of its rows."""

    file: int
    rows: np.ndarray
    table: Any


class Scanner:
    """Checks the rows of one agent in order and turns them into rows and gaps.

    It holds back the last row until it knows the next one. `files` are the names for messages.
    """

    def __init__(
        self, files: tuple[Any, ...], limits: RowLimits, *, from_start: bool = True
    ) -> None:
        self._files, self._limits = files, limits
        self._seen = SeenEpisodes() if from_start else None
        self._tail: tuple[Logged, _Piece] | None = None
        self._pieces: list[_Piece] = []
        self._ended, self._episode = False, EMPTY
        self._origin = np.zeros(0, np.int64)
        self._layout: Layout | None = None

    def feed(self, decoder: Decoder, file: int, rows: np.ndarray, table: Any) -> Rows:
        """The rows that are complete with a further batch, whose rows have numbers `rows`."""
        self._layout = decoder.layout
        logged, piece = self._decode(decoder, file, table), _Piece(file, rows, table)
        self._pieces = [piece]
        if self._tail is not None:
            held, before = self._tail
            logged = Logged(*(np.concatenate(both) for both in zip(held, logged, strict=True)))
            self._pieces = [before, piece]
        if not len(logged.episode):
            return self._scan(logged, last=False)
        self._check_episodes(logged)
        found = self._scan(logged, last=False)
        last = _Piece(file, rows[-1:], table.slice(table.num_rows - 1))
        self._tail = Logged(*(array[-1:].copy() for array in logged)), last
        return found

    def _decode(self, decoder: Decoder, file: int, table: Any) -> Logged:
        try:
            return decoder.decode(table)
        except arrow().ArrowInvalid as error:
            raise ProblemError(
                f"{self._files[file]}: a number does not fit in 64 bits ({error}): store it in a "
                "smaller range"
            ) from error

    def finish(self) -> Rows | None:
        """The last rows, or None where there are none."""
        if self._tail is None:
            return None
        logged, piece = self._tail
        self._pieces, self._tail = [piece], None
        return self._scan(logged, last=True)

    def origin(self, index: int) -> Origin:
        """Where row `index` of the latest rows comes from."""
        logged, added = divmod(int(self._origin[index]), 2)
        piece, place = self._find(logged)
        return Origin(piece.file, int(piece.rows[place]), added)

    def place(self, index: int) -> Place:
        """The name of the place of row `index` of the latest rows."""
        return self._row(int(self._origin[index]) // 2).place

    def _scan(self, logged: Logged, *, last: bool) -> Rows:
        out, origin = scan.room(logged)
        flat = out.observation.ndim == 1
        states = out.observation if flat else np.zeros(0, np.int64)
        vectors = np.zeros((0, 0)) if flat else out.observation
        limits = self._limits
        held = scan.Held(limits.num_states, limits.num_actions, limits.discount, limits.drop)
        place = scan.Room(states, vectors, out._replace(observation=_NONE), origin)
        written, code, index, self._ended = scan.scan(
            scan.uniform(logged), last, held, self._ended, place
        )
        if code != scan.FINE:
            before = self._row(index - 1) if index else None
            both = limits.num_states, limits.num_actions
            raise damage(code, self._row(index), before, logged, index, both)
        self._origin = origin
        rows = part(out, 0, written)
        return rows if limits.policy is None else self._with_policy(rows, limits.policy)

    def _with_policy(self, rows: Rows, policy: FloatArray) -> Rows:
        chance = policy[rows.observation, rows.action]
        wrong = np.flatnonzero((chance <= 0.0) & ~rows.gap)
        if wrong.size:
            row = self._row(int(self._origin[wrong[0]]) // 2)
            raise ProblemError(
                f"{row.place}: policy takes action {rows.action[wrong[0]]} in state "
                f"{rows.observation[wrong[0]]} with probability 0, but this action was taken: give "
                "the policy that chose the actions"
            )
        return rows._replace(behavior=np.where(rows.gap, np.nan, chance))

    def _check_episodes(self, logged: Logged) -> None:
        """Raise where an episode is not named, or begins for a second time."""
        numbers, held = logged.episode, self._tail is not None
        changes = numbers[1:] != numbers[:-1]
        starts = np.flatnonzero(changes) + 1
        if not held:
            starts = np.append(0, starts)
        empty = starts[numbers[starts] == EMPTY]
        if empty.size:
            row = self._row(int(empty[0]))
            raise ProblemError(f"{row.place}: 'episode' is empty: number the episodes")
        repeated = -1 if self._seen is None else self._seen.add(numbers[starts])
        if repeated >= 0:
            index = int(starts[repeated])
            row, before = self._row(index), self._row(max(index - 1, 0))
            # In the first row of a file the episode is one of an earlier file.
            cure = (
                "sort by episode and step"
                if row.place.file == before.place.file
                else "give no two episodes of the files the same number"
            )
            raise ProblemError(
                f"{row.place}: episode {row.place.episode} begins again after episode "
                f"{before.place.episode}: {cure}"
            )

    def _find(self, index: int) -> tuple[_Piece, int]:
        for piece in self._pieces:
            if index < len(piece.rows):
                return piece, index
            index -= len(piece.rows)
        raise IndexError(index)

    def _row(self, index: int) -> Row:
        assert self._layout is not None
        piece, place = self._find(index)
        values = piece.table.slice(place, 1).to_pylist()[0]
        episode = values[self._layout.names["episode"][0]]
        where = Place(self._files[piece.file], int(piece.rows[place]), episode)
        return Row(where, self._layout, values)
