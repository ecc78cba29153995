"""The `reference` engine: Algorithm 1's loop in plain Python, with the rule interpreted. Slow, and
easy to read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.engines.paths import agent_path
from fegsam.engines.plan import LARGEST, Plan, plan_end
from fegsam.history.history import Checkpoint, History
from fegsam.history.recorder import Recorder
from fegsam.history.settings import Settings


@dataclass(frozen=True)
class Reference:
    """Run in plain Python, one agent after the other; what the other engines are checked against.

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

    def __call__(self, plan: Plan, settings: Settings) -> History:
        recorder = Recorder(plan.truth, settings)
        checkpoints = [
            _run_seed(plan, settings, index, recorder) for index in range(len(settings.seeds))
        ]
        checkpoint = None
        if not settings.stop_at_output:
            params, states = zip(*checkpoints, strict=True)
            checkpoint = Checkpoint(
                plan_end(plan, settings), np.array(params), np.array(states, np.uint32)
            )
        return recorder.history(plan.output_times, checkpoint)


def _run_seed(
    plan: Plan, settings: Settings, index: int, recorder: Recorder
) -> tuple[np.ndarray, np.ndarray]:
    """One seed from the plan's start to its end; the average and the agents' states at the
    checkpoint."""
    start = plan.start.time
    output = int(plan.output_times[index])
    end = output if settings.stop_at_output else settings.num_steps
    first_states = None if plan.start.states is None else plan.start.states[index]
    seed = settings.seeds[index]
    paths = [
        agent_path(plan, settings.sampling, seed, i, start, end - start, first_states)
        for i in range(plan.num_agents)
    ]
    params = [plan.start.params[index].copy() for _ in range(plan.num_agents)]
    kept = np.full(plan.dimension, np.nan), np.zeros(plan.num_agents, np.uint32)
    for t in range(start, end + 1):
        if t > start:
            for i in range(plan.num_agents):
                take_step(plan, settings, params[i], paths[i], t - 1 - start)
            broken = [i for i in range(plan.num_agents) if not (np.abs(params[i]) <= LARGEST).all()]
            if broken:
                recorder.add_divergence(index, t, int(plan.agents.kinds[broken[0]]))
                return kept
        # The mean of equal numbers need not be that number in floating point: one agent never
        # averages.
        alike = t == start or plan.num_agents == 1
        average = params[0].copy() if alike else np.mean(params, axis=0)
        if t % settings.sync_period == 0:
            params = [average.copy() for _ in range(plan.num_agents)]
        with np.errstate(over="ignore"):
            sync_error = np.mean([np.sum(np.square(theta - average)) for theta in params])
        recorder.add(index, np.array([t]), average[None], np.array([sync_error]))
        if t == output:
            recorder.add_output(index, average)
        if t == end:
            recorder.add_final(index, average)
        if t == plan_end(plan, settings):
            # Independent windows have no state to go on from.
            here = [
                path.states[t - start] if settings.sampling == "markov" else 0 for path in paths
            ]
            kept = average, np.array(here, np.uint32)
    return kept


def take_step(plan: Plan, settings: Settings, params: np.ndarray, path: Path, step: int) -> None:
    """One agent's update with the window of its `step`-th step."""
    at = np.uint64(step * (1 if settings.sampling == "markov" else plan.window + 1))
    with np.errstate(over="ignore", invalid="ignore"):
        if plan.form == "dense":
            out = np.empty_like(params)
            plan.rule(params, path, at, plan.tables, out)
            params += settings.step_size * out
            return
        index, scale = plan.rule(params, path, at, plan.tables)
        if plan.form == "cell":
            params[index] += settings.step_size * scale
        else:
            params += settings.step_size * scale * plan.tables.rows[index]
