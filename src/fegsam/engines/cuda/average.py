"""What blocks of the `cuda` engine do with the sums when they have met: averages handed over, and
the one that goes on."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import math

import numpy as np
from numba import cuda, types

from fegsam.engines.cuda.instructions import anew
from fegsam.engines.cuda.sums import EIGHT, eight

_ZERO = np.uint64(0)


@cuda.jit(device=True)
def block_sum(job, tree, slot, lane, value):
    """The sum over a seed's lanes of this block, in a fixed order; for lane 0."""
    at, lanes = cuda.threadIdx.x, anew(job.lanes)
    tree[at] = value
    cuda.syncthreads()
    total = 0.0
    if lane % 32 == 0 and slot < job.slots:
        for i in range(lane, min(lane + 32, lanes)):
            total += tree[slot * lanes + i]
    cuda.syncthreads()
    tree[at] = total
    cuda.syncthreads()
    total = 0.0
    if lane == 0 and slot < job.slots:
        for i in range(0, lanes, 32):
            total += tree[slot * lanes + i]
    cuda.syncthreads()
    return total


@cuda.jit(device=True)
def record_cuts(job, memory, place, stretch, third, which, rank, slot, lane, alive, most, scale):
    """Averages at the cuts, and this block's share of what the sync errors are made of."""
    tree = cuda.shared.array(0, types.float64)[place.tree : place.tree + cuda.blockDim.x]
    thread, members = cuda.grid(1), job.blocks * job.lanes
    for j in range(most):
        apart, square = 0.0, 0.0
        if alive and j < stretch.inside:
            square = memory.squares[j, thread]
            c = rank * job.lanes + lane
            while c < job.dim:
                change = np.float64(np.int64(memory.totals[third, which, 1 + j, c])) * scale
                memory.rows[stretch.row + j, which, c] = (
                    memory.average[stretch.half, which, c] + change
                )
                apart += change * change
                c += members
        square, apart = (
            block_sum(job, tree, slot, lane, square),
            block_sum(job, tree, slot, lane, apart),
        )
        if alive and j < stretch.inside and lane == 0:
            memory.parts[stretch.row + j, which, rank, 0] = square
            memory.parts[stretch.row + j, which, rank, 1] = apart


@cuda.jit(device=True)
def clear_totals(job, memory, inside, third, which, member):
    for j in range(inside + 1):
        c = member
        while c < job.dim:
            memory.totals[third, which, j, c] = _ZERO
            c += job.blocks * job.lanes


def make_renew(shared_base):
    @cuda.jit(device=True)
    def renew_average(job, memory, base, stretch, third, which, rank, lane, scale, recorded):
        """Apply the round's mean difference; the binary exponent of the largest entry that this
        thread saw.

        Blocks with copies of the average renew all of theirs, and the first one the original;
        others share it out.
        """
        old, totals, rows = (
            memory.average[stretch.half, which],
            memory.totals[third, which, 0],
            memory.rows,
        )
        keeps = rank == 0 if shared_base else True
        c = np.uint64(lane if shared_base else rank * job.lanes + lane)
        stride, size = (
            np.uint64(job.lanes if shared_base else job.blocks * job.lanes),
            np.uint64(job.dim),
        )
        top = 0.0
        while c < size:
            at = eight(c, stride, size)
            sums = (
                totals[at[0]], totals[at[1]], totals[at[2]], totals[at[3]],
                totals[at[4]], totals[at[5]], totals[at[6]], totals[at[7]],
            )  # fmt: skip
            was = (
                old[at[0]],
                old[at[1]],
                old[at[2]],
                old[at[3]],
                old[at[4]],
                old[at[5]],
                old[at[6]],
                old[at[7]],
            )
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
                    memory.average[1 - stretch.half, which, at[i]] = new[i]
            if keeps and recorded:
                for i in range(8):
                    rows[stretch.row + stretch.inside, which, at[i]] = new[i]
            c += EIGHT * stride
        return max(math.frexp(top)[1], 0)

    return renew_average
