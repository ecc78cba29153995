"""The local steps of one agent, with a correction where the method has one."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fegsam.compilation import compiled
from fegsam.engines.corrected import Corrected
from fegsam.engines.cpu.kernels import all_finite
from fegsam.engines.cpu.steps import CALM
from fegsam.engines.job import LARGEST
from fegsam.randomness import ONE


class StepsNow(NamedTuple):
    """Local steps of one agent."""

    begin: Any
    end: Any
    at: Any
    """uint64: where the window of the first one begins"""
    stride: Any
    passed: Any
    """the sum of the step sizes of the round's steps before them"""
    weight: Any
    """of the agent in means inside the round"""
    report: Any
    """of its change in the round's"""


def make_method_steps(features, rule, key):
    """A function that makes local steps on `own.params`.

    Its increments go into `sums` at once where they need no further treatment. It returns how many
    steps left the parameters finite.
    """
    form = features.form
    rule = compiled(rule, key=key, _nrt=form == "dense", forceinline=True)
    makers = {"cell": _make_cell_steps, "row": _make_row_steps, "dense": _make_dense_steps}
    return compiled(makers[form](features, rule), key=key, inline="always")


def _make_cell_steps(features, rule):
    corrected, tail, slot = features.variates != "", features.tail, features.tail_slot
    visits, direct = features.visits, not features.visits and features.rounding == ""

    def cell_steps(own, correction, path, tables, part, now, sums):
        params, log, passed, at = own.params, own.log, now.passed, now.at
        sizes, counts = part.sizes, part.counts
        total = sums[0]
        # Unsigned: a signed index costs a wrap-around test.
        l = np.uint64(now.begin)
        for k in range(now.end - now.begin):
            size = sizes[l]
            if corrected:
                seen = Corrected(params, correction, passed)
                cell, scale = rule(seen, path, at, tables)
                passed += size
            else:
                cell, scale = rule(params, path, at, tables)
            old = params[cell]
            new = old + size * scale
            params[cell] = new
            log[l] = cell
            if visits:
                own.visits[cell] *= part.growth[l]
            if direct:
                total[cell] += now.report * (new - old)
            if tail:
                sums[slot, cell] += now.weight * counts[l] * (new - old)
            reached = new + passed * correction[cell] if corrected else new
            if not abs(reached) <= LARGEST:
                return k
            at += now.stride
            l += ONE
        return now.end - now.begin

    return cell_steps


def _make_row_steps(features, rule):
    corrected, tail, slot = features.variates != "", features.tail, features.tail_slot

    def row_steps(own, correction, path, tables, part, now, sums):
        sizes, counts = part.sizes, part.counts
        params, rows, at = own.params, tables.rows, now.at
        # Unsigned: a signed index costs a wrap-around test.
        l = np.uint64(now.begin)
        for k in range(now.end - now.begin):
            size = sizes[l]
            index, scale = rule(params, path, at, tables)
            factor = size * scale
            calm = abs(factor) < CALM
            for j in range(params.shape[0]):
                change = factor * rows[index, j]
                if corrected:
                    change += size * correction[j]
                    calm &= abs(change) < CALM
                params[j] += change
                if tail:
                    sums[slot, j] += now.weight * counts[l] * change
            if not calm and not all_finite(params):
                return k
            at += now.stride
            l += ONE
        return now.end - now.begin

    return row_steps


def _make_dense_steps(features, rule):
    corrected, tail, slot = features.variates != "", features.tail, features.tail_slot

    def dense_steps(own, correction, path, tables, part, now, sums):
        sizes, counts = part.sizes, part.counts
        params, out, at = own.params, own.out, now.at
        # Unsigned: a signed index costs a wrap-around test.
        l = np.uint64(now.begin)
        for k in range(now.end - now.begin):
            size = sizes[l]
            rule(params, path, at, tables, out)
            calm = True
            for j in range(params.shape[0]):
                change = size * (out[j] + correction[j]) if corrected else size * out[j]
                params[j] += change
                calm &= abs(change) < CALM
                if tail:
                    sums[slot, j] += now.weight * counts[l] * change
            if not calm and not all_finite(params):
                return k
            at += now.stride
            l += ONE
        return now.end - now.begin

    return dense_steps


def make_first_direction(features, rule, key):
    """A function that adds ``weight * F`` to `target`, where F is what the rule says at
    `own.params`.

    A cell rule's cell goes into the log.
    """
    form = features.form
    rule = compiled(rule, key=key, _nrt=form == "dense", forceinline=True)

    def cell_direction(own, path, tables, at, weight, target):
        cell, scale = rule(own.params, path, at, tables)
        target[cell] += weight * scale
        own.log[0] = cell

    def row_direction(own, path, tables, at, weight, target):
        index, scale = rule(own.params, path, at, tables)
        for j in range(target.shape[0]):
            target[j] += weight * scale * tables.rows[index, j]

    def dense_direction(own, path, tables, at, weight, target):
        rule(own.params, path, at, tables, own.out)
        for j in range(target.shape[0]):
            target[j] += weight * own.out[j]

    makers = {"cell": cell_direction, "row": row_direction, "dense": dense_direction}
    return compiled(makers[form], key=key, inline="always")
