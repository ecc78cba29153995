"""The parts of a round, compiled: paths for a tile of agents, cuts, undoing, sums, averages.
`advance` joins them."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import numpy as np

from fegsam.compilation import compiled
from fegsam.engines.cpu.sampling import draw_windows, enter, extend
from fegsam.engines.cpu.team import meet
from fegsam.engines.job import LARGEST
from fegsam.engines.randomness import ONE

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
def draw_piece(
    fed, tile, chain, agents, seed, carried_states, carried_actions, first, count, time, begin, end
):
    """Paths for steps begin..end-1 of a round that starts at `time`; a later piece goes on from the
    one before."""
    if begin == 0:
        enter(tile, chain, agents, first, count)
    if fed.iid:
        draw_windows(tile, chain, agents, seed, first, count, time + begin, end - begin, fed.window)
        return
    states, actions = tile.states, tile.actions
    for a in range(count):
        for j in range(fed.ahead):
            states[a, j] = carried_states[first + a, j] if begin == 0 else states[a, fed.span + j]
        for j in range(fed.ahead - 1):
            actions[a, j] = (
                carried_actions[first + a, j] if begin == 0 else actions[a, fed.span + j]
            )
    extend(tile, chain, seed, first, count, time + begin, end - begin, fed.ahead)


@compiled(forceinline=True)
def carry(fed, tile, carried_states, carried_actions, first, count, steps):
    """Keep the windows that stand `steps` after the tile's beginning."""
    if fed.iid:
        return
    for a in range(count):
        for j in range(fed.ahead):
            carried_states[first + a, j] = tile.states[a, steps + j]
        for j in range(fed.ahead - 1):
            carried_actions[first + a, j] = tile.actions[a, steps + j]


@compiled
def cut_logged(average, sums, log, begin, end, square, adding):
    """Account for the log entries since the cut before; return the agent's squared distance from
    the average."""
    for e in range(begin, end):
        c = log.cell[e]
        old, new = log.old[e], log.new[e]
        square += (new - old) * ((new - average[c]) + (old - average[c]))
        if adding:
            sums[c] += new - old
    return square


@compiled
def cut_whole(average, params, sums):
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
def reduce_logs(total, log, cuts, stretch, num_agents, low, high):
    """Add the wave's logs to the totals of cells low..high-1, in the order in which one thread adds
    them."""
    for agent in range(num_agents):
        base = agent * stretch.length
        begin = base
        for j in range(stretch.num_cuts):
            end = base + cuts[j] - stretch.time
            for e in range(begin, end):
                c = log.cell[e]
                if low <= c < high:
                    total[j + 1, c] += log.new[e] - log.old[e]
            begin = end
        for e in range(base, base + stretch.length):
            c = log.cell[e]
            if low <= c < high:
                total[0, c] += log.new[e] - log.old[e]


@compiled
def reduce_blocks(total, sums, blocks, slots, low, high):
    for b in range(blocks):
        for j in range(slots):
            for c in range(low, high):
                total[j, c] += sums[b, j, c]


@compiled
def record_cuts(fed, average, total, squares, rows, omegas, row, num_cuts):
    """Averages and sync errors at the cuts, from the totals."""
    for j in range(num_cuts):
        apart = 0.0
        for c in range(average.shape[0]):
            if fed.logged and j > 0:
                total[j + 1, c] += total[j, c]
            change = total[j + 1, c] / fed.num_agents
            rows[row + j, c] = average[c] + change
            apart += change * change
        omegas[row + j] = max(squares[j] / fed.num_agents - apart, 0.0)


@compiled
def apply_whole(fed, average, params, total, sync, team, low, high):
    for c in range(low, high):
        average[c] += total[0, c] / fed.num_agents
        total[0, c] = 0.0
    meet(sync, team)
    copy(params, average)


@compiled
def apply_logged(fed, average, params, total, cells, entries, sync, team, low, high):
    """Average over logged cells alone; a cell met again has nothing left to add."""
    for e in range(entries):
        c = cells[e]
        if low <= c < high and total[0, c] != 0.0:
            average[c] += total[0, c] / fed.num_agents
            total[0, c] = 0.0
            params[c] = average[c]
    if team > 1:
        meet(sync, team)
        for e in range(entries):
            params[cells[e]] = average[cells[e]]
