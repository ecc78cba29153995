"""How a run of the `cuda` engine lies on the GPU: who runs where, and what is kept in which
memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fegsam.engines.cuda.memory import Place, Where
from fegsam.engines.job import Job
from fegsam.errors import ProblemError
from fegsam.history.settings import Settings

LAYOUTS = ("shared", "overlay", "table")

_MOST = 8
"""Warps of a block."""
_SIDE_BY_SIDE = 4
"""Warps that a processor runs without one waiting for the other."""
_MOST_REGISTERS, _MANY_REGISTERS, _FEW_REGISTERS = 255, 128, 64
_SMALL = 48 * 1024
"""Bytes of a table that a block keeps a copy of in shared memory."""
AHEAD = 4
"""Rounds that a scout may be ahead of its block: two at least, since a block keeps one until it has
the next."""
_FURTHER = 8
"""Steps past the end of a path that who follows it may ask for, by fours."""
_TRAIL_BYTES = 1 << 28
"""Of all scouts' paths."""
_FEW_SUMMANDS = 1 << 14
"""Of a round: so many do not get into each other's way when all are added to the same sums."""
_ROW_BYTES = 1 << 27
_MOST_ROWS = 4096
"""Averages handed over at once."""


@dataclass(frozen=True)
class Device:
    """What of the GPU the layout depends on."""

    name: str
    processors: int
    shared_bytes: int
    """that one block may have"""
    resident_bytes: int
    """shared memory of one processor"""
    free_bytes: int
    most_threads: int
    """on one processor"""
    registers: int
    """of one processor"""
    reserved: int
    """shared memory of a block that is not for the layout to give away: copies of tables, and the
    system's"""
    warp: int = 32
    in_turn: bool = False
    """whether a block begins only when the one before has ended, as in Numba's simulator"""


@dataclass(frozen=True)
class Shape:
    """What of the run the layout depends on."""

    form: str
    dim: int
    num_agents: int
    num_seeds: int
    sync_period: int
    ahead: int
    item: int
    """bytes of a parameter"""
    chained: bool = True
    """a path goes on from step to step, and is not drawn anew"""

    @property
    def entries(self) -> int:
        """Of an overlay: half as many again as a round can write, and then a power of two."""
        return max(8, 1 << (3 * self.sync_period // 2 - 1).bit_length())

    def own_bytes(self, layout: str) -> int:
        """What a thread needs for its agent's parameters."""
        if layout == "overlay":
            return self.entries * (4 + self.item)
        return self.dim * self.item * (2 if self.form == "dense" else 1)


@dataclass(frozen=True)
class Layout:
    """A run's place on the GPU."""

    name: str
    where: Where
    place: Place
    threads: int
    """of a block"""
    lanes: int
    slots: int
    blocks: int
    """that share one seed's agents"""
    seeds: int
    """that run at once"""
    shared_bytes: int
    grid: int
    """blocks in all, with the scouts"""
    rows: int
    """averages that one launch hands over, at most"""
    cuts: int
    """of which inside one round"""
    registers: int
    """of a thread: with few, more threads wait for memory by turns; with many, none has to put its
    numbers away"""
    most_rounds: int
    """of a launch"""

    @property
    def together(self) -> bool:
        return self.blocks > 1

    @property
    def crew(self) -> int:
        """Blocks that run agents."""
        return self.grid // 2 if self.where.scouted else self.grid


def make_shape(plan: Job, settings: Settings, item: int) -> Shape:
    period = max(1, min(settings.sync_period, settings.num_steps - plan.start.time))
    chained = settings.sampling == "markov"
    return Shape(
        plan.form,
        plan.dimension,
        plan.num_agents,
        len(settings.seeds),
        period,
        max(plan.window, 1),
        item,
        chained,
    )


def make_layout(
    shape: Shape, device: Device, name: str | None, wanted_cuts: int, fixed_bytes: int
) -> Layout:
    """Choose a layout, or place the one that is asked for; `fixed_bytes`: the problem's own
    tables."""
    name = name or _choose(shape, device)
    if name == "overlay" and (shape.form != "cell" or shape.num_agents == 1):
        raise ProblemError(
            "layout='overlay' is for several agents with tables (off-policy tabular TD, "
            "Q-learning); "
            "leave layout out, or give 'shared' or 'table'."
        )
    base = name != "table" and shape.num_agents > 1 and shape.dim * shape.item <= _SMALL
    sums = shape.num_agents > 1 and shape.dim * 8 <= _SMALL
    entries = shape.entries if name == "overlay" else 0
    logged = (
        name == "shared"
        and shape.form == "cell"
        and shape.num_agents > 1
        and 2 * shape.sync_period <= shape.dim
    )
    least = _bytes(shape, name, Where(sums, base, True, entries, logged), device.warp, 1)[1]
    own = name != "table" and least <= device.shared_bytes
    if name == "shared" and not own:
        raise ProblemError(
            f"layout='shared' needs {least} bytes of shared memory a block "
            f"and {device.name} has {device.shared_bytes}; leave layout out, or give 'table'."
        )
    where = Where(sums, base, own, entries, logged)
    threads, registers = _threads(shape, device, name, where)
    packed = shape.num_agents <= threads
    lanes = shape.num_agents if packed else threads
    slots = min(shape.num_seeds, threads // lanes) if packed else 1
    if packed:
        threads = -(-slots * lanes // device.warp) * device.warp
    place, shared_bytes = _bytes(shape, name, where, threads, slots)
    while packed and slots > 1 and shared_bytes > device.shared_bytes:
        slots -= 1
        threads = -(-slots * lanes // device.warp) * device.warp
        place, shared_bytes = _bytes(shape, name, where, threads, slots)
    resident = (
        1
        if device.in_turn
        else device.processors * max(1, _resident(device, threads, shared_bytes, registers))
    )
    blocks = 1 if packed else min(-(-shape.num_agents // threads), resident)
    seeds = min(shape.num_seeds, slots * max(1, resident // blocks))
    cuts, rows, per_seed, per_thread = _sizes(shape, name, where, wanted_cuts, seeds, blocks)
    room = int(0.9 * device.free_bytes) - fixed_bytes
    per_group = slots * per_seed + blocks * threads * per_thread
    while blocks > 1 and per_group > room:
        # Fewer threads, each with more agents one after the other.
        blocks = blocks // 2
        per_group = slots * per_seed + blocks * threads * per_thread
    if per_group > room:
        raise ProblemError(
            f"{shape.num_agents} agents with {shape.dim} parameters need "
            f"{per_group + fixed_bytes:.2e} bytes of GPU memory and "
            f"{device.name} has {device.free_bytes:.2e} free; use fewer agents, or engine='cpu'."
        )
    groups = min(-(-shape.num_seeds // slots), max(1, resident // blocks), room // per_group)
    found = Layout(
        name,
        where,
        place,
        threads,
        lanes,
        slots,
        blocks,
        groups * slots,
        shared_bytes,
        groups * blocks,
        rows,
        cuts,
        registers,
        most_rounds=1 << 62,
    )
    trail = 8 * _trail_steps(shape) * found.grid * threads
    # Arrays with a place for each thread have one for a scout's too.
    more = trail + per_thread * found.grid * threads
    spare = found.grid <= device.processors // 2 or device.in_turn
    seated = 1 < shape.num_agents <= blocks * lanes
    if (
        own
        and shape.chained
        and spare
        and seated
        and trail <= _TRAIL_BYTES
        and more <= room - groups * per_group
    ):
        return _scouted(found, shape, device)
    return found


def _scouted(found: Layout, shape: Shape, device: Device) -> Layout:
    """The same with scouts: a processor has few threads then, and each as many registers as there
    are."""
    # Where little is added, it goes straight to the sums of all blocks.
    few = shape.num_agents * shape.num_seeds * shape.sync_period <= _FEW_SUMMANDS
    where = found.where._replace(
        scouted=True, sums=found.where.sums and not few, near_log=found.where.logged
    )
    place, shared_bytes = _bytes(shape, found.name, where, found.threads, found.slots)
    if shared_bytes > device.shared_bytes:
        where = where._replace(near_log=False)
        place, shared_bytes = _bytes(shape, found.name, where, found.threads, found.slots)
    return replace(
        found,
        where=where,
        place=place,
        shared_bytes=shared_bytes,
        grid=2 * found.grid,
        registers=_MOST_REGISTERS,
        most_rounds=AHEAD if device.in_turn else found.most_rounds,
    )


def _choose(shape: Shape, device: Device) -> str:
    sparse = (
        shape.form == "cell"
        and shape.num_agents > 1
        and 2 * shape.own_bytes("overlay") <= shape.own_bytes("table")
    )
    needed = _bytes(shape, "shared", Where(True, True, True, 0), device.warp, 1)[1]
    resident = (
        _resident(device, device.warp, needed, _MANY_REGISTERS)
        if needed <= device.shared_bytes
        else 0
    )
    at_once = device.processors * device.warp * resident
    # An overlay leaves room for more threads, and asks more of each.
    if sparse:
        return "overlay" if shape.num_agents * shape.num_seeds > at_once else "shared"
    fits = (
        _bytes(shape, "shared", Where(True, True, True, 0), 2 * device.warp, 1)[1]
        <= device.shared_bytes
    )
    return "shared" if fits else "table"


def _threads(shape: Shape, device: Device, name: str, where: Where) -> tuple[int, int]:
    """Threads of a block and registers of a thread: as few as give every processor a block, as many
    as one can hold."""

    def held(threads: int, registers: int) -> int:
        needed = _bytes(shape, name, where, threads, 1)[1]
        return (
            threads * _resident(device, threads, needed, registers)
            if needed <= device.shared_bytes
            else 0
        )

    def best(registers: int) -> int:
        sizes = [
            count * device.warp
            for count in range(1, _MOST + 1)
            if held(count * device.warp, registers)
        ]
        chosen, most = device.warp, max(sizes, default=device.warp)
        for threads in sizes:
            spread = shape.num_agents > most and -(-shape.num_agents // chosen) <= device.processors
            if threads > _SIDE_BY_SIDE * device.warp and spread:
                break
            if held(threads, registers) >= held(chosen, registers):
                chosen = threads
        return chosen

    wanted = shape.num_agents * shape.num_seeds // device.processors
    many, few = best(_MANY_REGISTERS), best(_FEW_REGISTERS)
    if min(wanted, held(few, _FEW_REGISTERS)) >= 2 * held(many, _MANY_REGISTERS):
        return few, _FEW_REGISTERS
    return many, _MANY_REGISTERS


def _resident(device: Device, threads: int, shared_bytes: int, registers: int) -> int:
    """Blocks that one processor holds at once. Registers are given out to four warps at a time."""
    given = -(-threads // (4 * device.warp)) * 4 * device.warp
    by_memory = device.resident_bytes // (shared_bytes + device.reserved)
    return min(
        device.most_threads // threads, device.registers // (registers * given), by_memory, 32
    )


def _bytes(shape: Shape, name: str, where: Where, threads: int, slots: int) -> tuple[Place, int]:
    """Where things lie in a block's shared memory, and how much they take."""
    at = 0
    begins: dict[str, int] = {}

    def put(what: str, count: int, item: int) -> None:
        nonlocal at
        at = -(-at // item) * item
        begins[what] = at // item
        at += count * item

    many = shape.entries if name == "overlay" else shape.dim
    put("sums", 2 * slots * shape.dim if where.sums else 0, 4)
    put("tree", threads, 8)
    put("base", slots * shape.dim if where.base else 0, shape.item)
    put("own", many * threads if where.own else 0, shape.item)
    put("out", shape.dim * threads if where.own and shape.form == "dense" else 0, shape.item)
    put("keys", many * threads if where.own and name == "overlay" else 0, 4)
    put("log", shape.sync_period * threads if where.near_log else 0, 4)
    put("box", 2, 4)
    put("size", 2 * slots, 4)
    return Place(**{what: np.int64(begin) for what, begin in begins.items()}), -(-at // 8) * 8


def _sizes(
    shape: Shape, name: str, where: Where, wanted_cuts: int, seeds: int, blocks: int
) -> tuple[int, int, int, int]:
    """Cuts in a round, rows in a launch, and bytes for each seed and for each thread."""
    per_row = 8 * (shape.dim + 2 * blocks)
    rows = max(2, min(_MOST_ROWS, _ROW_BYTES // (per_row * seeds)))
    cuts = max(1, min(wanted_cuts, rows))
    windows = 16 * shape.ahead * shape.num_agents
    per_seed = windows + shape.dim * (16 + shape.item + 24 * (1 + cuts)) + rows * (per_row + 8)
    per_thread = (
        8 * cuts
        + (0 if where.own else shape.own_bytes(name))
        + (4 * shape.sync_period if where.logged else 0)
    )
    return cuts, rows, per_seed, per_thread


def _trail_steps(shape: Shape) -> int:
    """Of each thread: a ring, and what is asked for past its end."""
    return AHEAD * shape.sync_period + _FURTHER


def global_arrays(
    layout: Layout, shape: Shape, real: Any
) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shape and type of what lies in global memory besides windows and what is uploaded."""
    seeds, threads, dim = layout.seeds, layout.grid * layout.threads, shape.dim
    own = not layout.where.own
    overlaid = layout.name == "overlay"
    return {
        "totals": ((3, seeds, 1 + layout.cuts, dim), np.uint64),
        "squares": ((layout.cuts, threads), np.float64),
        "parts": ((layout.rows, seeds, layout.blocks, 2), np.float64),
        "overflow": ((3, seeds), np.int32),
        "again": ((3, layout.grid), np.int32),
        "arrivals": ((6,), np.uint64),
        "trail": (
            (_trail_steps(shape) * layout.crew * layout.threads if layout.where.scouted else 1,),
            np.uint64,
        ),
        "drawn": ((layout.crew,), np.uint64),
        "taken": ((layout.crew,), np.uint64),
        "rows": ((layout.rows, seeds, dim), np.float64),
        "own": ((threads * dim if own and not overlaid else 1,), real),
        "out": ((threads, dim) if own and shape.form == "dense" else (1, 1), real),
        "log": (
            (
                shape.sync_period * threads
                if layout.where.logged and not layout.where.near_log
                else 1,
            ),
            np.uint32,
        ),
        "keys": ((shape.entries * threads if own and overlaid else 1,), np.uint32),
        "values": ((shape.entries * threads if own and overlaid else 1,), real),
    }
