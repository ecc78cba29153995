"""The parts of a round, compiled: paths for a tile of agents, record points, undoing, sums,
averages. `tile` and `advance` join them."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import numpy as np

from fegsam.compilation import compiled
from fegsam.engines.cpu.sampling import Draw, draw_windows, enter, extend
from fegsam.engines.cpu.team import barrier
from fegsam.engines.job import LARGEST
from fegsam.randomness import ONE

NEVER = np.int64(2**62)


@compiled
def all_finite(params):
    finite = True
    for j in range(params.shape[0]):
        finite &= abs(params[j]) <= LARGEST
    return finite


@compiled
def copy(target, source):
    for j in range(source.shape[0]):
        target[j] = source[j]


@compiled(forceinline=True)
def draw_piece(fed, arrays, tile, carried, seed, time, piece):
    """Paths for a piece of a round that starts at `time`; a later piece continues the one before
    it."""
    begin, first, count = piece.begin, piece.first, piece.num_agents
    draw = Draw(seed, first, count, time + begin, piece.end - begin)
    if begin == 0:
        enter(tile, arrays.chain, arrays.agents, first, count)
    if fed.iid:
        draw_windows(tile, arrays.chain, arrays.agents, draw, fed.window)
        return
    states, actions = tile.states, tile.actions
    for a in range(count):
        for j in range(fed.ahead):
            states[a, j] = carried.states[first + a, j] if begin == 0 else states[a, fed.span + j]
        for j in range(fed.ahead - 1):
            actions[a, j] = (
                carried.actions[first + a, j] if begin == 0 else actions[a, fed.span + j]
            )
    extend(tile, arrays.chain, draw, fed.ahead)


@compiled(forceinline=True)
def carry(fed, tile, carried, first, count, steps):
    """Keep the windows that stand `steps` after the tile's beginning."""
    if fed.iid:
        return
    for a in range(count):
        for j in range(fed.ahead):
            carried.states[first + a, j] = tile.states[a, steps + j]
        for j in range(fed.ahead - 1):
            carried.actions[first + a, j] = tile.actions[a, steps + j]


@compiled
def fill_windows(fed, chain, agents, tile, carried, seed, time):
    """The rest of every agent's window, behind its state at `time`."""
    for first in range(0, fed.num_agents, fed.tile):
        count = min(fed.tile, fed.num_agents - first)
        enter(tile, chain, agents, first, count)
        for a in range(count):
            tile.states[a, 0] = carried.states[first + a, 0]
        extend(tile, chain, Draw(seed, first, count, time, fed.ahead - 1), 1)
        carry(fed, tile, carried, first, count, 0)


@compiled
def point_logged(average, sums, log, begin, end, square, adding):
    """Account for the log entries since the last record point; return the agent's squared distance
    from the average."""
    for e in range(begin, end):
        c = log.cell[e]
        old, new = log.old[e], log.new[e]
        square += (new - old) * ((new - average[c]) + (old - average[c]))
        if adding:
            sums[c] += new - old
    return square


@compiled
def point_whole(average, params, sums):
    """The same from all parameters: their differences from the average go into the sums."""
    square = 0.0
    for c in range(params.shape[0]):
        change = params[c] - average[c]
        sums[c] += change
        square += change * change
    return square


@compiled(forceinline=True)
def undo_logged(params, log, begin, end):
    cells, olds = log.cell, log.old
    slot = np.uint64(end)
    for _ in range(end - begin):
        slot -= ONE
        params[cells[slot]] = olds[slot]


@compiled(forceinline=True)
def undo_whole(average, params, sums):
    for c in range(params.shape[0]):
        sums[c] += params[c] - average[c]
        params[c] = average[c]


@compiled
def reduce_logs(total, log, part, num_agents, cells):
    """Add the wave's logs to the totals of `cells`, in the order in which one thread adds them."""
    for agent in range(num_agents):
        base = agent * part.length
        begin = base
        for j in range(len(part.points)):
            end = base + part.points[j] - part.time
            for e in range(begin, end):
                c = log.cell[e]
                if cells.low <= c < cells.high:
                    total[j + 1, c] += log.new[e] - log.old[e]
            begin = end
        for e in range(base, base + part.length):
            c = log.cell[e]
            if cells.low <= c < cells.high:
                total[0, c] += log.new[e] - log.old[e]


@compiled
def reduce_blocks(total, sums, blocks, slots, cells):
    for b in range(blocks):
        for j in range(slots):
            for c in range(cells.low, cells.high):
                total[j, c] += sums[b, j, c]


@compiled
def record_points(fed, average, total, squares, recording, row, num_points):
    """Averages and sync errors at the record points inside a round, from the totals."""
    for j in range(num_points):
        apart = 0.0
        for c in range(average.shape[0]):
            if fed.logged and j > 0:
                total[j + 1, c] += total[j, c]
            change = total[j + 1, c] / fed.num_agents
            recording.rows[row + j, c] = average[c] + change
            apart += change * change
        recording.omegas[row + j] = max(squares[j] / fed.num_agents - apart, 0.0)


@compiled
def apply_whole(fed, average, params, total, cells, sync, team):
    """Average over all cells."""
    for c in range(cells.low, cells.high):
        average[c] += total[0, c] / fed.num_agents
        total[0, c] = 0.0
    barrier(sync, team)
    copy(params, average)


@compiled
def apply_logged(fed, average, params, total, logged, cells, sync, team):
    """Average over the `logged` cells alone; where a cell comes again, its total is zero."""
    for e in range(len(logged)):
        c = logged[e]
        if cells.low <= c < cells.high and total[0, c] != 0.0:
            average[c] += total[0, c] / fed.num_agents
            total[0, c] = 0.0
            params[c] = average[c]
    if team > 1:
        barrier(sync, team)
        for e in range(len(logged)):
            params[logged[e]] = average[logged[e]]
