"""What every run of the `cuda` engine keeps: where its seeds end, and what is recorded of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fegsam.engines.job import LARGEST, Job
from fegsam.history.history import Checkpoint
from fegsam.history.recorder import Recorder

PRECISIONS: dict[str, tuple[Any, float]] = {
    "float64": (np.float64, LARGEST),
    "float32": (np.float32, 1e35),
}
"""The type of a parameter, and the size beyond which one counts as not finite."""
FIRST_STEPS = 1 << 24
"""Agent-steps of the first launch; the length of the next ones follows from its time."""
_SECONDS = 0.5
"""Seconds that a launch should take: interrupts and the progress bar wait for its end."""


def next_steps(steps: float, taken: float) -> float:
    """Agent-steps of the next launch, after a launch of `steps` that took `taken` seconds."""
    return min(max(steps * _SECONDS / max(taken, 1e-3), steps / 4), steps * 8)


class GpuSeeds:
    """All seeds of one job; a subclass runs them in batches."""

    def __init__(self, job: Job, precision: str) -> None:
        settings = job.settings
        self.job, self.settings = job, settings
        self.real, self.largest = PRECISIONS[precision]
        self.recorder = Recorder(job.truth, settings)
        output = job.output_times
        self.ends = output if settings.stop_at_output else np.full_like(output, settings.num_steps)
        self.times = np.union1d(settings.record, np.union1d(output, self.ends))
        self._params = np.full((len(settings.seeds), job.dimension), np.nan)
        self._states = np.zeros((len(settings.seeds), job.num_agents), np.uint32)
        self._memory: dict[str, np.ndarray] = {}

    def checkpoint(self) -> Checkpoint | None:
        if self.settings.stop_at_output:
            return None
        return Checkpoint(self.job.checkpoint_time, self._params, self._states, self._memory)

    def _hand_over(
        self, members: np.ndarray, times: np.ndarray, rows: np.ndarray, omegas: np.ndarray
    ) -> None:
        """Averages (seeds, times, d) of some seeds."""
        for slot, index in enumerate(map(int, members)):
            self.recorder.add(index, times, rows[slot], omegas[slot])
            for time, add in (
                (self.job.output_times[index], self.recorder.add_output),
                (self.ends[index], self.recorder.add_final),
            ):
                found = np.flatnonzero(times == time)
                if len(found):
                    add(index, rows[slot, found[0]])
