"""Seeds on threads: lanes that run one seed after another, each with a team of threads."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Generic, TypeVar

import numpy as np

from fegsam.compilation import explained
from fegsam.engines.cpu.memory import Seat
from fegsam.engines.cpu.team import ABORT, DONE
from fegsam.engines.job import Job
from fegsam.history.history import Checkpoint
from fegsam.history.recorder import Recorder
from fegsam.progress import AGENT_STEPS, Notice, Progress

COMPILING = "fegsam: compiling for this machine, some 15 s for each kind of run; kept for next time"


class Lane:
    """The threads that run one seed after another; `sync` is the array that they share."""

    def __init__(self, team: int, sync: np.ndarray) -> None:
        self.team, self.sync = team, sync
        self.helpers = ThreadPoolExecutor(max(1, team - 1))
        if team > 1:
            # All threads of a team must run at once, so all are started before the first call.
            present = threading.Barrier(team)
            for _ in range(team - 1):
                self.helpers.submit(present.wait)
            present.wait()

    def run_team(self, seed: np.uint64, run_seat: Callable[[Seat], None]) -> None:
        """Call `run_seat` on every thread of the team."""

        def guarded(rank: int) -> None:
            try:
                run_seat(Seat(seed, np.int64(rank), np.int64(self.team)))
            except BaseException:
                self.sync[ABORT] = 1
                raise

        others = [self.helpers.submit(guarded, rank) for rank in range(1, self.team)]
        guarded(0)
        for future in others:
            future.result()


L = TypeVar("L", bound=Lane)


class SeedRun(ABC, Generic[L]):
    """All seeds of one job; a subclass says how a lane runs one of them."""

    def __init__(self, job: Job) -> None:
        self.job, self.settings = job, job.settings
        self.recorder = Recorder(job.truth, job.settings)
        seeds = len(job.settings.seeds)
        self._params = np.full((seeds, job.dimension), np.nan)
        self._states = np.zeros((seeds, job.num_agents), np.uint32)
        self._memory: dict[str, np.ndarray] = {}
        self.stopped = threading.Event()

    @abstractmethod
    def make_lane(self) -> L: ...

    @abstractmethod
    def warm_up(self, lane: L) -> None:
        """Make a call without steps, which compiles or loads from the cache."""

    @abstractmethod
    def one_seed(self, lane: L, index: int, end: int) -> None:
        """Run the `index`-th seed up to time `end`."""

    def checkpoint(self) -> Checkpoint | None:
        if self.settings.stop_at_output:
            return None
        return Checkpoint(self.job.checkpoint_time, self._params, self._states, self._memory)

    def all_seeds(self, num_lanes: int) -> None:
        output = self.job.output_times
        end = (
            output
            if self.settings.stop_at_output
            else np.full_like(output, self.settings.num_steps)
        )
        total = int(np.maximum(end - self.job.start.time, 0).sum()) * self.job.num_agents
        queue = iter(range(len(self.settings.seeds)))
        lock = threading.Lock()
        lanes = [self.make_lane() for _ in range(num_lanes)]

        def work(lane: L) -> None:
            while not self.stopped.is_set():
                with lock:
                    index = next(queue, None)
                if index is None:
                    return
                self.one_seed(lane, index, int(end[index]))

        with contextlib.ExitStack() as stack:
            for lane in lanes:
                stack.enter_context(lane.helpers)
            # Compile before the threads start.
            with (
                Notice(COMPILING, once=True),
                explained(self.job.rule),
            ):
                self.warm_up(lanes[0])
            progress = stack.enter_context(Progress(total, AGENT_STEPS))
            pool = stack.enter_context(ThreadPoolExecutor(num_lanes))
            try:
                pending = {pool.submit(work, lane) for lane in lanes}
                while pending:
                    done, pending = wait(pending, timeout=0.1, return_when="FIRST_EXCEPTION")
                    for future in done:
                        future.result()
                    progress.show(sum(int(lane.sync[DONE]) for lane in lanes))
            finally:
                self.stopped.set()
                for lane in lanes:
                    lane.sync[ABORT] = 1
