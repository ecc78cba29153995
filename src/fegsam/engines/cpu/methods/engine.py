"""The driver of a method's rounds: which rounds a call runs, and what is recorded of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fegsam.compilation import renewed, rule_key
from fegsam.engines.cpu.kernels import NEVER
from fegsam.engines.cpu.memory import ProblemArrays, Recording, Seat
from fegsam.engines.cpu.methods.close import SERVER
from fegsam.engines.cpu.methods.layout import MethodLayout
from fegsam.engines.cpu.methods.members import divide
from fegsam.engines.cpu.methods.memory import MethodCall, StepSizes, TailRange
from fegsam.engines.cpu.methods.observe import make_observe
from fegsam.engines.cpu.methods.paths import fill_carried
from fegsam.engines.cpu.methods.rounds import make_advance_method
from fegsam.engines.cpu.sampling import first_states
from fegsam.engines.cpu.seeds import Lane, SeedRun
from fegsam.engines.job import Job
from fegsam.engines.schedule import between
from fegsam.history.recorder import SERVER_KIND

_loops_of_rule: dict[Any, Any] = {}


def _compiled_loops(job: Job, layout: MethodLayout) -> tuple[Any, Any]:
    """The compiled loops for the job's rule and method; kept per process."""
    key, features = rule_key(job.rule), layout.features
    slot = (features, key if key is not None else job.rule)
    if slot not in _loops_of_rule:
        content = None if key is None else f"{key} {features}"
        _loops_of_rule[slot] = tuple(
            make(features, renewed(job.rule), content)
            for make in (make_advance_method, make_observe)
        )
    return _loops_of_rule[slot]


class MethodLane(Lane):
    """A lane with the memory of a method."""

    def __init__(self, run: MethodRun) -> None:
        self.layout, self._job = run.layout, run.job
        self._advance, self._observe = run.loops
        job, layout = run.job, run.layout
        self._problem = ProblemArrays(job.chain, job.agents, job.tables)
        self._agents, self.shared = layout.agents(), layout.shared()
        self._owns = [layout.own() for _ in range(layout.team)]
        self.rows = np.zeros((layout.call_rows, layout.dim))
        self.omegas = np.zeros(layout.call_rows)
        self._scratch = np.zeros((layout.features.slots, layout.dim))
        super().__init__(layout.team, self.shared.sync)

    def begin(self, seed: np.uint64, index: int) -> None:
        """Prepare the memory for a seed: the start of the run, or where it is resumed."""
        shared, start, constants = self.shared, self._job.start, self.layout.constants
        shared.average[:] = start.params[index]
        shared.velocity[:] = start.memory["velocity"][index] if "velocity" in start.memory else 0.0
        shared.sent[:] = shared.average + constants.look_ahead * shared.velocity
        shared.totals[:] = shared.tail[:] = 0.0
        shared.failed[:] = NEVER
        shared.members.present[:] = 1
        everyone = constants._replace(go_on=np.bool_(True))
        divide(everyone, self._problem.agents.kinds, self._agents, shared.members)
        self._begin_variates(index)
        for own in self._owns:
            own.params[:] = shared.sent
            own.correction[:] = shared.variates.mean[: len(own.correction)]
            own.sums[:] = own.visits[:] = 0.0
            own.num_touched[:] = 0
        self._begin_paths(seed, index)

    def _begin_variates(self, index: int) -> None:
        variates, memory = self.shared.variates, self._job.start.memory
        for part in (variates.mean, variates.values, variates.cells, variates.corrections):
            part[:] = 0
        if "variates" not in memory:
            return
        variates.values[:] = memory["variates"][index]
        if "variate_cells" in memory:
            variates.cells[:] = memory["variate_cells"][index]
        variates.mean[:] = memory["variate_mean"][index]
        if len(variates.corrections):
            variates.corrections[:] = variates.mean - variates.values

    def _begin_paths(self, seed: np.uint64, index: int) -> None:
        shared, start, states = self.shared, self._job.start, self.shared.carried.states
        shared.clocks[:] = start.memory["clocks"][index] if "clocks" in start.memory else start.time
        if start.states is None:
            first = states[:, 0]
            first_states(self._problem.chain, seed, 0, len(first), first)
        else:
            states[:, 0] = start.states[index]
        if self.layout.ahead > 1:
            constants, own = self.layout.constants, self._owns[0]
            fill_carried(constants, self._problem, shared, own, seed, start.time)

    def call(
        self, seed: np.uint64, call: MethodCall, times: np.ndarray, inside: bool, tail: TailRange
    ) -> None:
        """Whole rounds with the synchronisations at `times`, or times `inside` one round."""
        sizes, layout = self._step_sizes(call), self.layout
        recording = Recording(times, self.rows, self.omegas)
        common = (layout.constants, self._problem, self._agents, self.shared)
        if inside:
            seat = Seat(seed, np.int64(0), np.int64(1))
            own = self._owns[0]
            self._observe(*common, own, seat, sizes, tail, recording, call, self._scratch)
            return
        self.omegas[: len(times)] = 0.0

        def run_seat(seat: Seat) -> None:
            self._advance(*common, self._owns[seat.rank], seat, sizes, tail, recording, call)

        self.run_team(seed, run_seat)

    def _step_sizes(self, call: MethodCall) -> StepSizes:
        end = max(int(call.stop), int(call.time + call.length))
        sizes = self._job.step_sizes(int(call.time), end)
        known = sizes if self.layout.features.visits else np.zeros(0)
        return StepSizes(np.int64(call.time), sizes, 1.0 / (1.0 - known), -np.log1p(-known))

    def memory(self) -> dict[str, np.ndarray]:
        """What a continued run needs besides the parameters and the agents' states."""
        shared, found = self.shared, {}
        if self._job.method.server.momentum:
            found["velocity"] = shared.velocity
        if len(shared.variates.values):
            found["variates"], found["variate_mean"] = shared.variates.values, shared.variates.mean
            if len(shared.variates.cells):
                found["variate_cells"] = shared.variates.cells
        if len(shared.clocks):
            found["clocks"] = shared.clocks
        return found


class MethodRun(SeedRun[MethodLane]):
    """All seeds of one call, with a method."""

    def __init__(self, job: Job, layout: MethodLayout) -> None:
        super().__init__(job)
        self.layout, self.loops = layout, _compiled_loops(job, layout)

    def make_lane(self) -> MethodLane:
        lane = MethodLane(self)
        seeds = len(self.settings.seeds)
        for name, values in lane.memory().items():
            self._memory.setdefault(name, np.zeros((seeds, *values.shape), values.dtype))
        return lane

    def warm_up(self, lane: MethodLane) -> None:
        nothing = MethodCall(*(np.int64(0) for _ in range(4)))
        lane.begin(np.uint64(0), 0)
        for inside in (False, True):
            lane.call(np.uint64(0), nothing, np.zeros(0, np.int64), inside, self._tail(False))

    def _tail(self, counted: bool) -> TailRange:
        """The times of the tail, where a call counts them."""
        settings = self.settings
        after = settings.tail_start if counted and settings.tail else NEVER
        return TailRange(np.int64(after), np.bool_(settings.tail_over == "syncs"))

    def one_seed(self, lane: MethodLane, index: int, end: int) -> None:
        settings, start = self.settings, self.job.start.time
        seed, output = np.uint64(settings.seeds[index]), int(self.job.output_times[index])
        lane.begin(seed, index)
        self._hand_over(index, np.array([start]), lane.shared.average[None], np.zeros(1), end)
        times = np.union1d(settings.record, [output, end])
        for call, wanted, inside, last in self._calls(start, end, times):
            lane.call(seed, call, wanted, inside, self._tail(last or not inside))
            if self.stopped.is_set():
                return
            failure, kind = self._failure(lane)
            whole = wanted < failure
            rows, omegas = lane.rows[: len(wanted)], lane.omegas[: len(wanted)]
            self._hand_over(index, wanted[whole], rows[whole], omegas[whole], end)
            if failure < NEVER and (last or not inside):
                self.recorder.add_divergence(index, failure, kind)
                return
            if failure < NEVER:
                # The call that follows runs the same round again and reports it.
                lane.shared.failed[:] = NEVER
        self._finish(lane, index)

    def _finish(self, lane: MethodLane, index: int) -> None:
        self._params[index] = lane.shared.average
        self._states[index] = lane.shared.carried.states[:, 0]
        for name, values in lane.memory().items():
            self._memory[name][index] = values
        settings = self.settings
        if settings.tail:
            first, last = settings.tail_start, settings.num_steps
            count = last - first
            if settings.tail_over == "syncs":
                count = self.job.rounds.count(last) - self.job.rounds.count(first)
            self.recorder.add_tail(index, lane.shared.tail / (count or np.nan))

    def _calls(
        self, start: int, end: int, times: np.ndarray
    ) -> Iterator[tuple[MethodCall, np.ndarray, bool, bool]]:
        """Calls of the compiled loops, the recorded times of each, whether these lie inside a
        round, and whether that round is never completed."""
        rounds, time = self.job.rounds, start
        times = between(times, start, end)
        at_sync = rounds.is_sync(times)
        inner, syncs = times[~at_sync], times[at_sync]
        while time < end:
            number = int(rounds.containing(np.asarray(time)))
            begin, stop = (int(rounds.start(np.asarray(r))) for r in (number, number + 1))
            last = stop > end
            length = min(stop, end) - begin
            points = between(inner, time, min(stop, end))
            most = self.layout.call_rows
            for first in range(0, len(points), most):
                some = points[first : first + most]
                final = last and first + most >= len(points)
                call = self._call(number, time, int(some[-1]), length)
                yield call, some, True, final
            if last:
                return
            ahead = between(inner, stop, end)
            limit = rounds.last_sync(int(ahead[0]) if len(ahead) else end)
            stop = self._reach(time, max(limit, stop), length)
            yield self._call(number, time, stop, length), between(syncs, time, stop), False, False
            time = stop

    def _reach(self, time: int, limit: int, length: int) -> int:
        """The end of one call: rounds of one length, as many as its limits allow, at least one."""
        most = max(1, min(self.layout.call_steps // length, self.layout.call_rows))
        rounds, number = self.job.rounds, int(self.job.rounds.containing(np.asarray(time)))
        starts = rounds.start(np.arange(number, number + most + 1))
        equal = np.diff(starts) == length
        count = len(equal) if equal.all() else int(equal.argmin())
        return min(limit, time + count * length)

    def _call(self, number: int, time: int, stop: int, length: int) -> MethodCall:
        return MethodCall(np.int64(number), np.int64(time), np.int64(stop), np.int64(length))

    def _hand_over(
        self, index: int, times: np.ndarray, rows: np.ndarray, omegas: np.ndarray, end: int
    ) -> None:
        self.recorder.add(index, times, rows, omegas)
        output = int(self.job.output_times[index])
        for time, add in ((output, self.recorder.add_output), (end, self.recorder.add_final)):
            found = np.searchsorted(times, time)
            if found < len(times) and times[found] == time:
                add(index, rows[found])

    def _failure(self, lane: MethodLane) -> tuple[int, int]:
        """When a parameter was first not finite, or NEVER; and the kind of its agent."""
        failed = lane.shared.failed
        rank = int(np.lexsort((failed[:, 1], failed[:, 0]))[0])
        failure, agent = (int(value) for value in failed[rank])
        if failure == NEVER or agent == SERVER:
            return failure, SERVER_KIND
        return failure, int(self.job.agents.kinds[agent])
