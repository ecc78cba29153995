"""The kernels of the `cuda` engine: one thread an agent, rounds of K local steps and an average, for any rule.

Between two synchronisations the agents do not meet, and after one they all hold the same parameters. So a thread needs
memory of its own for the agent that it runs now, and not for all agents: it starts from the average, and at the round's end
adds its agent's difference from it to a sum. Three layouts (see `cuda_layout`):

shared   an agent's parameters in shared memory, entry j of thread t beside entry j of thread t + 1: no bank conflicts. Where
         a round writes few of them, they are kept as changes of the average, and a log says which to put back.
overlay  a small hash table of the cells that the agent has written, over the average that all read.
table    an agent's parameters in global memory.

Sums are whole numbers: a difference is rounded to a multiple of 2^-f and added as a 64-bit integer. Such sums do not depend
on the order of their terms, so threads may add at any time and a run repeats bit for bit. f leaves room for N differences
below a limit that goes with the size of the average; where a difference is beyond it, the round is run again with more room.
"""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import math

import numpy as np
from numba import cuda, types
from numba.core import config

from fegsam.engines.cuda_memory import Limits, Stretch
from fegsam.engines.cuda_params import make_views
from fegsam.engines.cuda_paths import is_narrow, make_walk, pack
from fegsam.engines.cuda_rule import make_fix, make_step
from fegsam.engines.cuda_sums import FOUR, Sums, copy, flush, four, make_settle
from fegsam.engines.randomness import HALF

ROOM = 2
"""Bits between the size of the average and that of a difference from it."""
MORE_ROOM = 8
_ZERO = np.uint64(0)


def compile_kernel(function, registers):
    """Compile for the GPU; Numba's simulator knows no registers."""
    if config.ENABLE_CUDASIM:  # pyright: ignore[reportAttributeAccessIssue]
        return cuda.jit(function)
    return cuda.jit(function, max_registers=registers)


def make_advance(plan, rule, layout, real, iid, copied):
    """The loop over rounds for several agents, or for one, which never averages; `copied`: see `cuda_rule.copies`."""
    form, window, where, together = plan.form, plan.window, layout.where, layout.together
    ahead = max(window, 1)
    window_size = ahead + 1
    fix_laws = make_fix(pack(plan.chain), "laws", real, copied)
    fix_tables = make_fix(plan.tables, "tables", real, copied)
    shared_sums, shared_base = where.sums, where.base
    walk = make_walk(make_step(form, rule, layout.name, where.logged), window, iid, is_narrow(plan.chain))
    add, forget, begin, end = make_settle(layout.name, where)
    logged = where.logged
    view_tables, view_params, view_out = make_views(layout.name, form, real, where, np.uint64(where.entries))

    @cuda.jit(device=True)
    def load(memory, which, agent, half, states, actions):
        if not iid:
            for j in range(ahead):
                states[j] = memory.states[half, which, j, agent]
            for j in range(ahead - 1):
                actions[j] = memory.actions[half, which, j, agent]

    @cuda.jit(device=True)
    def carry(memory, which, agent, half, states, actions):
        if not iid:
            for j in range(ahead):
                memory.states[half, which, j, agent] = states[j]
            for j in range(ahead - 1):
                memory.actions[half, which, j, agent] = actions[j]

    @cuda.jit(device=True)
    def report_failure(job, memory, which, agent, time):
        cuda.atomic.min(memory.failed, which, (np.uint64(time - job.begin) << HALF) | np.uint64(agent))

    @cuda.jit(device=True)
    def run_agents(job, laws, agents, tables, memory, params, base, own, out, sums, limits, which, rank, slot, lane, alive,
                   most, stretch, turn):  # fmt: skip
        """A round of this thread's agents, one after the other: steps, cuts, differences. Whether all differences fit.

        All threads of a block go through it together; one without an agent only takes part.
        """
        states, actions = cuda.local.array(window_size, types.uint32), cuda.local.array(ahead, types.uint32)
        thread, seed = cuda.grid(1), memory.seeds[which]
        every_fits = True
        for first in range(rank * job.lanes, job.num_agents, job.blocks * job.lanes):
            agent = first + lane
            running = alive and agent < job.num_agents
            agent = agent if running else 0
            if running:
                load(memory, which, agent, stretch.half, states, actions)
            begin(job, params, base, own, slot, lane)
            kind, now = agents.kinds[agent], stretch.time
            for j in range(most + 1):
                at_cut, at_end = alive and j < stretch.inside, alive and j == most
                stop = now
                if at_cut:
                    stop = memory.cuts[which, stretch.row + j]
                elif at_end:
                    stop = stretch.time + stretch.length
                if running:
                    now = walk(
                        job, laws, agents, tables, params, out, states, actions, kind, seed, agent, now, stop, memory.log,
                        stretch.time,
                    )  # fmt: skip
                    if now < stop:
                        report_failure(job, memory, which, agent, now + 1)
                        forget(params, base)
                        running = False
                if j < most:
                    at_once = Sums(memory.totals[turn % 3, which, 1 + j if at_cut else 0], sums.half, sums.first, _ZERO)
                    square, fits = add(job, params, base, own, slot, lane, at_once, limits, at_cut)
                    if at_cut:
                        memory.squares[j, thread] += square
                else:
                    # A logged table is put back also where a round is broken off.
                    ended = running if logged else at_end and stretch.synced
                    fits = end(job, params, base, own, slot, lane, sums, limits, ended, memory.log, stretch.length)
                every_fits = every_fits and fits
            if running and stretch.synced:
                carry(memory, which, agent, 1 - stretch.half, states, actions)
        return every_fits

    @cuda.jit(device=True)
    def block_sum(job, tree, slot, lane, value):
        """The sum over a seed's lanes of this block, in a fixed order; for lane 0."""
        at = cuda.threadIdx.x
        tree[at] = value
        cuda.syncthreads()
        total = 0.0
        if lane % 32 == 0 and slot < job.slots:
            for i in range(lane, min(lane + 32, job.lanes)):
                total += tree[slot * job.lanes + i]
        cuda.syncthreads()
        tree[at] = total
        cuda.syncthreads()
        total = 0.0
        if lane == 0 and slot < job.slots:
            for i in range(0, job.lanes, 32):
                total += tree[slot * job.lanes + i]
        cuda.syncthreads()
        return total

    @cuda.jit(device=True)
    def record_cuts(job, memory, place, stretch, turn, which, rank, slot, lane, alive, most, scale):
        """Averages at the cuts, and this block's share of what the sync errors are made of."""
        tree = cuda.shared.array(0, types.float64)[place.tree : place.tree + cuda.blockDim.x]
        thread, members = cuda.grid(1), job.blocks * job.lanes
        for j in range(most):
            apart, square = 0.0, 0.0
            if alive and j < stretch.inside:
                square = memory.squares[j, thread]
                for c in range(rank * job.lanes + lane, job.dim, members):
                    change = np.float64(np.int64(memory.totals[turn % 3, which, 1 + j, c])) * scale
                    memory.rows[stretch.row + j, which, c] = memory.average[stretch.half, which, c] + change
                    apart += change * change
            square, apart = block_sum(job, tree, slot, lane, square), block_sum(job, tree, slot, lane, apart)
            if alive and j < stretch.inside and lane == 0:
                memory.parts[stretch.row + j, which, rank, 0] = square
                memory.parts[stretch.row + j, which, rank, 1] = apart

    @cuda.jit(device=True)
    def renew_average(job, memory, base, stretch, turn, which, rank, lane, scale):
        """Apply the round's mean difference; the binary exponent of the largest entry that this thread saw.

        Blocks with copies of the average renew all of theirs, and the first one the original; others share it out.
        """
        old, totals, rows = memory.average[stretch.half, which], memory.totals[turn % 3, which, 0], memory.rows
        recorded = memory.cuts[which, stretch.row + stretch.inside] == stretch.time + stretch.length
        keeps = rank == 0 if shared_base else True
        c = np.uint64(lane if shared_base else rank * job.lanes + lane)
        stride, size = np.uint64(job.lanes if shared_base else job.blocks * job.lanes), np.uint64(job.dim)
        top = 0.0
        while c < size:
            at = four(c, stride, size)
            new = (
                old[at[0]] + np.float64(np.int64(totals[at[0]])) * scale,
                old[at[1]] + np.float64(np.int64(totals[at[1]])) * scale,
                old[at[2]] + np.float64(np.int64(totals[at[2]])) * scale,
                old[at[3]] + np.float64(np.int64(totals[at[3]])) * scale,
            )
            for i in range(4):
                base[at[i]] = new[i]
                if keeps:
                    memory.average[1 - stretch.half, which, at[i]] = new[i]
                    if recorded:
                        rows[stretch.row + stretch.inside, which, at[i]] = new[i]
                top = max(top, abs(new[i]))
            c += FOUR * stride
        return max(math.frexp(top)[1], 0)

    @cuda.jit(device=True)
    def clear_totals(job, memory, inside, turn, which, member):
        for j in range(inside + 1):
            for c in range(member, job.dim, job.blocks * job.lanes):
                memory.totals[turn % 3, which, j, c] = _ZERO

    @cuda.jit(device=True)
    def meet():
        if together:
            cuda.cg.this_grid().sync()
        else:
            cuda.syncthreads()

    def advance(job, given_laws, agents, given_tables, memory, place):
        """Rounds from `begin`, a synchronisation, to `stop`. One broken off by `stop` leaves the average as it was.

        In each turn, all meet when the round's differences are added up. Where each block has a copy of the average, that is
        the only time: what one turn leaves in `totals`, `overflow` and `again` is cleared in the next, for the next but one.
        """
        laws, tables = fix_laws(given_laws), fix_tables(given_tables)
        thread, rank = cuda.grid(1), cuda.blockIdx.x % job.blocks
        slot, lane = cuda.threadIdx.x // job.lanes, cuda.threadIdx.x % job.lanes
        which = cuda.blockIdx.x // job.blocks * job.slots + slot
        present = slot < job.slots and which < job.num_seeds
        which = which if present else 0
        member = rank * job.lanes + lane
        domain = 0 if together else cuda.blockIdx.x

        at = min(slot, job.slots - 1) * job.dim
        halves, base = cuda.shared.array(0, types.uint32), memory.rounded[which]
        first_half, end_half = np.uint64(place.sums + 2 * at), np.uint64(place.sums + 2 * (at + job.dim))
        if shared_base:
            base = cuda.shared.array(0, real)[place.base + at : place.base + at + job.dim]
            if present:
                copy(memory.average[job.half, which], base, np.uint64(lane), np.uint64(job.lanes))
        most = cuda.shared.array(0, types.int32)[place.most : place.most + 1]
        sizes = cuda.shared.array(0, types.int32)[place.size : place.size + 2 * job.slots]
        own = view_tables(job, place, memory)
        params, out = view_params(job, place, memory, base, own), view_out(job, place, memory)
        if logged:
            forget(params, base)

        time, half, row, turn, before, extra, size = job.begin, job.half, 0, 0, 0, 0, memory.size[job.half, which]
        while time < job.stop:
            length = min(job.sync_period, job.stop - time)
            synced = length == job.sync_period
            alive = present and np.int64(memory.failed[which] >> HALF) > time - job.begin
            inside = 0
            while alive and memory.cuts[which, row + inside] < time + length + (0 if synced else 1):
                memory.squares[inside, thread] = 0.0
                inside += 1
            stretch = Stretch(time, length, synced, row, inside, half)
            if cuda.threadIdx.x == 0:
                most[0] = 0
            if present:
                if shared_base and lane == 0:
                    sizes[(1 - half) * job.slots + slot] = 0
                if not shared_base and member == 0:
                    memory.size[1 - half, which] = 0
                if shared_sums:
                    c = first_half + np.uint64(lane)
                    while c < end_half:
                        halves[c] = 0
                        c += np.uint64(job.lanes)
            exponent = size + ROOM + extra
            limits = Limits(math.ldexp(1.0, int(job.fraction - exponent)), math.ldexp(1.0, int(exponent)))
            sums = Sums(memory.totals[turn % 3, which, 0], halves, first_half, np.uint64(job.dim if shared_sums else 0))
            cuda.syncthreads()
            if inside > most[0]:
                cuda.atomic.max(most, 0, np.int32(inside))
            cuda.syncthreads()
            if not run_agents(
                job, laws, agents, tables, memory, params, base, own, out, sums, limits, which, rank, slot, lane, alive,
                most[0], stretch, turn,
            ):  # fmt: skip
                memory.overflow[turn % 3, which] = 1
                memory.again[turn % 3, domain] = 1
            if shared_sums:
                cuda.syncthreads()
                if alive and synced:
                    flush(sums, np.uint64(lane), np.uint64(job.lanes))
            meet()

            repeat = memory.again[turn % 3, domain] != 0
            extra = extra + MORE_ROOM * memory.overflow[turn % 3, which] if repeat else 0
            scale = math.ldexp(1.0, int(exponent - job.fraction)) / job.num_agents
            if not repeat and most[0] > 0:
                record_cuts(job, memory, place, stretch, turn, which, rank, slot, lane, alive, most[0], scale)
            renewed = alive and synced and not repeat
            if renewed:
                top = renew_average(job, memory, base, stretch, turn, which, rank, lane, scale)
                if shared_base:
                    cuda.atomic.max(sizes, (1 - half) * job.slots + slot, np.int32(top))
                else:
                    cuda.atomic.max(memory.size, (1 - half, which), np.int32(top))
            if present:
                clear_totals(job, memory, before, turn + 2, which, member)
                if member == 0:
                    memory.overflow[(turn + 2) % 3, which] = 0
            if rank == 0 and cuda.threadIdx.x == 0:
                memory.again[(turn + 2) % 3, domain] = 0
            if not repeat:
                row += inside
                time += length
                if alive and synced and memory.cuts[which, row] == time:
                    row += 1
            before = inside
            turn += 1
            if shared_base:
                cuda.syncthreads()
            else:
                meet()
            if renewed:
                size = sizes[(1 - half) * job.slots + slot] if shared_base else memory.size[1 - half, which]
            if synced and not repeat:
                half = 1 - half

        meet()
        if present:
            clear_totals(job, memory, before, turn + 2, which, member)
            if member == 0:
                memory.size[half, which] = size

    def advance_alone(job, given_laws, agents, given_tables, memory, place):
        """One agent a seed: its steps go from `begin` to `stop` and stay."""
        laws, tables = fix_laws(given_laws), fix_tables(given_tables)
        which = cuda.grid(1)
        if which >= job.num_seeds or memory.failed[which] == _ZERO:
            return
        base, own = memory.rounded[which], view_tables(job, place, memory)
        params, out = view_params(job, place, memory, base, own), view_out(job, place, memory)
        states, actions = cuda.local.array(window_size, types.uint32), cuda.local.array(ahead, types.uint32)
        load(memory, which, 0, job.half, states, actions)
        forget(params, base)
        kind, seed = agents.kinds[0], memory.seeds[which]
        now, row = job.begin, 0
        while now < job.stop:
            stop = min(memory.cuts[which, row], job.stop)
            reached = walk(
                job, laws, agents, tables, params, out, states, actions, kind, seed, 0, now, stop, memory.log, job.begin
            )  # fmt: skip
            if reached < stop:
                report_failure(job, memory, which, 0, reached + 1)
                return
            now = stop
            if memory.cuts[which, row] == now:
                for c in range(job.dim):
                    memory.rows[row, which, c] = params[c]
                row += 1
        carry(memory, which, 0, job.half, states, actions)
        for c in range(job.dim):
            memory.average[job.half, which, c] = params[c]
            memory.rounded[which, c] = params[c]

    return compile_kernel(advance_alone if plan.num_agents == 1 else advance, layout.registers)
