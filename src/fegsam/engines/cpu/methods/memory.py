"""What the compiled rounds of a method are handed, and what its parts hand to each other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fegsam.engines.cpu.memory import Carried, ProblemArrays
from fegsam.engines.cpu.sampling import Tile


class MethodConstants(NamedTuple):
    """The constants of a run."""

    num_agents: np.int64
    window: np.int64
    ahead: np.int64
    """states that each agent carries from round to round"""
    iid: np.bool_
    tile: np.int64
    """agents drawn in lockstep"""
    span: np.int64
    """steps that a tile's rows hold; a tile whose rounds are longer holds one agent"""
    wave: np.int64
    """blocks between two reductions"""
    listed: np.bool_
    """a block's sums are lists of the cells that it touched"""
    consecutive: np.bool_
    """the agents of a block are consecutive and have made the same number of steps"""
    by_kind: np.bool_
    """blocks hold agents of one kind"""
    go_on: np.bool_
    """the chains of agents that do not take part move on"""
    num_drawn: np.int64
    """agents that take part in a round; 0: by `threshold`"""
    threshold: np.uint64
    """an agent takes part if its word is below this"""
    over_all: np.bool_
    """sums are divided as if all agents took part"""
    step: np.float64
    momentum: np.float64
    look_ahead: np.float64
    """step times momentum where the server sends the look-ahead point, else 0"""
    grid: np.float64
    """the distance between two rounded values"""
    cells: np.int64
    """cells that an agent reports"""


class AgentArrays(NamedTuple):
    """What belongs to each agent."""

    weights: np.ndarray
    """(N)"""
    factors: np.ndarray
    """(N): what a change is multiplied by"""
    lengths: np.ndarray
    """int64 (N): local steps in a round; empty if all make as many as the round has"""
    order: np.ndarray
    """int64 (N): the agents in the order of the blocks"""


class MethodGiven(NamedTuple):
    """What a run is given, and what stays the same to its end."""

    constants: MethodConstants
    arrays: ProblemArrays
    agents: AgentArrays


class Members(NamedTuple):
    """The agents of the current round, in blocks."""

    agents: np.ndarray
    """int64 (N): whose paths are drawn, in the order of the blocks"""
    present: np.ndarray
    """uint8 (N): whether each agent takes part"""
    starts: np.ndarray
    """int64 (blocks + 1): where each block begins in `agents`"""
    kinds: np.ndarray
    """int64 (blocks): the row of the totals that a block adds to"""
    kind_weights: np.ndarray
    """(rows): the weight of those who take part, by row of the totals"""
    counts: np.ndarray
    """int64 (2): the number of blocks and of agents that take part"""
    keys: np.ndarray
    """uint64 (2, N): the words of the draws for an even round and the one after it"""
    drawn: np.ndarray
    """int64 (1): half the number of the round for which `keys` are; -1 where they are not made"""
    ordered: np.ndarray
    """uint64 (N + 1): those of them that are put in order"""


class VariateArrays(NamedTuple):
    """Control variates."""

    mean: np.ndarray
    """(d): gbar"""
    values: np.ndarray
    """(N, width), (N, d) or (M, d)"""
    cells: np.ndarray
    """uint32 (N, width): the cells of `values` for cell rules, by agent"""
    corrections: np.ndarray
    """(M, d): gbar - g_k, by kind"""
    shares: np.ndarray
    """(M): the weight of all agents of each kind"""


class BlockLists(NamedTuple):
    """The sums of each block: dense, or as lists of cells."""

    dense: np.ndarray
    """(wave, slots, d)"""
    cells: np.ndarray
    """uint32 (wave, room)"""
    values: np.ndarray
    """(wave, slots, room)"""
    lengths: np.ndarray
    """int64 (wave)"""


class MethodShared(NamedTuple):
    """Memory that all threads of a seed's team share."""

    average: np.ndarray
    """(d): the server's parameters x"""
    velocity: np.ndarray
    """(d)"""
    sent: np.ndarray
    """(d): where the agents start the round"""
    carried: Carried
    clocks: np.ndarray
    """int64 (N): the steps that each agent has made; empty if all have made as many"""
    members: Members
    variates: VariateArrays
    sums: BlockLists
    totals: np.ndarray
    """(rows, slots, d): one row, or one for each kind"""
    tail: np.ndarray
    """(d): the sum of the averages that belong to the tail"""
    failed: np.ndarray
    """(team, 2): time and agent of the first non-finite parameter that each thread found"""
    sync: np.ndarray


class MethodOwn(NamedTuple):
    """Memory of one thread."""

    params: np.ndarray
    """(d): the scratch copy, equal to what was sent between agents"""
    correction: np.ndarray
    """(d): what the agent adds to each step; between agents, gbar for cell rules by agent"""
    out: np.ndarray
    """(d): what a dense rule fills"""
    log: np.ndarray
    """uint32 (longest round): the cells that the agent's steps wrote"""
    visits: np.ndarray
    """(d): the agent's weight at each cell, or its logarithm; one between agents"""
    keys: np.ndarray
    """uint64 (d): the words of the cells to report"""
    sums: np.ndarray
    """(slots, d): the block's sums, where they become a list; zero between blocks"""
    touched: np.ndarray
    """uint32: the cells that the block touched"""
    num_touched: np.ndarray
    """int64 (1)"""
    tile: Tile
    ids: np.ndarray
    """int64 (TILE): the agents of the tile"""
    working: np.ndarray
    """int64 (TILE): the places in the tile of those that take part"""
    clocks: np.ndarray
    """uint64 (TILE): the steps that each of them has made"""
    odd: np.ndarray
    """uint64 (TILE): whether each one's next transition is the second of a pair"""
    words: np.ndarray
    """the memory of the tile's words as one row"""
    counts: np.ndarray
    """(longest round): `MethodRound.counts`"""


class StepSizes(NamedTuple):
    """The step sizes of a call, and what follows from them."""

    first: np.int64
    """the time of the first entry"""
    sizes: np.ndarray
    """(steps): alpha_t"""
    growth: np.ndarray
    """(steps): 1 / (1 - alpha_t), for an average by visits; else empty"""
    logs: np.ndarray
    """(steps): the logarithm of `growth`"""


class TailRange(NamedTuple):
    """The times that belong to the tail."""

    after: np.int64
    syncs: np.bool_
    """only synchronisations count"""


class MethodRound(NamedTuple):
    """One round."""

    number: Any
    time: Any
    length: Any
    sizes: Any
    """(length): the step sizes"""
    growth: Any
    logs: Any
    """of each step size, for an average by visits"""
    passed: Any
    """the sum of the step sizes"""
    safe: Any
    """whether weights by visits are used as they are"""
    counts: Any
    """(length): how often the increment of each step is counted in the tail"""


class MethodCall(NamedTuple):
    """One call of the compiled loop: rounds of equal length, from one sync to another."""

    number: np.int64
    """of the first round"""
    time: np.int64
    stop: np.int64
    length: np.int64
    sizes: StepSizes
    tail: TailRange


class LocalRange(NamedTuple):
    """Local steps begin..end-1 of a round."""

    begin: Any
    end: Any


class Report(NamedTuple):
    """What the end of an agent's round needs to know."""

    agent: Any
    weight: Any
    factor: Any
    """what its change is multiplied by"""
    length: Any
    """its local steps in the round"""
    passed: Any
    """the sum of their step sizes"""
    number: Any
    """of the round"""
    seed: Any
    safe: Any
    """whether weights by visits are used as they are"""
    logs: Any
    """(length): the logarithms of what a visit multiplies them by"""
