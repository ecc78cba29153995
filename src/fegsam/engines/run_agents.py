"""Algorithm 1 of the paper, with agents that are asked for their local steps one after the other.

The `reference` engine runs simulated agents in this way, a step at a time. Agents on recorded data
make all their steps up to the next time that matters in one call.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import numpy as np

from fegsam.engines.job import LARGEST, Job
from fegsam.engines.reference_round import ReferenceServer, RoundAgent, TailSum
from fegsam.history.history import Checkpoint
from fegsam.history.recorder import SERVER_KIND, Recorder
from fegsam.progress import AGENT_STEPS, Progress

MakeAgent = Callable[[Job, int, int], RoundAgent]
"""The agent with a number under the seed with an index."""


def run_agents(
    job: Job, make: MakeAgent, *, every_step: bool
) -> tuple[Recorder, Checkpoint | None]:
    """Run all seeds of a job; look at the average after `every_step`, or only where it matters.

    Returns what was recorded, and where the run can be continued.
    """
    recorder = Recorder(job.truth, job.settings, job.measure, job.facts)
    ends, seeds = [], len(job.settings.seeds)
    with Progress(seeds * job.num_agents * _steps(job), AGENT_STEPS) as progress:
        for index in range(seeds):
            ends.append(_run_seed(job, index, recorder, make, every_step, progress))
    checkpoint = None
    if not job.settings.stop_at_output:
        params, states, memory = zip(*ends, strict=True)
        together = {name: _stacked([each[name] for each in memory]) for name in memory[0]}
        checkpoint = Checkpoint(job.checkpoint_time, np.array(params), np.array(states), together)
    return recorder, checkpoint


def _steps(job: Job) -> int:
    """The steps of an agent under each seed, at most."""
    return job.settings.num_steps - job.start.time


def _run_seed(
    job: Job,
    index: int,
    recorder: Recorder,
    make: MakeAgent,
    every_step: bool,
    progress: Progress,
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Run Algorithm 1 for one seed; return the checkpoint's average (d), states (N) and memory."""
    start, output, settings = job.start, int(job.output_times[index]), job.settings
    end = output if settings.stop_at_output else settings.num_steps
    agents = [make(job, index, i) for i in range(job.num_agents)]
    if "streams" in start.memory:
        for agent, state in zip(agents, start.memory["streams"][index], strict=True):
            agent.restore(unpacked(state))
    server = ReferenceServer(job, index)
    current = server.open(agents, start.time)
    tail = TailSum(settings, job.dimension)
    kept = (
        np.full(job.dimension, np.nan),
        np.zeros(job.num_agents, np.uint32),
        _memory(job, server, agents),
    )
    before = start.time
    for t in _times(job, end, output, every_step):
        average, sync_error = server.params, 0.0
        if t > start.time:
            failed_at = current.advance(before, t)
            average, sync_error = current.average()
            failed = current.failed_kind()
            if failed is None and job.rounds.is_sync(np.asarray(t)):
                average, sync_error = server.close(current), 0.0
                failed = None if (np.abs(average) <= LARGEST).all() else SERVER_KIND
                current = server.open(agents, t)
            if failed is not None:
                recorder.add_divergence(index, failed_at, failed)
                return kept
            tail.add(t, average)
        recorder.add(index, np.array([t]), average[None], np.array([sync_error]))
        if t == output:
            recorder.add_output(index, average)
        if t == end:
            recorder.add_final(index, average)
        if t == job.checkpoint_time:
            states = np.array([agent.state for agent in agents], np.uint32)
            kept = average, states, _memory(job, server, agents)
        before, made = t, index * _steps(job) + t - start.time
        progress.show(made * job.num_agents, recorder.latest(index) or None)
    recorder.add_tail(index, tail.mean())
    return kept


def _times(job: Job, end: int, output: int, every_step: bool) -> list[int]:
    """The times from the start to `end` at which the average is looked at."""
    settings, start, rounds = job.settings, job.start.time, job.rounds
    if every_step or (settings.tail and settings.tail_over != "syncs"):
        return list(range(start, end + 1))
    # A log may have more steps than fit in memory as numbers; it has fewer synchronisations.
    syncs = rounds.start(np.arange(rounds.count(start), rounds.count(end) + 1))
    others = (start, output, end, job.checkpoint_time)
    times = np.unique(np.concatenate([syncs, settings.record, others]).astype(np.int64))
    return times[(start <= times) & (times <= end)].tolist()


def _memory(
    job: Job, server: ReferenceServer, agents: Sequence[RoundAgent]
) -> dict[str, np.ndarray]:
    """What a continued run needs besides the parameters and the agents' states."""
    memory = server.memory(agents)
    if job.data is not None:
        memory["streams"] = _stacked([packed(agent.save()) for agent in agents])
    return memory


def packed(state: dict[str, np.ndarray]) -> np.ndarray:
    """uint8 (n): a stream's state as bytes.

    >>> unpacked(packed({"time": np.array(3)}))
    {'time': array(3)}
    """
    file = io.BytesIO()
    np.savez(file, **state)  # pyright: ignore[reportArgumentType]
    return np.frombuffer(file.getvalue(), np.uint8)


def unpacked(data: np.ndarray) -> dict[str, np.ndarray]:
    """The state that `packed` wrote, possibly with zeros behind it."""
    with np.load(io.BytesIO(data.tobytes()), allow_pickle=False) as found:
        return {name: found[name] for name in found}


def _stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The arrays as one, with zeros behind the shorter ones."""
    if len({array.shape for array in arrays}) == 1:
        return np.array(arrays)
    shape = np.max([array.shape for array in arrays], axis=0)
    found = np.zeros((len(arrays), *shape), arrays[0].dtype)
    for place, array in enumerate(arrays):
        found[(place, *(slice(size) for size in array.shape))] = array
    return found
