"""The compiled loops of agents on a machine of their own: their paths, and their local steps."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.compilation import compiled, renewed, rule_key
from fegsam.engines.cpu.memory import LocalScratch, StepRange
from fegsam.engines.cpu.sampling import Draw, Tile, draw_windows, enter, extend
from fegsam.engines.cpu.steps import make_steps
from fegsam.engines.job import Agents, Chain


class Positions(NamedTuple):
    """Where the paths of some agents are."""

    numbers: np.ndarray
    """int64 (n): the agents"""
    times: np.ndarray
    """int64 (n): steps since the start"""
    states: np.ndarray
    """uint32 (n, ahead): the window of the next step, as far as it is known"""
    actions: np.ndarray
    """uint32 (n, ahead - 1): the actions between these states"""


class PathSource(NamedTuple):
    """What the paths of all agents are drawn from."""

    chain: Chain
    agents: Agents
    seed: np.uint64
    iid: bool
    window: int
    tile: Tile


class Todo(NamedTuple):
    """The steps of one call."""

    places: np.ndarray
    """int64 (m): the places of the agents in their `Positions`"""
    counts: np.ndarray
    """int64 (m): the steps of each"""
    params: np.ndarray
    """(m, d): where each starts, and then where it ends"""
    out: np.ndarray
    """(d): what a dense rule fills"""
    at_once: int
    """steps whose path is drawn ahead of the updates"""


@compiled
def read_path(positions, source, place, known, count):
    """Draw the windows of the next `count` steps of an agent into the tile, and move its window on.

    It has `known` states so far: all of a window, or the first one where a path begins.
    """
    tile, chain, ahead = source.tile, source.chain, positions.states.shape[1]
    agent = positions.numbers[place]
    draw = Draw(source.seed, agent, 1, positions.times[place], count)
    enter(tile, chain, source.agents, agent, 1)
    if source.iid:
        draw_windows(tile, chain, source.agents, draw, source.window)
        return
    for j in range(known):
        tile.flat_states[j] = positions.states[place, j]
    for j in range(known - 1):
        tile.flat_actions[j] = positions.actions[place, j]
    extend(tile, chain, draw, known)
    first = count + known - ahead
    for j in range(ahead):
        positions.states[place, j] = tile.flat_states[first + j]
    for j in range(ahead - 1):
        positions.actions[place, j] = tile.flat_actions[first + j]


@compiled(forceinline=True)
def _path_of(positions, source, place):
    kind = source.agents.kinds[positions.numbers[place]]
    return Path(
        source.tile.flat_states,
        source.tile.flat_actions,
        np.uint64(kind),
        np.uint64(source.agents.mdps[kind]),
        np.uint64(source.agents.policies[kind]),
    )


class _Loops(NamedTuple):
    """The compiled loops of one rule."""

    equal: Any
    """steps of one size"""
    varied: Any
    """steps of sizes of their own, each followed by a correction"""


def make_local_steps(form, rule, key):
    """The loops for one rule; `key` identifies the rule (see `compilation`).

    Parameters that are no longer finite stay as they are, but the path continues.
    """
    steps = make_steps(form, rule, key)

    @compiled(key=key)
    def local_steps(positions, source, tables, todo, step_size, trace):
        """The steps `todo`, all of one size."""
        stride = np.uint64(source.window + 1 if source.iid else 1)
        for row in range(todo.places.shape[0]):
            place, done, finite = todo.places[row], 0, True
            path = _path_of(positions, source, place)
            scratch = LocalScratch(todo.params[row], todo.out)
            while done < todo.counts[row]:
                count = min(todo.counts[row] - done, todo.at_once)
                read_path(positions, source, place, positions.states.shape[1], count)
                positions.times[place] += count
                if finite:
                    reach = StepRange(np.uint64(0), stride, count)
                    finite = steps(scratch, path, tables, step_size, reach, trace) == count
                done += count

    @compiled(key=key)
    def varied_steps(positions, source, tables, todo, step_sizes, corrections, trace):
        """The same with the `step_sizes` (steps), and `corrections` (m, d), or (m, 0) for none."""
        stride = np.uint64(source.window + 1 if source.iid else 1)
        for row in range(todo.places.shape[0]):
            place, done, finite = todo.places[row], 0, True
            path = _path_of(positions, source, place)
            scratch = LocalScratch(todo.params[row], todo.out)
            while done < todo.counts[row]:
                count = min(todo.counts[row] - done, todo.at_once)
                read_path(positions, source, place, positions.states.shape[1], count)
                positions.times[place] += count
                at = np.uint64(0)
                for k in range(count):
                    size, once = step_sizes[done + k], StepRange(at, stride, 1)
                    if finite:
                        finite = steps(scratch, path, tables, size, once, trace) == 1
                    if finite:
                        for j in range(corrections.shape[1]):
                            scratch.params[j] += size * corrections[row, j]
                    at += stride
                done += count

    return _Loops(local_steps, varied_steps)


_local_steps_of_rule: dict[Any, _Loops] = {}


def compiled_local_steps(form: str, rule: Any) -> _Loops:
    """The compiled loops for a rule; kept per process, since a rule may be compiled only once."""
    key = rule_key(rule)
    slot = (form, key if key is not None else rule)
    if slot not in _local_steps_of_rule:
        _local_steps_of_rule[slot] = make_local_steps(form, renewed(rule), key)
    return _local_steps_of_rule[slot]
