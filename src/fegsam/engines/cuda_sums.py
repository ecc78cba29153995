"""How the `cuda` engine adds up its agents' differences from the average: in whole numbers, in any order."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numba.extending import register_jitable

from fegsam.engines.cuda_params import EMPTY
from fegsam.engines.randomness import HALF, MASK, ONE, THREE, TWO

_ZERO = np.uint64(0)
FOUR = np.uint64(4)


class Sums(NamedTuple):
    """Where a sum of differences is kept."""

    whole: Any
    """uint64 (d)"""
    half: Any
    """uint32: the lower halves from `first` on, and the upper ones `halves` entries behind"""
    first: Any
    halves: Any
    """d, or 0 where the sum is `whole`"""


@register_jitable
def whole(value):
    """The nearest whole number."""
    return np.int64(value + 0.5) if value >= 0.0 else np.int64(value - 0.5)


@register_jitable
def add_to(sums, cell, value):
    """Add to a whole number that lies in one piece, or in two halves: shared memory adds only 32 bits at a time."""
    if sums.halves == 0:
        cuda.atomic.add(sums.whole, cell, value)
        return
    low = np.uint32(value & MASK)
    carry = (np.uint64(cuda.atomic.add(sums.half, sums.first + cell, low)) + np.uint64(low)) >> HALF
    high = np.uint32(((value >> HALF) + carry) & MASK)
    cuda.atomic.add(sums.half, sums.first + sums.halves + cell, high)


@register_jitable
def four(c, stride, size):
    """Entries to ask memory for at once, so that they are waited for together; beyond the end, the first comes again."""
    at_1, at_2, at_3 = c + stride, c + TWO * stride, c + THREE * stride
    return c, at_1 if at_1 < size else c, at_2 if at_2 < size else c, at_3 if at_3 < size else c


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
    """No cell of it is written."""
    for place in range(overlay.entries):
        overlay.keys[overlay.first_key + place * overlay.width] = EMPTY


@register_jitable
def joined(sums, cell):
    """A sum whose halves lie apart."""
    at = sums.first + cell
    return np.uint64(sums.half[at]) | (np.uint64(sums.half[at + sums.halves]) << HALF)


@cuda.jit(device=True)
def flush(sums, first, stride):
    """Add every `stride`-th of a block's sums to those of all blocks."""
    c = first
    while c < sums.halves:
        at = four(c, stride, sums.halves)
        values = joined(sums, at[0]), joined(sums, at[1]), joined(sums, at[2]), joined(sums, at[3])
        for i in range(4):
            if values[i] != 0 and (i == 0 or at[i] != c):
                cuda.atomic.add(sums.whole, at[i], values[i])
        c += FOUR * stride


def make_settle(layout, where):
    """What begins a round for an agent, and what adds differences from the average to sums.

    An overlay is its thread's own affair. Whole tables are the block's: all threads of a seed begin all of its tables, and
    each adds up some cells of all tables, so that neighbours read what lies side by side.
    """
    interleaved, logged = where.own, where.logged

    def forget_changes(params, base):
        c, size = _ZERO, np.uint64(base.shape[0])
        while c < size:
            params.memory[params.first + c * params.width] = 0
            c += ONE

    def forget_whole(params, base):
        copy(base, params, _ZERO, ONE)

    def forget_overlay(params, base):
        empty(params)

    def begin_column(job, params, base, tables, slot, lane):
        copy(base, params, _ZERO, ONE)

    def begin_changes(job, params, base, tables, slot, lane):
        """Nothing to do: what was changed was put back."""

    def begin_whole(job, params, base, tables, slot, lane):
        cuda.syncthreads()
        # Threads beyond the last seed's have no table.
        for c in range(lane if slot < job.slots else job.dim, job.dim, job.lanes):
            value = base[c]
            for i in range(slot * job.lanes, (slot + 1) * job.lanes):
                tables[i * job.dim + c] = value
        cuda.syncthreads()

    def add_whole(job, params, base, tables, slot, lane, sums, limits, active):
        cuda.syncthreads()
        square, fits = 0.0, True
        if active:
            for c in range(lane, job.dim, job.lanes):
                mean, total = 0.0 if logged else np.float64(base[c]), np.int64(0)
                for i in range(job.lanes):
                    if interleaved:
                        # Neighbours begin at different agents, whose entries lie in different banks.
                        j = i + lane if i + lane < job.lanes else i + lane - job.lanes
                        at = c * cuda.blockDim.x + slot * job.lanes + j
                    else:
                        at = (slot * job.lanes + i) * job.dim + c
                    change = np.float64(tables[at]) - mean
                    fits &= abs(change) < limits.largest
                    total += whole(change * limits.scale)
                    square += change * change
                if total != 0:
                    add_to(sums, c, np.uint64(total))
        cuda.syncthreads()
        return square, fits

    def begin_overlay(job, params, base, tables, slot, lane):
        empty(params)

    def add_overlay(job, params, base, tables, slot, lane, sums, limits, active):
        square, fits = 0.0, True
        if active:
            for place in range(params.entries):
                cell = params.keys[params.first_key + place * params.width]
                if cell != EMPTY:
                    value = params.values[params.first_value + place * params.width]
                    change = np.float64(value) - np.float64(base[cell])
                    fits &= abs(change) < limits.largest
                    add_to(sums, cell, np.uint64(whole(change * limits.scale)))
                    square += change * change
        return square, fits

    def end_logged(job, params, base, tables, slot, lane, sums, limits, active, log, length):
        fits, thread = True, np.uint64(cuda.grid(1))
        if active and length > 0:
            following = log[_ZERO, thread]
            for k in range(length):
                cell = following
                # Asked for early: what comes next waits for memory while this cell is dealt with.
                following = log[np.uint64(min(k + 1, length - 1)), thread]
                at = params.first + np.uint64(cell) * params.width
                change = np.float64(params.memory[at])
                # A cell that was met before has been put back.
                if change != 0.0:
                    params.memory[at] = 0
                    fits &= abs(change) < limits.largest
                    add_to(sums, cell, np.uint64(whole(change * limits.scale)))
        return fits

    add = cuda.jit(device=True)(add_overlay if layout == "overlay" else add_whole)

    def end_unlogged(job, params, base, tables, slot, lane, sums, limits, active, log, length):
        return add(job, params, base, tables, slot, lane, sums, limits, active)[1]

    if layout == "overlay":
        pair = forget_overlay, begin_overlay
    elif logged:
        pair = forget_changes, begin_changes
    else:
        pair = forget_whole, begin_column if interleaved else begin_whole
    rest = (*pair, end_logged if logged else end_unlogged)
    return (add, *(cuda.jit(device=True)(function) for function in rest))
