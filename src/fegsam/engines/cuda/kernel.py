"""The kernels of the `cuda` engine: one thread an agent, rounds of K local steps and an average,
for any rule.

Between two synchronisations the agents do not meet, and after one they all hold the same
parameters. So a thread needs memory of its own for the agent that it runs now, and not for all
agents: it starts from the average, and at the round's end adds its agent's difference from it to a
sum. Three layouts (see `cuda_layout`):

shared   an agent's parameters in shared memory, entry j of thread t beside entry j of thread t + 1:
no bank conflicts. Where
         a round writes few of them, they are kept as changes of the average, and a log says which
         to put back.
overlay  a small hash table of the cells that the agent has written, over the average that all read.
table    an agent's parameters in global memory.

Paths do not hang on parameters. Where half of the GPU is enough for all agents, each block has a
scout on the other half: a block that draws the paths of its agents some rounds before they are
wanted.

Sums are whole numbers: a difference is rounded to a multiple of 2^-f and added as a 64-bit integer.
Such sums do not depend on the order of their terms, so threads may add at any time and a run
repeats bit for bit. f leaves room for N differences below a limit that goes with the size of the
average; where a difference is beyond it, the round is run again with more room.
"""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import math

import numpy as np
from numba import cuda, types
from numba.core import config

from fegsam.engines.cuda.average import clear_totals, make_renew, record_cuts
from fegsam.engines.cuda.instructions import add_relaxed, anew
from fegsam.engines.cuda.layout import AHEAD
from fegsam.engines.cuda.meet import await_count, make_meet
from fegsam.engines.cuda.memory import Limits, Log, Stretch, Who
from fegsam.engines.cuda.params import make_views
from fegsam.engines.cuda.paths import is_narrow, make_follow, make_scout, make_walk, pack
from fegsam.engines.cuda.rule import make_fix, make_step
from fegsam.engines.cuda.sums import Sums, copy, flush, make_settle
from fegsam.engines.randomness import HALF, ONE

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
    """The loop over rounds for several agents, or for one, which never averages; `copied`: see
    `cuda_rule.copies`."""
    form, window, where, together = plan.form, plan.window, layout.where, layout.together
    ahead = max(window, 1)
    window_size = ahead + 1
    fix_laws = make_fix(pack(plan.chain), "laws", real, copied)
    fix_tables = make_fix(plan.tables, "tables", real, copied)
    shared_sums, shared_base, near_log = where.sums, where.base, where.near_log
    logged, scouted = where.logged, where.scouted
    step, narrow = make_step(form, rule, layout.name, logged), is_narrow(plan.chain)
    walk = make_follow(step, window) if scouted else make_walk(step, window, iid, narrow)
    scout, meet = make_scout(window, narrow), make_meet(together, scouted)
    add, forget, begin, end = make_settle(layout.name, where)
    renew_average = make_renew(shared_base)
    view_tables, view_params, view_out = make_views(
        layout.name, form, real, where, np.uint64(where.entries)
    )

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
    def identify(agents, seed, agent):
        kind = agents.kinds[agent]
        return Who(seed, agent, kind, agents.mdps[kind], agents.policies[kind])

    @cuda.jit(device=True)
    def report_failure(job, memory, which, agent, time):
        cuda.atomic.min(
            memory.failed, which, (np.uint64(time - job.begin) << HALF) | np.uint64(agent)
        )

    @cuda.jit(device=True)
    def run_agents(
        job,
        laws,
        agents,
        tables,
        memory,
        params,
        base,
        own,
        out,
        log,
        sums,
        limits,
        which,
        rank,
        slot,
        lane,
        alive,
        most,
        stretch,
        third,
        known,
        states,
        actions,
        reload,
    ):
        """A round of this thread's agents, one after the other: steps, cuts, differences.

        Whether all differences fit, and whether all parameters stayed finite. All threads of a
        block go through it together; one without an agent only takes part.
        """
        if not scouted:
            states, actions = (
                cuda.local.array(window_size, types.uint32),
                cuda.local.array(ahead, types.uint32),
            )
        thread, first = cuda.grid(1), rank * job.lanes
        every_fits, every_finite = True, True
        while first < job.num_agents:
            agent = first + lane
            first += job.blocks * job.lanes
            running = alive and agent < job.num_agents
            agent = agent if running else 0
            if running and reload:
                load(memory, which, agent, stretch.half, states, actions)
            begin(job, params, base, own, slot, lane)
            who, now = (
                known if scouted else identify(agents, memory.seeds[which], agent),
                stretch.time,
            )
            for j in range(most + 1):
                at_cut, at_end = alive and j < stretch.inside, alive and j == most
                stop = now
                if at_cut:
                    stop = memory.cuts[which, stretch.row + j]
                elif at_end:
                    stop = stretch.time + stretch.length
                if running:
                    now = walk(
                        job,
                        laws,
                        agents,
                        tables,
                        params,
                        out,
                        log,
                        states,
                        actions,
                        who,
                        now,
                        stop,
                        memory,
                        stretch.time,
                        stretch.trail,
                    )
                    if now < stop:
                        report_failure(job, memory, which, agent, now + 1)
                        forget(params, base)
                        running, every_finite = False, False
                if j < most:
                    at_once = Sums(
                        memory.totals[third, which, 1 + j if at_cut else 0],
                        sums.half,
                        sums.first,
                        sums.size,
                    )
                    square, fits = add(job, params, base, own, slot, lane, at_once, limits, at_cut)
                    if at_cut:
                        memory.squares[j, thread] += square
                else:
                    # A logged table is put back also where a round is broken off.
                    ended = running if logged else at_end and stretch.synced
                    fits = end(
                        job, params, base, own, slot, lane, sums, limits, ended, log, stretch.length
                    )
                every_fits = every_fits and fits
            if running and stretch.synced:
                carry(memory, which, agent, 1 - stretch.half, states, actions)
            # All agents have threads then.
            if scouted:
                break
        return every_fits, every_finite

    @cuda.jit(device=True)
    def before_that(third):
        """The place that the turn before has used, and the next but one will use."""
        return third - 1 if third > 0 else 2

    @cuda.jit(device=True)
    def part():
        """The last meeting of a launch, with the scouts. A kernel with it is launched only where
        all blocks run at once."""
        if together or scouted:
            cuda.cg.this_grid().sync()
        else:
            cuda.syncthreads()

    def advance(job, given_laws, agents, given_tables, memory, place):
        """Rounds from `begin`, a synchronisation, to `stop`. One broken off by `stop` leaves the
        average as it was.

        In each turn, all meet when the round's differences are added up. Where each block has a
        copy of the average, that is the only time: what one turn leaves in `totals`, `overflow`,
        `again` and `arrivals` is cleared in the next, for the next but one.
        """
        laws, tables = fix_laws(given_laws), fix_tables(given_tables)
        thread, block = cuda.grid(1), cuda.blockIdx.x % job.crew
        rank = block % job.blocks
        slot, lane = cuda.threadIdx.x // job.lanes, cuda.threadIdx.x % job.lanes
        which = block // job.blocks * job.slots + slot
        present = slot < job.slots and which < job.num_seeds
        which = which if present else 0
        member = rank * job.lanes + lane
        domain = 0 if together else block
        known = identify(agents, memory.seeds[which], member if member < job.num_agents else 0)
        if scouted:
            if cuda.blockIdx.x < job.crew:
                scout(job, laws, memory, known, which, present and member < job.num_agents, block)
                part()
                return
            if cuda.threadIdx.x == 0 and job.begin < job.stop:
                await_count(memory.drawn, block, ONE)

        at = min(slot, job.slots - 1) * job.dim
        halves, base = cuda.shared.array(0, types.uint32), memory.rounded[which]
        first_half, end_half = (
            np.uint64(place.sums + 2 * at),
            np.uint64(place.sums + 2 * (at + job.dim)),
        )
        if shared_base:
            base = cuda.shared.array(0, real)[place.base + at : place.base + at + job.dim]
            if present:
                copy(memory.average[job.half, which], base, np.uint64(lane), np.uint64(job.lanes))
        box = cuda.shared.array(0, types.int32)[place.box : place.box + 2]
        sizes = cuda.shared.array(0, types.int32)[place.size : place.size + 2 * job.slots]
        own = view_tables(job, place, memory)
        params, out = view_params(job, place, memory, base, own), view_out(job, place, memory)
        if logged:
            forget(params, base)
        if shared_sums:
            c = first_half + np.uint64(lane)
            while c < end_half:
                halves[c] = 0
                c += np.uint64(job.lanes)
        log = Log(memory.log, np.uint64(thread), np.uint64(cuda.gridsize(1)))
        if near_log:
            log = Log(
                cuda.shared.array(0, types.uint32),
                np.uint64(place.log + cuda.threadIdx.x),
                np.uint64(cuda.blockDim.x),
            )

        states, actions = (
            cuda.local.array(window_size, types.uint32),
            cuda.local.array(ahead, types.uint32),
        )
        time, half, row, before, extra, size = (
            job.begin,
            job.half,
            0,
            0,
            0,
            memory.size[job.half, which],
        )
        # Turns in the places that they use by turns: counted here, since a remainder takes longer
        # than a step.
        third, rounds, reload = 0, 0, True
        exponent, limits, scale = -1, Limits(0.0, 0.0), 0.0
        alive, upcoming = present and memory.failed[which] != _ZERO, memory.cuts[which, 0]
        while time < job.stop:
            which, rank, slot, lane, member = (
                anew(which),
                anew(rank),
                anew(slot),
                anew(lane),
                anew(member),
            )
            length = min(job.sync_period, job.stop - time)
            synced = length == job.sync_period
            inside = 0
            while alive and upcoming < time + length + (0 if synced else 1):
                memory.squares[inside, thread] = 0.0
                inside += 1
                upcoming = memory.cuts[which, row + inside]
            stretch = Stretch(
                time, length, synced, row, inside, half, rounds % AHEAD * job.sync_period
            )
            if present:
                if shared_base and lane == 0:
                    sizes[(1 - half) * job.slots + slot] = 0
                if not shared_base and member == 0:
                    memory.size[1 - half, which] = 0
            # Threads that are many have no registers to keep these from round to round.
            if not scouted or exponent != size + ROOM + extra:
                exponent = size + ROOM + extra
                limits = Limits(
                    math.ldexp(1.0, int(job.fraction - exponent)), math.ldexp(1.0, int(exponent))
                )
                scale = math.ldexp(job.share, int(exponent - job.fraction))
            sums = Sums(memory.totals[third, which, 0], halves, first_half, np.uint64(job.dim))
            most = 0
            if cuda.syncthreads_or(np.int32(inside)):
                if cuda.threadIdx.x == 0:
                    box[0] = 0
                cuda.syncthreads()
                cuda.atomic.max(box, 0, np.int32(inside))
                cuda.syncthreads()
                most = box[0]
            fits, finite = run_agents(
                job,
                laws,
                agents,
                tables,
                memory,
                params,
                base,
                own,
                out,
                log,
                sums,
                limits,
                which,
                rank,
                slot,
                lane,
                alive,
                most,
                stretch,
                third,
                known,
                states,
                actions,
                reload,
            )
            if not fits:
                memory.overflow[third, which] = 1
                memory.again[third, domain] = 1
            if shared_sums:
                cuda.syncthreads()
                if alive and synced:
                    flush(sums, np.uint64(lane), np.uint64(job.lanes))
            news = meet(
                job, memory, box, third, block, np.uint64(rounds + 2), not (fits and finite)
            )

            repeat = news and memory.again[third, domain] != 0
            extra = extra + MORE_ROOM * memory.overflow[third, which] if repeat else 0
            if not repeat and most > 0:
                record_cuts(
                    job, memory, place, stretch, third, which, rank, slot, lane, alive, most, scale
                )
            renewed = alive and synced and not repeat
            if renewed:
                top = renew_average(
                    job,
                    memory,
                    base,
                    stretch,
                    third,
                    which,
                    rank,
                    lane,
                    scale,
                    upcoming == time + length,
                )
                if shared_base:
                    cuda.atomic.max(sizes, (1 - half) * job.slots + slot, np.int32(top))
                else:
                    cuda.atomic.max(memory.size, (1 - half, which), np.int32(top))
            spare = before_that(third)
            if present:
                clear_totals(job, memory, before, spare, which, member)
                if member == 0:
                    memory.overflow[spare, which] = 0
            if rank == 0 and cuda.threadIdx.x == 0:
                memory.again[spare, domain] = 0
                if together and block == 0:
                    memory.arrivals[spare], memory.arrivals[3 + spare] = _ZERO, _ZERO
            # Relaxed: what was read of the trail has been used, and so has come, before all met.
            if scouted and not repeat and cuda.threadIdx.x == 0:
                add_relaxed(memory.taken, block, ONE)
            if not repeat:
                row += inside
                time += length
                rounds += 1
                if alive and synced and upcoming == time:
                    row += 1
            if inside > 0 or upcoming <= time:
                upcoming = memory.cuts[which, row]
            if shared_base:
                cuda.syncthreads()
            else:
                meet(job, memory, box, 3 + third, block, _ZERO, False)
            before, reload = inside, repeat or not scouted
            third = third + 1 if third < 2 else 0
            # Who fails meanwhile, in a later round, changes nothing here.
            if news:
                alive = present and np.int64(memory.failed[which] >> HALF) > time - job.begin
            if renewed:
                size = (
                    sizes[(1 - half) * job.slots + slot]
                    if shared_base
                    else memory.size[1 - half, which]
                )
            if synced and not repeat:
                half = 1 - half

        part()
        if cuda.threadIdx.x == 0:
            memory.drawn[block], memory.taken[block] = _ZERO, _ZERO
            if block == 0:
                for i in range(6):
                    memory.arrivals[i] = _ZERO
        if present:
            clear_totals(job, memory, before, before_that(third), which, member)
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
        states, actions = (
            cuda.local.array(window_size, types.uint32),
            cuda.local.array(ahead, types.uint32),
        )
        load(memory, which, 0, job.half, states, actions)
        forget(params, base)
        who, log = identify(agents, memory.seeds[which], 0), Log(memory.log, _ZERO, _ZERO)
        now, row = job.begin, 0
        while now < job.stop:
            stop = min(memory.cuts[which, row], job.stop)
            reached = walk(
                job,
                laws,
                agents,
                tables,
                params,
                out,
                log,
                states,
                actions,
                who,
                now,
                stop,
                memory,
                job.begin,
                0,
            )
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
