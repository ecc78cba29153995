"""The end of a round: the change that follows from the sums, and the server's step.

The threads of a seed divide the cells among them.
"""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from fegsam.engines.cuda.methods.exact import take, take_value

SHARE_BITS = 62
"""Weights of those who take part are summed in units of ``2^-SHARE_BITS``."""


class CellSums(NamedTuple):
    """The sums of a round at one cell."""

    change: Any
    """sum over those who take part of w_i Delta_i, without corrections of cell rules"""
    shift: Any
    """sum of w_i c_i, where that is not zero"""
    tail: Any
    """sum of w_i times the increments inside the round, as often as they count in the tail"""
    variates: Any
    """sum of w_i g_i, as these were at the round's start"""


def make_share(features):
    """The function that returns the weight of those of a row of sums who take part."""
    partial = features.partial

    @cuda.jit(device=True)
    def share_of(own, memory, seed, r, row):
        if partial:
            return math.ldexp(np.float64(memory.whole[seed, r, row]), -SHARE_BITS)
        return own.shares[row]

    return share_of


def make_present_weight(features):
    """The function that returns the weight of all who take part."""
    share_of = make_share(features)

    @cuda.jit(device=True)
    def present_weight(own, memory, seed, r):
        total = 0.0
        for row in range(memory.corrections.shape[1]):
            total += share_of(own, memory, seed, r, row)
        return total

    return present_weight


def make_close_first(features):
    """The function that turns the directions of the first steps into corrections."""
    by_kind, slots = features.variates == "kind", features.slots
    share_of, present_weight = make_share(features), make_present_weight(features)

    @cuda.jit(device=True)
    def close_first(launch, own, memory, thread, r):
        seed, rows, pitch = thread.seed_index, memory.corrections.shape[1], np.uint64(launch.dim)
        weight = present_weight(own, memory, seed, r)
        for c in range(thread.member, launch.dim, launch.blocks * launch.lanes):
            total = 0.0
            for row in range(rows):
                at = np.uint64((seed * rows + row) * slots * launch.digits * launch.dim + c)
                value = take_value(memory.totals, at, pitch, launch.digits)
                total += value
                if by_kind:
                    share = share_of(own, memory, seed, r, row)
                    memory.values[seed, row, c] = value / share if share > 0.0 else 0.0
            mean = total / weight if weight > 0.0 else 0.0
            for row in range(rows):
                memory.corrections[seed, row, c] = (
                    mean - memory.values[seed, row, c] if by_kind else mean
                )

    return close_first


@cuda.jit(device=True)
def send(constants, memory, seed, c):
    """Send a cell of the server's parameters, or of its look-ahead point."""
    sent = memory.average[seed, c] + constants.look_ahead * memory.velocity[seed, c]
    memory.sent[seed, c] = sent
    memory.rounded[seed, c] = sent


def make_close(features):
    """The function that ends a round: the server's parameters, its memory, and the tail."""
    take_sums, change_of = make_take_sums(features, True), _make_change(features)
    keep_variates, add_tail = _make_keep_variates(features), make_add_tail(features)
    present_weight = make_present_weight(features)

    @cuda.jit(device=True)
    def close(launch, constants, own, course, memory, thread, r):
        seed, weight = thread.seed_index, present_weight(own, memory, thread.seed_index, r)
        for c in range(thread.member, launch.dim, launch.blocks * launch.lanes):
            sums = take_sums(launch, own, course, memory, seed, r, weight, c)
            change = change_of(launch, constants, course, memory, seed, r, weight, sums, c)
            add_tail(course, launch, memory, seed, r, weight, sums, c)
            keep_variates(own, course, memory, seed, r, sums, c)
            velocity = constants.momentum * memory.velocity[seed, c] + change
            params = memory.average[seed, c] + constants.step * velocity
            memory.velocity[seed, c] = velocity
            memory.average[seed, c] = params
            send(constants, memory, seed, c)
            memory.tail[seed, c] += course.tails[r] * params
            if course.rows[r] >= 0:
                memory.rows[course.rows[r], seed, c] = params
            if not abs(params) <= launch.largest:
                memory.gone[seed] = np.uint64((r + 1) * launch.length)

    return close


def make_take_sums(features, closes):
    """The sums at one cell, which are zero afterwards; where the round `closes`, also its change
    and the new variates of kinds."""
    slots, tail, slot = features.slots, features.tail, features.tail_slot
    changes, summed = closes and not features.visits, features.sums_variates
    kept_by_kind = features.variates == "kind" and not features.first_step
    shifts = kept_by_kind and features.partial and features.form == "cell"
    whole, share_of = features.form != "cell", make_share(features)

    @cuda.jit(device=True)
    def take_sums(launch, own, course, memory, seed, r, weight, c):
        change, shift, counted, variates = 0.0, 0.0, 0.0, 0.0
        rows, pitch = memory.corrections.shape[1], np.uint64(launch.dim)
        for row in range(rows):
            first = ((seed * rows + row) * slots) * launch.digits * launch.dim + c
            fresh = 0.0
            if changes:
                fresh = take_value(memory.totals, np.uint64(first), pitch, launch.digits)
                change += fresh
            if tail:
                at = np.uint64(first + slot * launch.digits * launch.dim)
                counted += take_value(memory.totals, at, pitch, launch.digits)
            if kept_by_kind:
                share = share_of(own, memory, seed, r, row)
                old = memory.mean[seed, c] - memory.values[seed, row, c]
                if shifts:
                    shift += share * old
                if closes and share > 0.0:
                    fresh /= course.areas[r] * share
                    memory.values[seed, row, c] = fresh - old if whole else fresh
        if summed:
            at = np.uint64(seed * slots * launch.digits * launch.dim + c)
            at += np.uint64(launch.digits) * pitch
            variates = take_value(memory.totals, at, pitch, launch.digits)
            shift = weight * memory.mean[seed, c] - variates
        return CellSums(change, shift, counted, variates)

    return take_sums


def _make_change(features):
    """The round's change D at one cell."""
    partial, slots = features.partial, features.slots

    # More than 8 arguments: only a GPU can time what a group would cost here.
    def by_visits(launch, constants, course, memory, seed, r, weight, sums, c):
        others = np.float64(launch.num_agents)
        if partial and not constants.over_all:
            others = np.float64(memory.members[seed, r])
        at, pitch = np.uint64(seed * slots * launch.digits * launch.dim + c), np.uint64(launch.dim)
        above, high = take(memory.totals, at, pitch, launch.digits)
        at += np.uint64(launch.digits) * pitch
        below, low = take(memory.totals, at, pitch, launch.digits)
        # Agents that did not visit the cell have the weight one.
        below += math.ldexp(others, -low)
        return math.ldexp(above / below, high - low) if above != 0.0 else 0.0

    # More than 8 arguments: only a GPU can time what a group would cost here.
    def by_weights(launch, constants, course, memory, seed, r, weight, sums, c):
        if not partial:
            return sums.change
        if weight == 0.0:
            return 0.0
        change = sums.change + course.areas[r] * sums.shift
        return change if constants.over_all else change / weight

    return cuda.jit(device=True)(by_visits if features.visits else by_weights)


def _make_keep_variates(features):
    """The variates at one cell after the round: their mean, and the corrections."""
    partial = features.partial

    def nothing(own, course, memory, seed, r, sums, c):
        return

    def of_agents(own, course, memory, seed, r, sums, c):
        mean = sums.change / course.areas[r]
        if partial:
            mean += memory.mean[seed, c] - sums.variates
        memory.mean[seed, c] = mean
        memory.corrections[seed, 0, c] = mean

    def of_kinds(own, course, memory, seed, r, sums, c):
        mean = 0.0
        for row in range(memory.corrections.shape[1]):
            mean += own.shares[row] * memory.values[seed, row, c]
        memory.mean[seed, c] = mean
        for row in range(memory.corrections.shape[1]):
            memory.corrections[seed, row, c] = mean - memory.values[seed, row, c]

    if features.variates == "" or features.first_step:
        return cuda.jit(device=True)(nothing)
    return cuda.jit(device=True)(of_kinds if features.variates == "kind" else of_agents)


def make_add_tail(features):
    """The sum of the averages inside the round, at one cell."""
    tail = features.tail

    @cuda.jit(device=True)
    def add_tail(course, launch, memory, seed, r, weight, sums, c):
        if tail:
            total = course.counts[r * (launch.length + 1)] * memory.sent[seed, c]
            if weight > 0.0:
                total += (sums.tail + course.tail_areas[r] * sums.shift) / weight
            memory.tail[seed, c] += total

    return add_tail
