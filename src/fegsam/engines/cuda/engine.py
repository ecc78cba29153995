"""The `cuda` engine: the same rules and the same random numbers on one GPU, through numba-cuda.

This module drives seeds and launches; the kernels are in `kernel`, their place on the GPU in
`layout`.
"""

from __future__ import annotations

import time as clock
from dataclasses import dataclass
from typing import Any

import numpy as np

from fegsam.compilation import explained, renewed, rule_key
from fegsam.engines.cuda.seeds import FIRST_STEPS, PRECISIONS, GpuSeeds, next_steps
from fegsam.engines.job import Job, require_simulated, takes_a_job
from fegsam.engines.schedule import Call, CallLimits, CallSchedule, most_in_a_round
from fegsam.errors import ProblemError, shown
from fegsam.history.history import History
from fegsam.progress import AGENT_STEPS, Notice, Progress


@dataclass(frozen=True)
class Cuda:
    """Run on a GPU.

    Parameters
    ----------
    precision : "float64" or "float32"
        Of the agents' parameters; paths are the same in both, and averages are float64.
    layout : "shared", "overlay" or "table", optional
        Where an agent's parameters lie; by default what suits the problem's size.

    Examples
    --------
    >>> import fegsam as fg
    >>> fg.engines.Cuda(precision="float32").name
    'cuda float32'
    """

    precision: str = "float64"
    layout: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.precision, str) or self.precision not in PRECISIONS:
            raise ProblemError(
                f"precision is {shown(self.precision)}; give 'float64' or 'float32'."
            )
        if self.layout is not None and (
            not isinstance(self.layout, str) or self.layout not in ("shared", "overlay", "table")
        ):
            raise ProblemError(
                f"layout is {shown(self.layout)}; give 'shared', 'overlay' or 'table', or leave "
                "it out."
            )

    @property
    def name(self) -> str:
        """As it stands in a history's settings."""
        return "cuda" if self.precision == "float64" else "cuda float32"

    @takes_a_job
    def __call__(self, job: Job) -> History:
        require_simulated(job, "cuda")
        if job.acting is not None:
            raise ProblemError(
                "The cuda engine draws paths before the updates, and here actions depend on the "
                "parameters; use engine='cpu'."
            )
        _require_gpu()
        run = _PlainGpuRun(job, self) if job.is_plain else _method_run(job, self)
        run.all_seeds()
        return run.recorder.history(job.output_times, run.checkpoint())


def _require_gpu() -> None:
    from numba import cuda

    if not cuda.is_available():
        raise ProblemError(
            "engine='cuda' needs an NVIDIA GPU with its driver, and numba-cuda: pip install "
            "'fegsam[cuda]' on a machine that has one; engine='cpu' runs the same here."
        )


def _method_run(job: Job, engine: Cuda) -> Any:
    from fegsam.engines.cuda.methods.engine import MethodGpuRun

    return MethodGpuRun(job, engine.precision, engine.layout)


_kernels: dict[Any, Any] = {}
"""Compiled kernels, kept per process, since a rule can be compiled only once."""


class _PlainGpuRun(GpuSeeds):
    """All seeds of one call with plain averaging, in batches that run at once."""

    def __init__(self, job: Job, engine: Cuda) -> None:
        settings = job.settings
        # Numba's CUDA modules load here, so that nothing else waits for them.
        from fegsam.engines.cuda import device as cuda_device
        from fegsam.engines.cuda import layout as cuda_layout
        from fegsam.engines.cuda import rule as cuda_rule

        super().__init__(job, engine.precision)
        self.shape = cuda_layout.make_shape(job, np.dtype(self.real).itemsize)
        self.problem = cuda_device.upload(job, self.real)
        wanted = most_in_a_round(self.times, settings.sync_period) if job.num_agents > 1 else 1
        copied = cuda_rule.copies(job)
        device = cuda_device.describe(sum(copied.values()))
        self.layout = cuda_layout.make_layout(
            self.shape, device, engine.layout, wanted, self.problem.num_bytes
        )
        self.kernels = self._compiled_kernels(copied)

    def _compiled_kernels(self, copied: dict[Any, int]) -> Any:
        """The kernels for the job's rule and this layout."""
        from fegsam.engines.cuda.device import Kernels, constants

        job, layout, iid = self.job, self.layout, self.settings.sampling == "iid"
        key = rule_key(job.rule)
        slot = (
            (job.form, key if key is not None else job.rule, job.window, job.num_agents == 1),
            (layout.name, layout.where, layout.together, layout.registers),
            (self.real, iid, constants(job, copied)),
        )
        if slot not in _kernels:
            _kernels[slot] = Kernels(job, renewed(job.rule), layout, self.real, iid, copied)
        return _kernels[slot]

    def all_seeds(self) -> None:
        from fegsam.engines.cuda.device import SeedBatch

        start = self.job.start.time
        total = int(np.maximum(self.ends - start, 0).sum()) * self.job.num_agents
        seeds = np.arange(len(self.settings.seeds))
        done, steps = 0, float(FIRST_STEPS)
        with Progress(total, AGENT_STEPS) as progress:
            for first in range(0, len(seeds), self.layout.seeds):
                members = seeds[first : first + self.layout.seeds]
                with Notice("fegsam: compiling for this GPU", once=True), explained(self.job.rule):
                    batch = SeedBatch(self, members)
                    batch.launch(start, start, [np.zeros(0, np.int64)] * len(members))
                self._hand_over(
                    members,
                    np.array([start]),
                    batch.averages()[:, None],
                    np.zeros((len(members), 1)),
                )
                end, time = int(self.ends[members].max()), start
                while time < end:
                    time, taken, moved = self._some_calls(batch, members, time, end, steps)
                    done += moved
                    progress.show(done)
                    steps = next_steps(steps, taken)
                    if not batch.alive.any():
                        break
                self._keep(batch, members)

    def _some_calls(
        self, batch: Any, members: np.ndarray, time: int, end: int, steps: float
    ) -> tuple[int, float, int]:
        """One call of the schedule that starts at `time`; return where it ended, its seconds, and
        its agent-steps."""
        agents = self.job.num_agents
        period = self.settings.sync_period if agents > 1 else 1
        most = min(int(steps / agents / len(members)), self.layout.most_rounds * period)
        limits = CallLimits(max(1, most), self.layout.rows, self.layout.points)
        begun, reached = clock.perf_counter(), time
        for call in CallSchedule(self.times, end, time, end, period, False, limits):
            if call.time > time:
                break
            self._one_call(batch, members, call)
            reached = call.stop
        return reached, clock.perf_counter() - begun, (reached - time) * agents * len(members)

    def _one_call(self, batch: Any, members: np.ndarray, call: Call) -> None:
        outputs, recorded = self.job.output_times, np.isin(call.points, self.settings.record)
        wanted = [
            call.points[
                (call.points <= self.ends[i])
                & (recorded | np.isin(call.points, (outputs[i], self.ends[i])))
            ]
            for i in members
        ]
        rows, omegas, failures = batch.launch(call.time, call.stop, wanted)
        for slot, index in enumerate(members):
            if not batch.alive[slot]:
                continue
            times = wanted[slot]
            failure, agent = failures[slot]
            whole = times < failure
            count = int(whole.sum())
            self._hand_over(
                members[slot : slot + 1],
                times[whole],
                rows[slot : slot + 1, :count],
                omegas[slot : slot + 1, :count],
            )
            if failure <= call.stop:
                batch.alive[slot] = False
                self.recorder.add_divergence(int(index), failure, int(self.job.agents.kinds[agent]))

    def _keep(self, batch: Any, members: np.ndarray) -> None:
        averages, states = batch.averages(), batch.states()
        alive = np.flatnonzero(batch.alive)
        self._params[members[alive]] = averages[alive]
        if self.settings.sampling == "markov":
            self._states[members[alive]] = states[alive]
