"""One batch of seeds of a method's run on the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from fegsam.engines.cuda.device import (
    BEGIN_THREADS,
    NEVER,
    first_rows,
    quiet,
    simulated,
    zeros,
)
from fegsam.engines.cuda.memory import NOT_FAILED
from fegsam.engines.cuda.methods.close import SHARE_BITS
from fegsam.engines.cuda.methods.course import make_course
from fegsam.engines.cuda.methods.layout import method_arrays
from fegsam.engines.cuda.methods.memory import (
    MethodLaunch,
    MethodMemory,
)
from fegsam.engines.cuda.methods.setup import method_constants
from fegsam.engines.cuda.params import EMPTY
from fegsam.engines.method_schedule import RoundCall
from fegsam.history.recorder import SERVER_KIND

_DRAW_THREADS, _MOST_BLOCKS = 256, 4096


class MethodBatch:
    """Some seeds, from their start on."""

    def __init__(self, run: Any, members: np.ndarray) -> None:
        job = run.job
        self._run, self._job, self._layout, self._members = run, job, run.layout, members
        self._iid = job.settings.sampling == "iid"
        self.alive = np.ones(len(members), bool)
        self._constants = method_constants(job)
        self._memory = self._make_memory()
        self._upload_variates()
        if "clocks" in job.start.memory:
            self._memory.clocks.copy_to_device(self._padded(job.start.memory["clocks"]))
        nothing = np.zeros(0, np.int64)
        self._start = self._launch(
            RoundCall(0, job.start.time, job.start.time, 1, nothing, False, False)
        )
        self._begin(run.kernels.send, job.dimension, self._constants, self._memory)
        if not self._iid:
            self._begin_windows()

    def _make_memory(self) -> MethodMemory:
        run, job, start, layout = self._run, self._job, self._job.start, self._layout
        seeds = layout.seeds
        arrays = {
            name: zeros(*what) for name, what in method_arrays(layout, run.shape, run.real).items()
        }
        for name in ("keys", "extra_keys"):
            arrays[name] = cuda.to_device(np.full(arrays[name].shape, EMPTY, np.uint32))
        average, velocity = self._padded(start.params), np.zeros((seeds, job.dimension))
        if "velocity" in start.memory:
            velocity = self._padded(start.memory["velocity"])
        names = np.zeros(seeds, np.uint64)
        names[: len(self._members)] = [job.settings.seeds[i] for i in self._members]
        never = np.full(seeds, NOT_FAILED)
        return MethodMemory(
            seeds=cuda.to_device(names),
            average=cuda.to_device(average),
            velocity=cuda.to_device(velocity),
            sent=zeros(average.shape, np.float64),
            rounded=zeros(average.shape, run.real),
            failed=cuda.to_device(never),
            gone=cuda.to_device(never),
            **arrays,
        )

    def _padded(self, values: np.ndarray) -> np.ndarray:
        """(seeds, ...): the values of this batch's seeds, and zeros for those that are missing."""
        found = np.zeros((self._layout.seeds, *values.shape[1:]), values.dtype)
        found[: len(self._members)] = values[self._members]
        return found

    def _upload_variates(self) -> None:
        memory, kept, shape = self._memory, self._job.start.memory, self._run.shape
        if "variates" not in kept:
            return
        values, mean = self._padded(kept["variates"]), self._padded(kept["variate_mean"])
        corrections = mean[:, None]
        if shape.by_agent:
            cells = np.ascontiguousarray(np.swapaxes(self._padded(kept["variate_cells"]), 1, 2))
            memory.cells.copy_to_device(cells)
            values = np.swapaxes(values, 1, 2)
        else:
            corrections = corrections - values
        memory.mean.copy_to_device(mean)
        memory.values.copy_to_device(np.ascontiguousarray(values))
        memory.corrections.copy_to_device(corrections.astype(self._run.real))

    def _begin_windows(self) -> None:
        start, memory, problem = self._job.start, self._memory, self._run.problem
        if start.states is not None:
            for slot, index in enumerate(self._members):
                states = np.ascontiguousarray(start.states[index])
                memory.states[0, slot, 0].copy_to_device(states)
        args = (problem.chain, problem.agents, memory, start.states is None)
        self._begin(self._run.kernels.begin, self._job.num_agents, *args)

    def _begin(self, kernel: Any, many: int, *args: Any) -> None:
        """Launch a kernel that prepares `many` things of each seed."""
        blocks = -(-len(self._members) * many // BEGIN_THREADS)
        grid = min(blocks, 1 if simulated() else _MOST_BLOCKS)
        with quiet():
            kernel[grid, 4 if simulated() else BEGIN_THREADS](self._start, *args)

    def call(self, call: RoundCall) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
        """Run a call; averages (seeds, times, d), sync errors (seeds, times), failures (time,
        kind)."""
        run, memory, count = self._run, self._memory, len(call.times)
        launch, problem = self._launch(call), run.problem
        course = make_course(self._job, call, run.real, run.shape.features.visits)
        args = (launch, self._constants, problem.chain, problem.agents, problem.tables, run.own)
        with quiet():
            if run.shape.features.partial:
                self._draw(launch)
            run.kernels.launch(
                self._layout, call.inside, (*args, course, memory, self._layout.place)
            )
        failures = self._failures(call)
        rows = first_rows(memory.rows, count)[: len(self._members)]
        if not call.inside:
            return rows, np.zeros((len(self._members), count)), failures
        return *self._settled(rows, count), failures

    def _draw(self, launch: MethodLaunch) -> None:
        """Draw who takes part in the rounds of the launch."""
        tasks = int(launch.num_seeds * launch.rounds)
        grid, threads = min(tasks, _MOST_BLOCKS), 4 if simulated() else _DRAW_THREADS
        run = self._run
        kinds = run.problem.agents.kinds
        run.kernels.draw[grid, threads](launch, self._constants, kinds, run.own, self._memory)

    def _settled(self, changes: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Averages and sync errors, from mean changes (seeds, times, d)."""
        memory, members = self._memory, len(self._members)
        squares = memory.squares[:count].copy_to_host()
        squares = squares.reshape(count, self._layout.seeds, -1).sum(axis=2).T[:members]
        weights = self._present_weights()[:members, None]
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.divide(squares, weights, out=np.zeros_like(squares), where=weights > 0)
            apart = np.square(changes).sum(axis=2)
            gaps = np.where(np.isfinite(mean), np.maximum(mean - apart, 0.0), np.inf)
        return memory.sent.copy_to_host()[:members, None] + changes, gaps

    def _present_weights(self) -> np.ndarray:
        """(seeds): the weight of those who take part in the first round of the launch."""
        if not self._run.shape.features.partial:
            return np.full(self._layout.seeds, self._run.own.shares.copy_to_host().sum())
        return self._memory.whole[:, 0].copy_to_host().sum(axis=1) * 2.0**-SHARE_BITS

    def _failures(self, call: RoundCall) -> list[tuple[int, int]]:
        """When each seed's parameters were first not finite, or NEVER; and the kind of their agent.

        A seed that failed is dead from then on, unless a later call makes the same steps again.
        """
        memory, kinds = self._memory, self._job.agents.kinds
        failed, gone = memory.failed.copy_to_host(), memory.gone.copy_to_host()
        found = [(int(NEVER), 0)] * len(self._members)
        for slot in np.flatnonzero(self.alive):
            if failed[slot] != NOT_FAILED:
                step, agent = int(failed[slot]) >> 32, int(failed[slot]) & 0xFFFFFFFF
                found[slot] = (call.time + step, int(kinds[agent]))
            elif gone[slot] != NOT_FAILED:
                found[slot] = (call.time + int(gone[slot]), SERVER_KIND)
        dead = ~np.isin(np.arange(len(failed)), np.flatnonzero(self.alive))
        fresh = np.where(dead, np.uint64(0), NOT_FAILED)
        if call.reports:
            fresh = np.where((failed != NOT_FAILED) | (gone != NOT_FAILED), np.uint64(0), fresh)
        if (fresh != failed).any():
            memory.failed.copy_to_device(fresh)
        return found

    def _launch(self, call: RoundCall) -> MethodLaunch:
        run, layout, shape = self._run, self._layout, self._run.shape
        steps = int(call.stop - call.time)
        numbers = {
            "num_agents": self._job.num_agents,
            "num_seeds": len(self._members),
            "dim": shape.shape.dim,
            "lanes": layout.threads,
            "blocks": layout.blocks,
            "digits": shape.digits,
            "begin": call.time,
            "number": call.number,
            "rounds": 1 if call.inside else steps // call.length,
            "length": call.length,
            "steps": steps,
            "points": len(call.times) if call.inside else 0,
        }
        return MethodLaunch(
            largest=run.real(run.largest),
            **{name: np.int64(value) for name, value in numbers.items()},
        )

    def averages(self) -> np.ndarray:
        return self._memory.average.copy_to_host()[: len(self._members)]

    def tails(self) -> np.ndarray:
        return self._memory.tail.copy_to_host()[: len(self._members)]

    def states(self) -> np.ndarray:
        """(seeds, N)"""
        if self._iid:
            return np.zeros((len(self._members), self._job.num_agents), np.uint32)
        return self._memory.states[0, :, 0].copy_to_host()[: len(self._members)]

    def kept(self) -> dict[str, np.ndarray]:
        """What a continued run needs besides the parameters and the agents' states."""
        memory, shape, found = self._memory, self._run.shape, {}
        if self._job.method.server.momentum:
            found["velocity"] = memory.velocity
        if shape.features.variates and not shape.features.first_step:
            found["variates"], found["variate_mean"] = memory.values, memory.mean
            if shape.by_agent:
                found["variate_cells"] = memory.cells
        if shape.features.own_clocks:
            found["clocks"] = memory.clocks
        members = {
            name: values.copy_to_host()[: len(self._members)] for name, values in found.items()
        }
        if shape.by_agent:
            for name in ("variates", "variate_cells"):
                members[name] = np.swapaxes(members[name], 1, 2)
        return members
