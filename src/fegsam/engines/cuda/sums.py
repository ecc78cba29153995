"""The sums of the `cuda` engine: differences from the average as whole numbers, which threads add
in any order."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numba.extending import register_jitable

from fegsam.engines.cuda.instructions import add_relaxed, inlined
from fegsam.engines.cuda.params import EMPTY
from fegsam.randomness import HALF, MASK, THREE, TWO

FOUR, EIGHT = np.uint64(4), np.uint64(8)


class Sums(NamedTuple):
    """Where differences are added, and how they are rounded."""

    whole: Any
    """uint64 (d): the sum of all blocks"""
    half: Any
    """uint32: a block's sum, the lower halves from entry `first` on, and the upper ones `size`
    entries behind"""
    first: Any
    size: Any
    """d"""
    scale: Any
    """2^f: a difference is added as a multiple of 2^-f"""
    largest: Any
    """2^e: differences below this fit"""


@inlined
def sums_of(sums, totals):
    """The same rounding, into other sums of all blocks."""
    return Sums(totals, sums.half, sums.first, sums.size, sums.scale, sums.largest)


@register_jitable
def whole(value):
    """The nearest whole number."""
    return np.int64(value + 0.5) if value >= 0.0 else np.int64(value - 0.5)


@cuda.jit(device=True)
def add_low(sums, cell, value):
    """Add to the lower half; return the carry."""
    low = np.uint32(value & MASK)
    return (np.uint64(cuda.atomic.add(sums.half, sums.first + cell, low)) + np.uint64(low)) >> HALF


@cuda.jit(device=True)
def add_high(sums, cell, value, carry):
    cuda.atomic.add(
        sums.half, sums.first + sums.size + cell, np.uint32(((value >> HALF) + carry) & MASK)
    )


@register_jitable
def add_shared(sums, cell, value):
    """Add to a block's sum, in two halves: shared memory adds only 32 bits at a time."""
    add_high(sums, cell, value, add_low(sums, cell, value))


@register_jitable
def add_global(sums, cell, value):
    """Add to the sum of all blocks."""
    add_relaxed(sums.whole, cell, value)


@register_jitable
def four(c, stride, size):
    """Entries to load at once, so that their latencies overlap; one beyond the end is replaced by
    the first."""
    at_1, at_2, at_3 = c + stride, c + TWO * stride, c + THREE * stride
    return c, at_1 if at_1 < size else c, at_2 if at_2 < size else c, at_3 if at_3 < size else c


@register_jitable
def eight(c, stride, size):
    """The same for eight entries."""
    at_4 = c + FOUR * stride
    return four(c, stride, size) + four(at_4 if at_4 < size else c, stride, size)


@cuda.jit(device=True)
def all_loaded(values):
    """The same eight numbers, none of which is known before all are loaded.

    The compiler moves loads to their first uses where that saves registers, and there they would
    wait for memory one after the other. So each number is made to depend on all: blocks have one
    dimension, so `nothing` is zero, which the compiler does not know.
    """
    every = values[0] | values[1] | values[2] | values[3]
    every |= values[4] | values[5] | values[6] | values[7]
    nothing = every & np.uint64(cuda.threadIdx.y)
    return (
        values[0] ^ nothing,
        values[1] ^ nothing,
        values[2] ^ nothing,
        values[3] ^ nothing,
        values[4] ^ nothing,
        values[5] ^ nothing,
        values[6] ^ nothing,
        values[7] ^ nothing,
    )


@register_jitable
def copy(source, target, first, stride):
    """Copy every `stride`-th entry from `first` on."""
    c, size = first, np.uint64(source.shape[0])
    while c < size:
        at = four(c, stride, size)
        values = source[at[0]], source[at[1]], source[at[2]], source[at[3]]
        for i in range(4):
            target[at[i]] = values[i]
        c += FOUR * stride


@register_jitable
def empty(overlay):
    """Forget all cells that were written."""
    for place in range(overlay.entries):
        overlay.keys[overlay.first_key + place * overlay.width] = EMPTY


@register_jitable
def take_sum(sums, cell):
    """Read a block's sum and set it to zero."""
    at = sums.first + cell
    found = np.uint64(sums.half[at]) | (np.uint64(sums.half[at + sums.size]) << HALF)
    sums.half[at] = 0
    sums.half[at + sums.size] = 0
    return found


@cuda.jit(device=True)
def flush(sums, first, stride):
    """Add every `stride`-th of a block's sums to those of all blocks, and set it to zero."""
    c = first
    while c < sums.size:
        at = eight(c, stride, sums.size)
        values = (
            take_sum(sums, at[0]),
            take_sum(sums, at[1]),
            take_sum(sums, at[2]),
            take_sum(sums, at[3]),
            take_sum(sums, at[4]),
            take_sum(sums, at[5]),
            take_sum(sums, at[6]),
            take_sum(sums, at[7]),
        )
        for i in range(8):
            if values[i] != 0:
                add_relaxed(sums.whole, at[i], values[i])
        c += EIGHT * stride
