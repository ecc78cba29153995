"""The cells that an agent of a cell rule has changed in a round, in each layout."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from fegsam.engines.cuda.params import EMPTY, overlay_find

_ZERO = np.uint64(0)


class Cells(NamedTuple):
    """Device functions for one layout. A cell's place is where its entry of `extra` lies."""

    move: Any
    """move(view, cell, increment, step): change a cell; return its place and its new value"""
    change: Any
    """change(view, cell): its change since the round's start"""
    count: Any
    """count(launch, view, steps): how many entries stand for all changes of some steps"""
    take: Any
    """take(view, entry): an entry's cell, its change and its place; the change is undone, so that
    it is zero where the cell comes again"""


def make_cells(spec):
    """The functions for one layout."""
    table = _logged if spec.where.logged else _whole
    found = _overlay() if spec.layout == "overlay" else table()
    return Cells(*(cuda.jit(device=True)(function) for function in found))


def _moved(view, cell, increment, step):
    params = view.params
    at = params.first + np.uint64(cell) * params.width
    new = params.memory[at] + increment
    params.memory[at] = new
    return np.uint64(cell), params.base[cell] + new


def _changed(view, cell):
    params = view.params
    return np.float64(params.memory[params.first + np.uint64(cell) * params.width])


def _taken(view, cell):
    params = view.params
    at = params.first + np.uint64(cell) * params.width
    change = np.float64(params.memory[at])
    params.memory[at] = 0
    return np.uint64(cell), change, np.uint64(cell)


def _whole():
    """A table of changes, all of which are looked at."""

    def count(launch, view, steps):
        return launch.dim

    return _moved, _changed, count, _taken


def _logged():
    """A table of changes, and a log of the cells that were written."""
    moved, taken = cuda.jit(device=True)(_moved), cuda.jit(device=True)(_taken)

    def move(view, cell, increment, step):
        view.log.cells[view.first + step * view.width] = cell
        return moved(view, cell, increment, step)

    def count(launch, view, steps):
        return steps

    def take(view, entry):
        return taken(view, view.log.cells[view.first + np.uint64(entry) * view.width])

    return move, _changed, count, take


def _overlay():
    """A hash table of the cells that were written, with their values."""

    def move(view, cell, increment, step):
        params = view.params
        place, key = overlay_find(params, cell)
        at = params.first_value + place * params.width
        new = (params.base[cell] if key == EMPTY else params.values[at]) + increment
        params.keys[params.first_key + place * params.width] = cell
        params.values[at] = new
        return place, new

    def change(view, cell):
        return np.float64(view.params[cell]) - np.float64(view.base[cell])

    def count(launch, view, steps):
        return np.int64(view.params.entries)

    def take(view, entry):
        params, place = view.params, np.uint64(entry)
        at = params.first_key + place * params.width
        cell = params.keys[at]
        if cell == EMPTY:
            return _ZERO, 0.0, place
        params.keys[at] = EMPTY
        value = np.float64(params.values[params.first_value + place * params.width])
        return np.uint64(cell), value - np.float64(params.base[cell]), place

    return move, change, count, take
