"""One agent by itself, compiled: its next steps on given parameters, from where its path stands.

The `cpu` engine runs many agents in lockstep; this is the same rule, the same write and the same
random numbers for an agent that lives on a machine of its own.
"""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fegsam.compilation import compiled, renewed, rule_key
from fegsam.engines.cpu.memory import StepLog, StepRange, Trace, Write
from fegsam.engines.cpu.sampling import Draw, Tile, draw_windows, enter, extend, first_states
from fegsam.engines.cpu.steps import make_steps
from fegsam.engines.cpu.tile import agent_path


class LocalAgent(NamedTuple):
    """Which agent it is, and how it samples and steps."""

    seed: np.uint64
    agent: int
    window: int
    """transitions in a step's window"""
    iid: bool
    step_size: np.float64


class LocalMemory(NamedTuple):
    """What its steps use between two calls, and within one."""

    tile: Tile
    states: np.ndarray
    """uint32 (ahead): the window at the agent's time"""
    actions: np.ndarray
    """uint32 (ahead - 1)"""
    log: StepLog
    """empty: nothing is undone"""


class _LocalScratch(NamedTuple):
    params: np.ndarray
    out: np.ndarray
    """(d): what a dense rule fills"""


def make_local_steps(form, rule, key):
    """The loop for one rule; `key` identifies the rule (see `compilation`)."""
    steps = make_steps(form, rule, key)

    @compiled(key=key)
    def local_steps(problem, local, memory, time, count, params, out):
        """Steps time..time+count-1 on `params`; the agent's window moves on with them.

        After a step that left the parameters non-finite no further step is made, but the path still
        goes to its end.
        """
        tile, states, agent = memory.tile, memory.states, local.agent
        path = agent_path(problem.agents, tile, agent)
        ahead, per_step = len(states), local.window + 1 if local.iid else 1
        span = (tile.states.shape[1] - ahead - 1) // per_step
        scratch = _LocalScratch(params, out)
        trace = Trace(Write(False, False, False), memory.log, 0, out)
        finite, done = True, 0
        enter(tile, problem.chain, problem.agents, agent, 1)
        while done < count:
            length = min(span, count - done)
            draw = Draw(local.seed, agent, 1, time + done, length)
            if local.iid:
                draw_windows(tile, problem.chain, problem.agents, draw, local.window)
            else:
                put_window(tile, states, memory.actions)
                extend(tile, problem.chain, draw, ahead)
            if finite:
                reach = StepRange(np.uint64(0), np.uint64(per_step), length)
                finite = (
                    steps(scratch, path, problem.tables, local.step_size, reach, trace) == length
                )
            if not local.iid:
                take_window(tile, length, states, memory.actions)
            done += length

    return local_steps


@compiled(forceinline=True)
def put_window(tile, states, actions):
    """Let the first row of the tile begin with a window."""
    for j in range(len(states)):
        tile.states[0, j] = states[j]
    for j in range(len(states) - 1):
        tile.actions[0, j] = actions[j]


@compiled(forceinline=True)
def take_window(tile, at, states, actions):
    """The window that begins at place `at` of the tile's first row."""
    for j in range(len(states)):
        states[j] = tile.states[0, at + j]
    for j in range(len(states) - 1):
        actions[j] = tile.actions[0, at + j]


@compiled
def first_window(chain, agents, local, memory):
    """The window at time 0: as many states as `memory.states` holds, and the actions between
    them."""
    tile, states = memory.tile, memory.states
    first_states(chain, local.seed, local.agent, 1, states)
    enter(tile, chain, agents, local.agent, 1)
    tile.states[0, 0] = states[0]
    extend(tile, chain, Draw(local.seed, local.agent, 1, 0, len(states) - 1), 1)
    take_window(tile, 0, states, memory.actions)


_local_steps_of_rule: dict[Any, Any] = {}


def compiled_local_steps(form: str, rule: Any) -> Any:
    """The compiled loop for a rule; kept per process, since a rule may be compiled only once."""
    key = rule_key(rule)
    slot = (form, key if key is not None else rule)
    if slot not in _local_steps_of_rule:
        _local_steps_of_rule[slot] = make_local_steps(form, renewed(rule), key)
    return _local_steps_of_rule[slot]
