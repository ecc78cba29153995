"""The compiled loop of the `cpu` engine: rounds of K local steps and an average, for any rule.

Between two synchronisations the agents do not communicate, and after one they all hold the same
parameters. So no agent has a copy of its own: each runs its steps on a scratch copy, its difference
from the average goes into a sum, and the scratch copy is restored. There are two ways to do that:

logged   (cell rules whose rounds are short against the table) every step logs its cell with the
         value before and after. The log gives the difference and undoes it, so a round costs what
         its steps cost, whatever the size of the table.
whole    (row and dense rules, long rounds) the difference is taken over all parameters.

Sums are the same bits for any number of threads. Where a block of 64 agents touches few cells of
the table (`sparse`), the increments are added in the order of the agents; otherwise each block has
a sum of its own and these are added in order.

Slot 0 of a sum belongs to the whole round. Slot j belongs to record point j inside the round: in a
logged round it holds the increments since the record point before, in a whole one the difference
from the round's start.
"""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from fegsam.compilation import compiled
from fegsam.engines.cpu.kernels import (
    NEVER,
    apply_logged,
    apply_whole,
    carry,
    copy,
    draw_piece,
    record_points,
    reduce_blocks,
    reduce_logs,
)
from fegsam.engines.cpu.layout import BLOCK
from fegsam.engines.cpu.memory import BlockSums, CellRange, Piece, RoundPart, Write
from fegsam.engines.cpu.steps import make_steps
from fegsam.engines.cpu.team import ABORT, NEXT, add_done, barrier, next_block
from fegsam.engines.cpu.tile import make_run_tile


def make_advance(form, rule, key):
    """The loop over rounds for one rule, and the loop of an agent that is alone.

    `key` identifies the rule (see `compilation`).
    """
    run_tile = make_run_tile(make_steps(form, rule, key), key)
    return _make_rounds(run_tile, key), _make_alone(run_tile, key)


def _make_rounds(run_tile, key):
    run_blocks = _make_run_blocks(run_tile, key)

    @compiled(key=key)
    def advance(fed, arrays, shared, own, seat, recording, time, stop):
        """Run from `time` to `stop` and record; all threads of a team call it together.

        `time` is a synchronisation. A round that `stop` interrupts leaves the average as it was at
        the round's start.
        """
        dim, num_blocks = shared.average.shape[0], (fed.num_agents + BLOCK - 1) // BLOCK
        low, high = dim * seat.rank // seat.team, dim * (seat.rank + 1) // seat.team
        cells, row = CellRange(low, high), 0
        while time < stop and shared.sync[ABORT] == 0:
            part = next_part(fed, recording.times, row, time, stop)
            num_points = len(part.points)
            own.squares[:num_points] = 0.0
            for first in range(0, num_blocks, fed.wave):
                blocks = min(fed.wave, num_blocks - first)
                run_blocks(fed, arrays, shared, own, seat, part, first, blocks)
                barrier(shared.sync, seat.team)
                reduce_wave(fed, shared, own, seat, part, first, blocks, cells)
                if seat.rank == 0:
                    shared.sync[NEXT] = 0
                barrier(shared.sync, seat.team)
            if seat.rank == 0:
                record_points(
                    fed, shared.average, shared.total, own.squares, recording, row, num_points
                )
            barrier(shared.sync, seat.team)
            if any_failed(shared.failed):
                return
            end_round(fed, shared, own, seat, part, cells)
            row += num_points
            time += part.length
            if part.synced and row < len(recording.times) and recording.times[row] == time:
                if seat.rank == 0:
                    copy(recording.rows[row], shared.average)
                    recording.omegas[row] = 0.0
                row += 1
            barrier(shared.sync, seat.team)

    return advance


@compiled(forceinline=True)
def next_part(fed, times, row, time, stop):
    """The round that starts at `time`, with its record points, which start at `row`."""
    length = min(fed.sync_period, stop - time)
    synced = length == fed.sync_period
    # The average at a synchronisation is recorded after the round, not inside it.
    last, end = row, time + length + (0 if synced else 1)
    while last < len(times) and times[last] < end:
        last += 1
    return RoundPart(time, length, synced, times[row:last])


def _make_run_blocks(run_tile, key):
    @compiled(key=key, inline="always")
    def run_block(fed, arrays, shared, own, seat, part, wave_first, b):
        """All agents of block `b` of the wave that begins with block `wave_first`, tile by tile."""
        sync, length, num_points = shared.sync, part.length, len(part.points)
        first = (wave_first + b) * BLOCK
        last = min(first + BLOCK, fed.num_agents)
        adding = not fed.sparse or seat.team == 1
        keep_log = fed.sparse and (seat.team > 1 or fed.touched)
        sums = shared.total if fed.sparse else shared.sums[b]
        if not fed.sparse:
            sums[: num_points + 1] = 0.0
        shared.squares[b, :num_points] = 0.0
        new = fed.logged and (num_points > 0 or not adding)
        write = Write(fed.logged, new, fed.logged and adding)
        block = BlockSums(sums, shared.squares[b], shared.failed[seat.rank], write)
        for tile_first in range(first, last, fed.tile):
            count = min(fed.tile, last - tile_first)
            entry = (
                (tile_first - wave_first * BLOCK) * length
                if keep_log
                else seat.rank * fed.log_pitch
            )
            for begin in range(0, length, fed.span):
                if sync[ABORT] != 0:
                    break
                end, apart = min(begin + fed.span, length), length if keep_log else 0
                piece = Piece(tile_first, count, begin, end, entry, apart)
                draw_piece(fed, arrays, own.tile, shared.carried, seat.seed, part.time, piece)
                run_tile(fed, arrays, shared, own, part, piece, block)
                if length > fed.span:
                    add_done(sync, seat.team, end - begin)
            if part.synced:
                steps = (length - 1) % fed.span + 1
                carry(fed, own.tile, shared.carried, tile_first, count, steps)
        if length <= fed.span:
            add_done(sync, seat.team, (last - first) * length)

    @compiled(key=key, inline="always")
    def run_blocks(fed, arrays, shared, own, seat, part, wave_first, blocks):
        """The blocks of a wave that this thread takes."""
        b = next_block(shared.sync, seat.team, -1)
        while b < blocks and shared.sync[ABORT] == 0:
            run_block(fed, arrays, shared, own, seat, part, wave_first, b)
            b = next_block(shared.sync, seat.team, b)

    return run_blocks


@compiled(forceinline=True)
def reduce_wave(fed, shared, own, seat, part, wave_first, blocks, cells):
    """Add a wave's sums to the totals of this thread's cells."""
    num_points = len(part.points)
    if not fed.sparse:
        reduce_blocks(shared.total, shared.sums, blocks, num_points + 1, cells)
    elif seat.team > 1:
        agents = min(blocks * BLOCK, fed.num_agents - wave_first * BLOCK)
        reduce_logs(shared.total, shared.log, part, agents, cells)
    for b in range(blocks):
        for j in range(num_points):
            own.squares[j] += shared.squares[b, j]


@compiled(forceinline=True)
def end_round(fed, shared, own, seat, part, cells):
    """Average where the round is whole, and clear the totals."""
    average, total, sync, team = shared.average, shared.total, shared.sync, seat.team
    for j in range(len(part.points)):
        total[j + 1, cells.low : cells.high] = 0.0
    if not part.synced:
        total[0, cells.low : cells.high] = 0.0
    elif fed.touched:
        logged = shared.log.cell[: fed.num_agents * part.length]
        apply_logged(fed, average, own.params, total, logged, cells, sync, team)
    else:
        apply_whole(fed, average, own.params, total, cells, sync, team)


@compiled(forceinline=True)
def any_failed(failed):
    found = False
    for rank in range(failed.shape[0]):
        found |= failed[rank, 0] < NEVER
    return found


def _make_alone(run_tile, key):
    @compiled(key=key)
    def advance_alone(fed, arrays, shared, own, seat, recording, time, stop):
        """One agent never averages: its steps go from `time` to `stop` and stay."""
        times, row = recording.times, 0
        while time < stop and shared.sync[ABORT] == 0:
            length = min(fed.span, (times[row] if row < len(times) else stop) - time)
            part, piece = RoundPart(time, length, False, times[:0]), Piece(0, 1, 0, length, 0, 0)
            write = Write(False, False, False)
            block = BlockSums(shared.total, shared.squares[0], shared.failed[0], write)
            draw_piece(fed, arrays, own.tile, shared.carried, seat.seed, time, piece)
            run_tile(fed, arrays, shared, own, part, piece, block)
            if shared.failed[0, 0] < NEVER:
                return
            carry(fed, own.tile, shared.carried, 0, 1, length)
            time += length
            add_done(shared.sync, seat.team, length)
            if row < len(times) and times[row] == time:
                copy(recording.rows[row], own.params)
                recording.omegas[row] = 0.0
                row += 1
        copy(shared.average, own.params)

    return advance_alone
