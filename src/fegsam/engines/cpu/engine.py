"""The `cpu` engine: Numba, all cores. Seeds run in parallel; where there are few, threads share
each round's agents.

This module drives threads and seeds; the loop over rounds is in `advance`, its memory in `memory`
and `layout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.core import config

from fegsam.compilation import renewed, rule_key
from fegsam.engines.cpu.acting import run_acting
from fegsam.engines.cpu.advance import make_advance
from fegsam.engines.cpu.kernels import NEVER, fill_windows
from fegsam.engines.cpu.layout import BLOCK, CpuLayout
from fegsam.engines.cpu.memory import ProblemArrays, Recording, Seat
from fegsam.engines.cpu.methods.engine import MethodRun
from fegsam.engines.cpu.methods.layout import MethodLayout
from fegsam.engines.cpu.recorded import compiled_agent
from fegsam.engines.cpu.sampling import first_states
from fegsam.engines.cpu.seeds import Lane, SeedRun
from fegsam.engines.job import Job, takes_a_job
from fegsam.engines.run_agents import run_agents
from fegsam.engines.schedule import Call, CallSchedule
from fegsam.history.history import History
from fegsam.problem.checks import integer

WORTH_SPLITTING = 1 << 12
"""Agent-steps of a round, per thread, below which the barriers cost more than the threads gain."""
_WORTH_A_LANE = 1 << 15
"""Agent-steps of a seed below which seeds run one after the other: starting a thread for a shorter
one takes longer than running it."""


@dataclass(frozen=True)
class Cpu:
    """Run on the cores of this machine.

    Parameters
    ----------
    threads : int, optional
        How many; by default what Numba would use (the cores, or NUMBA_NUM_THREADS). The results are
        the same bits for any number.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> history = fg.run(
    ...     fed,
    ...     fg.QLearning(),
    ...     step_size=0.1,
    ...     sync_period=5,
    ...     num_steps=100,
    ...     engine=fg.engines.Cpu(threads=1),
    ... )
    >>> history.settings.engine
    'cpu'
    """

    threads: int | None = None
    name = "cpu"

    def __post_init__(self) -> None:
        if self.threads is not None:
            integer(self.threads, "threads")

    @takes_a_job
    def __call__(self, job: Job) -> History:
        settings = job.settings
        threads = self.threads or config.NUMBA_NUM_THREADS  # pyright: ignore[reportAttributeAccessIssue]
        if job.data is not None:
            recorder, checkpoint = run_agents(job, compiled_agent, every_step=False)
            return recorder.history(job.output_times, checkpoint)
        if job.acting is not None:
            return run_acting(job, threads)
        steps = job.num_agents * settings.num_steps
        lanes = min(threads, len(settings.seeds)) if steps > _WORTH_A_LANE else 1
        team = _team_size(job, threads // lanes)
        run = (
            _PlainRun(job, CpuLayout(job, team))
            if job.is_plain
            else MethodRun(job, MethodLayout(job, team))
        )
        run.all_seeds(lanes)
        return run.recorder.history(job.output_times, run.checkpoint())


def _team_size(job: Job, threads: int) -> int:
    settings = job.settings
    steps = job.num_agents * min(job.rounds.longest, settings.num_steps)
    blocks = -(-job.num_agents // BLOCK)
    return max(1, min(threads, blocks, steps // WORTH_SPLITTING))


_advance_of_rule: dict[Any, Any] = {}


def _compiled_advance(job: Job) -> Any:
    """The compiled loop for the job's rule; kept per process, since a rule can be compiled only
    once."""
    key = rule_key(job.rule)
    slot = (job.form, key if key is not None else job.rule)
    if slot not in _advance_of_rule:
        _advance_of_rule[slot] = make_advance(job.form, renewed(job.rule), key)
    return _advance_of_rule[slot][0 if job.num_agents > 1 else 1]


class _PlainLane(Lane):
    """A lane with the memory of plain averaging."""

    def __init__(self, run: _PlainRun) -> None:
        self.layout, self._advance, job = run.layout, run.advance, run.job
        self._problem = ProblemArrays(job.chain, job.agents, job.tables)
        self._start = job.start
        self.shared = run.layout.shared()
        self._owns = [run.layout.own() for _ in range(run.layout.team)]
        self.rows = np.zeros((run.layout.limits.rows, run.layout.dim))
        self.omegas = np.zeros(run.layout.limits.rows)
        super().__init__(run.layout.team, self.shared.sync)

    def begin(self, seed: np.uint64, index: int) -> None:
        shared, start, carried = self.shared, self._start, self.shared.carried
        shared.average[:] = start.params[index]
        for own in self._owns:
            own.params[:] = shared.average
        shared.total[:] = 0.0
        shared.failed[:] = NEVER
        if start.states is None:
            first = carried.states[:, 0]
            first_states(self._problem.chain, seed, 0, len(first), first)
        else:
            carried.states[:, 0] = start.states[index]
        if self.layout.ahead > 1:
            chain, agents, tile = self._problem.chain, self._problem.agents, self._owns[0].tile
            fill_windows(self.layout.fed, chain, agents, tile, carried, seed, start.time)

    def call(self, seed: np.uint64, call: Call) -> None:
        """One call of the compiled loop, by all threads of the team."""
        fed, arrays, shared = self.layout.fed, self._problem, self.shared
        recording = Recording(call.points, self.rows, self.omegas)

        def run_seat(seat: Seat) -> None:
            own = self._owns[seat.rank]
            self._advance(fed, arrays, shared, own, seat, recording, call.time, call.stop)

        self.run_team(seed, run_seat)


class _PlainRun(SeedRun[_PlainLane]):
    """All seeds of one call, with plain averaging."""

    def __init__(self, job: Job, layout: CpuLayout) -> None:
        super().__init__(job)
        self.layout, self.advance = layout, _compiled_advance(job)

    def make_lane(self) -> _PlainLane:
        return _PlainLane(self)

    def warm_up(self, lane: _PlainLane) -> None:
        lane.call(np.uint64(0), Call(0, 0, np.zeros(0, np.int64)))

    def one_seed(self, lane: _PlainLane, index: int, end: int) -> None:
        settings, start = self.settings, self.job.start.time
        output = int(self.job.output_times[index])
        fed, seed = self.layout.fed, np.uint64(settings.seeds[index])
        # One agent never synchronises: its run may be divided anywhere.
        period = settings.sync_period if fed.num_agents > 1 else 1
        schedule = CallSchedule(
            settings.record, output, start, end, period, bool(fed.logged), self.layout.limits
        )

        def hand_over(call: Call, times: np.ndarray, rows: np.ndarray, omegas: np.ndarray) -> None:
            if call.recorded:
                self.recorder.add(index, times, rows, omegas)
            for time, add in ((output, self.recorder.add_output), (end, self.recorder.add_final)):
                found = np.searchsorted(times, time)
                if found < len(times) and times[found] == time and schedule.takes(call, time):
                    add(index, rows[found])

        lane.begin(seed, index)
        begun = Call(start, start, np.array([start]))
        hand_over(begun, begun.points, lane.shared.average[None], np.zeros(1))
        for call in schedule:
            lane.call(seed, call)
            if self.stopped.is_set():
                return
            rows, omegas = lane.rows[: len(call.points)], lane.omegas[: len(call.points)]
            failure, kind = self._failure(lane)
            whole = call.points < failure
            hand_over(call, call.points[whole], rows[whole], omegas[whole])
            if failure < NEVER and call.recorded:
                self.recorder.add_divergence(index, failure, kind)
                return
            if failure < NEVER:
                # The recorded call that follows runs the same round again and reports it.
                lane.shared.failed[:] = NEVER
                lane.shared.total[:] = 0.0
        self._params[index] = lane.shared.average
        self._states[index] = lane.shared.carried.states[:, 0]

    def _failure(self, lane: _PlainLane) -> tuple[int, int]:
        """When a parameter was first not finite, or NEVER; and the kind of its agent."""
        rank = int(np.lexsort((lane.shared.failed[:, 1], lane.shared.failed[:, 0]))[0])
        failure, agent = (int(value) for value in lane.shared.failed[rank])
        return failure, int(self.job.agents.kinds[agent]) if failure < NEVER else 0
