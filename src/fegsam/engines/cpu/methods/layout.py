"""How a method's run lies in memory: what is compiled in, the constants, and the arrays."""

from __future__ import annotations

import numpy as np

from fegsam.engines.cpu.layout import (
    BLOCK,
    LOG_BYTES,
    ROW_BYTES,
    SLOT_BYTES,
    STEPS_PER_CALL,
    STEPS_PER_TILE,
)
from fegsam.engines.cpu.memory import Carried
from fegsam.engines.cpu.methods.memory import (
    AgentArrays,
    BlockLists,
    Members,
    MethodConstants,
    MethodOwn,
    MethodShared,
    VariateArrays,
)
from fegsam.engines.cpu.sampling import TILE, make_tile
from fegsam.engines.cpu.team import make_sync, private
from fegsam.engines.features import features_of
from fegsam.engines.job import Job
from fegsam.engines.round_draws import word_threshold
from fegsam.errors import ProblemError
from fegsam.methods.aggregate import Aggregator
from fegsam.methods.rounding import Rounding, SomeCells

MOST_BYTES = 1 << 36
"""Memory that the variates of all agents may take."""


class MethodLayout:
    """The constants of the compiled loop and the sizes of its arrays."""

    def __init__(self, job: Job, team: int) -> None:
        self.job, self.team, self.dim = job, team, job.dimension
        self.features = features = features_of(job)
        self.ahead, self.longest = max(job.window, 1), job.rounds.longest
        iid = job.settings.sampling == "iid"
        per_step = job.window + 1 if iid else 1
        room = max(1, STEPS_PER_TILE // per_step)
        # A round may be longer than the run.
        self.steps = longest = max(1, min(self.longest, job.settings.num_steps - job.start.time))
        tile, span = max(1, min(TILE, job.num_agents, room // longest)), min(longest, room)
        self.tile_agents, self.tile_length = tile, span * per_step + self.ahead + 1
        # The rounding of sums depends on this, so it must not depend on the run's length.
        cells = features.form == "cell" and features.rounding != "dither"
        self.listed = cells and BLOCK * self.longest < self.dim
        self.rows = len(job.agents.mdps) if features.variates == "kind" else 1
        self.most_blocks = -(-job.num_agents // BLOCK) + self.rows
        self.room = BLOCK * self.steps * (2 if features.sums_variates else 1) + BLOCK
        self.width = min(self.longest, self.dim) if features.form == "cell" else self.dim
        self.call_rows = max(1, ROW_BYTES // (8 * self.dim))
        self.call_steps = max(1, STEPS_PER_CALL // job.num_agents)
        self._check_memory()
        self.constants = self._constants(iid, tile, span)

    def _check_memory(self) -> None:
        features, agents = self.features, self.job.num_agents
        if features.variates != "agent" or features.first_step:
            return
        needed = agents * self.width * (12 if features.form == "cell" else 8)
        if needed > MOST_BYTES:
            raise ProblemError(
                f"The control variates of {agents} agents need {needed / 1e9:.0f} GB of memory; "
                "use ControlVariates(of='kind'), which keeps one for each kind."
            )

    def _constants(self, iid: bool, tile: int, span: int) -> MethodConstants:
        method, participation = self.job.method, self.job.method.participation
        count, threshold = 0, np.uint64(0)
        if participation is not None and participation.agents is not None:
            count = participation.agents
        elif participation is not None:
            threshold = word_threshold(participation)
        server, rounding = method.server, method.rounding
        return MethodConstants(
            num_agents=np.int64(self.job.num_agents),
            window=np.int64(self.job.window),
            ahead=np.int64(self.ahead),
            iid=np.bool_(iid),
            tile=np.int64(tile),
            span=np.int64(span),
            wave=np.int64(self._wave()),
            listed=np.bool_(self.listed),
            consecutive=np.bool_(not self.features.own_clocks and self.features.variates != "kind"),
            by_kind=np.bool_(self.features.variates == "kind"),
            go_on=np.bool_(participation is not None and participation.others == "go_on"),
            num_drawn=np.int64(count),
            threshold=threshold,
            over_all=np.bool_(participation is not None and participation.divide_by == "all"),
            step=np.float64(server.step),
            momentum=np.float64(server.momentum),
            look_ahead=np.float64(server.step * server.momentum if server.looks_ahead else 0.0),
            grid=np.float64(rounding.step if isinstance(rounding, Rounding) else 1.0),
            cells=np.int64(rounding.count if isinstance(rounding, SomeCells) else 1),
        )

    def _wave(self) -> int:
        """Blocks between two reductions."""
        each = self.room * (4 + 8 * self.features.slots) if self.listed else 8 * self.dim
        budget = LOG_BYTES if self.listed else SLOT_BYTES
        most = 1 if self.team == 1 else max(self.team, budget // (each * self.features.slots))
        return max(1, min(most, 8 * self.team, self.most_blocks))

    def agents(self) -> AgentArrays:
        job, kinds = self.job, self.job.agents.kinds.astype(np.int64)
        local = job.method.local_steps
        by_kind = self.features.variates == "kind"
        return AgentArrays(
            weights=Aggregator(job.method, kinds, len(job.agents.mdps)).weights,
            factors=np.ones(len(kinds)) if local is None else local.factors(kinds),
            lengths=np.zeros(0, np.int64) if local is None else local.of_agents(kinds),
            order=np.argsort(kinds, kind="stable") if by_kind else np.arange(len(kinds)),
        )

    def shared(self) -> MethodShared:
        agents, dim, wave = self.job.num_agents, self.dim, int(self.constants.wave)
        slots, listed = self.features.slots, self.listed
        dense, room = (0, 0) if listed else (wave, dim), self.room if listed else 0
        return MethodShared(
            average=np.zeros(dim),
            velocity=np.zeros(dim),
            sent=np.zeros(dim),
            carried=Carried(*(np.zeros((agents, self.ahead), np.uint32) for _ in range(2))),
            clocks=np.zeros(agents if self.features.own_clocks else 0, np.int64),
            members=Members(
                agents=np.arange(agents),
                present=np.ones(agents, np.uint8),
                starts=np.zeros(self.most_blocks + 1, np.int64),
                kinds=np.zeros(self.most_blocks, np.int64),
                kind_weights=np.zeros(self.rows),
                counts=np.zeros(2, np.int64),
                keys=np.zeros((2, agents if self.features.partial else 0), np.uint64),
                drawn=np.zeros(1, np.int64),
                ordered=np.zeros(agents + 1 if self.features.partial else 0, np.uint64),
            ),
            variates=self._variates(),
            sums=BlockLists(
                dense=np.zeros((dense[0], slots, dense[1])),
                cells=np.zeros((wave if listed else 0, room), np.uint32),
                values=np.zeros((wave if listed else 0, slots, room)),
                lengths=np.zeros(wave if listed else 0, np.int64),
            ),
            totals=np.zeros((self.rows, slots, dim)),
            tail=np.zeros(dim),
            failed=np.zeros((self.team, 2), np.int64),
            sync=make_sync(),
        )

    def _variates(self) -> VariateArrays:
        features, agents, dim = self.features, self.job.num_agents, self.dim
        kept = features.variates != "" and not features.first_step
        by_agent, by_kind = kept and features.variates == "agent", features.variates == "kind"
        sparse = by_agent and features.form == "cell"
        weights, kinds = self.agents().weights, self.job.agents.kinds
        count = agents if by_agent else self.rows if kept else 0
        return VariateArrays(
            mean=np.zeros(dim),
            values=np.zeros((count, self.width if sparse else dim)),
            cells=np.zeros((agents if sparse else 0, self.width), np.uint32),
            corrections=np.zeros((self.rows if by_kind else 0, dim)),
            shares=np.bincount(kinds, weights, self.rows) if by_kind else np.ones(1),
        )

    def own(self) -> MethodOwn:
        features, dim = self.features, self.dim
        cell, slots = features.form == "cell", features.slots
        tile = make_tile(self.tile_agents, self.tile_length)
        return MethodOwn(
            params=private((dim,)),
            correction=private((dim if features.variates else 0,)),
            out=private((dim if features.form == "dense" else 0,)),
            log=private((self.steps if cell else 0,), np.uint32),
            visits=private((dim if features.visits else 0,)),
            keys=private((dim if features.rounding == "cells" else 0,), np.uint64),
            sums=private((slots, dim if self.listed else 0)),
            touched=private((self.room if self.listed else 0,), np.uint32),
            num_touched=private((1,), np.int64),
            tile=tile,
            ids=private((TILE,), np.int64),
            working=private((TILE,), np.int64),
            clocks=private((TILE,), np.uint64),
            odd=private((TILE,), np.uint64),
            words=tile.words.reshape(-1),
            counts=private((self.steps if features.tail else 0,)),
        )
