"""The compiled loop over rounds of a method."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import numpy as np

from fegsam.compilation import compiled
from fegsam.engines.cpu.kernels import NEVER, copy
from fegsam.engines.cpu.memory import CellRange
from fegsam.engines.cpu.methods.close import make_close, make_close_first_step
from fegsam.engines.cpu.methods.finish import SAFE_LOG, make_begin_agent, make_finish, touch
from fegsam.engines.cpu.methods.members import BLOCKS, draw_members
from fegsam.engines.cpu.methods.memory import LocalRange, MethodRound, Report
from fegsam.engines.cpu.methods.paths import carry_agent, draw_tile, enter_tile, list_working
from fegsam.engines.cpu.methods.steps import StepsNow, make_first_direction, make_method_steps
from fegsam.engines.cpu.methods.sums import clear, list_touched, reduce_wave
from fegsam.engines.cpu.team import ABORT, NEXT, add_done, barrier, next_block
from fegsam.engines.cpu.tile import agent_path, note_failure


def make_advance_method(features, rule, key):
    """The loop over rounds for one rule and one combination of features."""
    direction = make_first_direction(features, rule, key)
    run_blocks = make_run_waves(_make_run_blocks(features, rule, direction, key), key)
    run_first = make_run_waves(make_first_block(direction, key), key)
    close, close_first = make_close(features, key), make_close_first_step(features, key)
    partial, first_step = features.partial, features.variates != "" and features.first_step

    @compiled(key=key)
    def advance_method(given, shared, own, seat, recording, call):
        """Run whole rounds and record at synchronisations; all threads call it together."""
        constants, arrays, agents = given
        dim, row, time, number = shared.average.shape[0], 0, call.time, call.number
        low, high = dim * seat.rank // seat.team, dim * (seat.rank + 1) // seat.team
        cells = CellRange(low, high)
        while time < call.stop and shared.sync[ABORT] == 0:
            part = next_round(call, own, number, time)
            if partial:
                if seat.rank == 0:
                    kinds = arrays.agents.kinds
                    draw_members(constants, kinds, agents, shared.members, seat.seed, number)
                barrier(shared.sync, seat.team)
            if first_step:
                run_first(given, shared, own, seat, part, cells)
                close_first(constants, shared, own, seat, cells)
            run_blocks(given, shared, own, seat, part, cells)
            if any_failed(shared.failed):
                return
            close(constants, shared, own, seat, part, call.tail, cells)
            time += call.length
            number += 1
            if row < len(recording.times) and recording.times[row] == time:
                if seat.rank == 0:
                    copy(recording.rows[row], shared.average)
                row += 1
            barrier(shared.sync, seat.team)
            if any_failed(shared.failed):
                return

    return advance_method


@compiled(inline="always")
def next_round(call, own, number, time):
    """The round of a call that begins at `time`."""
    sizes, length = call.sizes, call.length
    first = time - sizes.first
    now = sizes.sizes[first : first + length]
    growth, logs = sizes.growth[first : first + length], sizes.logs[first : first + length]
    passed, log = 0.0, 0.0
    for l in range(length):
        passed += now[l]
    for l in range(len(logs)):
        log += logs[l]
    if own.counts.shape[0] > 0:
        count_steps(call.tail, own.counts, time, length)
    return MethodRound(number, time, length, now, growth, logs, passed, log < SAFE_LOG, own.counts)


@compiled
def count_steps(tail, counts, time, length):
    """How often the increment of each local step is counted: at the times inside the round."""
    for l in range(length):
        first = max(l + 1, tail.after - time + 1)
        counts[l] = max(length - first, 0) if not tail.syncs else 0


def make_run_waves(run, key):
    """A function that runs all blocks, in waves, each followed by a reduction."""

    @compiled(key=key, inline="always")
    def run_waves(given, shared, own, seat, part, cells):
        constants = given.constants
        num_blocks = shared.members.counts[BLOCKS]
        for first in range(0, num_blocks, constants.wave):
            blocks = min(constants.wave, num_blocks - first)
            b = next_block(shared.sync, seat.team, -1)
            while b < blocks and shared.sync[ABORT] == 0:
                run(given, shared, own, seat, part, first, b)
                b = next_block(shared.sync, seat.team, b)
            barrier(shared.sync, seat.team)
            reduce_wave(constants, shared, part, first, blocks, cells)
            if seat.rank == 0:
                shared.sync[NEXT] = 0
            barrier(shared.sync, seat.team)

    return run_waves


@compiled(inline="always")
def local_length(agents, part, agent):
    """The number of local steps of an agent in the round."""
    if agents.lengths.shape[0] == 0:
        return part.length
    return min(agents.lengths[agent], part.length)


def make_first_block(direction, key):
    @compiled(key=key, inline="always")
    def first_block(given, shared, own, seat, part, wave_first, b):
        """What the rule says at each agent's first window of the round."""
        constants, arrays, agents = given
        members, block = shared.members, wave_first + b
        sums = own.sums if constants.listed else shared.sums.dense[b]
        if not constants.listed:
            clear(part, sums)
        pitch, last = own.tile.states.shape[1], members.starts[block + 1]
        for first in range(members.starts[block], last, constants.tile):
            count = min(constants.tile, last - first)
            enter_tile(constants, arrays, shared, own, part.time, first, count)
            draw_tile(constants, arrays, shared, own, seat.seed, count, 0, 1)
            for w in range(list_working(members, own, count)):
                a = own.working[w]
                agent = own.ids[a]
                path = agent_path(arrays.agents, own.tile, agent)
                at, weight = np.uint64(a * pitch), agents.weights[agent]
                direction(own, path, arrays.tables, at, weight, sums[0])
                if own.log.shape[0] > 0:
                    touch(own, own.log[0])
        if constants.listed:
            list_touched(shared.sums, own, b)

    return first_block


def _make_run_blocks(features, rule, direction, key):
    run_agent = _make_run_agent(features, rule, direction, key)
    own_clocks, unequal = features.own_clocks, features.unequal

    @compiled(key=key, inline="always")
    def run_block(given, shared, own, seat, part, wave_first, b):
        """All agents of a block, tile by tile."""
        constants, arrays, agents = given
        members, block = shared.members, wave_first + b
        sums = own.sums if constants.listed else shared.sums.dense[b]
        if not constants.listed:
            clear(part, sums)
        last = members.starts[block + 1]
        for first in range(members.starts[block], last, constants.tile):
            count = min(constants.tile, last - first)
            enter_tile(constants, arrays, shared, own, part.time, first, count)
            working = list_working(members, own, count)
            for begin in range(0, part.length, constants.span):
                end = min(begin + constants.span, part.length)
                draw_tile(constants, arrays, shared, own, seat.seed, count, begin, end - begin)
                for w in range(working):
                    a = own.working[w]
                    run_agent(given, shared, own, seat, part, a, LocalRange(begin, end), sums)
                carry_tile(given, shared, own, part, count, LocalRange(begin, end), unequal)
            if own_clocks:
                for a in range(count):
                    shared.clocks[own.ids[a]] += local_length(agents, part, own.ids[a])
            add_done(shared.sync, seat.team, count * part.length)
        if constants.listed:
            list_touched(shared.sums, own, b)

    return run_block


@compiled(forceinline=True)
def carry_tile(given, shared, own, part, count, made, unequal):
    """Keep the windows of the agents whose last step of the round is among those just `made`."""
    for a in range(count):
        length = local_length(given.agents, part, own.ids[a]) if unequal else part.length
        if made.begin < length <= made.end:
            carry_agent(given.constants, shared, own, a, length - made.begin)


def _make_run_agent(features, rule, direction, key):
    steps, finish = make_method_steps(features, rule, key), make_finish(features, key)
    begin_agent = make_begin_agent(features, direction, key)
    own_variates, by_kind = features.variates == "agent", features.variates == "kind"
    unequal = features.unequal

    @compiled(key=key, inline="always")
    def run_agent(given, shared, own, seat, part, a, wanted, sums):
        """The `wanted` local steps of the tile's agent `a`, or up to its own number of them."""
        constants, arrays, agents = given
        begin, end = wanted
        agent, tables = own.ids[a], arrays.tables
        length = local_length(agents, part, agent) if unequal else part.length
        if unequal and begin >= length:
            return
        path = agent_path(arrays.agents, own.tile, agent)
        at = np.uint64(a * own.tile.states.shape[1])
        stride = np.uint64(constants.window + 1) if constants.iid else np.uint64(1)
        weight, factor, passed = agents.weights[agent], agents.factors[agent], 0.0
        for l in range(begin):
            passed += part.sizes[l]
        if own_variates and begin == 0:
            begin_agent(shared, own, path, tables, at, agent, weight, sums)
        correction = own.correction
        if by_kind:
            correction = shared.variates.corrections[arrays.agents.kinds[agent]]
        now = StepsNow(begin, min(end, length), at, stride, passed, weight, weight * factor)
        made = steps(own, correction, path, tables, part, now, sums)
        if made < now.end - begin:
            note_failure(shared.failed[seat.rank], part.time + begin + made + 1, agent)
            copy(own.params, shared.sent)
        elif now.end == length:
            report = Report(
                agent,
                weight,
                factor,
                length,
                part.passed,
                part.number,
                seat.seed,
                part.safe,
                part.logs,
            )
            finish(constants, shared, own, report, sums)

    return run_agent


@compiled(inline="always")
def any_failed(failed):
    found = False
    for rank in range(failed.shape[0]):
        found |= failed[rank, 0] < NEVER
    return found
