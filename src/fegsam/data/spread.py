"""How long the episodes of a log are, and how its importance ratios are spread, in fixed memory."""

from __future__ import annotations

from collections import Counter

import numpy as np

from fegsam.data.rows import Rows


class EpisodeLengths:
    """Counts episodes by their number of transitions; the rows may come in pieces.

    The memory does not grow with the log: k different lengths take k (k + 1) / 2 rows at least.

    Examples
    --------
    >>> import numpy as np
    >>> lengths, nothing = EpisodeLengths(), np.zeros(4)
    >>> for gap in ([False, False, True, False], [False, False, True, True]):
    ...     lengths.add(Rows(*[nothing] * 6, np.array(gap)))
    >>> lengths.found
    {0: 1, 2: 1, 3: 1}
    """

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._open = 0

    def add(self, rows: Rows) -> None:
        """Count the episodes that end in further rows."""
        ends = np.flatnonzero(rows.gap)
        if len(ends):
            steps = np.diff(ends, prepend=-1) - 1
            steps[0] += self._open
            lengths, counts = np.unique(steps, return_counts=True)
            self._counts.update(dict(zip(lengths.tolist(), counts.tolist(), strict=True)))
            self._open = 0
        self._open += len(rows.gap) - (int(ends[-1]) + 1 if len(ends) else 0)

    @property
    def found(self) -> dict[int, int]:
        """The number of episodes of each length, in ascending order."""
        return dict(sorted(self._counts.items()))


def powers_of_two(values: np.ndarray) -> Counter[int | None]:
    """How many values lie from 2^k up to 2^(k + 1), by k; None stands for zero.

    Examples
    --------
    >>> import numpy as np
    >>> sorted(powers_of_two(np.array([0.5, 0.75, 1.0, 3.9])).items())
    [(-1, 2), (0, 1), (1, 1)]
    >>> powers_of_two(np.zeros(3))
    Counter({None: 3})
    """
    above = values[values > 0.0]
    powers, counts = np.unique(np.frexp(above)[1] - 1, return_counts=True)
    found: Counter[int | None] = Counter(dict(zip(powers.tolist(), counts.tolist(), strict=True)))
    if len(above) < len(values):
        found[None] = len(values) - len(above)
    return found
