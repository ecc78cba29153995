"""Where the synchronisations are: rounds of equal length, after some of any lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Rounds:
    """The first rounds have the lengths `first`, all later ones `period` steps.

    Examples
    --------
    >>> import numpy as np
    >>> rounds = Rounds((1, 2), 4)
    >>> rounds.start(np.arange(5)), rounds.containing(np.array([0, 2, 3, 6, 7]))
    (array([ 0,  1,  3,  7, 11]), array([0, 1, 2, 2, 3]))
    >>> rounds.count(12), rounds.last_sync(12), rounds.longest
    (4, 11, 4)
    """

    first: tuple[int, ...]
    period: int

    @staticmethod
    def of_lengths(lengths: Sequence[int]) -> Rounds:
        """Rounds of the given lengths, of which the last one repeats."""
        given = list(lengths)
        while len(given) > 1 and given[-2] == given[-1]:
            given.pop()
        return Rounds(tuple(given[:-1]), given[-1])

    @cached_property
    def _starts(self) -> np.ndarray:
        """int64: where the first rounds start, and where the equal ones begin."""
        return np.concatenate(([0], np.cumsum(self.first, dtype=np.int64))).astype(np.int64)

    def start(self, number: np.ndarray) -> np.ndarray:
        """The time at which each round starts."""
        known = len(self.first)
        later = self._starts[-1] + (number - known) * self.period
        return np.where(number < known, self._starts[np.minimum(number, known)], later)

    def containing(self, time: np.ndarray) -> np.ndarray:
        """The round that makes step `time`, which starts at or before it."""
        known = len(self.first)
        early = np.searchsorted(self._starts, time, side="right") - 1
        return np.where(early < known, early, known + (time - self._starts[-1]) // self.period)

    def is_sync(self, time: np.ndarray) -> np.ndarray:
        """Whether a round starts at `time`; time 0 counts."""
        return self.start(self.containing(time)) == time

    def count(self, num_steps: int) -> int:
        """The number of synchronisations up to `num_steps`."""
        return int(self.containing(np.asarray(num_steps)))

    def last_sync(self, time: int) -> int:
        """The last synchronisation at or before `time`, or 0."""
        return int(self.start(self.containing(np.asarray(time))))

    def end(self, time: int) -> int:
        """The end of the round that makes step `time`."""
        return int(self.start(self.containing(np.asarray(time)) + 1))

    @property
    def longest(self) -> int:
        return max((*self.first, self.period))
