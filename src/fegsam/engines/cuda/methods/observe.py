"""Averages inside a round: its first steps again, with all parameters looked at."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np
from numba import cuda

from fegsam.engines.cuda.agents import identify, report_failure
from fegsam.engines.cuda.memory import StepSpan
from fegsam.engines.cuda.methods.agents import (
    HALF,
    make_clock,
    make_local_length,
    make_takes_part,
)
from fegsam.engines.cuda.methods.cells import make_cells
from fegsam.engines.cuda.methods.close import (
    make_add_tail,
    make_present_weight,
    make_take_sums,
)
from fegsam.engines.cuda.methods.exact import add, take_value
from fegsam.engines.cuda.methods.report import make_agent_round
from fegsam.engines.cuda.methods.steps import make_method_step
from fegsam.engines.cuda.methods.views import make_view_agent
from fegsam.engines.cuda.walk import make_walk


def make_look_at(spec, features, rule, windows):
    """The function that runs a thread's agents and adds up their changes at the record points."""
    cells = make_cells(spec)
    walk = make_walk(spec, make_method_step(features, rule, cells))
    begin, leave, _, discard = make_agent_round(spec, features, cells)
    view_agent = make_view_agent(spec, features)
    takes_part, local_length = make_takes_part(features), make_local_length(features)
    clock_of, add_changes = make_clock(features), _make_add_changes(features, cells)
    load = windows.load

    @cuda.jit(device=True)
    def look_at(launch, arrays, own, course, memory, place, thread, scratch):
        window, seed = scratch.window, thread.seed_index
        for j in range(launch.points):
            memory.squares[j, thread.at] = 0.0
        for agent in range(thread.member, launch.num_agents, launch.blocks * launch.lanes):
            if not takes_part(launch, memory, seed, agent, 0):
                continue
            identity = identify(arrays.agents, memory.seeds[seed], agent)
            length, clock = (
                min(local_length(launch, own, agent), launch.steps),
                clock_of(launch, memory, seed, agent, 0),
            )
            weight = own.weights[agent]
            view = view_agent(
                launch, place, memory, course, thread, scratch, identity.kind, weight, 0
            )
            load(memory, seed, agent, HALF, window)
            begin(launch, memory, view, seed, agent)
            made, finite = np.int64(0), True
            for j in range(launch.points):
                goal = min(course.points[j], length)
                if finite and goal > made:
                    span = StepSpan(clock + made, clock + goal, clock, 0)
                    reached = walk(launch, arrays, memory, view, window, identity, span) - clock
                    finite, made = reached == goal, reached
                    if not finite:
                        report_failure(launch, memory, seed, agent, launch.begin + made + 1)
                if finite:
                    square = add_changes(launch, memory, view, seed, j, course.passed[made])
                    memory.squares[j, thread.at] += weight * square
            leave(launch, memory, view, seed, agent)
            discard(launch, view, made if finite else made + 1)

    return look_at


def _make_add_changes(features, cells):
    """The function that adds an agent's changes of all cells; it returns the sum of their
    squares."""
    cell, corrected, change_of = features.form == "cell", features.variates != "", cells.change

    @cuda.jit(device=True)
    def add_changes(launch, memory, view, seed, point, passed):
        square, pitch = 0.0, np.uint64(launch.dim)
        first = np.uint64((seed * memory.squares.shape[0] + point) * launch.digits) * pitch
        for c in range(launch.dim):
            if cell:
                change = change_of(view, c)
                if corrected:
                    change += passed * view.correction[c]
            else:
                change = np.float64(view.params[c]) - np.float64(view.base[c])
            add(memory.seen, first + np.uint64(c), pitch, view.weight * change, 0)
            square += change * change
        return square

    return add_changes


def make_settle(features):
    """The function that turns the sums at record points into mean changes, and adds the tail."""
    take_sums, add_tail = make_take_sums(features, False), make_add_tail(features)
    present_weight = make_present_weight(features)

    @cuda.jit(device=True)
    def settle(launch, own, course, memory, thread):
        seed, pitch = thread.seed_index, np.uint64(launch.dim)
        weight = present_weight(own, memory, seed, 0)
        for c in range(thread.member, launch.dim, launch.blocks * launch.lanes):
            for j in range(launch.points):
                first = (seed * memory.squares.shape[0] + j) * launch.digits * launch.dim
                total = take_value(memory.seen, np.uint64(first + c), pitch, launch.digits)
                memory.rows[j, seed, c] = total / weight if weight > 0.0 else 0.0
            sums = take_sums(launch, own, course, memory, seed, 0, weight, c)
            add_tail(course, launch, memory, seed, 0, weight, sums, c)

    return settle
