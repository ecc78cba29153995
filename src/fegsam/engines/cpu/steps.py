"""The steps of one agent in the `cpu` engine: for each form of rule, its own write."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import numpy as np

from fegsam.algorithms.rule import ONE
from fegsam.algorithms.td import add_row
from fegsam.compilation import compiled
from fegsam.engines.cpu.kernels import all_finite
from fegsam.engines.job import LARGEST

CALM = 1e20
"""Increments below this, times a feature of at most 1e100, are lost to rounding at `LARGEST`; after
a larger one, all parameters are checked."""


def make_steps(form, rule, key):
    """A compiled function that makes the steps `reach` of one agent on `scratch.params`.

    It returns how many of them left the parameters finite. `key` identifies the rule (see
    `compilation`).
    """
    rule = compiled(rule, key=key, _nrt=form == "dense", forceinline=True)
    makers = {"cell": _make_cell_steps, "row": _make_row_steps, "dense": _make_dense_steps}
    return compiled(makers[form](rule), key=key, forceinline=True)


def _make_cell_steps(rule):
    def cell_steps(scratch, path, tables, step_size, reach, trace):
        params, write, sums = scratch.params, trace.write, trace.sums
        cells, olds, news = trace.log.cell, trace.log.old, trace.log.new
        # Unsigned: a signed index costs a wrap-around test.
        at, slot = reach.at, np.uint64(trace.entry)
        for k in range(reach.steps):
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
            at += reach.stride
            slot += ONE
        return reach.steps

    return cell_steps


def _make_row_steps(rule):
    def row_steps(scratch, path, tables, step_size, reach, trace):
        params, rows, at = scratch.params, tables.rows, reach.at
        for k in range(reach.steps):
            index, scale = rule(params, path, at, tables)
            factor = step_size * scale
            add_row(params, rows, index, factor)
            if not abs(factor) < CALM and not all_finite(params):
                return k
            at += reach.stride
        return reach.steps

    return row_steps


def _make_dense_steps(rule):
    def dense_steps(scratch, path, tables, step_size, reach, trace):
        params, out, at = scratch.params, scratch.out, reach.at
        for k in range(reach.steps):
            rule(params, path, at, tables, out)
            calm = True
            for j in range(params.shape[0]):
                change = step_size * out[j]
                params[j] += change
                calm &= abs(change) < CALM
            if not calm and not all_finite(params):
                return k
            at += reach.stride
        return reach.steps

    return dense_steps
