"""The `cpu` engine for agents whose actions follow from their own parameters.

Their paths cannot be drawn before the updates, so one loop does both, and every agent has a copy of
the parameters. Seeds run in parallel.
"""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from fegsam.algorithms.rule import Path
from fegsam.compilation import compiled, explained, renewed, rule_key
from fegsam.engines.acting import ActingStream
from fegsam.engines.cpu.seeds import COMPILING
from fegsam.engines.job import LARGEST, Agents, Chain, Job, require_plain
from fegsam.errors import ProblemError
from fegsam.history.history import Checkpoint, History
from fegsam.history.recorder import Recorder
from fegsam.problem.acting import choose_action
from fegsam.progress import Notice
from fegsam.randomness import ONE, PATH, TWO, choose, words

_MOST_BYTES = 8 << 30
"""The most memory for the agents' copies of the parameters."""
_NEVER = np.iinfo(np.int64).max
_ZERO = np.uint64(0)


class ActingArrays(NamedTuple):
    """A problem, and how its agents act."""

    chain: Chain
    agents: Agents
    tables: Any
    """what the rule reads"""
    step_size: np.float64
    code: np.uint64
    amount: np.float64
    """see `problem.acting`"""


class ActingMemory(NamedTuple):
    """The memory of one seed."""

    seed: np.uint64
    params: np.ndarray
    """(N, d): the parameters of each agent"""
    average: np.ndarray
    """(d)"""
    cells: np.ndarray
    """uint32 (N): the state and action of each agent"""
    states: np.ndarray
    """uint64 (2): the window of the agent that runs now"""
    actions: np.ndarray
    failed: np.ndarray
    """int64 (2): time and agent of the first parameter that was not finite"""


def make_run_rounds(rule, key):
    """The compiled loop over rounds for one rule of the form "cell"."""
    rule = register_jitable(rule)

    @compiled(key=key)
    def run_agent(arrays, memory, path, i, begin, end):
        """Steps begin..end-1 of agent `i`, along `path`."""
        chain, _, tables, step_size, code, amount = arrays
        seed, params, failed = memory.seed, memory.params[i], memory.failed
        count, cell, agent = chain.num_actions, np.uint64(memory.cells[i]), np.uint64(i)
        start = np.uint64(path.mdp) * chain.num_states * count
        for t in range(np.uint64(begin), np.uint64(end)):
            _, word = words(seed, agent, t, PATH)
            row = TWO * (start + cell)
            first, size = np.uint64(chain.row[row]), np.uint64(chain.row[row + ONE])
            following = np.uint64(choose(word, first, size, chain.entry))
            word, _ = words(seed, agent, t + ONE, PATH)
            action = choose_action(word, params, following * count, count, code, amount)
            path.states[0], path.states[1] = cell // count, following
            path.actions[0], path.actions[1] = cell % count, action
            index, scale = rule(params, path, _ZERO, tables)
            params[index] += step_size * scale
            cell = following * count + action
            if not abs(params[index]) <= LARGEST:
                if np.int64(t) + 1 < failed[0]:
                    failed[0], failed[1] = np.int64(t) + 1, i
                break
        memory.cells[i] = cell

    @compiled(key=key)
    def run_rounds(arrays, memory, begin, end, period):
        """Run all agents from `begin` to `end`; return their squared distance from the average."""
        agents, params, average = arrays.agents, memory.params, memory.average
        num_agents, time = params.shape[0], begin
        while time < end:
            stop = min(end, (time // period + 1) * period)
            for i in range(num_agents):
                kind = agents.kinds[i]
                mdp, policy = agents.mdps[kind], agents.policies[kind]
                path = Path(memory.states, memory.actions, kind, mdp, policy)
                run_agent(arrays, memory, path, i, time, stop)
            if memory.failed[0] < _NEVER:
                return 0.0
            time = stop
            mean_of(params, average)
            if time % period == 0:
                hand_out(params, average)
        return 0.0 if end % period == 0 else spread_of(params, average)

    return run_rounds


@compiled
def mean_of(params, average):
    """The mean over the agents, summed in their order."""
    num_agents, dim = params.shape
    for c in range(dim):
        average[c] = 0.0
    for i in range(num_agents):
        for c in range(dim):
            average[c] += params[i, c]
    for c in range(dim):
        average[c] /= num_agents


@compiled
def hand_out(params, average):
    for i in range(params.shape[0]):
        for c in range(params.shape[1]):
            params[i, c] = average[c]


@compiled
def spread_of(params, average):
    """The mean squared distance of the agents from their average."""
    num_agents, dim = params.shape
    total = 0.0
    for i in range(num_agents):
        for c in range(dim):
            total += (params[i, c] - average[c]) ** 2
    return total / num_agents


_rounds_of_rule: dict[Any, Any] = {}


def run_acting(job: Job, threads: int) -> History:
    """Run a job whose agents act by their own parameters."""
    require_plain(job, "cpu")
    needed = 8.0 * job.num_agents * job.dimension * min(threads, len(job.settings.seeds))
    if needed > _MOST_BYTES:
        raise ProblemError(
            f"{job.num_agents} agents that act by {job.dimension} parameters of their own need "
            f"{needed / 1e9:.3g} GB, but {_MOST_BYTES / 1e9:.3g} GB are allowed; use fewer agents, "
            "states or threads."
        )
    run = _ActingRun(job)
    seeds = range(len(job.settings.seeds))
    with ThreadPoolExecutor(max(1, min(threads, len(seeds)))) as pool:
        list(pool.map(run.one_seed, seeds))
    return run.recorder.history(job.output_times, run.checkpoint())


class _ActingRun:
    """All seeds of one job."""

    def __init__(self, job: Job) -> None:
        self.job, self.recorder = job, Recorder(job.truth, job.settings)
        seeds = len(job.settings.seeds)
        self._params = np.full((seeds, job.dimension), np.nan)
        self._cells = np.zeros((seeds, job.num_agents), np.uint32)
        key = rule_key(job.rule)
        slot = key if key is not None else job.rule
        if slot not in _rounds_of_rule:
            _rounds_of_rule[slot] = make_run_rounds(renewed(job.rule), key)
        self._run_rounds = _rounds_of_rule[slot]
        assert job.acting is not None
        self._arrays = ActingArrays(
            job.chain,
            job.agents,
            job.tables,
            np.float64(job.settings.step_size),
            job.acting.code,
            np.float64(job.acting.amount),
        )
        with (
            Notice(COMPILING, once=True),
            explained(job.rule),
        ):
            self._advance(np.uint64(0), *self._begin(0), 0, 0)

    def checkpoint(self) -> Checkpoint | None:
        if self.job.settings.stop_at_output:
            return None
        return Checkpoint(self.job.checkpoint_time, self._params, self._cells)

    def _begin(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Parameters (N, d), their average (d) and the agents' cells (N), at the job's start."""
        job = self.job
        average = np.array(job.start.params[index], np.float64)
        if job.start.states is not None:
            cells = np.array(job.start.states[index], np.uint32)
        else:
            cells = np.array([self._first_cell(index, i, average) for i in range(job.num_agents)])
        return np.tile(average, (job.num_agents, 1)), average, cells.astype(np.uint32)

    def _first_cell(self, index: int, agent: int, params: np.ndarray) -> int:
        job = self.job
        assert job.acting is not None
        seed = job.settings.seeds[index]
        stream = ActingStream(job.chain, job.agents, job.acting, job.window, seed, agent, params)
        return stream.state

    def _advance(
        self,
        seed: np.uint64,
        params: np.ndarray,
        average: np.ndarray,
        cells: np.ndarray,
        begin: int,
        end: int,
    ) -> tuple[float, int, int]:
        """Run from `begin` to `end`: the sync error there, and when and where it failed."""
        failed = np.array([_NEVER, 0])
        # One agent never averages.
        period = self.job.settings.sync_period if self.job.num_agents > 1 else _NEVER
        states, actions = np.zeros((2, 2), np.uint64)
        memory = ActingMemory(seed, params, average, cells, states, actions, failed)
        spread = self._run_rounds(self._arrays, memory, begin, end, period)
        return spread, int(failed[0]), int(failed[1])

    def one_seed(self, index: int) -> None:
        job, settings, recorder = self.job, self.job.settings, self.recorder
        seed, output = np.uint64(settings.seeds[index]), int(job.output_times[index])
        end = output if settings.stop_at_output else settings.num_steps
        params, average, cells = self._begin(index)
        time, spread = job.start.time, 0.0
        stops = np.union1d(settings.record, [time, output, end, job.checkpoint_time])
        for stop in stops[(stops >= time) & (stops <= end)].tolist():
            if stop > time:
                spread, failure, agent = self._advance(seed, params, average, cells, time, stop)
                if failure < _NEVER:
                    recorder.add_divergence(index, failure, int(job.agents.kinds[agent]))
                    return
            time = stop
            recorder.add(index, np.array([time]), average[None], np.array([spread]))
            if time == output:
                recorder.add_output(index, average)
            if time == end:
                recorder.add_final(index, average)
            if time == job.checkpoint_time:
                self._params[index], self._cells[index] = average, cells
