"""How blocks of the `cuda` engine wait for each other."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false

from __future__ import annotations

import numpy as np
from numba import cuda

from fegsam.engines.cuda.instructions import add_release, load_acquire
from fegsam.engines.randomness import HALF, MASK, ONE

_ZERO = np.uint64(0)
_NEWS = np.uint64(1) << HALF


@cuda.jit(device=True)
def await_count(counts, index, least):
    """Wait until another block has counted that far."""
    while load_acquire(counts, index) < least:
        continue


def make_meet(together, scouted):
    """A meeting of all blocks that run agents, or of a block's threads where no two blocks share a
    seed.

    Blocks count themselves in and wait for the last one. That takes less than a grid-wide
    synchronisation, and takes along whether some thread had news.
    """

    def meet_blocks(job, memory, box, which, block, rounds, news):
        """Whether some thread of all had news; `rounds` must have been drawn by the block's
        scout."""
        any_news = cuda.syncthreads_or(np.int32(news))
        if scouted and cuda.threadIdx.x == cuda.blockDim.x - 1:
            await_count(memory.drawn, block, rounds)
        if cuda.threadIdx.x == 0:
            arrivals = memory.arrivals
            add_release(arrivals, which, ONE + _NEWS if any_news else ONE)
            seen, crew = _ZERO, np.uint64(job.crew)
            while seen & MASK < crew:
                seen = load_acquire(arrivals, which)
            box[1] = seen >> HALF
        cuda.syncthreads()
        return box[1] != 0

    def meet_threads(job, memory, box, which, block, rounds, news):
        if scouted and cuda.threadIdx.x == 0:
            await_count(memory.drawn, block, rounds)
        return cuda.syncthreads_or(np.int32(news)) != 0

    return cuda.jit(device=True)(meet_blocks if together else meet_threads)
