"""Engines with a fault, which the claims must notice: negative controls. Plain Python, as
`engines.reference`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.engines.agent import Agent
from fegsam.engines.job import Job
from fegsam.engines.paths import SimulatedStream
from fegsam.engines.reference import InterpretedAgent
from fegsam.history.history import History
from fegsam.history.recorder import Recorder


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

    def __call__(self, job: Job) -> History:
        recorder = Recorder(job.truth, job.settings)
        for index in range(len(job.settings.seeds)):
            self._run_seed(job, index, recorder)
        return recorder.history(job.output_times, None)

    def _run_seed(self, job: Job, index: int, recorder: Recorder) -> None:
        steps, period = job.settings.num_steps, job.settings.sync_period
        params = np.tile(job.start.params[index], (job.num_agents, 1))
        recorded = set(job.settings.record.tolist())
        agents: list[Agent] = []
        for t in range(steps + 1):
            if t > 0:
                pairs = zip(agents, params, strict=True)
                params = np.stack([agent.local_steps(theta, 1) for agent, theta in pairs])
            if t % period == 0:
                params = np.tile(self._average(params), (job.num_agents, 1))
            if t == 0 or (self.fault == "paths reset" and t % period == 0):
                agents = [self._agent(job, index, i, t) for i in range(job.num_agents)]
            average = self._average(params)
            if t in recorded:
                recorder.add(index, np.array([t]), average[None], np.array([0.0]))
            if t == job.output_times[index]:
                recorder.add_output(index, average)
            if t == steps:
                recorder.add_final(index, average)

    def _average(self, params: np.ndarray) -> np.ndarray:
        return params[0].copy() if self.fault == "no averaging" else params.mean(axis=0)

    def _agent(self, job: Job, index: int, agent: int, time: int) -> Agent:
        who = 0 if self.fault == "shared stream" else agent
        # A seed of its own for every restart: its first state comes from the initial distribution.
        seed = job.settings.seeds[index] + 1_000_003 * time
        stream = Of(job.chain, job.agents, job.settings.sampling, job.window, seed, who)
        stream.kind = np.uint64(job.agents.kinds[agent])
        return InterpretedAgent(job, stream)


class Of(SimulatedStream):
    """The path of one agent, as an agent of another kind sees it."""

    kind: np.uint64

    def rows(self, steps: int) -> Path:
        return super().rows(steps)._replace(kind=self.kind)
