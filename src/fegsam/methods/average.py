"""The server's side of a round: from the agents' parameters to those of the next round.

`reference` and the deployed federation call an `Aggregator`; `cpu` and `cuda` average in their own
compiled code, and `tests/agreement` checks that the results agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Aggregator(Protocol):
    """What a server does at a synchronisation: a pure function of its arguments."""

    def update(self, params: np.ndarray, replies: np.ndarray) -> np.ndarray:
        """The parameters (..., d) after a round.

        The round began at `params` (d). The m agents that answered ended their local steps at
        `replies` (m, ..., d).
        """
        ...


@dataclass(frozen=True)
class Mean:
    """Plain averaging, as in the paper: the mean over the agents that answered.

    Examples
    --------
    >>> import numpy as np
    >>> Mean().update(np.zeros(2), np.array([[1.0, 2.0], [3.0, 6.0]]))
    array([2., 4.])
    """

    def update(self, params: np.ndarray, replies: np.ndarray) -> np.ndarray:
        return replies.mean(axis=0)
