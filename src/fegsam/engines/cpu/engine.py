"""The `cpu` engine: Numba, all cores. Seeds run in parallel; where there are few, threads share
each round's agents.

This module drives threads and seeds; the loop over rounds is in `advance`, its memory in `memory`
and `layout`.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.core import config

from fegsam.compilation import explained, renewed, rule_key
from fegsam.engines.cpu.advance import make_advance
from fegsam.engines.cpu.kernels import NEVER, fill_windows
from fegsam.engines.cpu.layout import BLOCK, CpuLayout
from fegsam.engines.cpu.memory import ProblemArrays, Recording, Seat
from fegsam.engines.cpu.sampling import first_states
from fegsam.engines.cpu.team import ABORT, DONE
from fegsam.engines.job import Job, require_plain, takes_a_job
from fegsam.engines.schedule import Call, CallSchedule
from fegsam.history.history import Checkpoint, History
from fegsam.history.recorder import Recorder
from fegsam.problem.checks import integer
from fegsam.progress import Notice, Progress

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
        require_plain(job, "cpu")
        settings = job.settings
        threads = self.threads or config.NUMBA_NUM_THREADS  # pyright: ignore[reportAttributeAccessIssue]
        steps = job.num_agents * settings.num_steps
        lanes = min(threads, len(settings.seeds)) if steps > _WORTH_A_LANE else 1
        team = _team_size(job, threads // lanes)
        run = _CpuRun(job, CpuLayout(job, team))
        run.all_seeds(lanes)
        return run.recorder.history(job.output_times, run.checkpoint())


def _team_size(job: Job, threads: int) -> int:
    settings = job.settings
    steps = job.num_agents * min(settings.sync_period, settings.num_steps)
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


class _Lane:
    """The memory and the threads that run one seed after another."""

    def __init__(self, run: _CpuRun) -> None:
        self.layout, self._advance, job = run.layout, run.advance, run.job
        self._problem = ProblemArrays(job.chain, job.agents, job.tables)
        self._start = job.start
        self.shared = run.layout.shared()
        self._owns = [run.layout.own() for _ in range(run.layout.team)]
        self.rows = np.zeros((run.layout.limits.rows, run.layout.dim))
        self.omegas = np.zeros(run.layout.limits.rows)
        self.helpers = ThreadPoolExecutor(max(1, run.layout.team - 1))
        if run.layout.team > 1:
            # All threads of a team must run at once, so all are started before the first call.
            present = threading.Barrier(run.layout.team)
            for _ in range(run.layout.team - 1):
                self.helpers.submit(present.wait)
            present.wait()

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
        fed, team = self.layout.fed, self.layout.team
        recording = Recording(call.cuts, self.rows, self.omegas)

        def run_seat(rank: int) -> None:
            own, seat = self._owns[rank], Seat(seed, np.int64(rank), np.int64(team))
            try:
                self._advance(
                    fed, self._problem, self.shared, own, seat, recording, call.time, call.stop
                )
            except BaseException:
                self.shared.sync[ABORT] = 1
                raise

        others = [self.helpers.submit(run_seat, rank) for rank in range(1, team)]
        run_seat(0)
        for future in others:
            future.result()


class _CpuRun:
    """All seeds of one call."""

    def __init__(self, job: Job, layout: CpuLayout) -> None:
        settings = job.settings
        self.job, self.settings, self.layout = job, settings, layout
        self.recorder = Recorder(job.truth, settings)
        self.advance = _compiled_advance(job)
        seeds = len(settings.seeds)
        self._params = np.full((seeds, job.dimension), np.nan)
        self._states = np.zeros((seeds, job.num_agents), np.uint32)
        self._stopped = threading.Event()
        self._lanes: list[_Lane] = []

    def checkpoint(self) -> Checkpoint | None:
        if self.settings.stop_at_output:
            return None
        return Checkpoint(self.job.checkpoint_time, self._params, self._states)

    def all_seeds(self, lanes: int) -> None:
        output = self.job.output_times
        end = (
            output
            if self.settings.stop_at_output
            else np.full_like(output, self.settings.num_steps)
        )
        total = int(np.maximum(end - self.job.start.time, 0).sum()) * self.job.num_agents
        queue = iter(range(len(self.settings.seeds)))
        lock = threading.Lock()
        self._lanes = [_Lane(self) for _ in range(lanes)]

        def work(lane: _Lane) -> None:
            while not self._stopped.is_set():
                with lock:
                    index = next(queue, None)
                if index is None:
                    return
                self._one_seed(lane, index, int(end[index]))

        with contextlib.ExitStack() as stack:
            for lane in self._lanes:
                stack.enter_context(lane.helpers)
            self._warm_up(self._lanes[0])
            progress = stack.enter_context(Progress(total, "agent-steps"))
            pool = stack.enter_context(ThreadPoolExecutor(lanes))
            try:
                pending = {pool.submit(work, lane) for lane in self._lanes}
                while pending:
                    done, pending = wait(pending, timeout=0.1, return_when="FIRST_EXCEPTION")
                    for future in done:
                        future.result()
                    progress.show(sum(int(lane.shared.sync[DONE]) for lane in self._lanes))
            finally:
                self._stopped.set()
                for lane in self._lanes:
                    lane.shared.sync[ABORT] = 1

    def _warm_up(self, lane: _Lane) -> None:
        """Compile (or load from the cache) before the threads start, in a call without steps."""
        with (
            Notice("fegsam: compiling for this machine, some 15 s; kept for next time"),
            explained(self.job.rule),
        ):
            lane.call(np.uint64(0), Call(0, 0, np.zeros(0, np.int64)))

    def _one_seed(self, lane: _Lane, index: int, end: int) -> None:
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
        hand_over(begun, begun.cuts, lane.shared.average[None], np.zeros(1))
        for call in schedule:
            lane.call(seed, call)
            if self._stopped.is_set():
                return
            rows, omegas = lane.rows[: len(call.cuts)], lane.omegas[: len(call.cuts)]
            failure, kind = self._failure(lane)
            whole = call.cuts < failure
            hand_over(call, call.cuts[whole], rows[whole], omegas[whole])
            if failure < NEVER and call.recorded:
                self.recorder.add_divergence(index, failure, kind)
                return
            if failure < NEVER:
                # The recorded call that follows runs the same round again and reports it.
                lane.shared.failed[:] = NEVER
                lane.shared.total[:] = 0.0
        self._params[index] = lane.shared.average
        self._states[index] = lane.shared.carried.states[:, 0]

    def _failure(self, lane: _Lane) -> tuple[int, int]:
        """When a parameter was first not finite, or NEVER; and the kind of its agent."""
        rank = int(np.lexsort((lane.shared.failed[:, 1], lane.shared.failed[:, 0]))[0])
        failure, agent = (int(value) for value in lane.shared.failed[rank])
        return failure, int(self.job.agents.kinds[agent]) if failure < NEVER else 0
