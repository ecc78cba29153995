"""How the `cuda` engine adds up its agents' differences from the average: in whole numbers, in any
order."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numba.extending import register_jitable

from fegsam.engines.cuda.instructions import add_relaxed, anew
from fegsam.engines.cuda.params import EMPTY
from fegsam.engines.randomness import HALF, MASK, ONE, THREE, TWO

_ZERO = np.uint64(0)
FOUR, EIGHT = np.uint64(4), np.uint64(8)


class Sums(NamedTuple):
    """Where a sum of differences is kept."""

    whole: Any
    """uint64 (d): of all blocks"""
    half: Any
    """uint32: of a block, the lower halves from `first` on, and the upper ones `size` entries
    behind"""
    first: Any
    size: Any
    """d"""


@register_jitable
def whole(value):
    """The nearest whole number."""
    return np.int64(value + 0.5) if value >= 0.0 else np.int64(value - 0.5)


@cuda.jit(device=True)
def add_low(sums, cell, value):
    """Add to the lower half; what it carries."""
    low = np.uint32(value & MASK)
    return (np.uint64(cuda.atomic.add(sums.half, sums.first + cell, low)) + np.uint64(low)) >> HALF


@cuda.jit(device=True)
def add_high(sums, cell, value, carry):
    cuda.atomic.add(
        sums.half, sums.first + sums.size + cell, np.uint32(((value >> HALF) + carry) & MASK)
    )


@register_jitable
def add_shared(sums, cell, value):
    """Add to a block's sum, which lies in two halves: shared memory adds only 32 bits at a time."""
    add_high(sums, cell, value, add_low(sums, cell, value))


@register_jitable
def add_global(sums, cell, value):
    """Add to the sum of all blocks."""
    add_relaxed(sums.whole, cell, value)


@register_jitable
def four(c, stride, size):
    """Entries to ask memory for at once, so that they are waited for together; beyond the end, the
    first comes again."""
    at_1, at_2, at_3 = c + stride, c + TWO * stride, c + THREE * stride
    return c, at_1 if at_1 < size else c, at_2 if at_2 < size else c, at_3 if at_3 < size else c


@register_jitable
def eight(c, stride, size):
    """As `four`, and four more."""
    at_4 = c + FOUR * stride
    return four(c, stride, size) + four(at_4 if at_4 < size else c, stride, size)


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
def take_sum(sums, cell):
    """A sum whose halves lie apart, which begins anew."""
    at = sums.first + cell
    found = np.uint64(sums.half[at]) | (np.uint64(sums.half[at + sums.size]) << HALF)
    sums.half[at] = 0
    sums.half[at + sums.size] = 0
    return found


@cuda.jit(device=True)
def flush(sums, first, stride):
    """Add every `stride`-th of a block's sums to those of all blocks, and begin it anew."""
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


def make_settle(layout, where):
    """What begins a round for an agent, and what adds differences from the average to sums.

    An overlay is its thread's own affair. Whole tables are the block's: all threads of a seed begin
    all of its tables, and each adds up some cells of all tables, so that neighbours read what lies
    side by side.
    """
    interleaved, logged, near = where.own, where.logged, where.sums

    def forget_changes(params, base):
        c, size = _ZERO, anew(np.uint64(base.shape[0]))
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

    def begin_overlay(job, params, base, tables, slot, lane):
        empty(params)

    def make_add(put):
        def add_whole(job, params, base, tables, slot, lane, sums, limits, active):
            cuda.syncthreads()
            square, fits, lanes = 0.0, True, anew(job.lanes)
            if active:
                c = lane
                while c < job.dim:
                    mean, total = 0.0 if logged else np.float64(base[c]), np.int64(0)
                    for i in range(lanes):
                        if interleaved:
                            # Neighbours begin at different agents, whose entries lie in different
                            # banks.
                            j = i + lane if i + lane < lanes else i + lane - lanes
                            at = c * cuda.blockDim.x + slot * lanes + j
                        else:
                            at = (slot * lanes + i) * job.dim + c
                        change = np.float64(tables[at]) - mean
                        fits &= abs(change) < limits.largest
                        total += whole(change * limits.scale)
                        square += change * change
                    if total != 0:
                        put(sums, np.uint64(c), np.uint64(total))
                    c += lanes
            cuda.syncthreads()
            return square, fits

        def add_overlay(job, params, base, tables, slot, lane, sums, limits, active):
            square, fits = 0.0, True
            if active:
                for place in range(params.entries):
                    cell = params.keys[params.first_key + place * params.width]
                    if cell != EMPTY:
                        value = params.values[params.first_value + place * params.width]
                        change = np.float64(value) - np.float64(base[cell])
                        fits &= abs(change) < limits.largest
                        put(sums, cell, np.uint64(whole(change * limits.scale)))
                        square += change * change
            return square, fits

        return cuda.jit(device=True)(add_overlay if layout == "overlay" else add_whole)

    @register_jitable
    def take(params, cell):
        """An agent's change of a cell, which is put back: where the cell comes again, there is
        none."""
        at = params.first + np.uint64(cell) * params.width
        change = np.float64(params.memory[at])
        params.memory[at] = 0
        return change

    def end_logged(job, params, base, tables, slot, lane, sums, limits, active, log, length):
        fits, entry = True, log.first
        end = entry + np.uint64(length if active else 0) * log.width
        while entry < end:
            at = four(entry, log.width, end)
            cells = log.cells[at[0]], log.cells[at[1]], log.cells[at[2]], log.cells[at[3]]
            changes = (
                take(params, cells[0]),
                take(params, cells[1]),
                take(params, cells[2]),
                take(params, cells[3]),
            )
            scaled = (
                np.uint64(whole(changes[0] * limits.scale)),
                np.uint64(whole(changes[1] * limits.scale)),
                np.uint64(whole(changes[2] * limits.scale)),
                np.uint64(whole(changes[3] * limits.scale)),
            )
            for i in range(4):
                fits &= abs(changes[i]) < limits.largest
            if near:
                carries = (
                    add_low(sums, cells[0], scaled[0]),
                    add_low(sums, cells[1], scaled[1]),
                    add_low(sums, cells[2], scaled[2]),
                    add_low(sums, cells[3], scaled[3]),
                )
                for i in range(4):
                    add_high(sums, cells[i], scaled[i], carries[i])
            else:
                for i in range(4):
                    if scaled[i] != 0:
                        add_global(sums, cells[i], scaled[i])
            entry += FOUR * log.width
        return fits

    add_at_end = make_add(add_shared if near else add_global)

    def end_unlogged(job, params, base, tables, slot, lane, sums, limits, active, log, length):
        return add_at_end(job, params, base, tables, slot, lane, sums, limits, active)[1]

    if layout == "overlay":
        pair = forget_overlay, begin_overlay
    elif logged:
        pair = forget_changes, begin_changes
    else:
        pair = forget_whole, begin_column if interleaved else begin_whole
    rest = (*pair, end_logged if logged else end_unlogged)
    return (make_add(add_global), *(cuda.jit(device=True)(function) for function in rest))
