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
from fegsam.engines.randomness import HALF, MASK


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


def make_settle(layout, where):
    """What begins a round for an agent, and what adds differences from the average to sums.

    An overlay is its thread's own affair. Whole tables are the block's: all threads of a seed begin all of its tables, and
    each adds up some cells of all tables, so that neighbours read what lies side by side.
    """
    interleaved = where.own

    def forget_whole(params, base):
        for c in range(base.shape[0]):
            params[c] = base[c]

    def forget_overlay(params, base):
        for place in range(params.entries):
            params.keys[params.first_key + place * params.width] = EMPTY

    def begin_whole(job, params, base, tables, slot, lane):
        cuda.syncthreads()
        # Threads beyond the last seed's have no table.
        for c in range(lane if slot < job.slots else job.dim, job.dim, job.lanes):
            value = base[c]
            for i in range(slot * job.lanes, (slot + 1) * job.lanes):
                tables[c * cuda.blockDim.x + i if interleaved else i * job.dim + c] = value
        cuda.syncthreads()

    def add_whole(job, params, base, tables, slot, lane, sums, limits, active):
        cuda.syncthreads()
        square, fits = 0.0, True
        if active:
            for c in range(lane, job.dim, job.lanes):
                mean, total = np.float64(base[c]), np.int64(0)
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
        for place in range(params.entries):
            params.keys[params.first_key + place * params.width] = EMPTY

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
        fits, thread = True, cuda.grid(1)
        if active:
            for k in range(length):
                cell = log[k, thread]
                mean = base[cell]
                change = np.float64(params[cell]) - np.float64(mean)
                # A cell that was met before has been put back.
                if change != 0.0:
                    params[cell] = mean
                    fits &= abs(change) < limits.largest
                    add_to(sums, cell, np.uint64(whole(change * limits.scale)))
        return fits

    add = cuda.jit(device=True)(add_overlay if layout == "overlay" else add_whole)

    def end_unlogged(job, params, base, tables, slot, lane, sums, limits, active, log, length):
        return add(job, params, base, tables, slot, lane, sums, limits, active)[1]

    overlaid, dense = (forget_overlay, begin_overlay), (forget_whole, begin_whole)
    pair = overlaid if layout == "overlay" else dense
    rest = (*pair, end_logged if where.logged else end_unlogged)
    return (add, *(cuda.jit(device=True)(function) for function in rest))
