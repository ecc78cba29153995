"""How a thread of the `cuda` engine sees its agent's parameters: objects that a rule indexes like
an array."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, types
from numba.extending import overload, register_jitable

from fegsam.engines.cuda.instructions import inlined
from fegsam.randomness import MASK, ONE

EMPTY = np.uint32(0xFFFFFFFF)
_HASH = np.uint64(2654435769)


class Overlay(NamedTuple):
    """The parameters of one agent: the average, except in the cells that it has written."""

    base: Any
    keys: Any
    values: Any
    first_key: Any
    """its first entry; the next ones lie `width` apart, with those of other threads between"""
    first_value: Any
    width: Any
    entries: Any
    """a power of two"""

    def __getitem__(self, cell):  # interpreted; compiled code goes through `_overlay_getitem`
        return overlay_read(self, cell)


@register_jitable
def overlay_find(overlay, cell):
    """The place of `cell`, or the empty place where it belongs; and the key at that place."""
    wanted = np.uint32(cell)
    # The upper bits of the product depend on all bits of the cell.
    place = ((np.uint64(wanted) * _HASH) & MASK) >> np.uint64(16) & (overlay.entries - ONE)
    key = overlay.keys[overlay.first_key + place * overlay.width]
    while key != EMPTY and key != wanted:
        place = (place + ONE) & (overlay.entries - ONE)
        key = overlay.keys[overlay.first_key + place * overlay.width]
    return place, key


@register_jitable
def overlay_read(overlay, cell):
    place, key = overlay_find(overlay, cell)
    return (
        overlay.base[cell]
        if key == EMPTY
        else overlay.values[overlay.first_value + place * overlay.width]
    )


@overload(operator.getitem)
def _overlay_getitem(overlay, cell):
    if (
        isinstance(overlay, types.NamedTuple)
        and overlay.instance_class is Overlay
        and isinstance(cell, types.Integer)
    ):
        return lambda overlay, cell: overlay_read(overlay, cell)
    return None


class Column(NamedTuple):
    """The parameters of one agent, interleaved with those of its block: entry j of all agents, then
    entry j + 1."""

    memory: Any
    first: Any
    width: Any
    shape: Any

    def __getitem__(self, index):
        return self.memory[self.first + np.uint64(index) * self.width]

    def __setitem__(self, index, value):
        self.memory[self.first + np.uint64(index) * self.width] = value


def _is_column(column, index):
    return (
        isinstance(column, types.NamedTuple)
        and column.instance_class is Column
        and isinstance(index, types.Integer)
    )


@overload(operator.getitem)
def _column_getitem(column, index):
    return (
        (lambda column, index: column.memory[column.first + np.uint64(index) * column.width])
        if _is_column(column, index)
        else None
    )


@overload(operator.setitem)
def _column_setitem(column, index, value):
    if not _is_column(column, index):
        return None

    def put(column, index, value):
        column.memory[column.first + np.uint64(index) * column.width] = value

    return put


class Changed(NamedTuple):
    """The parameters of one agent: the average plus the agent's changes, which are laid out as a
    `Column`."""

    base: Any
    memory: Any
    first: Any
    width: Any

    def __getitem__(self, cell):
        return self.base[cell] + self.memory[self.first + np.uint64(cell) * self.width]


@overload(operator.getitem)
def _changed_getitem(changed, cell):
    if (
        isinstance(changed, types.NamedTuple)
        and changed.instance_class is Changed
        and isinstance(cell, types.Integer)
    ):
        return lambda changed, cell: (
            changed.base[cell] + changed.memory[changed.first + np.uint64(cell) * changed.width]
        )
    return None


def make_views(spec):
    """Three functions: the tables of a block's agents, one agent's parameters, and what a dense
    rule fills."""
    where = spec.where
    if spec.layout == "overlay":
        tables, params = _no_tables, _make_overlay(spec)
    else:
        tables, params = _make_tables(spec), _make_params(spec)
    if spec.form != "dense":
        out = _no_out
    else:
        out = _make_shared_out(spec.real) if where.own else _global_out
    return inlined(tables), inlined(params), inlined(out)


def _make_tables(spec):
    real = spec.real

    def shared_tables(launch, place, memory):
        return cuda.shared.array(0, real)[place.own : place.own + launch.dim * cuda.blockDim.x]

    def global_tables(launch, place, memory):
        size = launch.dim * cuda.blockDim.x
        return memory.own[cuda.blockIdx.x * size : (cuda.blockIdx.x + 1) * size]

    return shared_tables if spec.where.own else global_tables


def _no_tables(launch, place, memory):
    return memory.own


def _make_params(spec):
    real = spec.real

    def shared_params(launch, place, memory, base, tables):
        at, width = np.uint64(cuda.threadIdx.x), np.uint64(cuda.blockDim.x)
        return Column(cuda.shared.array(0, real), np.uint64(place.own) + at, width, (launch.dim,))

    def shared_changes(launch, place, memory, base, tables):
        at, width = np.uint64(cuda.threadIdx.x), np.uint64(cuda.blockDim.x)
        return Changed(base, cuda.shared.array(0, real), np.uint64(place.own) + at, width)

    def global_params(launch, place, memory, base, tables):
        return tables[cuda.threadIdx.x * launch.dim : (cuda.threadIdx.x + 1) * launch.dim]

    if spec.where.logged:
        return shared_changes
    return shared_params if spec.where.own else global_params


def _make_overlay(spec):
    real, entries = spec.real, np.uint64(spec.where.entries)

    def shared_overlay(launch, place, memory, base, tables):
        keys, values = cuda.shared.array(0, types.uint32), cuda.shared.array(0, real)
        at, width = np.uint64(cuda.threadIdx.x), np.uint64(cuda.blockDim.x)
        first_key, first_value = np.uint64(place.keys) + at, np.uint64(place.own) + at
        return Overlay(base, keys, values, first_key, first_value, width, entries)

    def global_overlay(launch, place, memory, base, tables):
        at, width = np.uint64(cuda.grid(1)), np.uint64(cuda.gridsize(1))
        return Overlay(base, memory.keys, memory.values, at, at, width, entries)

    return shared_overlay if spec.where.own else global_overlay


def _make_shared_out(real):
    def shared_out(launch, place, memory):
        at, width = np.uint64(cuda.threadIdx.x), np.uint64(cuda.blockDim.x)
        return Column(cuda.shared.array(0, real), np.uint64(place.out) + at, width, (launch.dim,))

    return shared_out


def _global_out(launch, place, memory):
    return memory.out[cuda.grid(1)]


def _no_out(launch, place, memory):
    return memory.out[0]
