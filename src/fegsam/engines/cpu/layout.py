"""How a run of the `cpu` engine lies in memory: the constants and the arrays of its compiled
loop."""

from __future__ import annotations

import numpy as np

from fegsam.engines.cpu.memory import Carried, Federated, Own, Shared, StepLog
from fegsam.engines.cpu.sampling import TILE, make_tile
from fegsam.engines.cpu.team import make_sync, private
from fegsam.engines.job import Job
from fegsam.engines.schedule import CallLimits, most_in_a_round
from fegsam.history.settings import Settings

BLOCK = 64
"""Agents whose increments make one sum."""

STEPS_PER_CALL = 1 << 22
"""Agent-steps of one call of the compiled loop: about a twentieth of a second."""
STEPS_PER_TILE = 1 << 18
"""Agent-steps whose paths one thread holds."""
ROW_BYTES = 1 << 25
"""Averages that one call hands over."""
SLOT_BYTES = 1 << 27
"""Sums of a round's record points; a round with more of them is run again for the rest."""
LOG_BYTES = 1 << 26
"""Logs of a wave, where threads share them."""


class CpuLayout:
    """The constants of the compiled loop and the sizes of its arrays."""

    def __init__(self, job: Job, team: int) -> None:
        settings = job.settings
        self.team, self.dim = team, job.dimension
        self.ahead = max(job.window, 1)
        agents, period = job.num_agents, settings.sync_period
        iid = settings.sampling == "iid"
        longest = max(1, min(period, settings.num_steps - job.start.time))
        per_step = job.window + 1 if iid else 1
        room = max(1, STEPS_PER_TILE // per_step)
        # The rounding of sums depends on these two, so they must not depend on the run's length.
        logged = job.form == "cell" and agents > 1 and period * 6 < self.dim and period <= room
        sparse = logged and min(agents, BLOCK) * period < self.dim
        touched = sparse and agents * longest < self.dim
        tile, span = max(1, min(TILE, agents, room // longest)), min(longest, room)
        if agents == 1:
            tile, span = 1, room
        self.tile_agents, self.tile_length = tile, max(span, 1) * per_step + self.ahead + 1
        self.limits = self._limits(agents, settings)
        self.slots = 1 + self.limits.points
        wave = self._wave(agents, longest, sparse, touched)
        log_pitch = -(-longest // 128) * 128
        self.sums = 0 if sparse else wave
        self.log = team * log_pitch if logged else 0
        if sparse and (touched or team > 1):
            self.log = wave * BLOCK * longest
        self.fed = Federated(
            num_agents=np.int64(agents),
            sync_period=np.int64(period),
            step_size=np.float64(settings.step_size),
            window=np.int64(job.window),
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

    def _limits(self, agents: int, settings: Settings) -> CallLimits:
        """What one call can hold."""
        # A round's recorded times, an output time and an end. The number of slots must not depend
        # on the number of threads, or rounding would.
        wanted = 2 + most_in_a_round(settings.record, settings.sync_period) if agents > 1 else 1
        most_points = max(1, min(wanted, SLOT_BYTES // (16 * self.dim) - 1))
        rows = max(1, ROW_BYTES // (8 * self.dim))
        return CallLimits(max(1, STEPS_PER_CALL // agents), rows, most_points)

    def _wave(self, agents: int, longest: int, sparse: bool, touched: bool) -> int:
        """Blocks between two reductions."""
        blocks = -(-agents // BLOCK)
        if sparse and (self.team == 1 or touched):
            return blocks
        if sparse:
            wave = max(self.team, LOG_BYTES // (20 * BLOCK * longest))
        elif self.team == 1:
            wave = 1
        else:
            wave = max(1, min(8 * self.team, SLOT_BYTES // (8 * self.dim * self.slots)))
        return min(wave, blocks)

    def shared(self) -> Shared:
        agents = int(self.fed.num_agents)
        return Shared(
            average=np.zeros(self.dim),
            carried=Carried(*(np.zeros((agents, self.ahead), np.uint32) for _ in range(2))),
            total=np.zeros((self.slots, self.dim)),
            sums=np.zeros((self.sums, self.slots, self.dim)),
            squares=np.zeros((int(self.fed.wave), self.slots)),
            log=StepLog(np.zeros(self.log, np.uint32), np.zeros(self.log), np.zeros(self.log)),
            failed=np.zeros((self.team, 2), np.int64),
            sync=make_sync(),
        )

    def own(self) -> Own:
        return Own(
            params=private((self.dim,)),
            out=private((self.dim,)),
            squares=private((self.slots,)),
            tile=make_tile(self.tile_agents, self.tile_length),
        )
