"""How blocks of the `cuda` engine wait for each other."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false

from __future__ import annotations

import numpy as np
from numba import cuda

from fegsam.engines.cuda.instructions import add_release, load_acquire
from fegsam.randomness import HALF, MASK, ONE

_ZERO = np.uint64(0)
_FLAG = np.uint64(1) << HALF
"""Added to a count of arrivals by a block in which some thread raised a flag."""


@cuda.jit(device=True)
def await_count(counts, index, least):
    """Wait until another block's count has reached `least`."""
    while load_acquire(counts, index) < least:
        continue


def make_barrier(together, producers):
    """A barrier of all blocks that run agents, or of a block's threads where no two blocks share a
    seed. It returns whether any thread raised a flag.

    Blocks count themselves in and wait for the last one. That takes less time than a grid-wide
    synchronisation, and the count carries the flag.
    """

    def block_barrier(launch, memory, box, count, block, rounds, flag):
        """`count`: which count of `Memory.arrivals`; `rounds`: how many rounds the block's producer
        must have drawn."""
        any_flag = cuda.syncthreads_or(np.int32(flag))
        if producers and cuda.threadIdx.x == cuda.blockDim.x - 1:
            await_count(memory.drawn, block, rounds)
        if cuda.threadIdx.x == 0:
            arrivals = memory.arrivals
            add_release(arrivals, count, ONE + _FLAG if any_flag else ONE)
            seen, expected = _ZERO, np.uint64(launch.agent_blocks)
            while seen & MASK < expected:
                seen = load_acquire(arrivals, count)
            box[1] = seen >> HALF
        cuda.syncthreads()
        return box[1] != 0

    def thread_barrier(launch, memory, box, count, block, rounds, flag):
        if producers and cuda.threadIdx.x == 0:
            await_count(memory.drawn, block, rounds)
        return cuda.syncthreads_or(np.int32(flag)) != 0

    return cuda.jit(device=True)(block_barrier if together else thread_barrier)


def make_last_barrier(grid_wide):
    """The last barrier of a launch, with the producers.

    A kernel with a grid-wide barrier can be launched only where all blocks run at once.
    """

    def last_barrier():
        if grid_wide:
            cuda.cg.this_grid().sync()
        else:
            cuda.syncthreads()

    return cuda.jit(device=True)(last_barrier)
