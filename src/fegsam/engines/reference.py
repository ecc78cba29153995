"""The `reference` engine: Algorithm 1 of the paper in plain Python, with the rule interpreted.

Every other engine is checked against it. It is slow and written to be read. The loop over time is
in `run_agents`; how a round begins and ends is in `reference_round`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.algorithms.td import add_row
from fegsam.engines.acting import ActingStream
from fegsam.engines.agent import StreamAgent
from fegsam.engines.job import Job, takes_a_job
from fegsam.engines.paths import SimulatedStream
from fegsam.engines.recorded import RecordedAgent, RecordedWindows, recorded_agent
from fegsam.engines.run_agents import run_agents
from fegsam.history.history import History


@dataclass(frozen=True)
class Reference:
    """Run in plain Python, one agent after the other; the other engines are checked against this.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> run = dict(step_size=0.1, sync_period=5, num_steps=50)
    >>> slow = fg.run(fed, fg.QLearning(), engine="reference", **run)
    >>> fast = fg.run(fed, fg.QLearning(), engine="cpu", **run)
    >>> bool(abs(slow.data.final_params - fast.data.final_params).max() < 1e-12)
    True
    """

    name = "reference"

    @takes_a_job
    def __call__(self, job: Job) -> History:
        make = simulated_agent if job.data is None else interpreted_agent
        recorder, checkpoint = run_agents(job, make, every_step=True)
        return recorder.history(job.output_times, checkpoint)


class Interpreter:
    """Runs a rule in plain Python."""

    def __init__(self, form: str, rule: Callable[..., Any]) -> None:
        self._form, self._rule = form, rule
        self.cell = 0
        """the cell that the last step wrote, where the rule writes one"""

    def step(
        self, params: np.ndarray, path: Any, at: np.uint64, tables: Any, step_size: float
    ) -> None:
        """One update: add what the rule returns, where it says."""
        with np.errstate(over="ignore", invalid="ignore"):
            if self._form == "dense":
                out = np.empty_like(params)
                self._rule(params, path, at, tables, out)
                params += step_size * out
                return
            index, scale = self._rule(params, path, at, tables)
            if self._form == "cell":
                params[index] += step_size * scale
                self.cell = int(index)
            else:
                add_row(params, tables.rows, index, step_size * scale)


class InterpretedAgent(StreamAgent[SimulatedStream]):
    """A simulated agent that runs the job's rule in plain Python."""

    finite_steps = 1

    def __init__(self, job: Job, stream: SimulatedStream) -> None:
        self._tables, self._runs = job.tables, Interpreter(job.form, job.rule)
        super().__init__(stream, self._run, job.dimension, job.settings.step_size, at_once=1)

    @property
    def cell(self) -> int:
        return self._runs.cell

    @property
    def state(self) -> int:
        return self.stream.state

    def _run(
        self, params: np.ndarray, rows: Path, sizes: np.ndarray, correction: np.ndarray | None
    ) -> int:
        for k, size in enumerate(sizes):
            self._runs.step(params, rows, np.uint64(k * self.stream.stride), self._tables, size)
            if correction is not None:
                params += size * correction
        return len(sizes)


class ActingAgent(InterpretedAgent):
    """An agent whose actions follow from its own parameters."""

    def __init__(self, job: Job, stream: ActingStream) -> None:
        super().__init__(job, stream)
        self._acts = stream

    def local_steps(
        self,
        params: np.ndarray,
        count: int,
        step_sizes: np.ndarray | None = None,
        correction: np.ndarray | None = None,
    ) -> np.ndarray:
        assert count == 1, "the next action depends on the step"
        self._acts.params = params
        return super().local_steps(params, 1, step_sizes, correction)


def simulated_agent(job: Job, index: int, agent: int) -> InterpretedAgent:
    """The `agent`-th agent under the `index`-th seed, at the start of the job."""
    seed, sampling, start = job.settings.seeds[index], job.settings.sampling, job.start
    place: dict[str, np.ndarray] = {}
    if start.states is not None:
        time = start.memory["clocks"][index, agent] if "clocks" in start.memory else start.time
        place = {"time": np.array(time), "state": start.states[index, agent]}
    if job.acting is not None:
        params = start.params[index]
        acts = ActingStream(job.chain, job.agents, job.acting, job.window, seed, agent, params)
        if place:
            acts.restore(place)
        return ActingAgent(job, acts)
    stream = SimulatedStream(job.chain, job.agents, sampling, job.window, seed, agent)
    if place:
        stream.restore(place)
    return InterpretedAgent(job, stream)


def interpreted_agent(job: Job, index: int, agent: int) -> RecordedAgent:
    """An agent on recorded data that runs the job's rule in plain Python."""
    runs = Interpreter(job.form, job.rule)

    def steps(
        params: np.ndarray,
        windows: RecordedWindows,
        sizes: np.ndarray,
        correction: np.ndarray | None,
    ) -> tuple[int, int]:
        at = windows.begin
        for size in sizes:
            while windows.path.gaps[at]:
                at += 1
            runs.step(params, windows.path, np.uint64(at), windows.tables, size)
            if correction is not None:
                params += size * correction
            at += 1
        return len(sizes), runs.cell

    return recorded_agent(job, index, agent, steps)
