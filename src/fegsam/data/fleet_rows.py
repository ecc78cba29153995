"""The compiled loops of a fleet: the actions of all copies, and their ticks as rows of each."""

from __future__ import annotations

import hashlib
import pathlib
from typing import NamedTuple

import numpy as np

from fegsam.compilation import compiled
from fegsam.randomness import PATH, choose, words

NONE, GAP, RESTART = range(3)
"""What follows the row of a tick: the next one, a gap, or a row that leads to the next episode."""

_KEY = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()


class Ticks(NamedTuple):
    """T steps of n copies; observations have k numbers, of which a state number is one."""

    seen: np.ndarray
    """float64 (T, n, k)"""
    taken: np.ndarray
    """int64 (T, n)"""
    rewards: np.ndarray
    discounts: np.ndarray
    chances: np.ndarray
    ends: np.ndarray
    """uint8 (T, n): NONE, GAP or RESTART"""
    last: np.ndarray
    """float64 (T, n, k): the last observations of episodes, where one ends"""
    turns: np.ndarray
    """int64 (T, n): the action in the last observation, where an episode leads to the next"""
    turn_chances: np.ndarray


class FleetRows(NamedTuple):
    """The rows of all copies, one copy after the other."""

    seen: np.ndarray
    taken: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    chances: np.ndarray
    gaps: np.ndarray
    turns: np.ndarray
    """bool: rows that are not of a tick, at the end of an episode"""


def new_ticks(length: int, copies: int, width: int) -> Ticks:
    """Space for some ticks."""
    wide, flat = (length, copies, width), (length, copies)
    return Ticks(
        np.empty(wide),
        np.empty(flat, np.int64),
        np.empty(flat),
        np.empty(flat),
        np.empty(flat),
        np.zeros(flat, np.uint8),
        np.empty(wide),
        np.zeros(flat, np.int64),
        np.zeros(flat),
    )


@compiled(key=_KEY)
def draw(seed, agents, times, starts, size, table, actions):
    """The action of each copy, from the alias row of `size` entries that begins at its start."""
    for i in range(agents.shape[0]):
        word, _ = words(seed, agents[i], times[i], PATH)
        actions[i] = choose(word, starts[i], size, table)


@compiled(key=_KEY)
def lay_out(ticks, discount, first, out):
    """Write the rows of copy i from row ``first[i]`` on."""
    length, copies, width = ticks.seen.shape
    for i in range(copies):
        at = first[i]
        for t in range(length):
            for k in range(width):
                out.seen[at, k] = ticks.seen[t, i, k]
            out.taken[at], out.rewards[at] = ticks.taken[t, i], ticks.rewards[t, i]
            out.discounts[at], out.chances[at] = ticks.discounts[t, i], ticks.chances[t, i]
            out.gaps[at], out.turns[at] = False, False
            at += 1
            if ticks.ends[t, i] == NONE:
                continue
            gap = ticks.ends[t, i] == GAP
            for k in range(width):
                out.seen[at, k] = ticks.last[t, i, k]
            out.taken[at] = 0 if gap else ticks.turns[t, i]
            out.rewards[at], out.discounts[at] = 0.0, 0.0 if gap else discount
            out.chances[at] = np.nan if gap else ticks.turn_chances[t, i]
            out.gaps[at], out.turns[at] = gap, True
            at += 1


def rows_of(ticks: Ticks, discount: float) -> tuple[FleetRows, np.ndarray]:
    """The rows of all copies, and where those of each begin, with the end behind the last."""
    length, copies, width = ticks.seen.shape
    first = np.zeros(copies + 1, np.int64)
    np.cumsum(length + np.count_nonzero(ticks.ends, axis=0), out=first[1:])
    total = int(first[-1])
    flags = np.empty((2, total), np.bool_)
    numbers = np.empty((3, total))
    out = FleetRows(np.empty((total, width)), np.empty(total, np.int64), *numbers, *flags)
    lay_out(ticks, discount, first, out)
    return out, first
