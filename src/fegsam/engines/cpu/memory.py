"""What the compiled loop of the `cpu` engine is handed, and what its parts hand to each other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fegsam.engines.cpu.sampling import Tile
from fegsam.engines.job import Agents, Chain


class Federated(NamedTuple):
    """The constants of a run."""

    num_agents: np.int64
    sync_period: np.int64
    step_size: np.float64
    window: np.int64
    """transitions in a step's window"""
    ahead: np.int64
    """states that each agent carries from round to round"""
    iid: np.bool_
    logged: np.bool_
    """steps log the cells that they overwrite"""
    sparse: np.bool_
    """a block of agents touches few cells of the table"""
    touched: np.bool_
    """the average is applied to logged cells alone"""
    tile: np.int64
    """agents drawn in lockstep"""
    span: np.int64
    """steps that a tile's rows hold; a tile whose rounds are longer holds one agent"""
    wave: np.int64
    """blocks between two reductions"""
    log_pitch: np.int64
    """entries between the logs of two threads, which therefore share no cache line"""


class ProblemArrays(NamedTuple):
    """A problem and its algorithm, as `engines.job` lowers them."""

    chain: Chain
    agents: Agents
    tables: Any
    """what the rule reads"""


class Seat(NamedTuple):
    """One thread of the team that runs one seed."""

    seed: np.uint64
    rank: np.int64
    team: np.int64
    """threads of the team"""


class StepLog(NamedTuple):
    """The cell that each step wrote, with its value before and after."""

    cell: np.ndarray
    old: np.ndarray
    new: np.ndarray


class Carried(NamedTuple):
    """Each agent's window at the last synchronisation."""

    states: np.ndarray
    """uint32 (N, ahead)"""
    actions: np.ndarray
    """uint32 (N, ahead), of which the last column is unused"""


class Shared(NamedTuple):
    """Memory that all threads of a seed's team share."""

    average: np.ndarray
    """(d): what every agent holds after the last synchronisation"""
    carried: Carried
    total: np.ndarray
    """(slots, d)"""
    sums: np.ndarray
    """(wave, slots, d) where blocks have sums of their own"""
    squares: np.ndarray
    """(wave, slots): sum over a block's agents of ||theta^i - average||^2 at each record point"""
    log: StepLog
    failed: np.ndarray
    """(team, 2): time and agent of the first non-finite parameter that each thread found"""
    sync: np.ndarray


class Own(NamedTuple):
    """Memory of one thread."""

    params: np.ndarray
    """(d): the scratch copy, equal to the average between agents"""
    out: np.ndarray
    """(d): what a dense rule fills"""
    squares: np.ndarray
    """(slots)"""
    tile: Tile


class LocalScratch(NamedTuple):
    """Memory of local steps that are made one agent at a time."""

    params: np.ndarray
    """(d)"""
    out: np.ndarray
    """(d): what a dense rule fills"""


class Recording(NamedTuple):
    """When one call hands over the average, and where to."""

    times: np.ndarray
    """int64 (rows): the record points"""
    rows: np.ndarray
    """(rows, d): the averages"""
    omegas: np.ndarray
    """(rows): the sync errors"""


class RoundPart(NamedTuple):
    """A round, or its first steps where the call ends before the round does."""

    time: int
    length: int
    synced: bool
    """the round is whole and ends in an average"""
    points: np.ndarray
    """int64: the record points inside it"""


class Piece(NamedTuple):
    """Steps begin..end-1 of a round, for the agents of one tile."""

    first: int
    num_agents: int
    """agents first..first+num_agents-1"""
    begin: int
    end: int
    entry: int
    """where the first agent's log begins"""
    apart: int
    """entries between the logs of two agents"""


class CellRange(NamedTuple):
    """The cells low..high-1, which one thread of the team reduces and averages."""

    low: int
    high: int


class Write(NamedTuple):
    """What a step leaves behind besides its parameter."""

    log: bool
    """its cell and the value before, for undoing"""
    new: bool
    """the value after, for record points and for sums that are made later"""
    sum: bool
    """its increment, added to the sum at once"""


class BlockSums(NamedTuple):
    """Where the agents of a block add up."""

    sums: np.ndarray
    """(slots, d): the round's, then one for each record point"""
    squares: np.ndarray
    """(slots)"""
    failed: np.ndarray
    """(2): time and agent of the first non-finite parameter"""
    write: Write


class StepRange(NamedTuple):
    """Steps of one agent: the window of step k begins at ``at + k * stride``."""

    at: np.uint64
    stride: np.uint64
    steps: int


class Trace(NamedTuple):
    """Where steps leave what `write` asks for."""

    write: Write
    log: StepLog
    entry: int
    """of the first step"""
    sums: np.ndarray
    """(d)"""
