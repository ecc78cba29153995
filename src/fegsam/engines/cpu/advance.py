"""The compiled loop of the `cpu` engine: rounds of K local steps and an average, for any rule.

Between two synchronisations the agents do not meet, and after one they all hold the same
parameters. So no agent has a copy of its own: each runs its steps on a scratch copy, its difference
from the average goes into a sum, and the scratch copy is put back. Two ways to do that:

logged   (cell rules with few steps against the table) every step logs its cell with the value
before and after. The log
         gives the difference and undoes it, so a round costs what its steps cost, whatever the size
         of the table.
whole    (row and dense rules, long rounds) the difference is taken over all parameters.

Sums are the same bits for any number of threads. Where a block of 64 agents touches few cells of
the table (`sparse`), the increments are added in the order of the agents; otherwise each block has
a sum of its own and these are added in order.

Averages inside a round are recorded at *cuts*. Slot 0 of a sum is the whole round's; slot j holds
cut j: logged, the increments since the cut before; whole, the difference from the round's start.
"""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import numpy as np

from fegsam.algorithms.rule import ONE, Path
from fegsam.compilation import compiled
from fegsam.engines.cpu.kernels import (
    NEVER,
    all_finite,
    apply_logged,
    apply_whole,
    carry,
    copy,
    cut_logged,
    cut_whole,
    draw_piece,
    record_cuts,
    reduce_blocks,
    reduce_logs,
    undo_logged,
    undo_whole,
)
from fegsam.engines.cpu.layout import BLOCK, Stretch, Write
from fegsam.engines.cpu.team import ABORT, NEXT, add_done, meet, next_block
from fegsam.engines.job import LARGEST

_CALM = 1e20
"""Increments below this, times a feature of at most 1e100, are lost to rounding at `LARGEST`; above
it each is looked at."""


def make_steps(form, rule):
    """`count` steps of one agent on its parameters, with the form's own write; how many of them
    stayed finite."""

    def cell_steps(
        params, out, path, tables, step_size, at, stride, count, log, entry, sums, write
    ):
        cells, olds, news = log.cell, log.old, log.new
        # Unsigned: a signed index costs a wrap-around test.
        slot = np.uint64(entry)
        for k in range(count):
            cell, scale = rule(params, path, at, tables)
            old = params[cell]
            new = old + step_size * scale
            params[cell] = new
            if write.log:
                cells[slot] = cell
                olds[slot] = old
            if write.new:
                news[slot] = new
            if write.sum:
                sums[cell] += new - old
            if not abs(new) <= LARGEST:
                return k
            at += stride
            slot += ONE
        return count

    def row_steps(params, out, path, tables, step_size, at, stride, count, log, entry, sums, write):
        rows = tables.rows
        for k in range(count):
            index, scale = rule(params, path, at, tables)
            factor = step_size * scale
            for j in range(params.shape[0]):
                params[j] += factor * rows[index, j]
            if not abs(factor) < _CALM and not all_finite(params):
                return k
            at += stride
        return count

    def dense_steps(
        params, out, path, tables, step_size, at, stride, count, log, entry, sums, write
    ):
        for k in range(count):
            rule(params, path, at, tables, out)
            calm = True
            for j in range(params.shape[0]):
                change = step_size * out[j]
                params[j] += change
                calm &= abs(change) < _CALM
            if not calm and not all_finite(params):
                return k
            at += stride
        return count

    return {"cell": cell_steps, "row": row_steps, "dense": dense_steps}[form]


def make_advance(form, rule, key):
    """The loop over rounds for one rule; `key` says what the rule is (see `compile`)."""
    rule = compiled(rule, key=key, _nrt=form == "dense", forceinline=True)
    steps = compiled(make_steps(form, rule), key=key, forceinline=True)

    @compiled(key=key, forceinline=True)
    def run_tile(
        fed,
        tile,
        agents,
        tables,
        own,
        average,
        log,
        sums,
        squares,
        failed,
        cuts,
        stretch,
        first,
        count,
        begin,
        end,
        entry,
        apart,
        adding,
    ):
        """Steps begin..end-1 of each agent in the tile, its cuts, and at the round's end its sum
        and its undoing.

        Agent a logs from ``entry + a * apart`` on.
        """
        params, out = own.params, own.out
        kinds, mdps, policies = agents.kinds, agents.mdps, agents.policies
        pitch = tile.states.shape[1]
        stride = np.uint64(fed.window + 1) if fed.iid else np.uint64(1)
        write = Write(
            fed.logged, fed.logged and (stretch.num_cuts > 0 or not adding), fed.logged and adding
        )
        for a in range(count):
            kind = np.uint64(kinds[first + a])
            path = Path(
                tile.flat_states,
                tile.flat_actions,
                kind,
                np.uint64(mdps[kind]),
                np.uint64(policies[kind]),
            )
            log_at = entry + a * apart
            square, done, last_cut, broken = 0.0, begin, 0, False
            for j in range(stretch.num_cuts + 1):
                goal = min(end, cuts[j] - stretch.time if j < stretch.num_cuts else stretch.length)
                if goal > done:
                    at = np.uint64(a * pitch) + np.uint64(done - begin) * stride
                    made = steps(
                        params,
                        out,
                        path,
                        tables,
                        fed.step_size,
                        at,
                        stride,
                        goal - done,
                        log,
                        log_at + done,
                        sums[0],
                        write,
                    )
                    if made < goal - done:
                        if stretch.time + done + made + 1 < failed[0]:
                            failed[0] = stretch.time + done + made + 1
                            failed[1] = first + a
                        broken = True
                        break
                    done = goal
                if j < stretch.num_cuts and cuts[j] - stretch.time == done and done > begin:
                    if fed.logged:
                        square = cut_logged(
                            average,
                            sums[j + 1],
                            log,
                            log_at + last_cut,
                            log_at + done,
                            square,
                            adding,
                        )
                    else:
                        square = cut_whole(average, params, sums[j + 1])
                    squares[j] += square
                    last_cut = done
            if broken:
                copy(params, average)
            elif end == stretch.length and fed.num_agents > 1:
                if fed.logged:
                    undo_logged(params, log, log_at, log_at + stretch.length)
                else:
                    undo_whole(average, params, sums[0])

    @compiled(key=key)
    def advance(
        fed, chain, agents, tables, shared, own, tile, seat, time, stop, cuts, rows, omegas
    ):
        """Run from `time` to `stop` and record at `cuts`; all threads of a team call it together.

        `time` is a synchronisation. A round that `stop` breaks off leaves the average as it was at
        the round's start.
        """
        average, total, log, sync, failed = (
            shared.average,
            shared.total,
            shared.log,
            shared.sync,
            shared.failed,
        )
        carried_states, carried_actions = shared.carried_states, shared.carried_actions
        rank, team = seat.rank, seat.team
        dim, num_blocks = average.shape[0], (fed.num_agents + BLOCK - 1) // BLOCK
        low, high = dim * rank // team, dim * (rank + 1) // team
        adding = not fed.sparse or team == 1
        keep_log = fed.sparse and (team > 1 or fed.touched)
        row = 0
        while time < stop and sync[ABORT] == 0:
            length = min(fed.sync_period, stop - time)
            synced = length == fed.sync_period
            num_cuts = 0
            while row + num_cuts < len(cuts) and cuts[row + num_cuts] < time + length + (
                0 if synced else 1
            ):
                num_cuts += 1
            stretch = Stretch(time, length, num_cuts)
            here = cuts[row : row + num_cuts]
            own.squares[:num_cuts] = 0.0

            for wave_first in range(0, num_blocks, fed.wave):
                blocks = min(fed.wave, num_blocks - wave_first)
                b = next_block(sync, team, -1)
                while b < blocks and sync[ABORT] == 0:
                    block_first = (wave_first + b) * BLOCK
                    block_last = min(block_first + BLOCK, fed.num_agents)
                    sums = total if fed.sparse else shared.sums[b]
                    if not fed.sparse:
                        sums[: num_cuts + 1] = 0.0
                    shared.squares[b, :num_cuts] = 0.0
                    for first in range(block_first, block_last, fed.tile):
                        count = min(fed.tile, block_last - first)
                        entry = (
                            (first - wave_first * BLOCK) * length
                            if keep_log
                            else rank * fed.log_pitch
                        )
                        for begin in range(0, length, fed.span):
                            if sync[ABORT] != 0:
                                break
                            end = min(begin + fed.span, length)
                            draw_piece(
                                fed,
                                tile,
                                chain,
                                agents,
                                seat.seed,
                                carried_states,
                                carried_actions,
                                first,
                                count,
                                time,
                                begin,
                                end,
                            )
                            run_tile(
                                fed,
                                tile,
                                agents,
                                tables,
                                own,
                                average,
                                log,
                                sums,
                                shared.squares[b],
                                failed[rank],
                                here,
                                stretch,
                                first,
                                count,
                                begin,
                                end,
                                entry,
                                length if keep_log else 0,
                                adding,
                            )
                            if length > fed.span:
                                add_done(sync, team, end - begin)
                        if synced:
                            carry(
                                fed,
                                tile,
                                carried_states,
                                carried_actions,
                                first,
                                count,
                                (length - 1) % fed.span + 1,
                            )
                    if length <= fed.span:
                        add_done(sync, team, (block_last - block_first) * length)
                    b = next_block(sync, team, b)
                meet(sync, team)
                wave_agents = min(blocks * BLOCK, fed.num_agents - wave_first * BLOCK)
                if not fed.sparse:
                    reduce_blocks(total, shared.sums, blocks, num_cuts + 1, low, high)
                elif team > 1:
                    reduce_logs(total, log, here, stretch, wave_agents, low, high)
                for b in range(blocks):
                    for j in range(num_cuts):
                        own.squares[j] += shared.squares[b, j]
                if rank == 0:
                    sync[NEXT] = 0
                meet(sync, team)

            if rank == 0:
                record_cuts(fed, average, total, own.squares, rows, omegas, row, num_cuts)
            meet(sync, team)
            for other in range(team):
                if failed[other, 0] < NEVER:
                    return
            for j in range(num_cuts):
                total[j + 1, low:high] = 0.0
            if not synced:
                total[0, low:high] = 0.0
            elif fed.touched:
                apply_logged(
                    fed,
                    average,
                    own.params,
                    total,
                    log.cell,
                    fed.num_agents * length,
                    sync,
                    team,
                    low,
                    high,
                )
            else:
                apply_whole(fed, average, own.params, total, sync, team, low, high)
            row += num_cuts
            time += length
            if synced and row < len(cuts) and cuts[row] == time:
                if rank == 0:
                    copy(rows[row], average)
                    omegas[row] = 0.0
                row += 1
            meet(sync, team)

    @compiled(key=key)
    def advance_alone(
        fed, chain, agents, tables, shared, own, tile, seat, time, stop, cuts, rows, omegas
    ):
        """One agent never averages: its steps go from `time` to `stop` and stay."""
        row = 0
        while time < stop and shared.sync[ABORT] == 0:
            length = min(fed.span, (cuts[row] if row < len(cuts) else stop) - time)
            draw_piece(
                fed,
                tile,
                chain,
                agents,
                seat.seed,
                shared.carried_states,
                shared.carried_actions,
                0,
                1,
                time,
                0,
                length,
            )
            run_tile(
                fed,
                tile,
                agents,
                tables,
                own,
                shared.average,
                shared.log,
                shared.total,
                shared.squares[0],
                shared.failed[0],
                cuts,
                Stretch(time, length, 0),
                0,
                1,
                0,
                length,
                0,
                0,
                False,
            )
            if shared.failed[0, 0] < NEVER:
                return
            carry(fed, tile, shared.carried_states, shared.carried_actions, 0, 1, length)
            time += length
            add_done(shared.sync, seat.team, length)
            if row < len(cuts) and cuts[row] == time:
                copy(rows[row], own.params)
                omegas[row] = 0.0
                row += 1
        copy(shared.average, own.params)

    return advance, advance_alone
