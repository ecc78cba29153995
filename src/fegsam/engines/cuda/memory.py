"""What the kernels of the `cuda` engine are handed: constants, and memory of three kinds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

NOT_FAILED = np.uint64(0xFFFFFFFFFFFFFFFF)


class Launch(NamedTuple):
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
    """weight of an agent in the average, 1 / N"""
    largest: Any
    """a parameter beyond this counts as not finite"""
    begin: Any
    stop: Any
    half: Any
    """which half of the windows is current"""
    agent_blocks: Any
    """blocks that run agents; with `Where.producers`, as many producers come before them"""


class KernelProblem(NamedTuple):
    """What is run: a `PackedChain`, the job's `Agents`, and the tables that the rule reads."""

    chain: Any
    agents: Any
    tables: Any


class Identity(NamedTuple):
    """An agent, with its MDP and its policy."""

    seed: Any
    agent: Any
    kind: Any
    mdp: Any
    policy: Any


class Thread(NamedTuple):
    """Which agents a thread runs."""

    seed_index: Any
    """of its seed among those of the launch"""
    rank: Any
    """of its block among those that share the seed"""
    slot: Any
    """of its seed among those of its block"""
    lane: Any
    """among the threads of its block and seed"""
    member: Any
    """among all threads of its seed"""
    block: Any
    """its block, or the one that it produces for"""
    present: Any
    """it has a seed; otherwise it only takes part in barriers"""
    identity: Identity
    """of its first agent"""


class Window(NamedTuple):
    """The states and actions that an agent's next step looks at, in local memory."""

    states: Any
    """uint32 (ahead + 1)"""
    actions: Any
    """uint32 (ahead)"""


class CellLog(NamedTuple):
    """The cells that an agent has written, step by step: from entry `first` on, `width` apart, with
    those of other threads between."""

    cells: Any
    first: Any
    width: Any


class AgentView(NamedTuple):
    """How a thread sees the parameters of the agent that it runs."""

    params: Any
    """what a rule indexes; see `params`"""
    base: Any
    """(d): the average"""
    tables: Any
    """the parameters of all agents of the block, where these are whole tables"""
    out: Any
    """(d): what a dense rule fills"""
    log: CellLog
    window: Window
    """its window, which stays here from round to round with producers"""


class BlockMemory(NamedTuple):
    """Shared memory of a block, besides its agents' parameters."""

    halves: Any
    """see `Sums.half`"""
    first_half: Any
    """where the sums of the thread's seed begin"""
    box: Any
    sizes: Any
    """see `SharedPlaces`"""


class Memory(NamedTuple):
    """Global memory. S seeds, R record points of a launch, r of them inside one round."""

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
    """uint64 (3, S, 1 + r, d): sums over agents of the differences from the average, at the round's
    end and at its record points; of this attempt, the last one and the next one"""
    squares: Any
    """float64 (r, threads): sums over a thread's agents of ||theta^i - average||^2"""
    parts: Any
    """float64 (R, S, blocks, 2): a block's share of those sums, and of the squared norm of the mean
    difference"""
    failed: Any
    """uint64 (S): step since `begin` and agent of the first parameter that was not finite"""
    overflow: Any
    """int32 (3, S): whether a difference was too large for the sums; three as with `totals`"""
    again: Any
    """int32 (3, domains): whether any seed of the blocks that synchronise had an overflow"""
    arrivals: Any
    """uint64 (2 * 3): blocks that have arrived at an attempt's barriers, and in the upper half how
    many of them raised a flag; three as with `totals`"""
    ring: Any
    """uint64 (ROUNDS_AHEAD * K and padding, threads of the agent blocks), flat: the paths that
    producers have drawn, the state in the lower half and the action in the upper"""
    drawn: Any
    """uint64 (agent blocks): rounds that each block's producer has drawn"""
    taken: Any
    """uint64 (agent blocks): rounds that the block has finished"""
    size: Any
    """int32 (2, S): binary exponent of the average's largest entry; two as with `average`"""
    points: Any
    """int64 (S, R + 1): the record points, and a last one that is never reached"""
    rows: Any
    """float64 (R, S, d)"""
    own: Any
    """(threads * d): tables, where they lie here"""
    out: Any
    """(threads, d): what a dense rule fills, where that lies here"""
    log: Any
    """uint32 (K * threads): see `CellLog`, where that lies here"""
    keys: Any
    """uint32 (entries * threads): overlays, where they lie here"""
    values: Any


class SharedPlaces(NamedTuple):
    """Where things begin in a block's shared memory, each in entries of its own type."""

    sums: Any
    """uint32 (slots, 2, d)"""
    tree: Any
    """float64 (threads)"""
    box: Any
    """int32 (2): the largest number of record points inside the round over the block's seeds; and
    whether a flag was raised at a barrier"""
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
    """an agent's table holds only its changes, and a log says where, so that resetting it does not
    touch the whole table"""
    producers: bool = False
    """each block's paths are drawn ahead of it by another block"""
    near_log: bool = False
    """the log is in shared memory"""


class Attempt(NamedTuple):
    """One attempt at a round, or at its first steps where the launch ends before the round does.

    A round whose differences do not fit the sums is attempted again.
    """

    time: Any
    length: Any
    synced: Any
    """the round is whole and ends in an average"""
    row: Any
    """index of its first record point"""
    points: Any
    """record points inside it"""
    most_points: Any
    """the largest such number over the seeds of the block"""
    upcoming: Any
    """the first record point after them"""
    half: Any
    """which half of `Memory.average` and of the windows is current"""
    buffer: Any
    """which third of `Memory.totals`, `overflow`, `again` and `arrivals` it uses"""
    rounds: Any
    """rounds of the launch before it"""
    alive: Any
    """this thread's seed still runs"""
    reload: Any
    """windows come from global memory, since local memory does not hold them"""


class StepSpan(NamedTuple):
    """Steps time..stop-1 of an agent."""

    time: Any
    stop: Any
    origin: Any
    """the time at which the round, its log and its part of the ring begin"""
    ring_row: Any
    """the first row of the round's path in `Memory.ring`, with producers"""
