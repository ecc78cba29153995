"""One local step of an agent, with a correction where the method has one."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np
from numba import cuda

from fegsam.engines.corrected import Corrected
from fegsam.engines.cuda.methods.exact import add
from fegsam.engines.cuda.rule import CALM, all_finite

_ZERO = np.uint64(0)


def make_method_step(features, rule, cells):
    """The function that makes a step, numbered `step` within the round.

    It returns whether all parameters stayed finite.
    """
    if features.form == "cell":
        made = _make_cell_step(features, cuda.jit(device=True)(rule), cells)
    else:
        made = _make_whole_step(features, *_whole_rule(features.form, rule))
    return cuda.jit(device=True)(made)


def make_direction(features, rule):
    """The function that adds what the rule says at the parameters sent, without a step."""
    if features.form == "cell":
        made = _make_cell_direction(cuda.jit(device=True)(rule))
    else:
        made = _make_whole_direction(*_whole_rule(features.form, rule))
    return cuda.jit(device=True)(made)


def make_no_step():
    """The function of a step that is not made: the agent does not take part."""

    def no_step(launch, view, path, tables, step):
        return True

    return cuda.jit(device=True)(no_step)


def _make_cell_step(features, rule, cells):
    corrected, tail, visits = features.variates != "", features.tail, features.visits
    notes_first = features.variates == "agent" and features.first_step
    slot, move = features.tail_slot, cells.move

    def cell_step(launch, view, path, tables, step):
        params, course, at = view.params, view.course, view.at + step
        size = course.sizes[at]
        if corrected:
            seen = Corrected(params, view.correction, course.passed[at])
            cell, scale = rule(seen, path, _ZERO, tables)
        else:
            cell, scale = rule(params, path, _ZERO, tables)
        if notes_first and step == _ZERO:
            view.correction.cells[0] = cell
            view.correction.values[0] = scale
        increment = size * scale
        place, value = move(view, cell, increment, step)
        if visits:
            view.extra[view.first + place * view.width] += course.logs[at]
        if corrected:
            value += (course.passed[at] + size) * view.correction[cell]
        if not abs(value) <= launch.largest:
            return False
        if tail:
            counted = view.weight * course.counts[at] * np.float64(increment)
            pitch = np.uint64(launch.dim)
            first = view.first_sum + np.uint64(slot * launch.digits) * pitch
            add(view.totals, first + np.uint64(cell), pitch, counted, 0)
        return True

    return cell_step


def _whole_rule(form, rule):
    """Two functions: one calls the rule, and one reads an entry of what it says."""
    rule = cuda.jit(device=True)(rule)

    def call_row(view, path, tables):
        return rule(view.params, path, _ZERO, tables)

    def row_entry(view, tables, index, scale, j):
        return scale * tables.rows[index, j]

    def call_dense(view, path, tables):
        rule(view.params, path, _ZERO, tables, view.out)
        return _ZERO, 1.0

    def dense_entry(view, tables, index, scale, j):
        return view.out[j]

    chosen = (call_row, row_entry) if form == "row" else (call_dense, dense_entry)
    return tuple(cuda.jit(device=True)(function) for function in chosen)


def _make_whole_step(features, call, entry):
    corrected, tail, slot = features.variates != "", features.tail, features.tail_slot

    def whole_step(launch, view, path, tables, step):
        params, course, at = view.params, view.course, view.at + step
        size = course.sizes[at]
        index, scale = call(view, path, tables)
        calm, pitch = True, np.uint64(launch.dim)
        first = view.first_sum + np.uint64(slot * launch.digits) * pitch
        for j in range(launch.dim):
            change = size * entry(view, tables, index, scale, j)
            if corrected:
                change += size * view.correction[j]
            params[j] += change
            calm &= abs(change) < CALM
            if tail:
                counted = view.weight * course.counts[at] * np.float64(change)
                add(view.totals, first + np.uint64(j), pitch, counted, 0)
        return calm or all_finite(params, launch.largest)

    return whole_step


def _make_cell_direction(rule):
    def cell_direction(launch, view, path, tables, step):
        cell, scale = rule(view.params, path, _ZERO, tables)
        at, pitch = view.first_sum + np.uint64(cell), np.uint64(launch.dim)
        add(view.totals, at, pitch, view.weight * np.float64(scale), 0)
        return True

    return cell_direction


def _make_whole_direction(call, entry):
    def whole_direction(launch, view, path, tables, step):
        index, scale = call(view, path, tables)
        pitch = np.uint64(launch.dim)
        for j in range(launch.dim):
            value = view.weight * np.float64(entry(view, tables, index, scale, j))
            add(view.totals, view.first_sum + np.uint64(j), pitch, value, 0)
        return True

    return whole_direction
