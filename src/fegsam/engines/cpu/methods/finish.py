"""How an agent's round begins and ends: its correction, and how its change enters the sums."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import math

import numpy as np

from fegsam.compilation import compiled
from fegsam.engines.cpu.kernels import copy
from fegsam.randomness import ONE, ROUNDING, SOME_CELLS, words

ZERO = np.uint64(0)
NUMERATOR, DENOMINATOR, LARGEST_LOG, VISITORS = 0, 1, 2, 3
"""The slots of an average by visits."""
SAFE_LOG = 600.0
"""Weights by visits whose logarithm stays below this are used as they are."""


def make_begin_agent(features, first_direction, key):
    """A function that prepares `own.correction` for an agent whose variates are its own."""
    cell, sums_variates = features.form == "cell", features.sums_variates

    def first_step(shared, own, path, tables, at, agent, weight, sums):
        if not cell:
            copy(own.correction, shared.variates.mean)
        first_direction(own, path, tables, at, -1.0, own.correction)

    def last_round_of_cells(shared, own, path, tables, at, agent, weight, sums):
        cells, values = shared.variates.cells[agent], shared.variates.values[agent]
        for e in range(cells.shape[0]):
            own.correction[cells[e]] -= values[e]
            if sums_variates:
                sums[1, cells[e]] += weight * values[e]
                touch(own, cells[e])

    def last_round_of_rows(shared, own, path, tables, at, agent, weight, sums):
        mean, values = shared.variates.mean, shared.variates.values[agent]
        for j in range(mean.shape[0]):
            own.correction[j] = mean[j] - values[j]

    if features.first_step:
        chosen = first_step
    else:
        chosen = last_round_of_cells if cell else last_round_of_rows
    return compiled(chosen, key=key, inline="always")


@compiled(inline="always")
def touch(own, cell):
    """Note a cell of the block, where its sums become a list."""
    if own.touched.shape[0] > 0:
        own.touched[own.num_touched[0]] = cell
        own.num_touched[0] += 1


def make_finish(features, key):
    """A function that ends an agent's round.

    It adds what the steps have not added yet to `sums`, keeps the agent's variates, and restores
    the scratch copy to what was sent.
    """
    chosen = (
        _make_cell_finish(features) if features.form == "cell" else _make_whole_finish(features)
    )
    return compiled(chosen, key=key, inline="always")


def _make_cell_finish(features):
    own_variates = features.variates == "agent"
    first_step, visits, rounding = features.first_step, features.visits, features.rounding

    def cell_finish(constants, shared, own, report, sums):
        params, sent, log = own.params, shared.sent, own.log
        if constants.listed:
            for e in range(report.length):
                touch(own, log[e])
        if visits:
            add_by_visits(shared, own, report, sums)
        elif rounding == "random":
            add_rounded_cells(constants, shared, own, report, sums)
        elif rounding == "cells":
            add_some_cells(constants, shared, own, report, sums)
            restore(params, sent, log, report.length)
        elif rounding == "dither":
            add_dithered(constants, shared, own, report, sums)
            restore(params, sent, log, report.length)
        elif own_variates and not first_step:
            keep_cells(shared, own, report)
        else:
            restore(params, sent, log, report.length)
        if own_variates and first_step:
            own.correction[log[0]] = shared.variates.mean[log[0]]

    return cell_finish


@compiled(forceinline=True)
def restore(params, sent, log, length):
    """Undo an agent's steps, from the cells in its log."""
    e = ZERO
    for _ in range(length):
        c = log[e]
        params[c] = sent[c]
        e += ONE


def _make_whole_finish(features):
    keeps = features.variates == "agent" and not features.first_step
    rounding = features.rounding

    def whole_finish(constants, shared, own, report, sums):
        params, sent = own.params, shared.sent
        if rounding == "cells":
            add_some_cells(constants, shared, own, report, sums)
        elif rounding == "dither":
            add_dithered(constants, shared, own, report, sums)
        elif rounding == "random":
            add_rounded(constants, shared, own, report, sums)
        else:
            for j in range(params.shape[0]):
                sums[0, j] += report.weight * report.factor * (params[j] - sent[j])
        if keeps:
            values = shared.variates.values[report.agent]
            for j in range(params.shape[0]):
                values[j] = (params[j] - sent[j]) / report.passed - own.correction[j]
        copy(params, sent)

    return whole_finish


@compiled(forceinline=True)
def keep_cells(shared, own, report):
    """The agent's new variates: its changes over the sum of the step sizes, cell by cell."""
    cells, values = shared.variates.cells[report.agent], shared.variates.values[report.agent]
    params, sent, log = own.params, shared.sent, own.log
    for e in range(cells.shape[0]):
        own.correction[cells[e]] = shared.variates.mean[cells[e]]
    kept = 0
    for e in range(report.length):
        c = log[e]
        if params[c] != sent[c]:
            cells[kept] = c
            values[kept] = (params[c] - sent[c]) / report.passed
            params[c] = sent[c]
            kept += 1
    for e in range(kept, cells.shape[0]):
        cells[e] = 0
        values[e] = 0.0


@compiled(forceinline=True)
def add_by_visits(shared, own, report, sums):
    """Add the agent's change at each visited cell with the weight of its visits, and undo it.

    The steps have multiplied the weights, which overflow where the round is not safe.
    """
    params, sent, log, visits = own.params, shared.sent, own.log, own.visits
    # Unsigned: a signed index costs a wrap-around test.
    length = np.uint64(report.length)
    if report.safe:
        numerators, denominators = sums[NUMERATOR], sums[DENOMINATOR]
        for e in range(length):
            # A cell that stood in the log before adds nothing: its change and log weight are zero.
            c = log[e]
            weight = visits[c]
            numerators[c] += weight * (params[c] - sent[c])
            denominators[c] += weight - 1.0
            params[c] = sent[c]
            visits[c] = 1.0
        return
    for e in range(length):
        visits[log[e]] = 0.0
    for e in range(length):
        visits[log[e]] += report.logs[e]
    for e in range(length):
        c = log[e]
        if visits[c] > 0.0:
            merge_visits(sums, c, params[c] - sent[c], 1.0, visits[c], 1.0)
            params[c] = sent[c]
            visits[c] = 0.0
    for e in range(length):
        visits[log[e]] = 1.0


@compiled
def merge_visits(sums, c, numerator, denominator, log_weight, visitors):
    """Add weights relative to exp(log_weight) to those of a cell, relative to the larger one."""
    largest = sums[LARGEST_LOG, c]
    scale = 1.0
    if log_weight > largest:
        shrink = math.exp(largest - log_weight)
        sums[NUMERATOR, c] *= shrink
        sums[DENOMINATOR, c] *= shrink
        sums[LARGEST_LOG, c] = log_weight
    else:
        scale = math.exp(log_weight - largest)
    sums[NUMERATOR, c] += scale * numerator
    sums[DENOMINATOR, c] += scale * denominator
    sums[VISITORS, c] += visitors


@compiled(inline="always")
def uniform(report, cell, dimension):
    counter = np.uint64(report.number * dimension + cell)
    word, _ = words(report.seed, np.uint64(report.agent), counter, ROUNDING)
    return (np.float64(word) + 0.5) / 4294967296.0


@compiled
def add_rounded_cells(constants, shared, own, report, sums):
    """The changes of the logged cells, rounded at random, and undone; one of zero stays zero."""
    params, sent, dimension = own.params, shared.sent, own.params.shape[0]
    for e in range(report.length):
        c = np.int64(own.log[e])
        change = report.factor * (params[c] - sent[c])
        if change != 0.0:
            shifted = change / constants.grid + uniform(report, c, dimension)
            sums[0, c] += report.weight * (constants.grid * math.floor(shifted))
        params[c] = sent[c]


@compiled
def add_rounded(constants, shared, own, report, sums):
    params, sent, dimension = own.params, shared.sent, own.params.shape[0]
    for c in range(dimension):
        change = report.factor * (params[c] - sent[c])
        if change != 0.0:
            shifted = change / constants.grid + uniform(report, c, dimension)
            sums[0, c] += report.weight * (constants.grid * math.floor(shifted))


@compiled
def add_dithered(constants, shared, own, report, sums):
    """All changes, rounded with a random shift that is subtracted again."""
    params, sent, dimension = own.params, shared.sent, own.params.shape[0]
    for c in range(dimension):
        shift = uniform(report, c, dimension) - 0.5
        change = report.factor * (params[c] - sent[c])
        rounded = math.floor(change / constants.grid + shift + 0.5) - shift
        sums[0, c] += report.weight * (constants.grid * rounded)


@compiled
def add_some_cells(constants, shared, own, report, sums):
    """The cells with the smallest words, scaled so that the mean stays the same."""
    params, sent, keys, dimension = own.params, shared.sent, own.keys, own.params.shape[0]
    for c in range(dimension):
        counter = np.uint64(report.number * dimension + c)
        high, low = words(report.seed, np.uint64(report.agent), counter, SOME_CELLS)
        keys[c] = (high << np.uint64(32)) | low
    # The order of the keys is lost in the selection, so they are made again for the comparison.
    largest = smallest_of(keys, constants.cells)
    scale = dimension / constants.cells
    for c in range(dimension):
        change = report.factor * (params[c] - sent[c])
        if change != 0.0:
            counter = np.uint64(report.number * dimension + c)
            high, low = words(report.seed, np.uint64(report.agent), counter, SOME_CELLS)
            if (high << np.uint64(32)) | low <= largest:
                sums[0, c] += report.weight * (change * scale)


@compiled
def smallest_of(keys, count):
    """The `count`-th smallest of `keys`, which are reordered (Hoare's selection)."""
    low, high, wanted = 0, keys.shape[0] - 1, count - 1
    while low < high:
        pivot = keys[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            return keys[wanted]
    return keys[wanted]
