"""Exact sums of floating-point numbers, to which threads add in any order.

A sum is a row of digits: the b-th one, a 64-bit integer, counts multiples of ``2^(32 b - LOWEST)``.
A number is cut into at most three pieces of 32 bits, and each piece is added to its digit. A digit
holds 2^31 pieces without an overflow. So a sum does not depend on the order of its terms, and is
rounded once, when it is read.
"""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false

from __future__ import annotations

import math

import numpy as np
from numba import cuda

from fegsam.engines.cuda.instructions import add_relaxed
from fegsam.engines.cuda.sums import FOUR
from fegsam.randomness import HALF, MASK, ONE, THREE, TWO

LOWEST = 192
"""Parts of a number below ``2^-LOWEST`` are dropped."""
_HIGHEST = 512
"""Numbers of size ``2^_HIGHEST`` and above are not added: no finite parameter is so large."""
_TOP = 2.0**_HIGHEST
_AT_ONCE = 8
"""Digits that are read at once."""
_FIVE, _SIX, _SEVEN = np.uint64(5), np.uint64(6), np.uint64(7)
_BITS = 53
_MANTISSA = 2.0**_BITS
_ZERO = np.uint64(0)
_LONG = np.uint64(64)
_ROUND = np.int64(1 << 31)
_DIGIT = np.int64(0xFFFFFFFF)


def num_digits(scale: int) -> int:
    """Digits of a sum of numbers that are multiplied by at most ``2^scale``.

    >>> num_digits(0), num_digits(100)
    (24, 32)
    """
    return -(-((LOWEST + _HIGHEST + scale) // 32 + 2) // _AT_ONCE) * _AT_ONCE


@cuda.jit(device=True)
def add(digits, at, pitch, value, scale):
    """Add ``value * 2^scale`` to the sum whose lowest digit is entry `at`; others lie `pitch`
    apart."""
    if value == 0.0 or not abs(value) < _TOP:
        return
    fraction, exponent = math.frexp(value)
    bits = np.uint64(np.int64(abs(fraction) * _MANTISSA))
    place = exponent - _BITS + LOWEST + scale
    if place < 0:
        bits = bits >> np.uint64(-place) if place > -_BITS else _ZERO
        place = 0
    shift, entry = np.uint64(place & 31), at + np.uint64(place >> 5) * pitch
    pieces = (
        (bits << shift) & MASK,
        (bits >> (HALF - shift)) & MASK,
        bits >> (_LONG - shift) if shift > _ZERO else _ZERO,
    )
    for i in range(3):
        if pieces[i] != _ZERO:
            # A negative number, in two's complement.
            piece = ~pieces[i] + ONE if value < 0.0 else pieces[i]
            add_relaxed(digits, entry + np.uint64(i) * pitch, piece)


@cuda.jit(device=True)
def take(digits, at, pitch, count):
    """Read a sum of `count` digits and set it to zero; it is ``number * 2^scale``."""
    number, unit, carry, entry = 0.0, 0, np.int64(0), at
    for first in range(0, count, _AT_ONCE):
        # Eight at a time, so that their latencies overlap.
        loaded = (
            digits[entry],
            digits[entry + pitch],
            digits[entry + TWO * pitch],
            digits[entry + THREE * pitch],
            digits[entry + FOUR * pitch],
            digits[entry + _FIVE * pitch],
            digits[entry + _SIX * pitch],
            digits[entry + _SEVEN * pitch],
        )
        for _ in range(_AT_ONCE):
            digits[entry] = _ZERO
            entry += pitch
        for i in range(_AT_ONCE):
            value = np.int64(loaded[i]) + carry
            # Digits of both signs: the first that is not zero then decides the sign of all.
            digit = ((value + _ROUND) & _DIGIT) - _ROUND
            carry = (value - digit) >> np.int64(32)
            if digit != 0:
                number, unit = math.ldexp(number, 32 * (unit - first - i)) + digit, first + i
    if carry != 0:
        number, unit = math.ldexp(number, 32 * (unit - count)) + carry, count
    return number, 32 * unit - LOWEST


@cuda.jit(device=True)
def take_value(digits, at, pitch, count):
    """The same as one number."""
    number, scale = take(digits, at, pitch, count)
    return math.ldexp(number, scale)
