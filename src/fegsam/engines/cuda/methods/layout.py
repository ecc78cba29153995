"""How a method's run lies on the GPU: which threads run which agents, and what lies where."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fegsam.engines.cuda.layout import (
    MANY_REGISTERS,
    Device,
    Shape,
    check_layout,
    choose_layout,
    own_is_near,
    resident_blocks,
)
from fegsam.engines.cuda.memory import Where
from fegsam.engines.cuda.methods.exact import num_digits
from fegsam.engines.cuda.methods.memory import MethodPlace
from fegsam.engines.features import Features, features_of
from fegsam.engines.job import Job
from fegsam.errors import ProblemError

_WARPS = (1, 2, 4)
"""Warps of a block: few while processors are idle."""
_MOST_SEEDS = 4096
"""Seeds that run at once, at most, where each has a block of its own."""
_MOST_ROWS = 4096
"""Rounds of a launch, at most: each may be recorded."""
_ROW_BYTES = 1 << 27
_POINT_BYTES = 1 << 28
"""Bytes of the averages of a launch, and of the sums at record points inside a round."""


@dataclass(frozen=True)
class MethodShape:
    """The properties of the run that the layout depends on."""

    shape: Shape
    features: Features
    rows: int
    """of the sums: one, or one for each kind"""
    width: int
    """cells of an agent's variates"""
    digits: int
    """of a sum"""
    points: int
    """record points inside one round, at most"""

    @property
    def by_agent(self) -> bool:
        """Whether variates of each agent are kept from round to round."""
        return self.features.variates == "agent" and not self.features.first_step


@dataclass(frozen=True)
class MethodGpuLayout:
    """A run's place on the GPU."""

    name: str
    where: Where
    place: MethodPlace
    threads: int
    """of a block; all of them run agents of one seed"""
    blocks: int
    """that share one seed's agents"""
    seeds: int
    """that run at once"""
    shared_bytes: int
    rows: int
    """rounds of a launch, at most"""
    points: int
    """averages inside a round that a launch records, at most"""
    registers: int = MANY_REGISTERS

    @property
    def together(self) -> bool:
        """Whether several blocks share a seed."""
        return self.blocks > 1

    @property
    def grid(self) -> int:
        return self.seeds * self.blocks


def make_method_shape(job: Job, item: int, points: int) -> MethodShape:
    settings, features = job.settings, features_of(job)
    if features.variates == "agent" and features.form != "cell":
        raise ProblemError(
            "The cuda engine keeps control variates of each agent for tables alone (off-policy "
            "tabular TD, Q-learning); use ControlVariates(of='kind'), or engine='cpu'."
        )
    longest = max(1, min(job.rounds.longest, settings.num_steps))
    growth = 0
    if features.visits:
        largest = float(job.step_sizes(job.start.time, settings.num_steps).max(initial=0.0))
        growth = math.ceil(-longest * math.log1p(-largest) / math.log(2.0))
    shape = Shape(
        job.form,
        job.dimension,
        job.num_agents,
        len(settings.seeds),
        longest,
        max(job.window, 1),
        item,
        settings.sampling == "markov",
    )
    rows = len(job.agents.mdps) if features.variates == "kind" else 1
    width = min(job.rounds.longest, job.dimension)
    return MethodShape(shape, features, rows, width, num_digits(growth), points)


def make_method_layout(
    run: MethodShape, device: Device, name: str | None, fixed_bytes: int
) -> MethodGpuLayout:
    """Choose a layout, or place the one that is asked for; `fixed_bytes`: the problem's own
    tables."""
    shape = run.shape
    name = name or choose_layout(shape, device)
    check_layout(shape, name)
    near = own_is_near(device, name, _near(shape, name, True, device.warp)[1])
    threads = _threads(shape, device, name, near)
    place, shared_bytes = _near(shape, name, near, threads)
    resident = device.processors * max(
        1, resident_blocks(device, threads, shared_bytes, MANY_REGISTERS)
    )
    blocks = 1 if device.in_turn else min(-(-shape.num_agents // threads), resident)
    at_once = resident // blocks if blocks > 1 else _MOST_SEEDS
    seeds = min(shape.num_seeds, at_once)
    rows = max(2, min(_MOST_ROWS, _ROW_BYTES // (8 * (shape.dim + run.rows) * seeds)))
    per_point = 8 * (run.digits * shape.dim * seeds + threads * blocks * seeds)
    points = max(1, min(run.points, rows, _POINT_BYTES // per_point))
    per_thread = _thread_bytes(run, name, near) + 8 * points
    per_seed = _seed_bytes(run, rows, points)
    room = int(0.9 * device.free_bytes) - fixed_bytes - 24 * shape.num_agents
    while blocks > 1 and per_seed + blocks * threads * per_thread > room:
        # Fewer threads, each with more agents one after the other.
        blocks //= 2
    needed = per_seed + blocks * threads * per_thread
    if needed > room:
        _refuse(run, device, needed + fixed_bytes)
    cell = shape.form == "cell"
    where = Where(
        sums=False,
        base=False,
        own=near,
        entries=shape.entries if name == "overlay" else 0,
        logged=cell and name != "overlay" and shape.sync_period < shape.dim,
    )
    seeds = min(seeds, room // needed)
    return MethodGpuLayout(name, where, place, threads, blocks, seeds, shared_bytes, rows, points)


def _refuse(run: MethodShape, device: Device, needed: int) -> None:
    cure = "use fewer agents, or engine='cpu'"
    if run.by_agent:
        cure = "use ControlVariates(of='kind'), which keeps one for each kind"
    raise ProblemError(
        f"{run.shape.num_agents} agents with {run.shape.dim} parameters need {needed:.2e} bytes "
        f"of GPU memory and {device.name} has {device.free_bytes:.2e} free; {cure}."
    )


def _threads(shape: Shape, device: Device, name: str, near: bool) -> int:
    """Threads of a block: as few as all processors need, and as many as shared memory allows."""
    chosen = device.warp
    for warps in _WARPS:
        threads = warps * device.warp
        if _near(shape, name, near, threads)[1] > device.shared_bytes:
            break
        chosen = threads
        if shape.num_agents * shape.num_seeds <= device.processors * threads:
            break
    return chosen


def _near(shape: Shape, name: str, near: bool, threads: int) -> tuple[MethodPlace, int]:
    """Where things lie in a block's shared memory, and how much they take."""
    if not near:
        # A block with no shared memory at all cannot be asked for.
        return MethodPlace(np.int64(0), np.int64(0), np.int64(0)), 8
    many = shape.entries if name == "overlay" else shape.dim
    out = many * threads
    keys = out + (shape.dim * threads if shape.form == "dense" else 0)
    # The keys follow in entries of four bytes.
    first_key = keys * shape.item // 4
    end = 4 * (first_key + (many * threads if name == "overlay" else 0))
    return MethodPlace(np.int64(0), np.int64(out), np.int64(first_key)), -(-end // 8) * 8


def _thread_bytes(run: MethodShape, name: str, near: bool) -> int:
    """Bytes of global memory that a thread needs for its agent."""
    shape = run.shape
    overlaid = name == "overlay"
    many = shape.entries if overlaid else shape.dim
    extra = many * (shape.item + (4 if overlaid else 0))
    own = 0 if near else shape.own_bytes(name)
    log = 4 * shape.sync_period if shape.form == "cell" and not overlaid else 0
    return own + log + (extra if run.by_agent or run.features.visits else 0)


def _seed_bytes(run: MethodShape, rows: int, points: int) -> int:
    shape, features = run.shape, run.features
    sums = (run.rows * features.slots + points) * run.digits * 8
    by_cell = 48 + 2 * shape.item + sums + 8 * rows + run.rows * (8 + shape.item)
    by_agent = 8 * shape.ahead + 8 + (12 * run.width if run.by_agent else 0)
    return shape.dim * by_cell + shape.num_agents * by_agent + rows * 8 * (2 + run.rows)


def method_arrays(
    layout: MethodGpuLayout, run: MethodShape, real: Any
) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shape and type of the arrays in global memory, besides what is uploaded."""
    shape, features, where = run.shape, run.features, layout.where
    seeds, dim, agents = layout.seeds, shape.dim, shape.num_agents
    threads, overlaid = layout.grid * layout.threads, layout.name == "overlay"
    many = (shape.entries if overlaid else dim) * threads
    extra = run.by_agent or features.visits
    drawn = layout.rows if features.partial else 1
    windows = (1, seeds, shape.ahead, agents) if shape.chained else (1, 1, 1, 1)
    variates = (seeds, run.width, agents) if run.by_agent else (1, 1, 1)
    values = (seeds, run.rows, dim) if features.variates == "kind" else variates
    return {
        "states": (windows, np.uint32),
        "actions": (windows, np.uint32),
        "clocks": ((seeds, agents) if features.own_clocks else (1, 1), np.int64),
        "limits": ((seeds, drawn), np.uint64),
        "whole": ((seeds, drawn, run.rows), np.uint64),
        "members": ((seeds, drawn), np.uint64),
        "totals": ((seeds * run.rows * features.slots * run.digits * dim,), np.uint64),
        "seen": ((seeds * layout.points * run.digits * dim,), np.uint64),
        "squares": ((layout.points, threads), np.float64),
        "mean": ((seeds, dim), np.float64),
        "values": (values, np.float64),
        "cells": (variates, np.uint32),
        "corrections": ((seeds, run.rows, dim), real),
        "tail": ((seeds, dim), np.float64),
        "rows": ((layout.rows, seeds, dim), np.float64),
        "own": ((1 if where.own else many,), real),
        "keys": ((many if overlaid and not where.own else 1,), np.uint32),
        "extra": ((many if extra else 1,), real),
        "extra_keys": ((many if run.by_agent and overlaid else 1,), np.uint32),
        "out": ((dim * threads if shape.form == "dense" and not where.own else 1,), real),
        "log": ((shape.sync_period * threads if where.logged else 1,), np.uint32),
    }
