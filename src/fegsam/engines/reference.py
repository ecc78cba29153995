"""The `reference` engine: Algorithm 1 of the paper in plain Python, with the rule interpreted.

Every other engine is checked against it. It is slow and written to be read. How a round begins and
ends is in `reference_round`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.engines.acting import ActingStream
from fegsam.engines.agent import StreamAgent
from fegsam.engines.job import LARGEST, Job, takes_a_job
from fegsam.engines.paths import SimulatedStream
from fegsam.engines.reference_round import ReferenceServer, TailSum
from fegsam.history.history import Checkpoint, History
from fegsam.history.recorder import SERVER_KIND, Recorder


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
        recorder = Recorder(job.truth, job.settings)
        ends = [_run_seed(job, index, recorder) for index in range(len(job.settings.seeds))]
        checkpoint = None
        if not job.settings.stop_at_output:
            params, states, memory = zip(*ends, strict=True)
            together = {name: np.array([each[name] for each in memory]) for name in memory[0]}
            checkpoint = Checkpoint(
                job.checkpoint_time, np.array(params), np.array(states), together
            )
        return recorder.history(job.output_times, checkpoint)


def _run_seed(
    job: Job, index: int, recorder: Recorder
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Run Algorithm 1 for one seed; return the checkpoint's average (d), states (N) and memory."""
    start, output, settings = job.start, int(job.output_times[index]), job.settings
    end = output if settings.stop_at_output else settings.num_steps
    agents = [simulated_agent(job, index, i) for i in range(job.num_agents)]
    server = ReferenceServer(job, index)
    current = server.open(agents, start.time)
    tail = TailSum(settings, job.dimension)
    kept = (
        np.full(job.dimension, np.nan),
        np.zeros(job.num_agents, np.uint32),
        server.memory(agents),
    )
    for t in range(start.time, end + 1):
        average, sync_error = server.params, 0.0
        if t > start.time:
            current.step(t - 1)
            average, sync_error = current.average()
            failed = current.failed_kind()
            if failed is None and job.rounds.is_sync(np.asarray(t)):
                average, sync_error = server.close(current), 0.0
                failed = None if (np.abs(average) <= LARGEST).all() else SERVER_KIND
                current = server.open(agents, t)
            if failed is not None:
                recorder.add_divergence(index, t, failed)
                return kept
            tail.add(t, average)
        recorder.add(index, np.array([t]), average[None], np.array([sync_error]))
        if t == output:
            recorder.add_output(index, average)
        if t == end:
            recorder.add_final(index, average)
        if t == job.checkpoint_time:
            states = np.array([agent.stream.state for agent in agents], np.uint32)
            kept = average, states, server.memory(agents)
    recorder.add_tail(index, tail.mean())
    return kept


class InterpretedAgent(StreamAgent[SimulatedStream]):
    """An agent that runs the job's rule in plain Python, on any stream."""

    def __init__(self, job: Job, stream: SimulatedStream) -> None:
        self._job = job
        self.cell = 0
        """the cell that the last step wrote, where the rule writes one"""
        super().__init__(stream, self._run, job.dimension, job.settings.step_size, at_once=1)

    def _run(
        self, params: np.ndarray, rows: Path, sizes: np.ndarray, correction: np.ndarray | None
    ) -> int:
        for k, size in enumerate(sizes):
            self._step(params, rows, np.uint64(k * self.stream.stride), size)
            if correction is not None:
                params += size * correction
        return len(sizes)

    def _step(self, params: np.ndarray, path: Path, at: np.uint64, step_size: float) -> None:
        """One update: add what the rule returns, where it says."""
        job = self._job
        with np.errstate(over="ignore", invalid="ignore"):
            if job.form == "dense":
                out = np.empty_like(params)
                job.rule(params, path, at, job.tables, out)
                params += step_size * out
                return
            index, scale = job.rule(params, path, at, job.tables)
            if job.form == "cell":
                params[index] += step_size * scale
                self.cell = int(index)
            else:
                params += step_size * scale * job.tables.rows[index]


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
