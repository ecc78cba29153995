"""The `reference` engine: Algorithm 1 of the paper in plain Python, with the rule interpreted.

Every other engine is checked against it. It is slow and written to be read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.engines.agent import StreamAgent
from fegsam.engines.job import LARGEST, Job, takes_a_job
from fegsam.engines.paths import SimulatedStream
from fegsam.history.history import Checkpoint, History
from fegsam.history.recorder import Recorder
from fegsam.methods.average import Mean


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
            params, states = map(np.array, zip(*ends, strict=True))
            checkpoint = Checkpoint(job.checkpoint_time, params, states)
        return recorder.history(job.output_times, checkpoint)


def _run_seed(job: Job, index: int, recorder: Recorder) -> tuple[np.ndarray, np.ndarray]:
    """Run Algorithm 1 for one seed; return the average (d) and states (N) at the checkpoint."""
    start, output, period = job.start, int(job.output_times[index]), job.settings.sync_period
    end = output if job.settings.stop_at_output else job.settings.num_steps
    agents = [simulated_agent(job, index, i) for i in range(job.num_agents)]
    average = start.params[index]
    params = np.tile(average, (job.num_agents, 1))
    kept = np.full(job.dimension, np.nan), np.zeros(job.num_agents, np.uint32)
    for t in range(start.time, end + 1):
        if t > start.time:
            params = np.stack(
                [agent.local_steps(theta, 1) for agent, theta in zip(agents, params, strict=True)]
            )
            finite = (np.abs(params) <= LARGEST).all(axis=1)
            if not finite.all():
                recorder.add_divergence(index, t, int(job.agents.kinds[finite.argmin()]))
                return kept
            average = Mean().update(average, params)
            if t % period == 0:
                params = np.tile(average, (job.num_agents, 1))
        with np.errstate(over="ignore"):
            sync_error = np.mean(np.square(params - average).sum(axis=1))
        recorder.add(index, np.array([t]), average[None], np.array([sync_error]))
        if t == output:
            recorder.add_output(index, average)
        if t == end:
            recorder.add_final(index, average)
        if t == job.checkpoint_time:
            kept = average, np.array([agent.stream.state for agent in agents], np.uint32)
    return kept


def simulated_agent(job: Job, index: int, agent: int) -> StreamAgent[SimulatedStream]:
    """The `agent`-th agent under the `index`-th seed, at the start of the job."""
    seed, sampling, start = job.settings.seeds[index], job.settings.sampling, job.start
    stream = SimulatedStream(job.chain, job.agents, sampling, job.window, seed, agent)
    if start.states is not None:
        stream.restore({"time": np.array(start.time), "state": start.states[index, agent]})
    return interpreted_agent(job, stream)


def interpreted_agent(job: Job, stream: SimulatedStream) -> StreamAgent[SimulatedStream]:
    """An agent that runs the job's rule in plain Python, on any stream."""

    def steps(params: np.ndarray, rows: Path, count: int) -> int:
        for k in range(count):
            _step(job, params, rows, np.uint64(k * stream.stride))
        return count

    return StreamAgent(stream, steps, job.dimension, at_once=1)


def _step(job: Job, params: np.ndarray, path: Path, at: np.uint64) -> None:
    """One update: add what the rule returns, where it says."""
    step_size = job.settings.step_size
    with np.errstate(over="ignore", invalid="ignore"):
        if job.form == "dense":
            out = np.empty_like(params)
            job.rule(params, path, at, job.tables, out)
            params += step_size * out
            return
        index, scale = job.rule(params, path, at, job.tables)
        if job.form == "cell":
            params[index] += step_size * scale
        else:
            params += step_size * scale * job.tables.rows[index]
