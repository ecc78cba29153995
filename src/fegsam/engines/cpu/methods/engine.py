"""The driver of a method's rounds: which rounds a call runs, and what is recorded of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fegsam.compilation import renewed, rule_key
from fegsam.engines.cpu.kernels import NEVER
from fegsam.engines.cpu.memory import ProblemArrays, Recording, Seat
from fegsam.engines.cpu.methods.close import SERVER
from fegsam.engines.cpu.methods.layout import MethodLayout
from fegsam.engines.cpu.methods.members import divide, weigh
from fegsam.engines.cpu.methods.memory import MethodCall, MethodGiven, StepSizes, TailRange
from fegsam.engines.cpu.methods.observe import make_observe
from fegsam.engines.cpu.methods.paths import fill_carried
from fegsam.engines.cpu.methods.rounds import make_advance_method
from fegsam.engines.cpu.sampling import first_states
from fegsam.engines.cpu.seeds import Lane, SeedRun
from fegsam.engines.job import Job
from fegsam.engines.method_schedule import MethodSchedule, RoundCall, tail_length
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
        arrays = ProblemArrays(job.chain, job.agents, job.tables)
        self._given = MethodGiven(layout.constants, arrays, layout.agents())
        self.shared = layout.shared()
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
        shared.members.drawn[:] = -1
        everyone = constants._replace(go_on=np.bool_(True))
        _, arrays, agents = self._given
        divide(everyone, arrays.agents.kinds, agents, shared.members)
        weigh(everyone, arrays.agents.kinds, agents, shared.members)
        self._begin_variates(index)
        for own in self._owns:
            own.params[:] = shared.sent
            own.correction[:] = shared.variates.mean[: len(own.correction)]
            own.sums[:], own.visits[:] = 0.0, 1.0
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
            first_states(self._given.arrays.chain, seed, 0, len(first), first)
        else:
            states[:, 0] = start.states[index]
        if self.layout.ahead > 1:
            constants, arrays, _ = self._given
            fill_carried(constants, arrays, shared, self._owns[0], seed, start.time)

    def call(self, seed: np.uint64, asked: RoundCall, tail: TailRange) -> None:
        """Whole rounds with some synchronisations recorded, or times inside one round."""
        call = MethodCall(
            number=np.int64(asked.number),
            time=np.int64(asked.time),
            stop=np.int64(asked.stop),
            length=np.int64(asked.length),
            sizes=self._step_sizes(asked),
            tail=tail,
        )
        recording = Recording(asked.times, self.rows, self.omegas)
        if asked.inside:
            seat, own = Seat(seed, np.int64(0), np.int64(1)), self._owns[0]
            self._observe(self._given, self.shared, own, seat, recording, call, self._scratch)
            return
        self.omegas[: len(asked.times)] = 0.0

        def run_seat(seat: Seat) -> None:
            own = self._owns[seat.rank]
            self._advance(self._given, self.shared, own, seat, recording, call)

        self.run_team(seed, run_seat)

    def _step_sizes(self, call: RoundCall) -> StepSizes:
        end = max(call.stop, call.time + call.length)
        sizes = self._job.step_sizes(call.time, end)
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
        lane.begin(np.uint64(0), 0)
        for inside in (False, True):
            nothing = RoundCall(0, 0, 0, 0, np.zeros(0, np.int64), inside, False)
            lane.call(np.uint64(0), nothing, self._tail(False))

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
        schedule = MethodSchedule(
            self.job.rounds, self.layout.call_rows, self.layout.call_rows, self.layout.call_steps
        )
        for call in schedule.calls(start, end, times):
            lane.call(seed, call, self._tail(call.reports))
            if self.stopped.is_set():
                return
            failure, kind = self._failure(lane)
            wanted, whole = call.times, call.times < failure
            rows, omegas = lane.rows[: len(wanted)], lane.omegas[: len(wanted)]
            self._hand_over(index, wanted[whole], rows[whole], omegas[whole], end)
            if failure < NEVER and call.reports:
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
        if self.settings.tail:
            self.recorder.add_tail(index, lane.shared.tail / (tail_length(self.job) or np.nan))

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
