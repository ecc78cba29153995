"""The end of a round: the change that follows from the totals, and the server's step."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import math

from fegsam.compilation import compiled
from fegsam.engines.cpu.kernels import copy
from fegsam.engines.cpu.methods.finish import DENOMINATOR, LARGEST_LOG, NUMERATOR, VISITORS
from fegsam.engines.cpu.methods.members import PRESENT
from fegsam.engines.cpu.team import barrier
from fegsam.engines.cpu.tile import note_failure
from fegsam.engines.job import LARGEST

SERVER = -1
"""Stands for the server where a failed agent is noted."""


@compiled
def present_weight(members):
    """The weight of all agents that take part."""
    total = 0.0
    for row in range(members.kind_weights.shape[0]):
        total += members.kind_weights[row]
    return total


@compiled
def all_rows(totals, slot, c):
    """A total over all rows."""
    total = 0.0
    for row in range(totals.shape[0]):
        total += totals[row, slot, c]
    return total


def make_close_first_step(features, key):
    """A function that turns the directions of the round's first steps into corrections."""
    cell = features.form == "cell"

    @compiled(key=key)
    def close_first_step(constants, shared, own, seat, cells):
        variates, totals, members = shared.variates, shared.totals, shared.members
        weight = present_weight(members)
        for c in range(cells.low, cells.high):
            variates.mean[c] = all_rows(totals, 0, c) / weight if weight > 0.0 else 0.0
            for row in range(totals.shape[0]):
                share = members.kind_weights[row]
                if totals.shape[0] > 1 or variates.corrections.shape[0] > 0:
                    own_mean = totals[row, 0, c] / share if share > 0.0 else 0.0
                    variates.corrections[row, c] = variates.mean[c] - own_mean
                totals[row, 0, c] = 0.0
        barrier(shared.sync, seat.team)
        if cell:
            copy(own.correction, variates.mean)

    return close_first_step


def make_close(features, key):
    """A function that ends a round: the server's parameters, its memory, and the tail."""
    change_of = _make_change(features, key)
    keep_variates = _make_keep_variates(features, key)
    keeps = features.variates != "" and not features.first_step
    refresh = features.form == "cell" and features.variates == "agent" and keeps
    add_tail = _make_add_tail(features, key)
    slots = features.slots

    @compiled(key=key)
    def close(constants, shared, own, seat, part, tail, cells):
        weight, end = present_weight(shared.members), part.time + part.length
        for c in range(cells.low, cells.high):
            change = change_of(constants, shared, part, weight, c)
            add_tail(constants, shared, part, tail, weight, c)
            if keeps:
                keep_variates(shared, part, weight, c)
            velocity = constants.momentum * shared.velocity[c] + change
            params = shared.average[c] + constants.step * velocity
            shared.velocity[c] = velocity
            shared.average[c] = params
            shared.sent[c] = params + constants.look_ahead * velocity
            if end > tail.after:
                shared.tail[c] += params
            if not abs(params) <= LARGEST:
                note_failure(shared.failed[seat.rank], end, SERVER)
            for row in range(shared.totals.shape[0]):
                for slot in range(slots):
                    shared.totals[row, slot, c] = 0.0
        barrier(shared.sync, seat.team)
        copy(own.params, shared.sent)
        if refresh:
            copy(own.correction, shared.variates.mean)

    return close


def _make_change(features, key):
    """The round's change D at one cell."""
    partial, cell = features.partial, features.form == "cell"
    kept_by_agent = features.sums_variates
    kept_by_kind = features.variates == "kind" and not features.first_step

    def by_visits(constants, shared, part, weight, c):
        totals = shared.totals[0]
        if totals[DENOMINATOR, c] == 0.0:
            return 0.0
        others = float(constants.num_agents)
        if partial and not constants.over_all:
            others = float(shared.members.counts[PRESENT])
        if part.safe:
            return totals[NUMERATOR, c] / (others + totals[DENOMINATOR, c])
        silent = (others - totals[VISITORS, c]) * math.exp(-totals[LARGEST_LOG, c])
        return totals[NUMERATOR, c] / (totals[DENOMINATOR, c] + silent)

    def by_weights(constants, shared, part, weight, c):
        change = all_rows(shared.totals, 0, c)
        if not partial:
            return change
        if weight == 0.0:
            return 0.0
        # Where not all take part, the corrections of a cell rule do not add up to zero.
        if kept_by_agent:
            change += part.passed * (weight * shared.variates.mean[c] - shared.totals[0, 1, c])
        elif kept_by_kind and cell:
            for row in range(shared.totals.shape[0]):
                share = shared.members.kind_weights[row]
                change += part.passed * share * shared.variates.corrections[row, c]
        return change if constants.over_all else change / weight

    return compiled(by_visits if features.visits else by_weights, key=key, inline="always")


def _make_keep_variates(features, key):
    """The variates at one cell after the round: each kind's, and their mean."""
    cell, partial = features.form == "cell", features.partial

    def of_agents(shared, part, weight, c):
        mean, fresh = shared.variates.mean, shared.totals[0, 0, c] / part.passed
        if not partial:
            mean[c] = fresh
        elif cell:
            mean[c] += fresh - shared.totals[0, 1, c]
        else:
            mean[c] += fresh - weight * mean[c]

    def of_kinds(shared, part, weight, c):
        variates, shares = shared.variates, shared.members.kind_weights
        for row in range(shared.totals.shape[0]):
            if shares[row] > 0.0:
                fresh = shared.totals[row, 0, c] / (part.passed * shares[row])
                if not cell:
                    fresh -= variates.corrections[row, c]
                variates.values[row, c] = fresh
        total = 0.0
        for row in range(shared.totals.shape[0]):
            total += variates.shares[row] * variates.values[row, c]
        variates.mean[c] = total
        for row in range(shared.totals.shape[0]):
            variates.corrections[row, c] = total - variates.values[row, c]

    return compiled(
        of_kinds if features.variates == "kind" else of_agents, key=key, forceinline=True
    )


def _make_add_tail(features, key):
    """The sum of the averages inside the round, at one cell."""
    tail_kept, slot, cell = features.tail, features.tail_slot, features.form == "cell"
    kept_by_agent = features.sums_variates
    by_kind = features.variates == "kind" and not features.first_step and features.partial

    def add_tail(constants, shared, part, tail, weight, c):
        if not tail_kept:
            return
        if part.counts[0] == 0:
            return
        total = part.counts[0] * shared.sent[c]
        if weight > 0.0:
            total += all_rows(shared.totals, slot, c) / weight
            if cell and (kept_by_agent or by_kind):
                passed = 0.0
                for l in range(part.length):
                    passed += part.counts[l] * part.sizes[l]
                if kept_by_agent:
                    share = shared.variates.mean[c] - shared.totals[0, 1, c] / weight
                    total += passed * share
                else:
                    for row in range(shared.totals.shape[0]):
                        share = shared.members.kind_weights[row] / weight
                        total += passed * share * shared.variates.corrections[row, c]
        shared.tail[c] += total

    return compiled(add_tail, key=key, inline="always")
