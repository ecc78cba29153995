"""The beginning and the end of an agent's round: its correction, and how its change enters the
sums."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from fegsam.engines.cuda.methods.exact import add
from fegsam.engines.cuda.params import overlay_find
from fegsam.engines.cuda.sums import empty
from fegsam.randomness import HALF, ROUNDING, SOME_CELLS, words

NUMERATOR, DENOMINATOR = 0, 1
"""The sums of an average by visits."""
_LOG_TWO = math.log(2.0)


class GpuReport(NamedTuple):
    """What the end of an agent's round needs to know."""

    seed_index: Any
    agent: Any
    factor: Any
    """what its change is multiplied by"""
    steps: Any
    """that it has made"""
    number: Any
    """of the round"""
    area: Any
    """the sum of the round's step sizes"""


class AgentFunctions(NamedTuple):
    """Device functions around an agent's steps."""

    begin: Any
    """begin(launch, memory, view, seed_index, agent): prepare its parameters and its correction"""
    leave: Any
    """leave(launch, memory, view, seed_index, agent): forget its correction"""
    report: Any
    """report(launch, constants, memory, view, report): add its change, and keep its variates"""
    discard: Any
    """discard(launch, view, steps): forget its changes"""


def make_agent_round(spec, features, cells):
    """The functions for one layout and method."""
    if features.form == "cell":
        report, discard = _make_cell_report(features, cells), _make_discard(features, cells)
    else:
        report, discard = _make_whole_report(features), _keep_whole
    begin, leave = _around(spec, features)
    return AgentFunctions(
        *(cuda.jit(device=True)(each) for each in (begin, leave, report, discard))
    )


def _around(spec, features):
    """How a correction is put down before an agent's steps, and taken away after them."""
    if features.form != "cell":
        return _begin_whole, _leave_nothing
    if features.variates != "agent" or features.first_step:
        return _begin_nothing, _leave_nothing
    if spec.layout == "overlay":
        return _make_begin_variates(features, _subtract_in_overlay), _leave_overlay
    return _make_begin_variates(features, _subtract_in_table), _leave_table


def _begin_nothing(launch, memory, view, seed_index, agent):
    """Nothing to do: between agents, all changes are zero."""


def _begin_whole(launch, memory, view, seed_index, agent):
    for j in range(launch.dim):
        view.params[j] = view.base[j]


def _make_begin_variates(features, subtract):
    summed, subtract = features.sums_variates, cuda.jit(device=True)(subtract)

    def begin_variates(launch, memory, view, seed_index, agent):
        pitch = np.uint64(launch.dim)
        first = view.first_sum + np.uint64(launch.digits) * pitch
        for e in range(memory.cells.shape[1]):
            value = memory.values[seed_index, e, agent]
            if value != 0.0:
                cell = np.uint64(memory.cells[seed_index, e, agent])
                subtract(view.correction, cell, value)
                if summed:
                    add(memory.totals, first + cell, pitch, view.weight * value, 0)

    return begin_variates


def _subtract_in_table(correction, cell, value):
    correction.memory[correction.first + cell * correction.width] -= value


def _subtract_in_overlay(correction, cell, value):
    place, _ = overlay_find(correction, cell)
    correction.keys[correction.first_key + place * correction.width] = cell
    correction.values[correction.first_value + place * correction.width] = (
        correction.base[cell] - value
    )


def _leave_nothing(launch, memory, view, seed_index, agent):
    """Nothing to do: corrections lie where all agents read them."""


def _leave_table(launch, memory, view, seed_index, agent):
    for e in range(memory.cells.shape[1]):
        cell = np.uint64(memory.cells[seed_index, e, agent])
        view.correction.memory[view.correction.first + cell * view.correction.width] = 0


def _leave_overlay(launch, memory, view, seed_index, agent):
    empty(view.correction)


def _make_discard(features, cells):
    count, take, visits = cells.count, cells.take, features.visits

    def discard(launch, view, steps):
        for e in range(count(launch, view, steps)):
            _, _, place = take(view, e)
            if visits:
                view.extra[view.first + place * view.width] = 0

    return discard


def _keep_whole(launch, view, steps):
    """Nothing to do: the next agent overwrites all parameters."""


def _make_cell_report(features, cells):
    visits, dithered = features.visits, features.rounding == "dither"
    keeps = features.variates == "agent" and not features.first_step
    count, take, change_of = cells.count, cells.take, cells.change
    put = make_put(features)

    def cell_report(launch, constants, memory, view, report):
        kept, seed, agent = 0, report.seed_index, report.agent
        if dithered:
            # A change of zero is rounded, too.
            for c in range(launch.dim):
                put(launch, constants, memory, view, report, np.uint64(c), change_of(view, c))
        for e in range(count(launch, view, report.steps)):
            cell, change, place = take(view, e)
            if visits:
                at = view.first + place * view.width
                add_by_visits(launch, memory, view, cell, change, np.float64(view.extra[at]))
                view.extra[at] = 0
            elif not dithered:
                put(launch, constants, memory, view, report, cell, change)
            if keeps and change != 0.0:
                memory.cells[seed, kept, agent] = cell
                memory.values[seed, kept, agent] = change / report.area
                kept += 1
        if keeps:
            for e in range(kept, memory.cells.shape[1]):
                memory.cells[seed, e, agent] = 0
                memory.values[seed, e, agent] = 0.0

    return cell_report


def _make_whole_report(features):
    put = make_put(features)

    def whole_report(launch, constants, memory, view, report):
        for j in range(launch.dim):
            change = np.float64(view.params[j]) - np.float64(view.base[j])
            put(launch, constants, memory, view, report, np.uint64(j), change)

    return whole_report


@cuda.jit(device=True)
def add_by_visits(launch, memory, view, cell, change, log_weight):
    """Add an agent's change of a cell with the weight of its visits.

    The weight is a power of two times a number of ordinary size, so that it does not overflow. An
    agent that did not visit the cell has the weight one, so that one is subtracted here.
    """
    if log_weight > 0.0:
        scale = int(log_weight / _LOG_TWO)
        weight = math.exp(log_weight - scale * _LOG_TWO)
        pitch = np.uint64(launch.dim)
        at = view.first_sum + cell
        add(memory.totals, at, pitch, change * weight, scale)
        at += np.uint64(launch.digits) * pitch
        add(memory.totals, at, pitch, weight, scale)
        add(memory.totals, at, pitch, -1.0, 0)


def make_put(features):
    """The function that adds an agent's change of a cell as it is reported."""
    rounding = features.rounding

    @cuda.jit(device=True)
    def put(launch, constants, memory, view, report, cell, change):
        change *= report.factor
        pitch = np.uint64(launch.dim)
        seed, agent = memory.seeds[report.seed_index], np.uint64(report.agent)
        first = np.uint64(report.number) * pitch
        if rounding == "random":
            uniform = uniform_of(seed, agent, first + cell)
            change = constants.grid * math.floor(change / constants.grid + uniform)
        elif rounding == "dither":
            shift = uniform_of(seed, agent, first + cell) - 0.5
            change = constants.grid * (math.floor(change / constants.grid + shift + 0.5) - shift)
        elif rounding == "cells" and change != 0.0:
            chosen = is_chosen(seed, agent, first, cell, launch.dim, constants.cells)
            change *= launch.dim / constants.cells if chosen else 0.0
        add(memory.totals, view.first_sum + cell, pitch, view.weight * change, 0)

    return put


@cuda.jit(device=True)
def uniform_of(seed, agent, counter):
    word, _ = words(seed, agent, counter, ROUNDING)
    return (np.float64(word) + 0.5) / 4294967296.0


@cuda.jit(device=True)
def key_of(seed, agent, counter):
    high, low = words(seed, agent, counter, SOME_CELLS)
    return (high << HALF) | low


@cuda.jit(device=True)
def is_chosen(seed, agent, first, cell, dim, count):
    """Whether a cell has one of the `count` smallest words of all cells."""
    key, smaller = key_of(seed, agent, first + cell), 0
    for c in range(dim):
        if key_of(seed, agent, first + np.uint64(c)) < key:
            smaller += 1
            if smaller >= count:
                return False
    return True
