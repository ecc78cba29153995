"""A fleet: copies of an environment that step at once, each for one agent, with rows of its own.

Copy i draws its actions by the words of its agent and begins each episode from a seed of its own.
So its rows are those of a `LiveReader` in an environment that does the same, whatever the others
do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from fegsam.data.choosing import EpisodeSeeds
from fegsam.data.environments import Spaces
from fegsam.data.fleet_rows import GAP, RESTART, FleetRows, draw, new_ticks, rows_of
from fegsam.data.rows import Rows, joined
from fegsam.data.walking import ENDED, OPEN, RESTARTS
from fegsam.errors import ProblemError, shown

AT_ONCE = 128
"""Ticks that are made at once."""
_KEPT = 3
"""A copy's rows are kept from where it was at this many last calls of `save`."""


class CopyPlace(NamedTuple):
    """Where a copy is."""

    episode: int
    began: int
    """the steps before the episode"""
    time: int
    """the steps so far"""
    follows: int
    """OPEN, ENDED or RESTARTS, as in `fegsam.data.walking`"""


class Saved(NamedTuple):
    """A place and the observation there."""

    place: CopyPlace
    seen: np.ndarray
    """(k)"""


class Policy(Protocol):
    """The probabilities of actions of all copies, and the alias rows to draw from."""

    table: np.ndarray
    """uint32, flat: threshold, outcome and other outcome of each entry"""
    chances: np.ndarray
    """float64, flat: the probability of each action, by entry"""

    def starts(self, seen: np.ndarray) -> np.ndarray:
        """int64 (n): the entry of `table` at which each copy's row begins; seen is (n, k)."""
        ...


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

    def __init__(
        self,
        name: str,
        made: Any,
        spaces: Spaces,
        policy: Policy,
        of: tuple[int, Sequence[int]],
        discount: float,
        restarts: bool,
    ) -> None:
        self._name, self.made, self._spaces, self._policy = name, made, spaces, policy
        self._seed, self._agents = np.uint64(of[0]), np.array(of[1], np.uint64)
        self._seeds = [EpisodeSeeds(of[0], agent) for agent in of[1]]
        self._discount, self._restarts = discount, restarts
        count, self._width = len(self._seeds), 1 if spaces.width is None else spaces.width
        self._first_action = spaces.first_action
        self._episodes, self._began = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._times, self._now = np.zeros(count, np.int64), np.zeros((count, self._width))
        self._actions, self._drawn = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._nothing, _ = rows_of(new_ticks(0, count, self._width), discount)
        self._forget([CopyRow(0, 0)] * count)

    def _forget(self, cursors: list[CopyRow]) -> None:
        """Hold no rows."""
        self._blocks: deque[_TickRows] = deque()
        self._number = 0
        self._cursors = cursors
        self._marks: list[deque[CopyRow]] = [deque(maxlen=_KEPT) for _ in cursors]

    def begin(self, saved: Sequence[Saved | None]) -> None:
        """Bring each copy to its place; None is the start.

        Open episodes are replayed: each begins as many ticks before the end as it has steps. Until
        then its copy steps without being looked at.
        """
        places = [CopyPlace(0, 0, 0, OPEN) if one is None else one.place for one in saved]
        over = np.array([place.follows != OPEN for place in places])
        self._episodes[:] = [place.episode for place in places]
        self._began[:] = [place.began for place in places]
        self._times[:] = [place.time for place in places]
        steps = np.where(over, 0, self._times - self._began)
        self._times[:] = self._began
        longest = int(steps.max())
        self._reset(np.ones(len(places), np.bool_))
        for tick in range(longest):
            begins = (longest - steps == tick) & (steps > 0) if tick else np.zeros(len(over), bool)
            if begins.any():
                self._reset(begins)
            waits = longest - steps > tick
            _, ended = self._step(waits)
            self._reset(ended)
        if longest:
            self._reset((steps == 0) & ~over)
        for copy in map(int, np.flatnonzero(~over)):
            one = saved[copy]
            if one is not None and not np.array_equal(self._now[copy], one.seen):
                raise ProblemError(
                    f"{self._name}, agent {self._agents[copy]}: episode {places[copy].episode}, "
                    f"replayed from its seed, shows {self._plain(self._now[copy])} after "
                    f"{steps[copy]} steps instead of {self._plain(one.seen)}: let every copy begin "
                    "its episodes from the seed that it is given, or use a LiveSource"
                )
        self._forget([CopyRow(0, 0)] * len(places))
        if over.any():
            self._turn_over(over, places, [one.seen if one else None for one in saved])

    def _turn_over(self, over: np.ndarray, places: list[CopyPlace], seen: list[Any]) -> None:
        """Add the rows that follow the ends of episodes at which some copies were saved."""
        count = len(over)
        out = FleetRows(
            np.zeros((int(over.sum()), self._width)),
            *(np.zeros(int(over.sum()), dtype) for dtype in (int, float, float, float, bool, bool)),
        )
        first = np.zeros(count + 1, np.int64)
        np.cumsum(over, out=first[1:])
        for copy in np.flatnonzero(over):
            out.seen[first[copy]] = self._now[copy] = seen[copy]
        self._times[:] = [place.time for place in places]
        actions, chances = self._choose()
        rows = first[:-1][over]
        gap = np.array([place.follows == ENDED for place in places])[over]
        out.taken[rows] = np.where(gap, 0, actions[over])
        out.chances[rows] = np.where(gap, np.nan, chances[over])
        out.discounts[rows], out.gaps[rows] = np.where(gap, 0.0, self._discount), gap
        out.turns[rows] = True
        self._blocks.append(_TickRows(out, first, places))
        self._end_episodes(over, np.isin(np.arange(count), np.flatnonzero(over)[~gap]))

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
        if self._spaces.num_states is not None:
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
            place = self._front(copy)
            return Saved(place, self._now[copy].copy())
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

    def _front(self, copy: int) -> CopyPlace:
        episode, began = int(self._episodes[copy]), int(self._began[copy])
        return CopyPlace(episode, began, int(self._times[copy]), OPEN)

    def restore(self, copy: int, saved: Saved) -> None:
        """Let a copy continue from a place: from its rows at hand, or by a replay of all."""
        for mark in self._marks[copy]:
            if mark.block >= self._number and self._saved(copy, mark).place == saved.place:
                self._cursors[copy] = mark
                return
        copies = range(len(self._seeds))
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
        ticks = new_ticks(AT_ONCE, len(self._seeds), self._width)
        places = [self._front(copy) for copy in range(len(self._seeds))]
        for t in range(AT_ONCE):
            ticks.seen[t] = self._now
            (rewards, terminated), ended = self._step()
            ticks.taken[t], ticks.chances[t] = self._drawn, self._drawn_chances
            ticks.rewards[t] = rewards
            ticks.discounts[t] = self._discount
            if not ended.any():
                continue
            ticks.last[t, ended] = self._now[ended]
            restarts = terminated if self._restarts else np.zeros_like(terminated)
            ticks.ends[t] = np.where(restarts, RESTART, np.where(ended, GAP, 0))
            if restarts.any():
                ticks.turns[t], ticks.turn_chances[t] = self._choose()
            else:
                ticks.discounts[t, terminated] = 0.0
            self._end_episodes(ended, restarts)
        self._check(ticks.rewards, ticks.seen)
        self._blocks.append(_TickRows(*rows_of(ticks, self._discount), places))

    def _end_episodes(self, ended: np.ndarray, restarts: np.ndarray) -> None:
        """Begin the next episodes of some copies; a restart takes a step."""
        self._times += restarts
        self._episodes[ended] += 1
        self._began[ended] = self._times[ended]
        self._reset(ended)

    def _choose(self) -> tuple[np.ndarray, np.ndarray]:
        """(n): the action of each copy where it is, and its probability."""
        policy, times = self._policy, self._times.astype(np.uint64)
        size = self._spaces.num_actions
        starts = policy.starts(self._now)
        first = starts.astype(np.uint64)
        draw(self._seed, self._agents, times, first, np.uint64(size), policy.table, self._actions)
        return self._actions, policy.chances[starts + self._actions]

    def _step(self, idle: np.ndarray | None = None) -> tuple[tuple[np.ndarray, np.ndarray], Any]:
        """Step all copies once; rewards, terminated, and which episodes are over.

        The time of an `idle` copy stands still.
        """
        actions, self._drawn_chances = self._choose()
        self._drawn[:] = actions
        seen, rewards, terminated, truncated, _ = self.made.step(actions + self._first_action)
        self._note(seen)
        self._times += 1 if idle is None else ~idle
        stops = np.asarray(terminated, np.bool_)
        return (rewards, stops), stops | np.asarray(truncated, np.bool_)

    def _reset(self, mask: np.ndarray) -> None:
        if not mask.any():
            return
        seeds = [
            seeds[int(episode)] if begins else 0
            for seeds, episode, begins in zip(self._seeds, self._episodes, mask, strict=True)
        ]
        try:
            seen, _ = self.made.reset(seed=seeds, options={"reset_mask": mask.copy()})
        except Exception as error:
            raise ProblemError(
                f"{self._name} cannot begin episodes of single copies ({error}): its reset must "
                "take seed=, a list with a seed for each copy, and options={'reset_mask': ...}; "
                "otherwise use a LiveSource"
            ) from error
        self._note(seen)

    def _note(self, seen: Any) -> None:
        self._now = np.array(seen, np.float64).reshape(len(self._seeds), self._width)
        states, first = self._spaces.num_states, self._spaces.first_state
        if states is None:
            return
        self._now -= first
        if self._now.min() < 0 or self._now.max() >= states:
            wrong = self._now[(self._now < 0) | (self._now >= states)][0]
            raise ProblemError(
                f"{self._name}: observation is {shown(int(wrong) + first)}, but there are {states} "
                f"states ({first} to {first + states - 1}): correct it or declare more"
            )

    def _check(self, rewards: np.ndarray, seen: np.ndarray) -> None:
        for name, values in (("reward", rewards), ("observation", seen)):
            if not np.isfinite(values).all():
                wrong = values[~np.isfinite(values)][0]
                raise ProblemError(f"{self._name}: {name} is {wrong}: correct the environment")

    def _plain(self, seen: np.ndarray) -> str:
        if self._spaces.num_states is not None:
            return shown(int(seen[0]) + self._spaces.first_state)
        return shown(seen.tolist())
