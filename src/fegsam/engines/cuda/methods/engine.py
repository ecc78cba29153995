"""The driver of a method's rounds on a GPU: batches of seeds, and what is recorded of them."""

from __future__ import annotations

import time as clock
from typing import Any

import numpy as np

from fegsam.compilation import explained, renewed, rule_key
from fegsam.engines.cuda import device as cuda_device
from fegsam.engines.cuda import rule as cuda_rule
from fegsam.engines.cuda.methods.device import MethodBatch
from fegsam.engines.cuda.methods.layout import make_method_layout, make_method_shape
from fegsam.engines.cuda.methods.setup import MethodKernels, upload_agents
from fegsam.engines.cuda.seeds import FIRST_STEPS, GpuSeeds, next_steps
from fegsam.engines.job import Job
from fegsam.engines.method_schedule import MethodSchedule, RoundCall, tail_length
from fegsam.progress import AGENT_STEPS, Notice, Progress

_MOST_STEPS = 1 << 20
"""Steps of each agent in a launch, at most: the step size of each is uploaded."""

_kernels: dict[Any, Any] = {}
"""Compiled kernels, kept per process, since a rule can be compiled only once."""


class MethodGpuRun(GpuSeeds):
    """All seeds of one call, in batches that run at once."""

    def __init__(self, job: Job, precision: str, layout: str | None) -> None:
        super().__init__(job, precision)
        self.shape = make_method_shape(job, np.dtype(self.real).itemsize, self._most_inside())
        self.problem = cuda_device.upload(job, self.real)
        copied = cuda_rule.copies(job)
        device = cuda_device.describe(sum(copied.values()))
        self.layout = make_method_layout(self.shape, device, layout, self.problem.num_bytes)
        self.own = upload_agents(job, self.shape.rows)
        self.kernels = self._compiled_kernels(copied)

    def _most_inside(self) -> int:
        """The largest number of recorded times inside one round."""
        rounds, start = self.job.rounds, self.job.start.time
        inside = self.times[(self.times > start) & ~rounds.is_sync(self.times)]
        if len(inside) == 0:
            return 1
        return int(np.unique(rounds.containing(inside), return_counts=True)[1].max())

    def _compiled_kernels(self, copied: dict[Any, int]) -> MethodKernels:
        """The kernels for the job's rule, its method and this layout."""
        job, layout, shape = self.job, self.layout, self.shape
        key = rule_key(job.rule)
        slot = (
            (key if key is not None else job.rule, job.window, shape.features, shape.rows > 1),
            (layout.name, layout.where, layout.together, layout.registers),
            (self.real, job.settings.sampling, cuda_device.constants(job, copied)),
        )
        if slot not in _kernels:
            _kernels[slot] = MethodKernels(job, renewed(job.rule), shape, layout, self.real, copied)
        return _kernels[slot]

    def all_seeds(self) -> None:
        start, agents = self.job.start.time, self.job.num_agents
        total = int(np.maximum(self.ends - start, 0).sum()) * agents
        seeds, done, steps = np.arange(len(self.settings.seeds)), 0, float(FIRST_STEPS)
        with Progress(total, AGENT_STEPS) as progress:
            for first in range(0, len(seeds), self.layout.seeds):
                members = seeds[first : first + self.layout.seeds]
                with Notice("fegsam: compiling for this GPU", once=True), explained(self.job.rule):
                    batch = self._begin(members)
                end = int(self.ends[members].max())
                schedule = MethodSchedule(self.job.rounds, self.layout.rows, self.layout.points, 1)
                schedule.steps = self._most_steps(steps, members)
                for call in schedule.calls(start, end, self.times):
                    begun = clock.perf_counter()
                    self._one_call(batch, members, call)
                    if not batch.alive.any():
                        break
                    if not call.inside:
                        done += (call.stop - call.time) * agents * len(members)
                        progress.show(done)
                        if call.stop - call.time >= schedule.steps // 2:
                            steps = next_steps(steps, clock.perf_counter() - begun)
                            schedule.steps = self._most_steps(steps, members)
                self._keep(batch, members)

    def _most_steps(self, steps: float, members: np.ndarray) -> int:
        """Steps of each agent in the next launch."""
        return max(1, min(int(steps / self.job.num_agents / len(members)), _MOST_STEPS))

    def _begin(self, members: np.ndarray) -> MethodBatch:
        """A batch at its start, with its kernels compiled."""
        batch, start = MethodBatch(self, members), self.job.start.time
        rows, times = batch.averages()[:, None], np.array([start])
        self._hand_over(members, times, rows, np.zeros((len(members), 1)))
        return batch

    def _one_call(self, batch: MethodBatch, members: np.ndarray, call: RoundCall) -> None:
        rows, omegas, failures = batch.call(call)
        for slot, index in enumerate(map(int, members)):
            if not batch.alive[slot]:
                continue
            failure, kind = failures[slot]
            whole = call.times < failure
            chosen = slice(slot, slot + 1)
            self._hand_over(
                members[chosen], call.times[whole], rows[chosen, whole], omegas[chosen, whole]
            )
            if failure <= call.stop and call.reports:
                batch.alive[slot] = False
                if failure <= self.ends[index]:
                    self.recorder.add_divergence(index, failure, kind)

    def _keep(self, batch: MethodBatch, members: np.ndarray) -> None:
        """Keep what a continued run needs, and the tail."""
        averages, states, kept = batch.averages(), batch.states(), batch.kept()
        alive = np.flatnonzero(batch.alive)
        self._params[members[alive]] = averages[alive]
        self._states[members[alive]] = states[alive]
        seeds = len(self.settings.seeds)
        for name, values in kept.items():
            place = self._memory.setdefault(
                name, np.zeros((seeds, *values.shape[1:]), values.dtype)
            )
            place[members[alive]] = values[alive]
        if self.settings.tail:
            tails = batch.tails() / (tail_length(self.job) or np.nan)
            for slot in alive:
                self.recorder.add_tail(int(members[slot]), tails[slot])
