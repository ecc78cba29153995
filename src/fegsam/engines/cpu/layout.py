"""How a run of the `cpu` engine lies in memory: the constants and the arrays of its compiled
loop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fegsam.engines.cpu.sampling import TILE, Tile, make_tile
from fegsam.engines.cpu.team import make_sync, private
from fegsam.engines.job import Job
from fegsam.engines.schedule import Limits, most_in_a_round
from fegsam.history.settings import Settings

BLOCK = 64
"""Agents whose sum is made in one go."""

STEPS_PER_CALL = 1 << 22
"""Agent-steps between two looks at the clock: a twentieth of a second or so."""
STEPS_PER_TILE = 1 << 18
"""Agent-steps whose paths one thread holds."""
ROW_BYTES = 1 << 25
"""Averages handed over at once."""
SLOT_BYTES = 1 << 27
"""Sums of a round's cuts; a round with more cuts than fit is run again for the rest."""
LOG_BYTES = 1 << 26


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
    sparse: np.bool_
    touched: np.bool_
    """the average is applied to logged cells alone"""
    tile: np.int64
    """agents drawn in lockstep"""
    span: np.int64
    """steps that a tile's rows hold; a tile whose rounds are longer is one agent"""
    wave: np.int64
    """blocks between two reductions"""
    log_pitch: np.int64
    """entries between the logs of two threads, so far apart that they share no cache line"""


class Seat(NamedTuple):
    """Who is asking: one thread of the team that runs one seed."""

    seed: np.uint64
    rank: np.int64
    team: np.int64


class Log(NamedTuple):
    """What steps did to which cell."""

    cell: np.ndarray
    old: np.ndarray
    new: np.ndarray


class Shared(NamedTuple):
    """What all threads of a seed's team see."""

    average: np.ndarray
    """(d): what every agent holds after the last synchronisation"""
    carried_states: np.ndarray
    """uint32 (N, ahead): each agent's window at the last synchronisation"""
    carried_actions: np.ndarray
    total: np.ndarray
    """(slots, d)"""
    sums: np.ndarray
    """(wave, slots, d) where blocks have sums of their own"""
    squares: np.ndarray
    """(wave, slots): sum over a block's agents of ||theta^i - average||^2 at each cut"""
    log: Log
    failed: np.ndarray
    """(team, 2): time and agent of the first non-finite parameter that each thread met"""
    sync: np.ndarray


class Own(NamedTuple):
    """What one thread has for itself."""

    params: np.ndarray
    """(d): the scratch copy, equal to the average between agents"""
    out: np.ndarray
    """(d): what a dense rule fills"""
    squares: np.ndarray
    """(slots)"""


class Write(NamedTuple):
    """What a step leaves behind besides its parameter."""

    log: bool
    """its cell and the value before: what undoing needs"""
    new: bool
    """the value after: what a cut needs, and a sum that is made later"""
    sum: bool
    """its increment, added to the sum at once"""


class Stretch(NamedTuple):
    """A round, or the part of it that is run."""

    time: int
    length: int
    num_cuts: int
    """how many of the cuts lie inside"""


class Layout:
    """How a run lies in memory: the constants of the compiled loop and the sizes of its arrays."""

    def __init__(self, plan: Job, settings: Settings, team: int) -> None:
        self.team = team
        self.dim, agents = plan.dimension, plan.num_agents
        period = settings.sync_period
        longest = max(1, min(period, settings.num_steps - plan.start.time))
        iid = settings.sampling == "iid"
        self.ahead = max(plan.window, 1)
        per_step = plan.window + 1 if iid else 1
        room = max(1, STEPS_PER_TILE // per_step)
        # How sums are rounded hangs on these two, so they must not hang on how far this run goes.
        logged = plan.form == "cell" and agents > 1 and period * 6 < self.dim and period <= room
        sparse = logged and min(agents, BLOCK) * period < self.dim
        touched = sparse and agents * longest < self.dim
        blocks = -(-agents // BLOCK)
        tile = max(1, min(TILE, agents, room // longest))
        span = min(longest, room)
        if agents == 1:
            tile, span = 1, room

        # A round's recorded times, an output time and an end. How many fit hangs not on the team:
        # nor may the rounding.
        wanted = 2 + most_in_a_round(settings.record, period) if agents > 1 else 1
        most_cuts = max(1, min(wanted, SLOT_BYTES // (16 * self.dim) - 1))
        self.slots = 1 + most_cuts
        if not sparse:
            wave = (
                1 if team == 1 else max(1, min(8 * team, SLOT_BYTES // (8 * self.dim * self.slots)))
            )
        elif team == 1 or touched:
            wave = blocks
        else:
            wave = max(team, LOG_BYTES // (20 * BLOCK * longest))
        wave = min(wave, blocks)
        rows = max(1, ROW_BYTES // (8 * self.dim))
        self.limits = Limits(max(1, STEPS_PER_CALL // agents), rows, most_cuts)
        self.sums = 0 if sparse else wave
        log_pitch = -(-longest // 128) * 128
        if not logged:
            self.log = 0
        elif sparse and (touched or team > 1):
            self.log = wave * BLOCK * longest
        else:
            self.log = team * log_pitch
        self.tile_agents, self.tile_length = tile, max(span, 1) * per_step + self.ahead + 1
        self.fed = Federated(
            num_agents=np.int64(agents),
            sync_period=np.int64(settings.sync_period),
            step_size=np.float64(settings.step_size),
            window=np.int64(plan.window),
            ahead=np.int64(self.ahead),
            iid=np.bool_(iid),
            logged=np.bool_(logged),
            sparse=np.bool_(sparse),
            touched=np.bool_(touched),
            tile=np.int64(tile),
            span=np.int64(span),
            wave=np.int64(wave),
            log_pitch=np.int64(log_pitch),
        )

    def shared(self) -> Shared:
        agents = int(self.fed.num_agents)
        return Shared(
            average=np.zeros(self.dim),
            carried_states=np.zeros((agents, self.ahead), np.uint32),
            carried_actions=np.zeros((agents, self.ahead), np.uint32),
            total=np.zeros((self.slots, self.dim)),
            sums=np.zeros((self.sums, self.slots, self.dim)),
            squares=np.zeros((int(self.fed.wave), self.slots)),
            log=Log(np.zeros(self.log, np.uint32), np.zeros(self.log), np.zeros(self.log)),
            failed=np.zeros((self.team, 2), np.int64),
            sync=make_sync(),
        )

    def own(self) -> Own:
        return Own(
            params=private((self.dim,)), out=private((self.dim,)), squares=private((self.slots,))
        )

    def tile(self) -> Tile:
        return make_tile(self.tile_agents, self.tile_length)
