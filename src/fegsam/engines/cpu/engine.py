"""The `cpu` engine: Numba, all cores. Seeds go side by side; where they are few, threads share each
round's agents.

This module drives threads and seeds; the loop over rounds is in `advance`, its memory in `layout`.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.core import config

from fegsam.compilation import compiled, explained, renewed, rule_key
from fegsam.engines.cpu import kernels
from fegsam.engines.cpu.advance import make_advance
from fegsam.engines.cpu.kernels import NEVER
from fegsam.engines.cpu.layout import BLOCK, Layout, Seat
from fegsam.engines.cpu.sampling import enter, extend, first_states
from fegsam.engines.cpu.team import ABORT, DONE
from fegsam.engines.job import Job, takes_a_job
from fegsam.engines.schedule import Call, Schedule
from fegsam.history.history import Checkpoint, History
from fegsam.history.recorder import Recorder
from fegsam.history.settings import Settings
from fegsam.problem.checks import integer
from fegsam.progress import Notice, Progress

WORTH_SPLITTING = 1 << 12
"""Agent-steps of a round, per thread, below which meeting costs more than it brings."""


_WORTH_A_LANE = 1 << 15
"""Agent-steps of a seed below which seeds go one after the other."""


@dataclass(frozen=True)
class Cpu:
    """Run on the cores of this machine.

    Parameters
    ----------
    threads : int, optional
        How many; by default what Numba would use (the cores, or NUMBA_NUM_THREADS). Results are the
        same bits for any.

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
        plan, settings = job, job.settings
        threads = self.threads or config.NUMBA_NUM_THREADS  # pyright: ignore[reportAttributeAccessIssue]
        steps = plan.num_agents * settings.num_steps
        # Seeds that are over sooner than Python has begun them only wait for each other.
        lanes = min(threads, len(settings.seeds)) if steps > _WORTH_A_LANE else 1
        team = _team_size(plan, settings, threads // lanes)
        run = _Run(plan, settings, Layout(plan, settings, team))
        run.all_seeds(lanes)
        return run.recorder.history(plan.output_times, run.checkpoint())


def _team_size(plan: Job, settings: Settings, threads: int) -> int:
    steps = plan.num_agents * min(settings.sync_period, settings.num_steps)
    blocks = -(-plan.num_agents // BLOCK)
    return max(1, min(threads, blocks, steps // WORTH_SPLITTING))


_advance_of_rule: dict[Any, Any] = {}


def _compiled_advance(plan: Job) -> Any:
    """The compiled loop for the plan's rule; kept per process, since a rule may be compiled only
    once."""
    key = rule_key(plan.rule)
    slot = (plan.form, key if key is not None else plan.rule)
    if slot not in _advance_of_rule:
        _advance_of_rule[slot] = make_advance(plan.form, renewed(plan.rule), key)
    return _advance_of_rule[slot][0 if plan.num_agents > 1 else 1]


class _Lane:
    """The memory and the threads that one seed after another runs on."""

    def __init__(self, run: _Run) -> None:
        self.layout = run.layout
        self.shared = run.layout.shared()
        self.owns = [run.layout.own() for _ in range(run.layout.team)]
        self.tiles = [run.layout.tile() for _ in range(run.layout.team)]
        self.rows = np.zeros((run.layout.limits.rows, run.layout.dim))
        self.omegas = np.zeros(run.layout.limits.rows)
        self.helpers = ThreadPoolExecutor(max(1, run.layout.team - 1))
        if run.layout.team > 1:
            # All of a team must be at work at once, so none of its threads may be started late.
            present = threading.Barrier(run.layout.team)
            for _ in range(run.layout.team - 1):
                self.helpers.submit(present.wait)
            present.wait()

    def begin(self, plan: Job, seed: np.uint64, index: int) -> None:
        shared, start = self.shared, plan.start
        shared.average[:] = start.params[index]
        for own in self.owns:
            own.params[:] = shared.average
        shared.total[:] = 0.0
        shared.failed[:] = NEVER
        if start.states is None:
            first_states(
                plan.chain, seed, 0, len(shared.carried_states), shared.carried_states[:, 0]
            )
        else:
            shared.carried_states[:, 0] = start.states[index]
        if self.layout.ahead > 1:
            fill_windows(
                self.layout.fed, self.tiles[0], plan.chain, plan.agents, seed,
                shared.carried_states, shared.carried_actions, start.time,
            )  # fmt: skip

    def call(self, advance: Any, plan: Job, seed: np.uint64, call: Call) -> None:
        """One call of the compiled loop, by all threads of the team."""

        def seat(rank: int) -> None:
            try:
                advance(
                    self.layout.fed,
                    plan.chain,
                    plan.agents,
                    plan.tables,
                    self.shared,
                    self.owns[rank],
                    self.tiles[rank],
                    Seat(seed, np.int64(rank), np.int64(self.layout.team)),
                    call.time,
                    call.stop,
                    call.cuts,
                    self.rows,
                    self.omegas,
                )
            except BaseException:
                self.shared.sync[ABORT] = 1
                raise

        others = [self.helpers.submit(seat, rank) for rank in range(1, self.layout.team)]
        seat(0)
        for future in others:
            future.result()


@compiled
def fill_windows(fed, tile, chain, agents, seed, carried_states, carried_actions, time):
    """The rest of every agent's window, behind its state at `time`."""
    for first in range(0, fed.num_agents, fed.tile):
        count = min(fed.tile, fed.num_agents - first)
        enter(tile, chain, agents, first, count)
        for a in range(count):
            tile.states[a, 0] = carried_states[first + a, 0]
        extend(tile, chain, seed, first, count, time, fed.ahead - 1, 1)
        kernels.carry(fed, tile, carried_states, carried_actions, first, count, 0)


class _Run:
    """All seeds of one call."""

    def __init__(self, plan: Job, settings: Settings, layout: Layout) -> None:
        self.plan, self.settings, self.layout = plan, settings, layout
        self.recorder = Recorder(plan.truth, settings)
        self.advance = _compiled_advance(plan)
        seeds = len(settings.seeds)
        self._params = np.full((seeds, plan.dimension), np.nan)
        self._states = np.zeros((seeds, plan.num_agents), np.uint32)
        self._stopped = threading.Event()
        self._lanes: list[_Lane] = []

    def checkpoint(self) -> Checkpoint | None:
        if self.settings.stop_at_output:
            return None
        return Checkpoint(self.plan.checkpoint_time, self._params, self._states)

    def all_seeds(self, lanes: int) -> None:
        output = self.plan.output_times
        end = (
            output
            if self.settings.stop_at_output
            else np.full_like(output, self.settings.num_steps)
        )
        total = int(np.maximum(end - self.plan.start.time, 0).sum()) * self.plan.num_agents
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
        """Compile (or load from the cache) before the threads start, in a call that has nothing to
        do."""
        with (
            Notice("fegsam: compiling for this machine, some 15 s; kept for next time"),
            explained(self.plan.rule),
        ):
            lane.call(self.advance, self.plan, np.uint64(0), Call(0, 0, np.zeros(0, np.int64)))

    def _one_seed(self, lane: _Lane, index: int, end: int) -> None:
        start, settings, output = (
            self.plan.start.time,
            self.settings,
            int(self.plan.output_times[index]),
        )
        fed, seed = self.layout.fed, np.uint64(settings.seeds[index])
        # One agent never synchronises: any stretch of its run is a round.
        period = settings.sync_period if fed.num_agents > 1 else 1
        schedule = Schedule(
            settings.record, output, start, end, period, bool(fed.logged), self.layout.limits
        )

        def hand_over(call: Call, cuts: np.ndarray, rows: np.ndarray, omegas: np.ndarray) -> None:
            if call.recorded:
                self.recorder.add(index, cuts, rows, omegas)
            for time, add in ((output, self.recorder.add_output), (end, self.recorder.add_final)):
                found = np.searchsorted(cuts, time)
                if found < len(cuts) and cuts[found] == time and schedule.takes(call, time):
                    add(index, rows[found])

        lane.begin(self.plan, seed, index)
        begun = Call(start, start, np.array([start]))
        hand_over(begun, begun.cuts, lane.shared.average[None], np.zeros(1))
        for call in schedule:
            lane.call(self.advance, self.plan, seed, call)
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
                # The same round comes again, for what was to be recorded in it.
                lane.shared.failed[:] = NEVER
                lane.shared.total[:] = 0.0
        self._params[index] = lane.shared.average
        self._states[index] = lane.shared.carried_states[:, 0]

    def _failure(self, lane: _Lane) -> tuple[int, int]:
        """When a parameter was first not finite, or NEVER, and of which kind its agent is."""
        rank = int(np.lexsort((lane.shared.failed[:, 1], lane.shared.failed[:, 0]))[0])
        failure, agent = (int(value) for value in lane.shared.failed[rank])
        return failure, int(self.plan.agents.kinds[agent]) if failure < NEVER else 0
