"""The server's side of a round: from the agents' parameters to those that all of them go on from.

`reference` and the deployed federation call an `Aggregator`; `cpu` and `cuda` average in compiled
code of their own, which `tests/agreement` holds to the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Aggregator(Protocol):
    """What a server does at a synchronisation. A pure function of its arguments."""

    def update(self, params: np.ndarray, replies: np.ndarray) -> np.ndarray:
        """(..., d): the parameters after a round.

        `params` (d) is where the round began, `replies` (m, ..., d) where the local steps of the m
        agents that answered led.
        """
        ...


@dataclass(frozen=True)
class Mean:
    """Plain averaging, the paper's: the mean over the agents that answered.

    Examples
    --------
    >>> import numpy as np
    >>> Mean().update(np.zeros(2), np.array([[1.0, 2.0], [3.0, 6.0]]))
    array([2., 4.])
    """

    def update(self, params: np.ndarray, replies: np.ndarray) -> np.ndarray:
        return replies.mean(axis=0)
