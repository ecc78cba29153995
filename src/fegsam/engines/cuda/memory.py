"""What the kernels of the `cuda` engine are handed: constants, and memory of three kinds."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

NOT_FAILED = np.uint64(0xFFFFFFFFFFFFFFFF)


class Job(NamedTuple):
    """The constants of a launch."""

    num_agents: Any
    num_seeds: Any
    sync_period: Any
    step_size: Any
    lanes: Any
    """agents of one seed that a block runs at a time"""
    slots: Any
    """seeds that a block runs side by side"""
    blocks: Any
    """blocks that share one seed's agents"""
    dim: Any
    fraction: Any
    """f for differences below one"""
    share: Any
    """of an agent in the average, 1 / N"""
    largest: Any
    """a parameter beyond this counts as not finite"""
    begin: Any
    stop: Any
    half: Any
    """which half of the windows is current"""
    crew: Any
    """blocks that run agents; with `Where.scouted`, as many others come before them"""


class Who(NamedTuple):
    """An agent, and where its laws are found."""

    seed: Any
    agent: Any
    kind: Any
    mdp: Any
    policy: Any


class Log(NamedTuple):
    """The cells that an agent has written, step by step: from `first` on, `width` apart; other
    threads' lie between."""

    cells: Any
    first: Any
    width: Any


class Memory(NamedTuple):
    """What lies in global memory. S seeds, C recorded times a launch, c of them inside one
    round."""

    seeds: Any
    """uint64 (S)"""
    average: Any
    """float64 (2, S, d): what the last synchronisation left, and room for the next"""
    rounded: Any
    """(S, d): the average as agents hold it, where blocks have no copies of it"""
    states: Any
    """uint32 (2, S, ahead, N): each agent's window at the last synchronisation, and room for the
    next"""
    actions: Any
    """uint32 (2, S, ahead, N)"""
    totals: Any
    """uint64 (3, S, 1 + c, d): sums over agents of the differences from the average, at the round's
    end and at its cuts; this turn's, the last one's and the next one's"""
    squares: Any
    """float64 (c, threads): sums over a thread's agents of ||theta^i - average||^2"""
    parts: Any
    """float64 (C, S, blocks, 2): a block's share of those sums, and of the squared norm of the mean
    difference"""
    failed: Any
    """uint64 (S): step since `begin` and agent of the first parameter that was not finite"""
    overflow: Any
    """int32 (3, S): a difference was beyond the limit; three as with `totals`"""
    again: Any
    """int32 (3, domains): some seed's was"""
    arrivals: Any
    """uint64 (2 * 3): blocks that have come to a turn's meetings, and in the upper half how many
    had news; three as above"""
    trail: Any
    """uint64 (AHEAD * K and some more, threads of the crew), flat: what scouts have drawn, the
    state in the lower half and the action in the upper"""
    drawn: Any
    """uint64 (crew): rounds that each block's scout has drawn"""
    taken: Any
    """uint64 (crew): rounds that the block is done with"""
    size: Any
    """int32 (2, S): binary exponent of the average's largest entry; two as with `average`"""
    cuts: Any
    """int64 (S, C + 1): when to hand over the average, and an end that never comes"""
    rows: Any
    """float64 (C, S, d)"""
    own: Any
    """(threads * d): tables, where they lie here"""
    out: Any
    """(threads, d): what a dense rule fills, where that lies here"""
    log: Any
    """uint32 (K * threads): see `Log`, where that lies here"""
    keys: Any
    """uint32 (entries * threads): overlays, where they lie here"""
    values: Any


class Place(NamedTuple):
    """Where things begin in a block's shared memory, each in entries of its own type."""

    sums: Any
    """uint32 (slots, 2, d)"""
    tree: Any
    """float64 (threads)"""
    box: Any
    """int32 (2): cuts inside the round, of the seed that has most; and whether a meeting brought
    news"""
    size: Any
    """int32 (2, slots): as in `Memory`, where a block has a copy of the average"""
    base: Any
    """(slots, d): the average"""
    own: Any
    """(d, threads): parameters, or (entries, threads): an overlay's values"""
    out: Any
    """(d, threads)"""
    keys: Any
    """uint32 (entries, threads)"""
    log: Any
    """uint32 (K, threads)"""


class Where(NamedTuple):
    """What lies where; fixed when the kernel is compiled."""

    sums: bool
    base: bool
    own: bool
    """whether these are in a block's shared memory"""
    entries: int
    """of an overlay"""
    logged: bool = False
    """an agent's table holds its changes alone, and a log says where, so that it is put back
    without looking at all of it"""
    scouted: bool = False
    """each block's paths are drawn by another block, which runs ahead"""
    near_log: bool = False
    """the log is in shared memory"""


class Stretch(NamedTuple):
    """A round, or the part of it that is run."""

    time: Any
    length: Any
    synced: Any
    row: Any
    """the first cut after its beginning"""
    inside: Any
    """how many cuts lie inside"""
    half: Any
    trail: Any
    """the first row of its path, where a scout has drawn it"""


class Limits(NamedTuple):
    """How differences are rounded in a round."""

    scale: Any
    """2^f"""
    largest: Any
    """2^e: what fits"""
