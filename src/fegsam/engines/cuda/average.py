"""What blocks of the `cuda` engine do with the sums after the barrier: they record averages and
renew the one that agents start from."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import math

import numpy as np
from numba import cuda, types

from fegsam.engines.cuda.instructions import opaque
from fegsam.engines.cuda.sums import EIGHT, all_loaded, eight

_ZERO = np.uint64(0)


@cuda.jit(device=True)
def block_sum(launch, tree, thread, value):
    """The sum over a seed's lanes of this block, in a fixed order; for lane 0."""
    at, lanes, lane = cuda.threadIdx.x, opaque(launch.lanes), thread.lane
    tree[at] = value
    cuda.syncthreads()
    total = 0.0
    if lane % 32 == 0 and thread.slot < launch.slots:
        for i in range(lane, min(lane + 32, lanes)):
            total += tree[thread.slot * lanes + i]
    cuda.syncthreads()
    tree[at] = total
    cuda.syncthreads()
    total = 0.0
    if lane == 0 and thread.slot < launch.slots:
        for i in range(0, lanes, 32):
            total += tree[thread.slot * lanes + i]
    cuda.syncthreads()
    return total


@cuda.jit(device=True)
def add_square(memory, point, square):
    """Add to this thread's sum of squares at a record point."""
    memory.squares[point, cuda.grid(1)] += square


@cuda.jit(device=True)
def record_points(launch, memory, place, thread, attempt, scale):
    """Averages at the record points inside a round, and this block's share of the sync errors.

    `scale` turns a sum into a mean difference.
    """
    tree = cuda.shared.array(0, types.float64)[place.tree : place.tree + cuda.blockDim.x]
    at, members, seed = cuda.grid(1), launch.blocks * launch.lanes, thread.seed_index
    for j in range(attempt.most_points):
        apart, square = 0.0, 0.0
        if attempt.alive and j < attempt.points:
            square = memory.squares[j, at]
            c = thread.rank * launch.lanes + thread.lane
            while c < launch.dim:
                total = memory.totals[attempt.buffer, seed, 1 + j, c]
                change = np.float64(np.int64(total)) * scale
                memory.rows[attempt.row + j, seed, c] = (
                    memory.average[attempt.half, seed, c] + change
                )
                apart += change * change
                c += members
        square, apart = (
            block_sum(launch, tree, thread, square),
            block_sum(launch, tree, thread, apart),
        )
        if attempt.alive and j < attempt.points and thread.lane == 0:
            memory.parts[attempt.row + j, seed, thread.rank, 0] = square
            memory.parts[attempt.row + j, seed, thread.rank, 1] = apart


@cuda.jit(device=True)
def clear_totals(launch, memory, thread, points, buffer):
    """Set the totals of an earlier attempt to zero, which had that many record points."""
    for j in range(points + 1):
        c = thread.member
        while c < launch.dim:
            memory.totals[buffer, thread.seed_index, j, c] = _ZERO
            c += launch.blocks * launch.lanes


def make_renew(shared_base):
    """The function that applies an average; `shared_base`: each block has a copy of it."""

    @cuda.jit(device=True)
    def renew_average(launch, memory, base, thread, attempt, scale):
        """Apply the round's mean difference; return the binary exponent of the largest entry that
        this thread saw.

        Where blocks have copies of the average, each renews its whole copy and the first one the
        original; otherwise the blocks divide the entries.
        """
        old = memory.average[attempt.half, thread.seed_index]
        totals, rows = memory.totals[attempt.buffer, thread.seed_index, 0], memory.rows
        keeps = thread.rank == 0 if shared_base else True
        recorded = attempt.upcoming == attempt.time + attempt.length
        c = np.uint64(thread.lane if shared_base else thread.rank * launch.lanes + thread.lane)
        stride = np.uint64(launch.lanes if shared_base else launch.blocks * launch.lanes)
        size = np.uint64(launch.dim)
        top = 0.0
        while c < size:
            at = eight(c, stride, size)
            loaded = (
                totals[at[0]], totals[at[1]], totals[at[2]], totals[at[3]],
                totals[at[4]], totals[at[5]], totals[at[6]], totals[at[7]],
            )  # fmt: skip
            was = (
                old[at[0]], old[at[1]], old[at[2]], old[at[3]],
                old[at[4]], old[at[5]], old[at[6]], old[at[7]],
            )  # fmt: skip
            sums = all_loaded(loaded)
            new = (
                was[0] + np.float64(np.int64(sums[0])) * scale,
                was[1] + np.float64(np.int64(sums[1])) * scale,
                was[2] + np.float64(np.int64(sums[2])) * scale,
                was[3] + np.float64(np.int64(sums[3])) * scale,
                was[4] + np.float64(np.int64(sums[4])) * scale,
                was[5] + np.float64(np.int64(sums[5])) * scale,
                was[6] + np.float64(np.int64(sums[6])) * scale,
                was[7] + np.float64(np.int64(sums[7])) * scale,
            )
            for i in range(8):
                base[at[i]] = new[i]
                top = max(top, abs(new[i]))
            if keeps:
                for i in range(8):
                    memory.average[1 - attempt.half, thread.seed_index, at[i]] = new[i]
            if keeps and recorded:
                for i in range(8):
                    rows[attempt.row + attempt.points, thread.seed_index, at[i]] = new[i]
            c += EIGHT * stride
        return max(math.frexp(top)[1], 0)

    return renew_average
