"""Rows and gaps: the form in which recorded data reaches a rule.

A row is a visited observation. Transition j leads from row j to row j + 1 and carries an action, a
reward and a discount. An episode's last observation is a row, too, and no transition leads on from
it: that row is a gap. A terminated transition has discount 0; before a gap that ends a truncated
episode the discount stays, so that the value of the last observation is bootstrapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Rows(NamedTuple):
    """Consecutive rows of a log, as arrays of length L. The fields of a gap are 0, 1 or NaN.

    Examples
    --------
    >>> import numpy as np
    >>> one = Rows(*(np.zeros(2) for _ in Rows._fields))
    >>> len(joined([one, one]).reward)
    4
    """

    observation: np.ndarray
    """int64 (L,) state numbers, or float64 (L, k)"""
    action: np.ndarray
    """int64; 0 in a gap"""
    reward: np.ndarray
    """float64; 0 in a gap"""
    discount: np.ndarray
    """float64; 0 where the transition terminated, and in a gap"""
    behavior: np.ndarray
    """float64: the probability with which the action was chosen; NaN where it was not logged"""
    target: np.ndarray
    """float64: the target policy's probability of the action; NaN where it was not logged"""
    gap: np.ndarray
    """bool: no transition leads from this row to the next"""


def joined(parts: Sequence[Rows]) -> Rows:
    """Several stretches of rows as one."""
    if len(parts) == 1:
        return parts[0]
    return Rows(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def part(rows: Rows, begin: int, end: int) -> Rows:
    """Rows `begin` to `end`, as views."""
    return Rows(*(array[begin:end] for array in rows))
