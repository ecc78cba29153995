"""Sums of numbers as integers, which have the same bits in any order and any grouping.

A number x with |x| < 2^31 is written as ``h 2^-10 + m 2^-50 + l 2^-90`` with three integers, each
the nearest to what is left. All bits of x are in them if |x| >= 2^-37 or x is a multiple of 2^-90;
what is smaller is rounded there. Integers add without error, up to 2^22 terms in 64 bits.
"""

from __future__ import annotations

import numpy as np

_SCALES = (2.0**10, 2.0**50, 2.0**90)
_LARGEST = np.array([2.0**41, 2.0**39, 2.0**39])
"""The largest integers of one number."""
LARGEST_NUMBER = 2.0**31


def limbs_of(numbers: np.ndarray) -> np.ndarray:
    """int64 (3, ...): the integers of numbers (...) below 2^31.

    Examples
    --------
    >>> numbers = np.array([0.1, -3e5, 1e-9, 0.7])
    >>> parts = limbs_of(numbers)
    >>> one, other = parts[:, :2].sum(axis=1) + parts[:, 2:].sum(axis=1), parts.sum(axis=1)
    >>> import math
    >>> bool((one == other).all()), bool(number_of(other) == math.fsum(numbers))
    (True, True)
    """
    rest, limbs = np.array(numbers, np.float64), []
    for scale in _SCALES:
        whole = np.rint(rest * scale)
        rest = rest - whole / scale
        limbs.append(whole.astype(np.int64))
    return np.stack(limbs)


def number_of(limbs: np.ndarray) -> np.ndarray:
    """The number that integers (3, ...) stand for, rounded."""
    high, middle, low = limbs
    # Carry, so that each part is below one unit of the part above.
    carry = (low + (1 << 39)) >> 40
    low, middle = low - (carry << 40), middle + carry
    carry = (middle + (1 << 39)) >> 40
    middle, high = middle - (carry << 40), high + carry
    one, two, three = (
        part.astype(np.float64) / scale
        for part, scale in zip((high, middle, low), _SCALES, strict=True)
    )
    lower = two + three
    lost = three - (lower - two)
    total = one + lower
    return total + ((lower - (total - one)) + lost)


def are_sums(limbs: np.ndarray, terms: int) -> bool:
    """Whether integers (3, ...) can be sums of `terms` numbers."""
    largest = terms * _LARGEST.reshape(3, *[1] * (limbs.ndim - 1))
    return bool((np.abs(limbs.astype(np.float64)) <= largest).all())
