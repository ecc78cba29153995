"""What happens to an agent's parameters around its steps: they start from the average, and their
differences from it are added to the sums.

An overlay belongs to its thread alone. Whole tables belong to the block: all threads of a seed
initialise all of its tables, and each thread adds up some cells of all tables, so that neighbouring
threads read neighbouring entries.
"""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numba.extending import register_jitable

from fegsam.engines.cuda.instructions import opaque
from fegsam.engines.cuda.params import EMPTY
from fegsam.engines.cuda.sums import (
    FOUR,
    add_global,
    add_high,
    add_low,
    add_shared,
    copy,
    empty,
    four,
    whole,
)
from fegsam.randomness import ONE

_ZERO = np.uint64(0)


class Settle(NamedTuple):
    """Device functions for one layout."""

    forget: Any
    """forget(view): one thread resets its agent's parameters to the average"""
    begin: Any
    """begin(launch, view, thread): a block resets the parameters of its agents"""
    add: Any
    """add(launch, view, thread, sums, active): add the differences to the sums of all blocks;
    return the sum of their squares, and whether all fit"""
    end: Any
    """end(launch, view, thread, sums, active, length): add the differences at a round's end;
    return whether all fit"""


def make_settle(spec):
    """The functions for one layout."""
    add_near = spec.where.sums
    make_add = _make_add_overlay if spec.layout == "overlay" else _make_add_whole
    if spec.where.logged:
        end = _make_end_logged(add_near)
    else:
        end = _make_end_unlogged(make_add(spec, add_shared if add_near else add_global))
    forget, begin = _starts(spec)
    return Settle(
        cuda.jit(device=True)(forget),
        cuda.jit(device=True)(begin),
        make_add(spec, add_global),
        cuda.jit(device=True)(end),
    )


def _starts(spec):
    if spec.layout == "overlay":
        return _forget_overlay, _begin_overlay
    if spec.where.logged:
        return _forget_changes, _begin_changes
    return _forget_whole, _begin_column if spec.where.own else _begin_whole


def _forget_changes(view):
    params, c, size = view.params, _ZERO, opaque(np.uint64(view.base.shape[0]))
    while c < size:
        params.memory[params.first + c * params.width] = 0
        c += ONE


def _forget_whole(view):
    copy(view.base, view.params, _ZERO, ONE)


def _forget_overlay(view):
    empty(view.params)


def _begin_column(launch, view, thread):
    copy(view.base, view.params, _ZERO, ONE)


def _begin_changes(launch, view, thread):
    """Nothing to do: the end of the last round has reset the changes."""


def _begin_whole(launch, view, thread):
    cuda.syncthreads()
    # Threads beyond those of the last seed have no table.
    first = thread.lane if thread.slot < launch.slots else launch.dim
    for c in range(first, launch.dim, launch.lanes):
        value = view.base[c]
        for i in range(thread.slot * launch.lanes, (thread.slot + 1) * launch.lanes):
            view.tables[i * launch.dim + c] = value
    cuda.syncthreads()


def _begin_overlay(launch, view, thread):
    empty(view.params)


def _make_add_whole(spec, put):
    interleaved, logged = spec.where.own, spec.where.logged

    @cuda.jit(device=True)
    def add_whole(launch, view, thread, sums, active):
        cuda.syncthreads()
        square, fits, lanes = 0.0, True, opaque(launch.lanes)
        if active:
            slot, lane = thread.slot, thread.lane
            c = lane
            while c < launch.dim:
                mean, total = 0.0 if logged else np.float64(view.base[c]), np.int64(0)
                for i in range(lanes):
                    if interleaved:
                        # Neighbours begin at different agents, whose entries lie in different
                        # banks.
                        j = i + lane if i + lane < lanes else i + lane - lanes
                        at = c * cuda.blockDim.x + slot * lanes + j
                    else:
                        at = (slot * lanes + i) * launch.dim + c
                    change = np.float64(view.tables[at]) - mean
                    fits &= abs(change) < sums.largest
                    total += whole(change * sums.scale)
                    square += change * change
                if total != 0:
                    put(sums, np.uint64(c), np.uint64(total))
                c += lanes
        cuda.syncthreads()
        return square, fits

    return add_whole


def _make_add_overlay(spec, put):
    @cuda.jit(device=True)
    def add_overlay(launch, view, thread, sums, active):
        params, square, fits = view.params, 0.0, True
        if active:
            for place in range(params.entries):
                cell = params.keys[params.first_key + place * params.width]
                if cell != EMPTY:
                    value = params.values[params.first_value + place * params.width]
                    change = np.float64(value) - np.float64(view.base[cell])
                    fits &= abs(change) < sums.largest
                    put(sums, cell, np.uint64(whole(change * sums.scale)))
                    square += change * change
        return square, fits

    return add_overlay


def _make_end_unlogged(add):
    def end_unlogged(launch, view, thread, sums, active, length):
        return add(launch, view, thread, sums, active)[1]

    return end_unlogged


@register_jitable
def take_change(params, cell):
    """An agent's change of a cell, which is reset: where the cell comes again, the change is
    zero."""
    at = params.first + np.uint64(cell) * params.width
    change = np.float64(params.memory[at])
    params.memory[at] = 0
    return change


def _make_end_logged(near):
    def end_logged(launch, view, thread, sums, active, length):
        params, log, fits, entry = view.params, view.log, True, view.log.first
        end = entry + np.uint64(length if active else 0) * log.width
        while entry < end:
            at = four(entry, log.width, end)
            cells = log.cells[at[0]], log.cells[at[1]], log.cells[at[2]], log.cells[at[3]]
            changes = (
                take_change(params, cells[0]),
                take_change(params, cells[1]),
                take_change(params, cells[2]),
                take_change(params, cells[3]),
            )
            scaled = (
                np.uint64(whole(changes[0] * sums.scale)),
                np.uint64(whole(changes[1] * sums.scale)),
                np.uint64(whole(changes[2] * sums.scale)),
                np.uint64(whole(changes[3] * sums.scale)),
            )
            for i in range(4):
                fits &= abs(changes[i]) < sums.largest
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

    return end_logged
