"""The loop of the `cuda` engine for one agent, which never averages: one thread a seed."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np
from numba import cuda

from fegsam.engines.cuda.agents import identify, report_failure
from fegsam.engines.cuda.memory import AgentView, CellLog, StepSpan

_ZERO = np.uint64(0)


def make_alone(fix_problem, views, settle, windows, walk):
    """The kernel for one agent."""
    view_tables, view_params, view_out = views
    forget, make_window, load, store = settle.forget, windows.make, windows.load, windows.store

    def advance_alone(launch, given_chain, agents, given_tables, memory, place):
        """Steps go from `begin` to `stop` and stay."""
        problem = fix_problem(given_chain, agents, given_tables)
        seed = cuda.grid(1)
        if seed >= launch.num_seeds or memory.failed[seed] == _ZERO:
            return
        base, tables = memory.rounded[seed], view_tables(launch, place, memory)
        params = view_params(launch, place, memory, base, tables)
        out, log = view_out(launch, place, memory), CellLog(memory.log, _ZERO, _ZERO)
        view = AgentView(params, base, tables, out, log, make_window())
        load(memory, seed, 0, launch.half, view.window)
        forget(view)
        identity = identify(agents, memory.seeds[seed], 0)
        now, row = launch.begin, 0
        while now < launch.stop:
            stop = min(memory.points[seed, row], launch.stop)
            span = StepSpan(now, stop, launch.begin, 0)
            reached = walk(launch, problem, memory, view, view.window, identity, span)
            if reached < stop:
                report_failure(launch, memory, seed, 0, reached + 1)
                return
            now = stop
            if memory.points[seed, row] == now:
                for c in range(launch.dim):
                    memory.rows[row, seed, c] = params[c]
                row += 1
        store(memory, seed, 0, launch.half, view.window)
        for c in range(launch.dim):
            memory.average[launch.half, seed, c] = params[c]
            memory.rounded[seed, c] = params[c]

    return advance_alone
