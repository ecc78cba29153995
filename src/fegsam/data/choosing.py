"""How a live agent chooses its actions, and what the functions return that are policies.

Actions are chosen by the words and alias rows of a simulated agent. The word of a step depends on
the seed, the agent and the step alone. So an environment that draws its states as an MDP does gives
the path of the simulated agent, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fegsam.compilation import compiled
from fegsam.data.scan import SINGLE_PRECISION
from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import ROW_SUM_TOLERANCE, FloatArray, finite_array
from fegsam.randomness import EPISODE, HALF, MASK, PATH, build_alias, index_rows, words

AT_ONCE = 1024
"""Words that are made in one call."""

PolicyFunction = Callable[[np.ndarray], Any]
"""Observations (L, k), or state numbers (L,), to the probabilities of actions (L, A)."""


@compiled(_nrt=False)
def _split(seed, agent, first, purpose, size, parts):
    """Both halves of the product of each word from `first` on and `size`."""
    for i in range(parts.shape[1]):
        word, _ = words(seed, agent, first + np.uint64(i), purpose)
        product = word * size
        parts[0, i], parts[1, i] = product >> HALF, product & MASK


def _parts(of: tuple[int, int], first: int, purpose: np.uint64, size: int) -> list[list[int]]:
    """For AT_ONCE words of an agent under a seed: a number below `size`, and the rest."""
    parts = np.empty((2, AT_ONCE), np.uint64)
    seed, agent = of
    _split(np.uint64(seed), np.uint64(agent), np.uint64(first), purpose, np.uint64(size), parts)
    return parts.tolist()


class EpisodeSeeds:
    """The seed of each episode of an agent."""

    def __init__(self, seed: int, agent: int) -> None:
        self._of, self._first = (seed, agent), -AT_ONCE
        self._seeds: list[int] = []

    def __getitem__(self, episode: int) -> int:
        if not 0 <= episode - self._first < AT_ONCE:
            self._first = episode
            # Every simulator takes a seed of 31 bits.
            self._seeds, _ = _parts(self._of, episode, EPISODE, 1 << 31)
        return self._seeds[episode - self._first]


class ActionWords:
    """The product of each step's word and the number of actions, in two parts.

    ``entries[i]`` is the entry of an alias row that a word falls on, and ``rests[i]`` is compared
    with the threshold there.
    """

    def __init__(self, num_actions: int, seed: int, agent: int) -> None:
        self._num_actions, self._of, self._first = num_actions, (seed, agent), -AT_ONCE
        self.entries: list[int] = []
        self.rests: list[int] = []

    def place(self, time: int) -> int:
        """The index of a step in both lists, which go on from there to at least one step."""
        place = time - self._first
        if not 0 <= place < AT_ONCE:
            self._first, place = time, 0
            self.entries, self.rests = _parts(self._of, time, PATH, self._num_actions)
        return place

    def parts(self, time: int) -> tuple[int, int]:
        """The entry and the rest of one step."""
        place = self.place(time)
        return self.entries[place], self.rests[place]


class TablePolicy:
    """A table (S, A) with its alias rows, entry by entry, as lists."""

    def __init__(self, table: FloatArray) -> None:
        rows = index_rows(table)
        self.table, self.num_actions = table, table.shape[1]
        self.thresholds, self.others = rows[::2].tolist(), rows[1::2].tolist()

    def choose(self, state: int, entry: int, rest: int) -> int:
        """The action in a state for the parts of a word."""
        at = state * self.num_actions + entry
        return entry if rest < self.thresholds[at] else self.others[at]


class FunctionPolicy:
    """A function, asked for one observation at a time, since the next depends on the action."""

    def __init__(self, function: PolicyFunction, width: int, num_actions: int) -> None:
        self._function, self._width, self._shape = function, width, (1, num_actions)
        self._row = np.empty((num_actions, 3), np.uint32)
        self._start = np.array([0, num_actions])
        self._outcomes = np.arange(num_actions, dtype=np.uint32)
        self._slack = num_actions * float(np.finfo(np.float64).eps)

    def choose(self, now: Any, entry: int, rest: int) -> tuple[int, float]:
        """The action for the parts of a word, and its probability."""
        # The function gets a copy, which it may change.
        found = self._function(np.array(now, np.float64).reshape(1, self._width))
        chances = np.asarray(found, np.float64)
        if chances.shape != self._shape:
            raise wrong_shape(chances, self._shape)
        row = chances.tolist()[0]
        total = sum(row)
        if not (abs(total - 1.0) <= ROW_SUM_TOLERANCE and min(row) >= 0.0):
            raise ProblemError(
                f"policy returns {shown(row)}: return probabilities, which are not negative and "
                "sum to one"
            )
        # As in tables, probabilities that sum to one up to rounding stay as they are.
        if abs(total - 1.0) > self._slack:
            chances = chances / total
        build_alias(self._start, chances[0], self._outcomes, self._row)
        threshold, outcome, other = self._row[entry].tolist()
        action = outcome if rest < threshold else other
        return action, float(chances[0, action])


def wrong_shape(found: np.ndarray, needed: tuple[int, int]) -> ProblemError:
    """The error for what a policy's function returned."""
    return ProblemError(
        f"policy returns an array of shape {found.shape} for {needed[0]} observations: return "
        f"probabilities of shape (L, A), here {needed}"
    )


def target_chances(
    function: PolicyFunction, observations: np.ndarray, actions: np.ndarray, num_actions: int | None
) -> FloatArray:
    """(L): the probabilities that a target policy's function gives to the actions of rows.

    An error says if it returns no probabilities. Without `num_actions` there may be more than
    occur.

    >>> import numpy as np
    >>> target_chances(lambda states: np.full((len(states), 2), 0.5), np.arange(3), [0, 1, 0], 2)
    array([0.5, 0.5, 0.5])
    """
    chances = finite_array(function(observations), "the target policy's result", "(L, A)")
    least = int(np.max(actions, initial=0)) + 1 if num_actions is None else num_actions
    fits = chances.ndim == 2 and len(chances) == len(observations) and chances.shape[1] >= least
    if not fits or chances.shape[1] > (num_actions or chances.shape[1]):
        raise ProblemError(
            f"the target policy gives shape {chances.shape} for {len(observations)} observations "
            f"and actions 0 to {least - 1}: return a probability for each"
        )
    off = abs(chances.sum(axis=1) - 1.0) > SINGLE_PRECISION
    wrong = np.flatnonzero(off | (chances.min(axis=1) < 0.0))
    if wrong.size:
        raise ProblemError(
            f"the target policy gives {shown(chances[wrong[0]].tolist())} for the observation "
            f"{shown(observations[wrong[0]].tolist())}: return probabilities, which are not "
            "negative and sum to one"
        )
    return chances[np.arange(len(chances)), actions]
