"""The agents of a tile, one after the other, on a thread's scratch copy of the parameters."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.compilation import compiled
from fegsam.engines.cpu.kernels import copy, point_logged, point_whole, undo_logged, undo_whole
from fegsam.engines.cpu.memory import StepRange, Trace


class _Runner(NamedTuple):
    """The agent that a thread runs now."""

    agent: int
    path: Path
    at: Any
    """uint64: where its path begins in the tile's rows"""
    entry: int
    """where its log begins"""


@compiled(forceinline=True)
def agent_path(agents, tile, agent):
    kind = np.uint64(agents.kinds[agent])
    return Path(
        tile.flat_states,
        tile.flat_actions,
        kind,
        np.uint64(agents.mdps[kind]),
        np.uint64(agents.policies[kind]),
    )


@compiled(forceinline=True)
def note_failure(failed, time, agent):
    """Keep the earliest failure."""
    if time < failed[0]:
        failed[0] = time
        failed[1] = agent


def make_run_tile(steps, key):
    """The function that runs a tile's agents, for compiled `steps` of one rule."""

    @compiled(key=key, inline="always")
    def run_agent(fed, tables, shared, own, part, piece, block, runner):
        """The piece's steps of one agent, with its record points; whether all parameters stayed
        finite."""
        points, log = part.points, shared.log
        stride = np.uint64(fed.window + 1) if fed.iid else np.uint64(1)
        square, done, last_point = 0.0, piece.begin, 0
        for j in range(len(points) + 1):
            goal = min(piece.end, points[j] - part.time if j < len(points) else part.length)
            if goal > done:
                at = runner.at + np.uint64(done - piece.begin) * stride
                reach = StepRange(at, stride, goal - done)
                trace = Trace(block.write, log, runner.entry + done, block.sums[0])
                made = steps(own, runner.path, tables, fed.step_size, reach, trace)
                if made < goal - done:
                    note_failure(block.failed, part.time + done + made + 1, runner.agent)
                    return False
                done = goal
            if j < len(points) and points[j] - part.time == done and done > piece.begin:
                if fed.logged:
                    begin, end = runner.entry + last_point, runner.entry + done
                    square = point_logged(
                        shared.average, block.sums[j + 1], log, begin, end, square, block.write.sum
                    )
                else:
                    square = point_whole(shared.average, own.params, block.sums[j + 1])
                block.squares[j] += square
                last_point = done
        return True

    @compiled(key=key, forceinline=True)
    def run_tile(fed, arrays, shared, own, part, piece, block):
        """A piece of each agent in the tile; at the round's end, the agent's difference from the
        average goes into the sums and the scratch copy is restored."""
        average, params = shared.average, own.params
        pitch = own.tile.states.shape[1]
        for a in range(piece.num_agents):
            agent, entry = piece.first + a, piece.entry + a * piece.apart
            path = agent_path(arrays.agents, own.tile, agent)
            runner = _Runner(agent, path, np.uint64(a * pitch), entry)
            if not run_agent(fed, arrays.tables, shared, own, part, piece, block, runner):
                copy(params, average)
            elif piece.end == part.length and fed.num_agents > 1:
                if fed.logged:
                    undo_logged(params, shared.log, entry, entry + part.length)
                else:
                    undo_whole(average, params, block.sums[0])

    return run_tile
