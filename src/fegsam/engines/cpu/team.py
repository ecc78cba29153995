"""Threads that work on one run together: an atomic counter that distributes blocks, and a barrier
between phases.

Each thread runs the same compiled loop without the GIL, so a round never enters Python. A thread
that fails sets ABORT, which lets the others leave the barrier.
"""

# pyright: reportCallIssue=false

from __future__ import annotations

import math
import os

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import DTypeLike

from fegsam.compilation import compiled

# Slots of the shared array, each on a cache line of its own.
ARRIVED, GENERATION, ABORT, NEXT, DONE = 0, 16, 32, 48, 64
_SPINS_BEFORE_YIELD = 2000
_APART = 128
"""Bytes: two cache lines, since processors fetch them in pairs."""


def make_sync() -> np.ndarray:
    return private((80,), np.int64)


def private(shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> np.ndarray:
    """Zeros for one thread: their cache lines hold no other thread's data."""
    room = _APART // np.dtype(dtype).itemsize
    size = math.prod(shape)
    return np.zeros(size + 2 * room, dtype)[room : room + size].reshape(shape)


def _pointer(context, builder, array_type, array, index):
    struct = context.make_array(array_type)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, array_type, struct, [index], wraparound=False)


@intrinsic
def atomic_add(typingctx, array, index, value):
    """Add to an int64 array's element and return what was there before."""

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", pointer, args[2], "seq_cst")

    return types.int64(array, types.intp, types.int64), codegen


@intrinsic
def atomic_load(typingctx, array, index):
    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        return builder.load_atomic(pointer, "seq_cst", 8)

    return types.int64(array, types.intp), codegen


if hasattr(os, "sched_yield"):
    give_way = types.ExternalFunction("sched_yield", types.int32())
else:

    @numba.njit(inline="always")
    def give_way():
        """Keep spinning: this system has no `sched_yield`."""


@compiled
def barrier(sync, team):
    """Wait until all threads of the team have arrived."""
    if team == 1:
        return
    generation = atomic_load(sync, GENERATION)
    if atomic_add(sync, ARRIVED, 1) == team - 1:
        atomic_add(sync, ARRIVED, -team)
        atomic_add(sync, GENERATION, 1)
        return
    spins = 0
    while atomic_load(sync, GENERATION) == generation and atomic_load(sync, ABORT) == 0:
        spins += 1
        if spins > _SPINS_BEFORE_YIELD:
            give_way()


@compiled
def next_block(sync, team, previous):
    """The next block of the wave for this thread to take."""
    if team == 1:
        return previous + 1
    return atomic_add(sync, NEXT, 1)


@compiled
def add_done(sync, team, steps):
    """Count agent-steps, for the progress bar."""
    if team == 1:
        sync[DONE] += steps
    else:
        atomic_add(sync, DONE, steps)
