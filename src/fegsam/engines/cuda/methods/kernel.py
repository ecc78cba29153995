"""The kernels of a method: rounds of local steps, and a round's first steps for its averages.

One launch runs many rounds. After the local steps of a round, and after the server's step, all
blocks that share a seed wait for each other. Between two synchronisations the agents do not
communicate, so a thread needs memory only for the agent that it runs now (see `engines.cuda`'s
layouts): changes of a table, a hash table of changed cells, or all parameters.
"""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np
from numba import cuda, types

from fegsam.engines.cuda.barrier import make_last_barrier
from fegsam.engines.cuda.instructions import inlined
from fegsam.engines.cuda.memory import NOT_FAILED
from fegsam.engines.cuda.methods.agents import make_run_agents, make_run_first
from fegsam.engines.cuda.methods.close import make_close, make_close_first
from fegsam.engines.cuda.methods.memory import MethodThread, Scratch
from fegsam.engines.cuda.methods.observe import make_look_at, make_settle
from fegsam.engines.cuda.methods.views import make_clear
from fegsam.engines.cuda.params import EMPTY


# Only this module asks for a thread's position and for memory: in Numba's simulator, other modules
# cannot do so at any time.
@inlined
def locate(launch):
    """Which agents this thread runs."""
    seed = cuda.blockIdx.x // launch.blocks
    member = cuda.blockIdx.x % launch.blocks * launch.lanes + cuda.threadIdx.x
    return MethodThread(
        seed_index=min(seed, launch.num_seeds - 1),
        member=member,
        present=seed < launch.num_seeds,
        at=np.uint64(cuda.grid(1)),
        threads=np.uint64(cuda.gridsize(1)),
        lane=np.uint64(cuda.threadIdx.x),
        lanes=np.uint64(cuda.blockDim.x),
    )


def make_scratch(spec, windows):
    """The function that makes a thread's own memory."""
    real, make_window = spec.real, windows.make

    @inlined
    def scratch_of():
        cell, value = cuda.local.array(1, types.uint32), cuda.local.array(1, real)
        reals, keys = cuda.shared.array(0, real), cuda.shared.array(0, types.uint32)
        cell[0] = EMPTY
        return Scratch(make_window(), (cell, value), reals, keys)

    return scratch_of


def make_first_steps(spec, features, rule, windows):
    """The function that prepares corrections by the round's first steps, where there are such."""
    wanted = features.variates != "" and features.first_step
    run_first, close_first = (
        make_run_first(spec, features, rule, windows),
        make_close_first(features),
    )
    barrier = make_last_barrier(spec.together)

    # More than 8 arguments: only a GPU can time what a group would cost here.
    @cuda.jit(device=True)
    def first_steps(launch, arrays, own, course, memory, place, thread, scratch, r, alive):
        if wanted:
            if alive:
                run_first(launch, arrays, own, course, memory, place, thread, scratch, r)
            barrier()
            if alive:
                close_first(launch, own, memory, thread, r)
            barrier()

    return first_steps


def make_advance(spec, features, rule, fix_problem, windows):
    """The kernel that runs whole rounds."""
    first_steps = make_first_steps(spec, features, rule, windows)
    run_agents, close = make_run_agents(spec, features, rule, windows), make_close(features)
    barrier, scratch_of = make_last_barrier(spec.together), make_scratch(spec, windows)
    clear = make_clear(spec)

    # More than 8 arguments: only a GPU can time what a group would cost here.
    def advance(launch, constants, given_chain, agents, given_tables, own, course, memory, place):
        arrays = fix_problem(given_chain, agents, given_tables)
        thread, scratch = locate(launch), scratch_of()
        clear(launch, place, memory, thread, scratch)
        seed = thread.seed_index
        alive = thread.present and memory.failed[seed] == NOT_FAILED
        for r in range(launch.rounds):
            first_steps(launch, arrays, own, course, memory, place, thread, scratch, r, alive)
            if alive:
                run_agents(
                    launch, constants, arrays, own, course, memory, place, thread, scratch, r
                )
            barrier()
            # Agents fail before this barrier and the server after it, so that all threads of a
            # seed see the same.
            alive = alive and memory.failed[seed] == NOT_FAILED
            if alive:
                close(launch, constants, own, course, memory, thread, r)
            barrier()
            alive = alive and memory.gone[seed] == NOT_FAILED

    return advance


def make_observe(spec, features, rule, fix_problem, windows):
    """The kernel that makes a round's first steps again and records averages inside it.

    It changes nothing that the round depends on.
    """
    first_steps = make_first_steps(spec, features, rule, windows)
    look_at, settle = make_look_at(spec, features, rule, windows), make_settle(features)
    barrier, scratch_of = make_last_barrier(spec.together), make_scratch(spec, windows)
    clear = make_clear(spec)

    # More than 8 arguments: only a GPU can time what a group would cost here.
    def observe(launch, constants, given_chain, agents, given_tables, own, course, memory, place):
        arrays = fix_problem(given_chain, agents, given_tables)
        thread, scratch = locate(launch), scratch_of()
        clear(launch, place, memory, thread, scratch)
        alive = thread.present and memory.failed[thread.seed_index] == NOT_FAILED
        first_steps(launch, arrays, own, course, memory, place, thread, scratch, 0, alive)
        if alive:
            look_at(launch, arrays, own, course, memory, place, thread, scratch)
        barrier()
        if alive:
            settle(launch, own, course, memory, thread)

    return observe
