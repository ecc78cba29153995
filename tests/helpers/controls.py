"""Engines with a fault, which the claims must notice: negative controls. Plain Python, as
`engines.reference`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.engines.paths import agent_path
from fegsam.engines.plan import Plan
from fegsam.engines.reference import take_step
from fegsam.history.history import History
from fegsam.history.recorder import Recorder
from fegsam.history.settings import Settings


@dataclass(frozen=True)
class Faulty:
    """Algorithm 1's loop, with one of three faults.

    Attributes
    ----------
    fault : {"shared stream", "no averaging", "paths reset", "none"}
        All agents draw from the stream of the first; the "average" is the first agent's parameters;
        or every synchronisation sends each agent back to the law of the first state.
    """

    fault: str

    name = "faulty"

    def __call__(self, plan: Plan, settings: Settings) -> History:
        recorder = Recorder(plan.truth, settings)
        for index, seed in enumerate(settings.seeds):
            self._run_seed(plan, settings, index, seed, recorder)
        return recorder.history(plan.output_times, None)

    def _run_seed(
        self, plan: Plan, settings: Settings, index: int, seed: int, recorder: Recorder
    ) -> None:
        steps, period = settings.num_steps, settings.sync_period
        agents = range(plan.num_agents)
        params = [plan.start.params[index].copy() for _ in agents]
        recorded = set(settings.record.tolist())
        paths: list[Path] = []
        begin = 0
        for t in range(steps + 1):
            if t > 0:
                for i in agents:
                    take_step(plan, settings, params[i], paths[i], t - 1 - begin)
            if t % period == 0:
                params = [self._average(params).copy() for _ in agents]
            if t == 0 or (self.fault == "paths reset" and t % period == 0):
                begin = t
                length = min(period, steps - t) if self.fault == "paths reset" else steps
                paths = [self._path(plan, settings, seed, i, t, length) for i in agents]
            if t in recorded or t == steps or t == plan.output_times[index]:
                average = self._average(params)
                if t in recorded:
                    recorder.add(index, np.array([t]), average[None], np.array([0.0]))
                if t == plan.output_times[index]:
                    recorder.add_output(index, average)
                if t == steps:
                    recorder.add_final(index, average)

    def _average(self, params: list[np.ndarray]) -> np.ndarray:
        return params[0].copy() if self.fault == "no averaging" else np.mean(params, axis=0)

    def _path(
        self, plan: Plan, settings: Settings, seed: int, agent: int, time: int, length: int
    ) -> Path:
        who = 0 if self.fault == "shared stream" else agent
        # A seed of its own for every restart: its first state comes from the law of first states.
        path = agent_path(
            plan, settings.sampling, seed + 1_000_003 * time, who, 0, max(length, 1), None
        )
        kind = plan.agents.kinds[agent]
        return path._replace(kind=np.uint64(kind))
