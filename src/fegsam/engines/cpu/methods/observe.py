"""Averages inside a round: its first steps again, with all parameters looked at.

It changes nothing that the round itself depends on. So what a run computes does not depend on what
is recorded of it.
"""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fegsam.compilation import compiled
from fegsam.engines.cpu.kernels import copy
from fegsam.engines.cpu.memory import CellRange
from fegsam.engines.cpu.methods.close import make_close_first_step, present_weight
from fegsam.engines.cpu.methods.finish import make_begin_agent
from fegsam.engines.cpu.methods.members import BLOCKS, draw_members
from fegsam.engines.cpu.methods.paths import draw_tile, enter_tile, list_working
from fegsam.engines.cpu.methods.rounds import (
    local_length,
    make_first_block,
    make_run_waves,
    next_round,
)
from fegsam.engines.cpu.methods.steps import StepsNow, make_first_direction, make_method_steps
from fegsam.engines.cpu.tile import agent_path, note_failure


class LookRange(NamedTuple):
    """Local steps begin..end-1 of a round, of which the first `stop` are looked at."""

    begin: Any
    end: Any
    stop: Any


def make_observe(features, rule, key):
    """A function that records the averages at times inside one round, on one thread."""
    direction = make_first_direction(features, rule, key)
    run_first = make_run_waves(make_first_block(direction, key), key)
    close_first = make_close_first_step(features, key)
    look_at = _make_look_at(features, rule, direction, key)
    partial, first_step = features.partial, features.variates != "" and features.first_step
    tail_kept, slot = features.tail, features.tail_slot

    @compiled(key=key)
    def observe(given, shared, own, seat, recording, call, scratch):
        """The averages at `recording.times`; with a tail, also their sum up to `call.stop`."""
        constants, arrays, agents = given
        time, length, members = call.time, call.stop - call.time, shared.members
        whole = next_round(call, own, call.number, time)
        if tail_kept:
            for l in range(length):
                first = max(l + 1, call.tail.after - time + 1)
                own.counts[l] = max(length + 1 - first, 0)
        recording.rows[: len(recording.times)] = 0.0
        recording.omegas[: len(recording.times)] = 0.0
        scratch[:] = 0.0
        if partial:
            draw_members(constants, arrays.agents.kinds, agents, members, seat.seed, call.number)
        if first_step:
            cells = CellRange(0, shared.average.shape[0])
            run_first(given, shared, own, seat, whole, cells)
            close_first(constants, shared, own, seat, cells)
        listed = members.starts[members.counts[BLOCKS]]
        for first in range(0, listed, constants.tile):
            count = min(constants.tile, listed - first)
            enter_tile(constants, arrays, shared, own, time, first, count)
            for begin in range(0, length, constants.span):
                steps = LookRange(begin, min(begin + constants.span, length), length)
                many = steps.end - begin
                draw_tile(constants, arrays, shared, own, seat.seed, count, begin, many)
                for w in range(list_working(members, own, count)):
                    look_at(given, shared, own, whole, recording, own.working[w], steps, scratch)
        weight = present_weight(members)
        settle_rows(shared, recording, weight)
        if tail_kept:
            for c in range(shared.tail.shape[0]):
                shared.tail[c] += own.counts[0] * shared.sent[c]
                if weight > 0.0:
                    shared.tail[c] += scratch[slot, c] / weight

    return observe


@compiled
def settle_rows(shared, recording, weight):
    """From sums of differences to averages and sync errors."""
    for j in range(len(recording.times)):
        apart = 0.0
        for c in range(shared.sent.shape[0]):
            change = recording.rows[j, c] / weight if weight > 0.0 else 0.0
            recording.rows[j, c] = shared.sent[c] + change
            apart += change * change
        mean = recording.omegas[j] / weight if weight > 0.0 else 0.0
        recording.omegas[j] = max(mean - apart, 0.0)


def _make_look_at(features, rule, direction, key):
    steps = make_method_steps(features, rule, key)
    begin_agent = make_begin_agent(features, direction, key)
    own_variates, by_kind = features.variates == "agent", features.variates == "kind"
    shifted = features.form == "cell" and features.variates != ""
    forget = _make_forget(features, key)
    tail_kept, slot = features.tail, features.tail_slot

    @compiled(key=key)
    def look_at(given, shared, own, part, recording, a, wanted, scratch):
        """The `wanted` local steps of the tile's agent `a`, and its parameters at record points."""
        constants, arrays, agents = given
        begin, end, stop = wanted
        agent, tables, times = own.ids[a], arrays.tables, recording.times
        length, path = local_length(agents, part, agent), agent_path(arrays.agents, own.tile, agent)
        start = np.uint64(a * own.tile.states.shape[1])
        stride = np.uint64(constants.window + 1) if constants.iid else np.uint64(1)
        weight, passed, done, finite = agents.weights[agent], 0.0, begin, True
        for l in range(min(begin, length)):
            passed += part.sizes[l]
        if own_variates and begin == 0:
            begin_agent(shared, own, path, tables, start, agent, weight, scratch)
        correction = own.correction
        if by_kind:
            correction = shared.variates.corrections[arrays.agents.kinds[agent]]
        for j in range(len(times) + 1):
            point = times[j] - part.time if j < len(times) else end
            goal = max(min(point, end, length), done)
            if finite and goal > done:
                at = start + np.uint64(done - begin) * stride
                now = StepsNow(done, goal, at, stride, passed, weight, weight)
                made = steps(own, correction, path, tables, part, now, scratch)
                if made < goal - done:
                    note_failure(shared.failed[0], part.time + done + made + 1, agent)
                    finite = False
                for l in range(done, goal):
                    passed += part.sizes[l]
                    if tail_kept and shifted:
                        add_shift(
                            scratch[slot], correction, weight * part.counts[l] * part.sizes[l]
                        )
                done = goal
            if finite and j < len(times) and begin < point <= end:
                moved = passed if shifted else 0.0
                recording.omegas[j] += weight * add_change(
                    recording.rows[j], own.params, correction, shared.sent, moved, weight
                )
        if end == stop or not finite:
            forget(shared, own, agent)

    return look_at


def _make_forget(features, key):
    """A function that restores the thread's memory after an agent."""
    restores = features.form == "cell" and features.variates == "agent"
    first_step, visits = features.first_step, features.visits

    @compiled(key=key)
    def forget(shared, own, agent):
        own.num_touched[0] = 0
        copy(own.params, shared.sent)
        if visits:
            own.visits[:] = 1.0
        if restores and first_step:
            own.correction[own.log[0]] = shared.variates.mean[own.log[0]]
        elif restores:
            for e in range(shared.variates.cells.shape[1]):
                c = shared.variates.cells[agent, e]
                own.correction[c] = shared.variates.mean[c]

    return forget


@compiled
def add_shift(target, correction, scale):
    for c in range(target.shape[0]):
        target[c] += scale * correction[c]


@compiled
def add_change(row, params, correction, sent, moved, weight):
    """Add the agent's difference from what was sent; return its square."""
    square = 0.0
    for c in range(row.shape[0]):
        change = params[c] - sent[c]
        if moved != 0.0:
            change += moved * correction[c]
        row[c] += weight * change
        square += change * change
    return square
