"""What the kernels of a method are handed: constants, and memory of three kinds."""

from __future__ import annotations

from typing import Any, NamedTuple

from fegsam.engines.cuda.memory import CellLog


class MethodLaunch(NamedTuple):
    """The constants of a launch."""

    num_agents: Any
    num_seeds: Any
    dim: Any
    lanes: Any
    """threads of a block; all of them run agents of one seed"""
    blocks: Any
    """blocks that share one seed's agents"""
    digits: Any
    """of a sum; see `exact`"""
    largest: Any
    """a parameter beyond this counts as not finite"""
    begin: Any
    """the time at which the launch begins, a synchronisation"""
    number: Any
    """of the first round"""
    rounds: Any
    length: Any
    """of each round"""
    steps: Any
    """local steps of the round that are made again, where averages inside it are recorded"""
    points: Any
    """the number of these averages"""


class GpuMethodConstants(NamedTuple):
    """The constants of a method."""

    num_drawn: Any
    """agents that take part in a round; 0: by `threshold`"""
    threshold: Any
    """an agent takes part if its first word is below this"""
    go_on: Any
    """the chains of agents that do not take part move on"""
    over_all: Any
    """sums are divided as if all agents took part"""
    step: Any
    momentum: Any
    look_ahead: Any
    """step times momentum where the server sends the look-ahead point, else 0"""
    grid: Any
    """the distance between two rounded values"""
    cells: Any
    """cells that an agent reports"""


class GpuAgentArrays(NamedTuple):
    """What belongs to each agent, and the weights of the kinds."""

    weights: Any
    """float64 (N)"""
    factors: Any
    """float64 (N): what a change is multiplied by"""
    lengths: Any
    """int64 (N): local steps in a round, where these differ"""
    shares: Any
    """float64 (rows): the weight of all agents of each row of the sums"""


class LaunchCourse(NamedTuple):
    """The steps and rounds of a launch. Entry ``r * (K + 1) + l`` belongs to step l of round r."""

    sizes: Any
    """alpha_t"""
    passed: Any
    """the sum of the step sizes of the round's steps before"""
    logs: Any
    """float64: -log(1 - alpha_t), for an average by visits"""
    counts: Any
    """float64: how often the increment of each step is counted in the tail"""
    areas: Any
    """float64 (rounds): the sum of a round's step sizes"""
    tail_areas: Any
    """float64 (rounds): the same with each step size multiplied by its count"""
    rows: Any
    """int64 (rounds): where the average after the round is recorded, or -1"""
    tails: Any
    """float64 (rounds): 1 where the average after the round belongs to the tail, else 0"""
    points: Any
    """int64 (points): local steps after which averages inside the round are recorded"""


class MethodMemory(NamedTuple):
    """Global memory. S seeds, R rounds of a launch, r rows of sums: one, or one for each kind."""

    seeds: Any
    """uint64 (S)"""
    average: Any
    """float64 (S, d): the server's parameters x"""
    velocity: Any
    """float64 (S, d)"""
    sent: Any
    """float64 (S, d): where the agents start the round"""
    rounded: Any
    """(S, d): the same, as agents hold it"""
    states: Any
    """uint32 (1, S, ahead, N): each agent's window at the last synchronisation"""
    actions: Any
    clocks: Any
    """int64 (S, N): the steps that each agent has made, where these differ"""
    limits: Any
    """uint64 (S, R): who takes part in a round: agents whose words are below this"""
    whole: Any
    """uint64 (S, R, r): the weight of those who take part, in units of 2^-62"""
    members: Any
    """uint64 (S, R): how many take part"""
    totals: Any
    """uint64 (S, r, slots, digits, d), flat: the sums of a round"""
    seen: Any
    """uint64 (S, points, digits, d), flat: the sums at record points inside a round"""
    squares: Any
    """float64 (points, threads): sums over a thread's agents of their squared changes"""
    mean: Any
    """float64 (S, d): gbar"""
    values: Any
    """float64 (S, M, d): g of each kind; or (S, width, N): of each agent, at its cells"""
    cells: Any
    """uint32 (S, width, N)"""
    corrections: Any
    """(S, r, d): gbar - g of each kind, or gbar alone"""
    tail: Any
    """float64 (S, d): the sum of the averages that belong to the tail"""
    failed: Any
    """uint64 (S): step since `begin` and agent of the first parameter that was not finite"""
    gone: Any
    """uint64 (S): step since `begin` after which the server's parameters were not finite"""
    rows: Any
    """float64 (R, S, d): averages at synchronisations, or mean changes inside a round"""
    own: Any
    """parameters or changes of each thread's agent, where they lie here"""
    keys: Any
    """uint32: the cells of overlays, where they lie here"""
    extra: Any
    """a second number for each cell: the agent's correction, or the logarithm of its weight"""
    extra_keys: Any
    """uint32: the cells of corrections that are overlays"""
    out: Any
    """what a dense rule fills, where that lies here"""
    log: Any
    """uint32 (K, threads), flat: the cells that each thread's agent has written"""


class MethodPlace(NamedTuple):
    """Where things begin in a block's shared memory, each in entries of its own type."""

    own: Any
    out: Any
    keys: Any


class MethodThread(NamedTuple):
    """Which agents a thread runs."""

    seed_index: Any
    member: Any
    """among all threads of its seed"""
    present: Any
    """it has a seed; otherwise it only takes part in barriers"""
    at: Any
    """uint64: among all threads"""
    threads: Any
    """uint64: how many these are"""
    lane: Any
    """uint64: among the threads of its block"""
    lanes: Any
    """uint64: how many these are"""


class Scratch(NamedTuple):
    """Memory of a thread and of its block."""

    window: Any
    """the window of the agent that the thread runs, in local memory"""
    spot: Any
    """see `views.Spot`, in local memory"""
    reals: Any
    keys: Any
    """all of the block's shared memory, as parameters and as uint32"""


class MethodView(NamedTuple):
    """How a thread sees the agent that it runs."""

    params: Any
    """what a rule indexes, without a correction; see `cuda.params`"""
    base: Any
    """(d): where the agent started the round"""
    correction: Any
    """(d): what is added to each step, in a form that can be indexed"""
    extra: Any
    first: Any
    """the thread's first entry of `extra`, of the log and of the overlays of corrections"""
    width: Any
    """the distance between two of its entries"""
    out: Any
    log: CellLog
    """its entries are numbered by local steps"""
    course: LaunchCourse
    at: Any
    """the round's first entry of the course"""
    weight: Any
    """of the agent"""
    totals: Any
    """see `MethodMemory`"""
    first_sum: Any
    """where the sums of the agent's row begin"""
