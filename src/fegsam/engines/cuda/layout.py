"""How a run of the `cuda` engine lies on the GPU: which threads run which agents, and what lies in
which memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fegsam.engines.cuda.memory import SharedPlaces, Where
from fegsam.engines.job import Job
from fegsam.errors import ProblemError

_MOST = 8
"""Warps of a block, at most."""
_SIDE_BY_SIDE = 4
"""Warps that a processor runs at the same time."""
_MOST_REGISTERS, MANY_REGISTERS, FEW_REGISTERS = 255, 128, 64
_SMALL = 48 * 1024
"""Bytes of a table that a block copies into shared memory, at most."""
ROUNDS_AHEAD = 4
"""Rounds that a producer may be ahead of its block: at least two, since a block keeps one until it
has the next."""
_PREFETCH = 8
"""Padding of a path for the consumer's 4-wide prefetch."""
_RING_BYTES = 1 << 28
"""Bytes of all producers' paths, at most."""
_FEW_SUMMANDS = 1 << 14
"""Summands of a round that can all be added to the same sums without contention."""
_ROW_BYTES = 1 << 27
_MOST_ROWS = 4096
"""Averages that one launch hands over, at most."""


@dataclass(frozen=True)
class Device:
    """The properties of the GPU that the layout depends on."""

    name: str
    processors: int
    shared_bytes: int
    """shared memory that one block may have"""
    resident_bytes: int
    """shared memory of one processor"""
    free_bytes: int
    most_threads: int
    """on one processor"""
    registers: int
    """of one processor"""
    reserved: int
    """shared memory of a block that the layout cannot use: copies of tables, and the system's"""
    warp: int = 32
    in_turn: bool = False
    """whether a block begins only when the one before has ended, as in Numba's simulator"""


@dataclass(frozen=True)
class Shape:
    """The properties of the run that the layout depends on."""

    form: str
    dim: int
    num_agents: int
    num_seeds: int
    sync_period: int
    ahead: int
    item: int
    """bytes of a parameter"""
    chained: bool = True
    """a path continues from step to step; False: each step draws its own window"""

    @property
    def entries(self) -> int:
        """Entries of an overlay: the power of two above 1.5 times the cells that a round can
        write."""
        return max(8, 1 << (3 * self.sync_period // 2 - 1).bit_length())

    def own_bytes(self, layout: str) -> int:
        """Bytes that a thread needs for its agent's parameters."""
        if layout == "overlay":
            return self.entries * (4 + self.item)
        return self.dim * self.item * (2 if self.form == "dense" else 1)


@dataclass(frozen=True)
class GpuLayout:
    """A run's place on the GPU."""

    name: str
    where: Where
    place: SharedPlaces
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
    """all blocks, with the producers"""
    rows: int
    """averages that one launch hands over, at most"""
    points: int
    """record points inside one round, at most"""
    registers: int
    """of a thread: with few, more threads hide each other's memory latency; with many, none spills
    registers"""
    most_rounds: int
    """of a launch"""

    @property
    def together(self) -> bool:
        """Whether several blocks share a seed."""
        return self.blocks > 1

    @property
    def agent_blocks(self) -> int:
        """Blocks that run agents."""
        return self.grid // 2 if self.where.producers else self.grid


def make_shape(job: Job, item: int) -> Shape:
    settings = job.settings
    period = max(1, min(settings.sync_period, settings.num_steps - job.start.time))
    chained = settings.sampling == "markov"
    return Shape(
        job.form,
        job.dimension,
        job.num_agents,
        len(settings.seeds),
        period,
        max(job.window, 1),
        item,
        chained,
    )


def make_layout(
    shape: Shape, device: Device, name: str | None, wanted_points: int, fixed_bytes: int
) -> GpuLayout:
    """Choose a layout, or place the one that is asked for; `fixed_bytes`: the problem's own
    tables."""
    name = name or choose_layout(shape, device)
    where = _where(shape, device, name)
    block = _block(shape, device, name, where)
    packed, slots = block.lanes == shape.num_agents, block.slots
    resident = (
        1
        if device.in_turn
        else device.processors
        * max(1, resident_blocks(device, block.threads, block.shared_bytes, block.registers))
    )
    blocks = 1 if packed else min(-(-shape.num_agents // block.threads), resident)
    seeds = min(shape.num_seeds, slots * max(1, resident // blocks))
    sizes = _sizes(shape, name, where, wanted_points, seeds, blocks)
    room = int(0.9 * device.free_bytes) - fixed_bytes
    per_group = slots * sizes.per_seed + blocks * block.threads * sizes.per_thread
    while blocks > 1 and per_group > room:
        # Fewer threads, each with more agents one after the other.
        blocks = blocks // 2
        per_group = slots * sizes.per_seed + blocks * block.threads * sizes.per_thread
    if per_group > room:
        raise ProblemError(
            f"{shape.num_agents} agents with {shape.dim} parameters need "
            f"{per_group + fixed_bytes:.2e} bytes of GPU memory and "
            f"{device.name} has {device.free_bytes:.2e} free; use fewer agents, or engine='cpu'."
        )
    groups = min(-(-shape.num_seeds // slots), max(1, resident // blocks), room // per_group)
    found = GpuLayout(
        name=name,
        where=where,
        place=block.place,
        threads=block.threads,
        lanes=block.lanes,
        slots=slots,
        blocks=blocks,
        seeds=groups * slots,
        shared_bytes=block.shared_bytes,
        grid=groups * blocks,
        rows=sizes.rows,
        points=sizes.points,
        registers=block.registers,
        most_rounds=1 << 62,
    )
    spare_bytes = room - groups * per_group
    if _can_have_producers(found, shape, device, sizes.per_thread, spare_bytes):
        return _with_producers(found, shape, device)
    return found


def _where(shape: Shape, device: Device, name: str) -> Where:
    """What lies in shared memory."""
    check_layout(shape, name)
    several, cells = shape.num_agents > 1, shape.form == "cell"
    where = Where(
        sums=several and shape.dim * 8 <= _SMALL,
        base=several and name != "table" and shape.dim * shape.item <= _SMALL,
        own=True,
        entries=shape.entries if name == "overlay" else 0,
        logged=name == "shared" and cells and several and 2 * shape.sync_period <= shape.dim,
    )
    least = _bytes(shape, name, where, device.warp, 1)[1]
    return where._replace(own=own_is_near(device, name, least))


def check_layout(shape: Shape, name: str) -> None:
    """Raise `ProblemError` where an overlay is asked for and cannot be had."""
    if name == "overlay" and not (shape.form == "cell" and shape.num_agents > 1):
        raise ProblemError(
            "layout='overlay' is for several agents with tables (off-policy tabular TD, "
            "Q-learning); leave layout out, or give 'shared' or 'table'."
        )


def own_is_near(device: Device, name: str, least: int) -> bool:
    """Whether parameters lie in shared memory, of which the smallest block needs `least` bytes."""
    own = name != "table" and least <= device.shared_bytes
    if name == "shared" and not own:
        raise ProblemError(
            f"layout='shared' needs {least} bytes of shared memory a block "
            f"and {device.name} has {device.shared_bytes}; leave layout out, or give 'table'."
        )
    return own


class _Block(NamedTuple):
    """A block's threads and its shared memory."""

    threads: int
    registers: int
    lanes: int
    slots: int
    place: SharedPlaces
    shared_bytes: int


def _block(shape: Shape, device: Device, name: str, where: Where) -> _Block:
    """One seed's agents fill blocks; where one block holds them all, it takes several seeds."""
    threads, registers = _threads(shape, device, name, where)
    if shape.num_agents > threads:
        return _Block(threads, registers, threads, 1, *_bytes(shape, name, where, threads, 1))
    lanes = shape.num_agents
    slots = min(shape.num_seeds, threads // lanes)
    while True:
        threads = -(-slots * lanes // device.warp) * device.warp
        place, shared_bytes = _bytes(shape, name, where, threads, slots)
        if slots == 1 or shared_bytes <= device.shared_bytes:
            return _Block(threads, registers, lanes, slots, place, shared_bytes)
        slots -= 1


def _can_have_producers(
    found: GpuLayout, shape: Shape, device: Device, per_thread: int, spare_bytes: int
) -> bool:
    """Whether half of the GPU is enough for the agents, and memory for their paths is left."""
    threads = found.grid * found.threads
    ring = 8 * _ring_steps(shape) * threads
    return (
        found.where.own
        and shape.chained
        and (found.grid <= device.processors // 2 or device.in_turn)
        and 1 < shape.num_agents <= found.blocks * found.lanes
        and ring <= _RING_BYTES
        # Arrays with a place for each thread have one for a producer's threads too.
        and ring + per_thread * threads <= spare_bytes
    )


def _with_producers(found: GpuLayout, shape: Shape, device: Device) -> GpuLayout:
    """The same with producers: a processor then has few threads, and each has the most
    registers."""
    # Few summands go straight to the sums of all blocks.
    few = shape.num_agents * shape.num_seeds * shape.sync_period <= _FEW_SUMMANDS
    where = found.where._replace(
        producers=True, sums=found.where.sums and not few, near_log=found.where.logged
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
        most_rounds=ROUNDS_AHEAD if device.in_turn else found.most_rounds,
    )


def choose_layout(shape: Shape, device: Device) -> str:
    sparse = (
        shape.form == "cell"
        and shape.num_agents > 1
        and 2 * shape.own_bytes("overlay") <= shape.own_bytes("table")
    )
    needed = _bytes(shape, "shared", Where(True, True, True, 0), device.warp, 1)[1]
    resident = (
        resident_blocks(device, device.warp, needed, MANY_REGISTERS)
        if needed <= device.shared_bytes
        else 0
    )
    at_once = device.processors * device.warp * resident
    # An overlay leaves room for more threads, and costs each of them more time.
    if sparse:
        return "overlay" if shape.num_agents * shape.num_seeds > at_once else "shared"
    fits = (
        _bytes(shape, "shared", Where(True, True, True, 0), 2 * device.warp, 1)[1]
        <= device.shared_bytes
    )
    return "shared" if fits else "table"


def _threads(shape: Shape, device: Device, name: str, where: Where) -> tuple[int, int]:
    """Threads of a block and registers of a thread: small blocks while processors are idle, then as
    many threads as a processor can hold."""

    def held(threads: int, registers: int) -> int:
        needed = _bytes(shape, name, where, threads, 1)[1]
        return (
            threads * resident_blocks(device, threads, needed, registers)
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
    many, few = best(MANY_REGISTERS), best(FEW_REGISTERS)
    if min(wanted, held(few, FEW_REGISTERS)) >= 2 * held(many, MANY_REGISTERS):
        return few, FEW_REGISTERS
    return many, MANY_REGISTERS


def resident_blocks(device: Device, threads: int, shared_bytes: int, registers: int) -> int:
    """Blocks that one processor holds at once. Registers are allocated to four warps at a time."""
    given = -(-threads // (4 * device.warp)) * 4 * device.warp
    by_memory = device.resident_bytes // (shared_bytes + device.reserved)
    return min(
        device.most_threads // threads, device.registers // (registers * given), by_memory, 32
    )


def _bytes(
    shape: Shape, name: str, where: Where, threads: int, slots: int
) -> tuple[SharedPlaces, int]:
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
    places = SharedPlaces(**{what: np.int64(begin) for what, begin in begins.items()})
    return places, -(-at // 8) * 8


class _MemorySizes(NamedTuple):
    points: int
    """record points in a round"""
    rows: int
    """averages in a launch"""
    per_seed: int
    per_thread: int
    """bytes of global memory"""


def _sizes(
    shape: Shape, name: str, where: Where, wanted_points: int, seeds: int, blocks: int
) -> _MemorySizes:
    per_row = 8 * (shape.dim + 2 * blocks)
    rows = max(2, min(_MOST_ROWS, _ROW_BYTES // (per_row * seeds)))
    points = max(1, min(wanted_points, rows))
    windows = 16 * shape.ahead * shape.num_agents
    per_seed = windows + shape.dim * (16 + shape.item + 24 * (1 + points)) + rows * (per_row + 8)
    per_thread = (
        8 * points
        + (0 if where.own else shape.own_bytes(name))
        + (4 * shape.sync_period if where.logged else 0)
    )
    return _MemorySizes(points, rows, per_seed, per_thread)


def _ring_steps(shape: Shape) -> int:
    """Steps of each thread's ring, with its padding."""
    return ROUNDS_AHEAD * shape.sync_period + _PREFETCH


def global_arrays(
    layout: GpuLayout, shape: Shape, real: Any
) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shape and type of the arrays in global memory, besides windows and what is uploaded."""
    seeds, threads, dim = layout.seeds, layout.grid * layout.threads, shape.dim
    own, where = not layout.where.own, layout.where
    overlaid = layout.name == "overlay"
    ring = _ring_steps(shape) * layout.agent_blocks * layout.threads if where.producers else 1
    log = shape.sync_period * threads if where.logged and not where.near_log else 1
    overlay = shape.entries * threads if own and overlaid else 1
    return {
        "totals": ((3, seeds, 1 + layout.points, dim), np.uint64),
        "squares": ((layout.points, threads), np.float64),
        "parts": ((layout.rows, seeds, layout.blocks, 2), np.float64),
        "overflow": ((3, seeds), np.int32),
        "again": ((3, layout.grid), np.int32),
        "arrivals": ((6,), np.uint64),
        "ring": ((ring,), np.uint64),
        "drawn": ((layout.agent_blocks,), np.uint64),
        "taken": ((layout.agent_blocks,), np.uint64),
        "rows": ((layout.rows, seeds, dim), np.float64),
        "own": ((threads * dim if own and not overlaid else 1,), real),
        "out": ((threads, dim) if own and shape.form == "dense" else (1, 1), real),
        "log": ((log,), np.uint32),
        "keys": ((overlay,), np.uint32),
        "values": ((overlay,), real),
    }
