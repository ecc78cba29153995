"""The loop over rounds of the `cuda` engine, for several agents.

Each attempt at a round has one barrier of all blocks, when the round's differences have been added
up. Where each block has a copy of the average, it is the only one: what an attempt leaves in
`totals`, `overflow`, `again` and `arrivals` is cleared during the next attempt, for the one after
that. So these have three buffers, which are used in turn.
"""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from fegsam.engines.cuda.agents import identify
from fegsam.engines.cuda.attempt import begin_attempt, end_attempt, first_cursor, previous
from fegsam.engines.cuda.average import clear_totals, make_renew, record_points
from fegsam.engines.cuda.barrier import await_count, make_barrier, make_last_barrier
from fegsam.engines.cuda.instructions import add_relaxed, inlined, opaque
from fegsam.engines.cuda.memory import Thread
from fegsam.engines.cuda.producer import make_produce
from fegsam.engines.cuda.sums import Sums, flush
from fegsam.engines.cuda.views import make_view_agent, make_view_block
from fegsam.randomness import HALF, ONE

ROOM = 2
"""Bits between the size of the average and that of a difference from it."""
MORE_ROOM = 8
"""Bits that a repeated attempt has more."""
_ZERO = np.uint64(0)


class IntegerScale(NamedTuple):
    """How differences are rounded in an attempt."""

    scale: Any
    """2^f"""
    largest: Any
    """2^e: differences below this fit"""
    share: Any
    """2^-f / N: what turns a sum into a mean difference"""


@inlined
def locate(launch, agents, memory):
    """Which agents this thread runs."""
    block = cuda.blockIdx.x % launch.agent_blocks
    rank = block % launch.blocks
    slot, lane = cuda.threadIdx.x // launch.lanes, cuda.threadIdx.x % launch.lanes
    seed = block // launch.blocks * launch.slots + slot
    present = slot < launch.slots and seed < launch.num_seeds
    seed = seed if present else 0
    member = rank * launch.lanes + lane
    agent = member if member < launch.num_agents else 0
    identity = identify(agents, memory.seeds[seed], agent)
    return Thread(seed, rank, slot, lane, member, block, present, identity)


@inlined
def forget_values(thread):
    """The same thread, but nothing that is computed from it occupies a register across rounds."""
    return Thread(
        opaque(thread.seed_index),
        opaque(thread.rank),
        opaque(thread.slot),
        opaque(thread.lane),
        opaque(thread.member),
        thread.block,
        thread.present,
        thread.identity,
    )


@inlined
def make_rounding(launch, exponent):
    return IntegerScale(
        math.ldexp(1.0, int(launch.fraction - exponent)),
        math.ldexp(1.0, int(exponent)),
        math.ldexp(launch.share, int(exponent - launch.fraction)),
    )


@inlined
def make_sums(launch, memory, block, thread, buffer, rounding):
    return Sums(
        memory.totals[buffer, thread.seed_index, 0],
        block.halves,
        block.first_half,
        np.uint64(launch.dim),
        rounding.scale,
        rounding.largest,
    )


class SizeFunctions(NamedTuple):
    """Device functions for the binary exponent of the average's largest entry."""

    clear: Any
    """clear(launch, memory, block, thread, half): set the next one to zero"""
    raise_to: Any
    """raise_to(launch, memory, block, thread, half, size)"""
    read: Any
    """read(launch, memory, block, thread, half)"""


def _make_sizes(shared_base):
    @inlined
    def clear(launch, memory, block, thread, half):
        if thread.present:
            if shared_base and thread.lane == 0:
                block.sizes[half * launch.slots + thread.slot] = 0
            if not shared_base and thread.member == 0:
                memory.size[half, thread.seed_index] = 0

    @inlined
    def raise_to(launch, memory, block, thread, half, size):
        if shared_base:
            cuda.atomic.max(block.sizes, half * launch.slots + thread.slot, np.int32(size))
        else:
            cuda.atomic.max(memory.size, (half, thread.seed_index), np.int32(size))

    @inlined
    def read(launch, memory, block, thread, half):
        return (
            block.sizes[half * launch.slots + thread.slot]
            if shared_base
            else memory.size[half, thread.seed_index]
        )

    return SizeFunctions(clear, raise_to, read)


def _make_leave_attempt(spec):
    together, producers, shared_base = spec.together, spec.where.producers, spec.where.base
    barrier = make_barrier(together, producers)

    @inlined
    def leave_attempt(launch, memory, block, thread, attempt, last_points, repeat):
        """Clear what the attempt before has left, which had `last_points` record points, and wait
        until the average is renewed."""
        buffer = previous(attempt.buffer)
        if thread.present:
            clear_totals(launch, memory, thread, last_points, buffer)
            if thread.member == 0:
                memory.overflow[buffer, thread.seed_index] = 0
        if thread.rank == 0 and cuda.threadIdx.x == 0:
            memory.again[buffer, 0 if together else thread.block] = 0
            if together and thread.block == 0:
                memory.arrivals[buffer], memory.arrivals[3 + buffer] = _ZERO, _ZERO
        # Relaxed: all entries of the ring were read before the first barrier.
        if producers and not repeat and cuda.threadIdx.x == 0:
            add_relaxed(memory.taken, thread.block, ONE)
        if shared_base:
            cuda.syncthreads()
        else:
            barrier(launch, memory, block.box, 3 + attempt.buffer, thread.block, _ZERO, False)

    return leave_attempt


@inlined
def end_launch(launch, memory, thread, cursor, size):
    """Leave memory as the next launch expects it."""
    if cuda.threadIdx.x == 0:
        memory.drawn[thread.block], memory.taken[thread.block] = _ZERO, _ZERO
        if thread.block == 0:
            for i in range(6):
                memory.arrivals[i] = _ZERO
    if thread.present:
        clear_totals(launch, memory, thread, cursor.last_points, previous(cursor.buffer))
        if thread.member == 0:
            memory.size[cursor.half, thread.seed_index] = size


def _make_add_round(spec, run_agents):
    """The first half of an attempt: the steps, up to the barrier at which all have added."""
    shared_sums, together = spec.where.sums, spec.together
    barrier = make_barrier(together, spec.where.producers)

    @inlined
    def add_round(launch, arrays, memory, view, block, thread, attempt, rounding):
        """Whether any thread had a difference that did not fit, or a non-finite parameter."""
        sums = make_sums(launch, memory, block, thread, attempt.buffer, rounding)
        fits, finite = run_agents(launch, arrays, memory, view, sums, thread, attempt)
        if not fits:
            memory.overflow[attempt.buffer, thread.seed_index] = 1
            memory.again[attempt.buffer, 0 if together else thread.block] = 1
        if shared_sums:
            cuda.syncthreads()
            if attempt.alive and attempt.synced:
                flush(sums, np.uint64(thread.lane), np.uint64(launch.lanes))
        drawn, flag = np.uint64(attempt.rounds + 2), not (fits and finite)
        return barrier(launch, memory, block.box, attempt.buffer, thread.block, drawn, flag)

    return add_round


def _make_average_round(spec, raise_size):
    """The second half of an attempt whose differences fit."""
    renew_average = make_renew(spec.where.base)

    @inlined
    def average_round(launch, memory, place, view, block, thread, attempt, rounding):
        """Record inside the round, and renew the average at its end."""
        if attempt.most_points > 0:
            record_points(launch, memory, place, thread, attempt, rounding.share)
        if attempt.alive and attempt.synced:
            size = renew_average(launch, memory, view.base, thread, attempt, rounding.share)
            raise_size(launch, memory, block, thread, 1 - attempt.half, size)

    return average_round


def make_rounds(spec, fix_problem, views, settle, windows, run_agents):
    """The kernel for several agents."""
    together, producers, logged = spec.together, spec.where.producers, spec.where.logged
    forget, produce = settle.forget, make_produce(spec)
    view_block, view_agent = make_view_block(spec), make_view_agent(spec, views, windows)
    clear_size, raise_size, read_size = _make_sizes(spec.where.base)
    add_round = _make_add_round(spec, run_agents)
    average_round = _make_average_round(spec, raise_size)
    leave_attempt = _make_leave_attempt(spec)
    last_barrier = make_last_barrier(together or producers)

    def advance(launch, given_chain, agents, given_tables, memory, place):
        """Rounds from `begin`, a synchronisation, to `stop`. A round that `stop` interrupts leaves
        the average as it was."""
        arrays = fix_problem(given_chain, agents, given_tables)
        thread = locate(launch, agents, memory)
        if producers:
            if cuda.blockIdx.x < launch.agent_blocks:
                produce(launch, arrays.chain, memory, thread)
                last_barrier()
                return
            if cuda.threadIdx.x == 0 and launch.begin < launch.stop:
                await_count(memory.drawn, thread.block, ONE)
        view = view_agent(launch, place, memory, thread)
        block = view_block(launch, place, thread)
        if logged:
            forget(view)
        cursor, domain = first_cursor(launch, memory, thread), 0 if together else thread.block
        size, rounding = memory.size[launch.half, thread.seed_index], IntegerScale(0.0, 0.0, 0.0)
        exponent, extra, reload = -1, 0, True
        alive = thread.present and memory.failed[thread.seed_index] != _ZERO
        while cursor.time < launch.stop:
            thread = forget_values(thread)
            clear_size(launch, memory, block, thread, 1 - cursor.half)
            attempt = begin_attempt(launch, memory, block.box, thread, cursor, alive, reload)
            # Without producers there are many threads, and no registers to keep these in.
            if not producers or exponent != size + ROOM + extra:
                exponent = size + ROOM + extra
                rounding = make_rounding(launch, exponent)
            flagged = add_round(launch, arrays, memory, view, block, thread, attempt, rounding)
            repeat = flagged and memory.again[attempt.buffer, domain] != 0
            if repeat:
                extra += MORE_ROOM * memory.overflow[attempt.buffer, thread.seed_index]
            else:
                extra = 0
                average_round(launch, memory, place, view, block, thread, attempt, rounding)
            leave_attempt(launch, memory, block, thread, attempt, cursor.last_points, repeat)
            cursor = end_attempt(memory, thread, cursor, attempt, repeat)
            if alive and attempt.synced and not repeat:
                size = read_size(launch, memory, block, thread, 1 - attempt.half)
            # A later failure, of a block that is a round ahead, changes nothing here.
            if flagged:
                failed = np.int64(memory.failed[thread.seed_index] >> HALF)
                alive = thread.present and failed > cursor.time - launch.begin
            reload = repeat or not producers
        last_barrier()
        end_launch(launch, memory, thread, cursor, size)

    return advance
