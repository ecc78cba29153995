"""A round of one thread's agents, one after the other: steps, record points, differences."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import cuda, types

from fegsam.engines.cuda.average import add_square
from fegsam.engines.cuda.instructions import inlined
from fegsam.engines.cuda.layout import ROUNDS_AHEAD
from fegsam.engines.cuda.memory import Identity, StepSpan, Window
from fegsam.engines.cuda.sums import sums_of
from fegsam.randomness import HALF


class WindowMemory(NamedTuple):
    """Device functions that move an agent's window between local and global memory."""

    make: Any
    """make(): a window in local memory"""
    load: Any
    """load(memory, seed_index, agent, half, window)"""
    store: Any
    """store(memory, seed_index, agent, half, window)"""


@cuda.jit(device=True)
def identify(agents, seed, agent):
    kind = agents.kinds[agent]
    return Identity(seed, agent, kind, agents.mdps[kind], agents.policies[kind])


@cuda.jit(device=True)
def report_failure(launch, memory, seed_index, agent, time):
    """Keep the earliest failure of a seed."""
    step = np.uint64(time - launch.begin)
    cuda.atomic.min(memory.failed, seed_index, (step << HALF) | np.uint64(agent))


def make_window_memory(spec):
    iid, ahead, size = spec.iid, spec.ahead, spec.ahead + 1

    def make():
        return Window(cuda.local.array(size, types.uint32), cuda.local.array(ahead, types.uint32))

    def load(memory, seed_index, agent, half, window):
        if not iid:
            for j in range(ahead):
                window.states[j] = memory.states[half, seed_index, j, agent]
            for j in range(ahead - 1):
                window.actions[j] = memory.actions[half, seed_index, j, agent]

    def store(memory, seed_index, agent, half, window):
        if not iid:
            for j in range(ahead):
                memory.states[half, seed_index, j, agent] = window.states[j]
            for j in range(ahead - 1):
                memory.actions[half, seed_index, j, agent] = window.actions[j]

    return WindowMemory(inlined(make), cuda.jit(device=True)(load), cuda.jit(device=True)(store))


@inlined
def next_stop(memory, seed_index, attempt, j, now):
    """Where the next steps end: at record point `j`, at the round's end, or here."""
    stop = now
    if attempt.alive and j < attempt.points:
        stop = memory.points[seed_index, attempt.row + j]
    elif attempt.alive and j == attempt.most_points:
        stop = attempt.time + attempt.length
    return stop


def make_run_agents(spec, walk, settle, windows):
    """The function that runs an attempt at a round for all agents of a thread."""
    producers, logged = spec.where.producers, spec.where.logged
    begin, forget, add, end = settle.begin, settle.forget, settle.add, settle.end
    make_window, load, store = windows.make, windows.load, windows.store

    @cuda.jit(device=True)
    def run_agents(launch, arrays, memory, view, sums, thread, attempt):
        """Whether all differences fit, and whether all parameters stayed finite.

        All threads of a block call it together; one without an agent only takes part in barriers.
        """
        window = view.window
        if not producers:
            window = make_window()
        seed, most = thread.seed_index, attempt.most_points
        ring_row = attempt.rounds % ROUNDS_AHEAD * launch.sync_period
        first, every_fits, every_finite = thread.rank * launch.lanes, True, True
        while first < launch.num_agents:
            agent = first + thread.lane
            first += launch.blocks * launch.lanes
            running = attempt.alive and agent < launch.num_agents
            agent = agent if running else 0
            if running and attempt.reload:
                load(memory, seed, agent, attempt.half, window)
            begin(launch, view, thread)
            identity, now = thread.identity, attempt.time
            if not producers:
                identity = identify(arrays.agents, memory.seeds[seed], agent)
            for j in range(most + 1):
                at_point = attempt.alive and j < attempt.points
                at_end = attempt.alive and j == most
                stop = next_stop(memory, seed, attempt, j, now)
                if running:
                    span = StepSpan(now, stop, attempt.time, ring_row)
                    now = walk(launch, arrays, memory, view, window, identity, span)
                    if now < stop:
                        report_failure(launch, memory, seed, agent, now + 1)
                        forget(view)
                        running, every_finite = False, False
                if j < most:
                    totals = memory.totals[attempt.buffer, seed, 1 + j if at_point else 0]
                    square, fits = add(launch, view, thread, sums_of(sums, totals), at_point)
                    if at_point:
                        add_square(memory, j, square)
                else:
                    # Logged changes are reset also where the launch ends inside the round.
                    ended = running if logged else at_end and attempt.synced
                    fits = end(launch, view, thread, sums, ended, attempt.length)
                every_fits = every_fits and fits
            if running and attempt.synced:
                store(memory, seed, agent, 1 - attempt.half, window)
            # With producers, every agent has a thread.
            if producers:
                break
        return every_fits, every_finite

    return run_agents
