"""The kernels of the `cuda` engine: one thread an agent, rounds of K local steps and an average,
for any rule.

Between two synchronisations the agents do not communicate, and after one they all hold the same
parameters. So a thread needs memory only for the agent that it runs now, not for all its agents: it
starts from the average, and at the round's end adds its agent's difference from it to a sum. There
are three layouts (see `layout`):

shared   an agent's parameters in shared memory, entry j of thread t beside entry j of thread t + 1:
         no bank conflicts. Where a round writes few of them, the table holds changes of the
         average, and a log says which to reset.
overlay  a small hash table of the cells that the agent has written, over the average that all
         threads read.
table    an agent's parameters in global memory.

Paths do not depend on parameters. Where half of the GPU is enough for all agents, each block has a
producer on the other half: a block that draws the paths of its agents some rounds before they are
needed.

Sums are whole numbers: a difference is rounded to a multiple of 2^-f and added as a 64-bit integer.
Such sums do not depend on the order of their terms, so threads may add at any time and a run
repeats bit for bit. f leaves room for N differences below a limit that follows the size of the
average; where a difference exceeds it, the round is attempted again with more room.
"""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from numba import cuda
from numba.core import config

from fegsam.engines.cuda.agents import make_run_agents, make_window_memory
from fegsam.engines.cuda.alone import make_alone
from fegsam.engines.cuda.params import make_views
from fegsam.engines.cuda.paths import is_narrow
from fegsam.engines.cuda.rounds import make_rounds
from fegsam.engines.cuda.rule import make_fix_problem, make_step
from fegsam.engines.cuda.settle import make_settle
from fegsam.engines.cuda.specialization import Specialization
from fegsam.engines.cuda.walk import make_follow, make_walk


def compile_kernel(function, registers):
    """Compile for the GPU; Numba's simulator has no registers."""
    if config.ENABLE_CUDASIM:  # pyright: ignore[reportAttributeAccessIssue]
        return cuda.jit(function)
    return cuda.jit(function, max_registers=registers)


def make_advance(plan, rule, layout, real, iid, copied):
    """The kernel that runs several agents, or one, which never averages; `copied`: see
    `rule.copies`."""
    spec = Specialization(
        form=plan.form,
        layout=layout.name,
        where=layout.where,
        together=layout.together,
        real=real,
        window=plan.window,
        iid=iid,
        narrow=is_narrow(plan.chain),
    )
    fix_problem = make_fix_problem(plan, real, copied)
    views, settle, windows = make_views(spec), make_settle(spec), make_window_memory(spec)
    step = make_step(spec, rule)
    walk = make_follow(spec, step) if spec.where.producers else make_walk(spec, step)
    if plan.num_agents == 1:
        kernel = make_alone(fix_problem, views, settle, windows, walk)
    else:
        run_agents = make_run_agents(spec, walk, settle, windows)
        kernel = make_rounds(spec, fix_problem, views, settle, windows, run_agents)
    return compile_kernel(kernel, layout.registers)
