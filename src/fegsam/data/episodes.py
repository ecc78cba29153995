"""Which episodes a log has shown, in little memory, so that one that begins again is noticed."""

from __future__ import annotations

import numpy as np


class SeenEpisodes:
    """A growing set of whole numbers, kept as stretches of consecutive ones.

    Episodes 0, 1, 2, ... take no memory; numbers in any other order take 16 bytes each. Stretches
    are kept in sorted lists, each at least twice as long as the next, so that adding many stays
    cheap.

    Examples
    --------
    >>> import numpy as np
    >>> seen = SeenEpisodes()
    >>> seen.add(np.array([1, 2, 3])), seen.add(np.array([9, 2]))
    (-1, 1)
    """

    def __init__(self) -> None:
        self._lists: list[np.ndarray] = []  # each (R, 2): first and last of a stretch
        self._top = -(2**63)

    def add(self, numbers: np.ndarray) -> int:
        """Add int64 `numbers`; the index of the first that was there already, or -1."""
        if not len(numbers):
            return -1
        if numbers[0] <= self._top or (numbers[1:] <= numbers[:-1]).any():
            repeated = self._repeated(numbers)
            if repeated.any():
                return int(np.argmax(repeated))
        self._top = max(self._top, int(numbers.max()))
        self._keep(_stretches(np.sort(numbers)))
        return -1

    def _repeated(self, numbers: np.ndarray) -> np.ndarray:
        again = np.ones(len(numbers), dtype=np.bool_)
        again[np.unique(numbers, return_index=True)[1]] = False
        for stretches in self._lists:
            place = np.searchsorted(stretches[:, 0], numbers, side="right") - 1
            again |= (place >= 0) & (numbers <= stretches[place, 1])
        return again

    def _keep(self, stretches: np.ndarray) -> None:
        while self._lists and len(self._lists[-1]) <= 2 * len(stretches):
            both = np.concatenate([self._lists.pop(), stretches])
            both = both[np.argsort(both[:, 0], kind="stable")]
            begins = np.flatnonzero(np.append(True, both[1:, 0] != both[:-1, 1] + 1))
            ends = np.append(begins[1:], len(both)) - 1
            stretches = np.stack([both[begins, 0], both[ends, 1]], axis=1)
        self._lists.append(stretches)


def _stretches(numbers: np.ndarray) -> np.ndarray:
    """(R, 2): the first and last number of each stretch of sorted numbers."""
    breaks = np.flatnonzero(numbers[1:] != numbers[:-1] + 1) + 1
    begins = np.append(0, breaks)
    ends = np.append(breaks, len(numbers)) - 1
    return np.stack([numbers[begins], numbers[ends]], axis=1)
