"""A fleet: the rows of copies of an environment that step at once, each for one agent.

The rows of a copy are those of a `LiveReader` in an environment that does the same, whatever the
others do. They are made for all copies at once and kept until every copy has read them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fegsam.data.copies import Copies, CopyPlace, Saved
from fegsam.data.fleet_rows import GAP, RESTART, FleetRows, new_ticks, rows_of
from fegsam.data.rows import Rows, joined
from fegsam.data.walking import ENDED, OPEN, RESTARTS
from fegsam.errors import ProblemError

AT_ONCE = 128
"""Ticks that are made at once."""
_KEPT = 3
"""A copy's rows are kept from where it was at this many last calls of `save`."""


class _TickRows(NamedTuple):
    """The rows of all copies in some ticks."""

    rows: FleetRows
    first: np.ndarray
    """(n + 1): where the rows of each copy begin"""
    places: list[CopyPlace]


class CopyRow(NamedTuple):
    """The next row of a copy: a block's number, and a row of its own in it."""

    block: int
    row: int


class Fleet:
    """The copies of some agents, from `begin` on."""

    def __init__(self, copies: Copies, discount: float, restarts: bool) -> None:
        self.copies: Copies = copies
        self._discount, self._restarts = discount, restarts
        self._nothing, _ = rows_of(new_ticks(0, copies.count, copies.width), discount)
        self._forget([CopyRow(0, 0)] * copies.count)

    def _forget(self, cursors: list[CopyRow]) -> None:
        """Hold no rows."""
        self._blocks: deque[_TickRows] = deque()
        self._number = 0
        self._cursors = cursors
        self._marks: list[deque[CopyRow]] = [deque(maxlen=_KEPT) for _ in cursors]

    def begin(self, saved: Sequence[Saved | None]) -> None:
        """Bring each copy to its place; None is the start."""
        over = self.copies.replay(saved)
        self._forget([CopyRow(0, 0)] * self.copies.count)
        if over.any():
            self._turn_over(over, saved)

    def _turn_over(self, over: np.ndarray, saved: Sequence[Saved | None]) -> None:
        """Add the rows that follow the ends of episodes at which some copies were saved."""
        places = [CopyPlace(0, 0, 0, OPEN) if one is None else one.place for one in saved]
        copies, count = self.copies, len(over)
        out = FleetRows(
            np.zeros((int(over.sum()), copies.width)),
            *(np.zeros(int(over.sum()), dtype) for dtype in (int, float, float, float, bool, bool)),
        )
        first = np.zeros(count + 1, np.int64)
        np.cumsum(over, out=first[1:])
        actions, chances = copies.choose()
        rows = first[:-1][over]
        out.seen[rows] = copies.now[over]
        gap = np.array([place.follows == ENDED for place in places])[over]
        out.taken[rows] = np.where(gap, 0, actions[over])
        out.chances[rows] = np.where(gap, np.nan, chances[over])
        out.discounts[rows], out.gaps[rows] = np.where(gap, 0.0, self._discount), gap
        out.turns[rows] = True
        self._blocks.append(_TickRows(out, first, places))
        copies.end_episodes(over, np.isin(np.arange(count), np.flatnonzero(over)[~gap]))

    def read(self, copy: int, count: int) -> Rows:
        """The next `count` rows of a copy."""
        parts: list[Rows] = []
        block, row = self._cursors[copy]
        while count > 0:
            if block - self._number >= len(self._blocks):
                self._advance()
            held = self._blocks[block - self._number]
            first, end = int(held.first[copy]) + row, int(held.first[copy + 1])
            end = min(end, first + count)
            if end > first:
                parts.append(self._rows(held.rows, first, end))
            count -= end - first
            row += end - first
            if end == held.first[copy + 1]:
                block, row = block + 1, 0
        self._cursors[copy] = CopyRow(block, row)
        return joined(parts) if parts else self._rows(self._nothing, 0, 0)

    def _rows(self, rows: FleetRows, begin: int, end: int) -> Rows:
        seen = rows.seen[begin:end]
        if self.copies.spaces.num_states is not None:
            seen = seen[:, 0].astype(np.int64)
        actions, rewards, discounts, chances = (a[begin:end] for a in rows[1:5])
        nothing = np.full(end - begin, np.nan)
        return Rows(seen, actions, rewards, discounts, chances, nothing, rows.gaps[begin:end])

    def save(self, copy: int) -> Saved:
        """Where a copy's next row is."""
        cursor = self._cursors[copy]
        self._marks[copy].append(cursor)
        return self._saved(copy, cursor)

    def _saved(self, copy: int, cursor: CopyRow) -> Saved:
        if cursor.block - self._number >= len(self._blocks):
            return Saved(self.copies.front(copy), self.copies.now[copy].copy())
        block = self._blocks[cursor.block - self._number]
        begin, end = (int(at) for at in block.first[copy : copy + 2])
        place, here = block.places[copy], begin + cursor.row
        turns, gaps = block.rows.turns[begin:here], block.rows.gaps[begin:here]
        episode, began = place.episode, place.began
        ends = np.flatnonzero(turns)
        if len(ends):
            last = int(ends[-1]) + 1
            episode += len(ends)
            began = place.time + last - int(np.count_nonzero(gaps[:last]))
        time = place.time + cursor.row - int(np.count_nonzero(gaps))
        if here == end:  # a block without rows of this copy
            return self._saved(copy, CopyRow(cursor.block + 1, 0))
        follows = OPEN
        if block.rows.turns[here]:
            follows = ENDED if block.rows.gaps[here] else RESTARTS
        return Saved(CopyPlace(episode, began, time, follows), block.rows.seen[here].copy())

    def restore(self, copy: int, saved: Saved) -> None:
        """Let a copy continue from a place: from its rows at hand, or by a replay of all."""
        for mark in self._marks[copy]:
            if mark.block >= self._number and self._saved(copy, mark).place == saved.place:
                self._cursors[copy] = mark
                return
        copies = range(self.copies.count)
        every = [self._saved(other, self._cursors[other]) for other in copies]
        every[copy] = saved
        self.begin(every)

    def _advance(self) -> None:
        """Make further ticks, and drop the rows that all copies have left behind."""
        cursors = (*self._cursors, *(mark for marks in self._marks for mark in marks))
        needed = min(cursor.block for cursor in cursors)
        while self._blocks and self._number < needed:
            self._blocks.popleft()
            self._number += 1
        copies = self.copies
        ticks = new_ticks(AT_ONCE, copies.count, copies.width)
        places = [copies.front(copy) for copy in range(copies.count)]
        for t in range(AT_ONCE):
            ticks.seen[t] = copies.now
            (rewards, terminated), ended = copies.step()
            ticks.taken[t], ticks.chances[t] = copies.drawn, copies.drawn_chances
            ticks.rewards[t] = rewards
            ticks.discounts[t] = self._discount
            if not ended.any():
                continue
            ticks.last[t, ended] = copies.now[ended]
            restarts = terminated if self._restarts else np.zeros_like(terminated)
            ticks.ends[t] = np.where(restarts, RESTART, np.where(ended, GAP, 0))
            if restarts.any():
                ticks.turns[t], ticks.turn_chances[t] = copies.choose()
            else:
                ticks.discounts[t, terminated] = 0.0
            copies.end_episodes(ended, restarts)
        self._check(ticks.rewards, ticks.seen)
        self._blocks.append(_TickRows(*rows_of(ticks, self._discount), places))

    def _check(self, rewards: np.ndarray, seen: np.ndarray) -> None:
        for name, values in (("reward", rewards), ("observation", seen)):
            if not np.isfinite(values).all():
                wrong = values[~np.isfinite(values)][0]
                raise ProblemError(
                    f"{self.copies.name}: {name} is {wrong}: correct the environment"
                )
