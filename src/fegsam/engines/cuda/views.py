"""What a thread of the `cuda` engine works on: its block's shared memory, and the parameters of the
agent that it runs."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np
from numba import cuda, types

from fegsam.engines.cuda.instructions import inlined
from fegsam.engines.cuda.memory import AgentView, BlockMemory, CellLog
from fegsam.engines.cuda.sums import copy


def make_view_block(spec):
    """Shared memory of the block."""
    shared_sums = spec.where.sums

    @inlined
    def view_block(launch, place, thread):
        """The sums begin with zero."""
        halves = cuda.shared.array(0, types.uint32)
        box = cuda.shared.array(0, types.int32)[place.box : place.box + 2]
        sizes = cuda.shared.array(0, types.int32)[place.size : place.size + 2 * launch.slots]
        at = min(thread.slot, launch.slots - 1) * launch.dim
        first_half = np.uint64(place.sums + 2 * at)
        if shared_sums:
            c, end = first_half + np.uint64(thread.lane), first_half + np.uint64(2 * launch.dim)
            while c < end:
                halves[c] = 0
                c += np.uint64(launch.lanes)
        return BlockMemory(halves, first_half, box, sizes)

    return view_block


def make_view_agent(spec, views, windows):
    """How a thread sees its agent's parameters."""
    view_tables, view_params, view_out = views
    shared_base, near_log = spec.where.base, spec.where.near_log
    real, make_window = spec.real, windows.make

    @inlined
    def view_base(launch, place, memory, thread):
        """The average of the thread's seed, as agents hold it."""
        base = memory.rounded[thread.seed_index]
        if shared_base:
            at = place.base + min(thread.slot, launch.slots - 1) * launch.dim
            base = cuda.shared.array(0, real)[at : at + launch.dim]
            if thread.present:
                average = memory.average[launch.half, thread.seed_index]
                copy(average, base, np.uint64(thread.lane), np.uint64(launch.lanes))
        return base

    @inlined
    def view_log(place, memory):
        log = CellLog(memory.log, np.uint64(cuda.grid(1)), np.uint64(cuda.gridsize(1)))
        if near_log:
            log = CellLog(
                cuda.shared.array(0, types.uint32),
                np.uint64(place.log + cuda.threadIdx.x),
                np.uint64(cuda.blockDim.x),
            )
        return log

    @inlined
    def view_agent(launch, place, memory, thread):
        base, tables = view_base(launch, place, memory, thread), view_tables(launch, place, memory)
        params = view_params(launch, place, memory, base, tables)
        out, log = view_out(launch, place, memory), view_log(place, memory)
        return AgentView(params, base, tables, out, log, make_window())

    return view_agent
