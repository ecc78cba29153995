"""The local steps of one thread's agents in a round, one agent after the other."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np
from numba import cuda

from fegsam.engines.cuda.agents import identify, report_failure
from fegsam.engines.cuda.memory import StepSpan
from fegsam.engines.cuda.methods.cells import make_cells
from fegsam.engines.cuda.methods.draw import key_of_agent
from fegsam.engines.cuda.methods.report import GpuReport, make_agent_round
from fegsam.engines.cuda.methods.steps import make_direction, make_method_step, make_no_step
from fegsam.engines.cuda.methods.views import make_view_agent
from fegsam.engines.cuda.walk import make_walk

HALF = np.int64(0)
"""Windows are kept once: no round is attempted twice."""


def make_takes_part(features):
    """The function that returns whether an agent takes part in round `r` of the launch."""
    partial = features.partial

    @cuda.jit(device=True)
    def takes_part(launch, memory, seed, agent, r):
        if not partial:
            return True
        key = key_of_agent(memory.seeds[seed], np.uint64(agent), np.uint64(launch.number + r))
        return key < memory.limits[seed, r]

    return takes_part


def make_local_length(features):
    """The function that returns the number of an agent's local steps in a round."""
    unequal = features.unequal

    @cuda.jit(device=True)
    def local_length(launch, own, agent):
        return min(own.lengths[agent], launch.length) if unequal else launch.length

    return local_length


def make_clock(features):
    """The function that returns the steps that an agent has made before round `r`."""
    own_clocks = features.own_clocks

    @cuda.jit(device=True)
    def clock_of(launch, memory, seed, agent, r):
        return memory.clocks[seed, agent] if own_clocks else launch.begin + r * launch.length

    return clock_of


def make_run_agents(spec, features, rule, windows):
    """The function that runs a round for all agents of a thread."""
    cells, partial, skips = make_cells(spec), features.partial, features.partial and not spec.iid
    walk = make_walk(spec, make_method_step(features, rule, cells))
    skip = make_walk(spec, make_no_step())
    begin, leave, report, discard = make_agent_round(spec, features, cells)
    view_agent = make_view_agent(spec, features)
    takes_part, local_length = make_takes_part(features), make_local_length(features)
    clock_of, own_clocks = make_clock(features), features.own_clocks
    _, load, store = windows

    # More than 8 arguments: only a GPU can time what a group would cost here.
    @cuda.jit(device=True)
    def run_agents(launch, constants, arrays, own, course, memory, place, thread, scratch, r):
        window, seed = scratch.window, thread.seed_index
        for agent in range(thread.member, launch.num_agents, launch.blocks * launch.lanes):
            present = takes_part(launch, memory, seed, agent, r)
            if partial and not (present or constants.go_on):
                continue
            identity = identify(arrays.agents, memory.seeds[seed], agent)
            length = local_length(launch, own, agent)
            clock, time = (
                clock_of(launch, memory, seed, agent, r),
                launch.begin + r * launch.length,
            )
            span = StepSpan(clock, clock + length, clock, 0)
            weight = own.weights[agent]
            view = view_agent(
                launch, place, memory, course, thread, scratch, identity.kind, weight, r
            )
            load(memory, seed, agent, HALF, window)
            if present:
                begin(launch, memory, view, seed, agent)
                made = walk(launch, arrays, memory, view, window, identity, span) - clock
                leave(launch, memory, view, seed, agent)
                if made < length:
                    report_failure(launch, memory, seed, agent, time + made + 1)
                    discard(launch, view, made + 1)
                else:
                    number, area = launch.number + r, course.areas[r]
                    ended = GpuReport(seed, agent, own.factors[agent], length, number, area)
                    report(launch, constants, memory, view, ended)
            elif skips:
                skip(launch, arrays, memory, view, window, identity, span)
            store(memory, seed, agent, HALF, window)
            if own_clocks:
                memory.clocks[seed, agent] = clock + length

    return run_agents


def make_run_first(spec, features, rule, windows):
    """The function that adds what the rule says at each agent's first window of a round."""
    walk, cells = make_walk(spec, make_direction(features, rule)), make_cells(spec)
    begin = make_agent_round(spec, features, cells).begin
    view_agent = make_view_agent(spec, features)
    takes_part, clock_of = make_takes_part(features), make_clock(features)
    load = windows.load

    # More than 8 arguments: only a GPU can time what a group would cost here.
    @cuda.jit(device=True)
    def run_first(launch, arrays, own, course, memory, place, thread, scratch, r):
        window, seed = scratch.window, thread.seed_index
        for agent in range(thread.member, launch.num_agents, launch.blocks * launch.lanes):
            if takes_part(launch, memory, seed, agent, r):
                identity = identify(arrays.agents, memory.seeds[seed], agent)
                clock, weight = clock_of(launch, memory, seed, agent, r), own.weights[agent]
                view = view_agent(
                    launch, place, memory, course, thread, scratch, identity.kind, weight, r
                )
                load(memory, seed, agent, HALF, window)
                begin(launch, memory, view, seed, agent)
                span = StepSpan(clock, clock + 1, clock, 0)
                walk(launch, arrays, memory, view, window, identity, span)

    return run_first
