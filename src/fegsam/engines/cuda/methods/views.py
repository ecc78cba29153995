"""What a thread sees of the agent that it runs: its parameters, and its correction."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, types
from numba.extending import overload

from fegsam.engines.cuda.instructions import inlined
from fegsam.engines.cuda.memory import CellLog
from fegsam.engines.cuda.methods.memory import MethodView
from fegsam.engines.cuda.params import Changed, Column, Overlay
from fegsam.engines.cuda.sums import empty
from fegsam.randomness import ONE

_ZERO = np.uint64(0)


class Spot(NamedTuple):
    """Numbers that one agent shares with all, but for one cell, where its own is subtracted."""

    base: Any
    cells: Any
    """uint32 (1)"""
    values: Any
    """(1)"""

    def __getitem__(self, cell):
        return self.base[cell] - (self.values[0] if np.uint32(cell) == self.cells[0] else 0)


@overload(operator.getitem)
def _spot_getitem(spot, cell):
    if (
        isinstance(spot, types.NamedTuple)
        and spot.instance_class is Spot
        and isinstance(cell, types.Integer)
    ):

        def read(spot, cell):
            value = spot.base[cell]
            if np.uint32(cell) == spot.cells[0]:
                value -= spot.values[0]
            return value

        return read
    return None


def make_view_params(spec):
    """The function that shows a thread's parameters; changes of the base, for tables of cells."""
    shared, entries = spec.where.own, np.uint64(spec.where.entries)

    def near(launch, place, memory, thread, scratch, base):
        at = np.uint64(place.own) + thread.lane
        return Column(scratch.reals, at, thread.lanes, (launch.dim,))

    def far(launch, place, memory, thread, scratch, base):
        return Column(memory.own, thread.at, thread.threads, (launch.dim,))

    def near_changes(launch, place, memory, thread, scratch, base):
        return Changed(base, scratch.reals, np.uint64(place.own) + thread.lane, thread.lanes)

    def far_changes(launch, place, memory, thread, scratch, base):
        return Changed(base, memory.own, thread.at, thread.threads)

    def near_overlay(launch, place, memory, thread, scratch, base):
        first_key = np.uint64(place.keys) + thread.lane
        first_value, width = np.uint64(place.own) + thread.lane, thread.lanes
        return Overlay(base, scratch.keys, scratch.reals, first_key, first_value, width, entries)

    def far_overlay(launch, place, memory, thread, scratch, base):
        at, width = thread.at, thread.threads
        return Overlay(base, memory.keys, memory.own, at, at, width, entries)

    if spec.form != "cell":
        return inlined(near if shared else far)
    if spec.layout == "overlay":
        return inlined(near_overlay if shared else far_overlay)
    return inlined(near_changes if shared else far_changes)


def make_clear(spec):
    """The function that sets a thread's changes in shared memory to zero."""
    view_params = make_view_params(spec)

    def nothing(launch, place, memory, thread, scratch):
        """Nothing to do: global memory keeps what the last launch left, which is zero."""

    def clear_table(launch, place, memory, thread, scratch):
        params = view_params(launch, place, memory, thread, scratch, memory.rounded[0])
        for c in range(launch.dim):
            params.memory[params.first + np.uint64(c) * params.width] = 0

    def clear_overlay(launch, place, memory, thread, scratch):
        empty(view_params(launch, place, memory, thread, scratch, memory.rounded[0]))

    if spec.form != "cell" or not spec.where.own:
        return cuda.jit(device=True)(nothing)
    return cuda.jit(device=True)(clear_overlay if spec.layout == "overlay" else clear_table)


def make_view_out(spec):
    """The function that shows what a dense rule fills."""
    shared = spec.where.own and spec.form == "dense"

    def near(launch, place, memory, thread, scratch):
        at = np.uint64(place.out) + thread.lane
        return Column(scratch.reals, at, thread.lanes, (launch.dim,))

    def far(launch, place, memory, thread, scratch):
        return Column(memory.out, thread.at, thread.threads, (launch.dim,))

    return inlined(near if shared else far)


def make_view_correction(spec, features):
    """The function that shows what an agent adds to its steps."""
    entries = np.uint64(spec.where.entries)

    def none(memory, thread, scratch, row):
        return memory.rounded[thread.seed_index]

    def of_kind(memory, thread, scratch, row):
        return memory.corrections[thread.seed_index, row]

    def of_first_step(memory, thread, scratch, row):
        mean = memory.corrections[thread.seed_index, 0]
        return Spot(mean, scratch.spot[0], scratch.spot[1])

    def in_table(memory, thread, scratch, row):
        mean = memory.corrections[thread.seed_index, 0]
        return Changed(mean, memory.extra, thread.at, thread.threads)

    def in_overlay(memory, thread, scratch, row):
        at, width, mean = thread.at, thread.threads, memory.corrections[thread.seed_index, 0]
        return Overlay(mean, memory.extra_keys, memory.extra, at, at, width, entries)

    if features.variates != "agent":
        return inlined(of_kind if features.variates else none)
    if features.first_step:
        return inlined(of_first_step)
    return inlined(in_overlay if spec.layout == "overlay" else in_table)


def make_view_agent(spec, features):
    """The function that shows an agent in round `r` of the launch."""
    view_params, view_out = make_view_params(spec), make_view_out(spec)
    view_correction = make_view_correction(spec, features)
    by_kind, slots = features.variates == "kind", features.slots

    # More than 8 arguments: only a GPU can time what a group would cost here.
    @inlined
    def view_agent(launch, place, memory, course, thread, scratch, kind, weight, r):
        seed, rows = thread.seed_index, memory.corrections.shape[1]
        base, row = memory.rounded[seed], kind if by_kind else 0
        return MethodView(
            params=view_params(launch, place, memory, thread, scratch, base),
            base=base,
            correction=view_correction(memory, thread, scratch, row),
            extra=memory.extra,
            first=thread.at,
            width=thread.threads,
            out=view_out(launch, place, memory, thread, scratch),
            log=CellLog(memory.log, _ZERO, ONE),
            course=course,
            at=np.uint64(r * (launch.length + 1)),
            weight=weight,
            totals=memory.totals,
            first_sum=np.uint64((seed * rows + row) * slots * launch.digits * launch.dim),
        )

    return view_agent
