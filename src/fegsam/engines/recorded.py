"""Agents on recorded data: a reader's rows, as the windows of a rule, and the local steps on them.

A step is a transition; the last row of an episode, a gap, begins none. What an agent sees does not
depend on its parameters, so the rows of a call are read first and then used in one compiled loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fegsam.algorithms.on_data import OnData
from fegsam.algorithms.rule import RecordedPath
from fegsam.compilation import compiled
from fegsam.data.choosing import target_chances
from fegsam.data.federation import Reader
from fegsam.data.rows import Rows
from fegsam.engines.agent import State
from fegsam.engines.job import Job
from fegsam.errors import ProblemError

LOG_ROWS_AT_ONCE = 1 << 15
"""Rows of a log that are read ahead."""
LIVE_ROWS_AT_ONCE = 1 << 9
"""Rows of a live environment that are read ahead: short reads cost more for each row."""


class DataUsedUp(ProblemError):
    """The rows of an agent do not suffice for the steps that are asked of it."""


class RecordedWindows(NamedTuple):
    """The rows of some steps, and what the rule reads with them."""

    path: RecordedPath
    tables: Any
    begin: int
    """the row of the first step, or a gap before it"""


class _Held(NamedTuple):
    """Rows that were read, as a rule reads them."""

    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    ratios: np.ndarray
    gaps: np.ndarray
    features: np.ndarray
    """(L, d) rows, (L, m) indices of their ones, or (L, 0) for a table"""


class _Mark(NamedTuple):
    """The state of the reader before a read, and the held row that it began with."""

    row: int
    state: Mapping[str, np.ndarray]


class RecordedStream:
    """The windows of an agent's steps, from the rows of a reader.

    `at_once` rows are read ahead, where that is cheap. The function of a target policy must give
    `num_actions` probabilities, where that number is known.
    """

    def __init__(
        self,
        reader: Reader,
        needs: OnData,
        target: np.ndarray | Callable[[np.ndarray], ArrayLike] | None,
        *,
        window: int,
        kind: int,
        at_once: int = 0,
        num_actions: int | None = None,
    ) -> None:
        self._reader, self._needs, self._target = reader, needs, target
        self._window, self._kind, self._at_once = window, np.uint64(kind), at_once
        self._num_actions, self._time = num_actions, 0
        self._clear()

    def _clear(self) -> None:
        self._held: _Held | None = None
        self._tables: Any = None
        self._at = 0
        self._marks: deque[_Mark] = deque()

    @property
    def time(self) -> int:
        """The number of steps that have been taken."""
        return self._time

    def take(self, count: int) -> RecordedWindows:
        """The windows of the next `count` steps; `DataUsedUp` if there are fewer."""
        end = self._reach(count)
        held, tables = self._held, self._tables
        assert held is not None
        missing = end + self._window - len(held.gaps)
        if missing > 0:
            # Behind the last row, a gap, the window has rows that do not count.
            held = _Held(*(np.concatenate([part, part[-1:].repeat(missing, 0)]) for part in held))
            tables = self._needs.tables(held.features, held.actions)
        begin, self._at = self._at, end
        self._time += count
        path = RecordedPath(
            held.states,
            held.actions,
            self._kind,
            held.rewards,
            held.discounts,
            held.ratios,
            held.gaps,
        )
        return RecordedWindows(path, tables, begin)

    def _reach(self, count: int) -> int:
        """The end of the next `count` steps among the held rows, with their windows behind it."""
        end, found, more = self._at, 0, 1
        while True:
            if self._held is not None:
                end, found = (int(value) for value in _after(self._held.gaps, self._at, count))
                lacking = count - found + max(end + self._window - len(self._held.gaps), 0)
                if lacking <= 0:
                    return end
                more = lacking
            else:
                more = count + self._window
            if not self._read(max(more, self._at_once)):
                break
        if found == count and self._held is not None and self._held.gaps[-1]:
            return end
        raise DataUsedUp(
            f"The data of this agent is used up: {found} transitions are left and {count} are "
            "needed; run fewer steps, or give it more data."
        )

    def _read(self, count: int) -> bool:
        """Hold up to `count` further rows; return whether there were any."""
        state, rows = self._reader.save(), self._reader.read(count)
        if len(rows.gap) == 0:
            return False
        if self._held is not None and self._at:
            self._forget()
        self._marks.append(_Mark(0 if self._held is None else len(self._held.gaps), state))
        new = self._as_held(rows)
        if self._held is not None:
            new = _Held(*map(np.concatenate, zip(self._held, new, strict=True)))
        if self._needs.features is not None:
            new = new._replace(states=np.arange(len(new.gaps), dtype=np.uint64))
        self._held, self._tables = new, self._needs.tables(new.features, new.actions)
        return True

    def _forget(self) -> None:
        """Drop the rows before the next step, but those since the last mark."""
        assert self._held is not None
        while len(self._marks) > 1 and self._marks[1].row <= self._at:
            self._marks.popleft()
        first = self._marks[0].row
        if first:
            self._held = _Held(*(part[first:] for part in self._held))
            self._marks = deque(_Mark(mark.row - first, mark.state) for mark in self._marks)
            self._at -= first

    def _as_held(self, rows: Rows) -> _Held:
        needs, length = self._needs, len(rows.gap)
        features, states = np.zeros((length, 0)), np.zeros(length, np.uint64)
        if needs.features is None:
            states = _unsigned(rows.observation)
        else:
            made = needs.features
            features = made.dense(rows.observation) if needs.dense else made(rows.observation)
            if features.dtype.kind in "iu":
                features = features.astype(np.uint32)
        return _Held(
            states,
            _unsigned(rows.action),
            np.ascontiguousarray(rows.reward, np.float64),
            np.ascontiguousarray(rows.discount, np.float64),
            self._ratios(rows),
            np.ascontiguousarray(rows.gap, np.bool_),
            np.ascontiguousarray(features),
        )

    def _ratios(self, rows: Rows) -> np.ndarray:
        """The target policy's probability of each action over the behaviour's; ones if unused."""
        if not self._needs.weighted:
            return np.ones(len(rows.gap))
        target = rows.target
        if isinstance(self._target, np.ndarray):
            target = self._target[rows.observation, rows.action]
        elif self._target is not None:
            target = target_chances(self._target, rows.observation, rows.action, self._num_actions)
        return np.array(target / rows.behavior, np.float64)

    def save(self) -> dict[str, np.ndarray]:
        """Where the stream is: a state of the reader, and the rows to skip from there."""
        time = np.array(self._time, np.int64)
        if self._held is None:
            return {"time": time, "skip": np.array(0, np.int64), **self._reader.save()}
        mark = next(mark for mark in reversed(self._marks) if mark.row <= self._at)
        return {"time": time, "skip": np.array(self._at - mark.row, np.int64), **mark.state}

    def restore(self, state: State) -> None:
        """Continue from what `save` returned."""
        self._clear()
        self._time, skip = int(state["time"]), int(state["skip"])
        self._reader.restore({name: state[name] for name in state if name not in ("time", "skip")})
        if skip:
            self._read(skip)
            self._at = skip


def _unsigned(numbers: np.ndarray) -> np.ndarray:
    """uint64: the same memory where the numbers, none of which is below 0, are int64."""
    if numbers.dtype == np.int64 and numbers.flags.c_contiguous:
        return numbers.view(np.uint64)
    return numbers.astype(np.uint64)


@compiled
def _after(gaps, at, count):
    """The row after the next `count` steps from row `at` on, and how many there are."""
    found, row = 0, at
    while found < count and row < gaps.shape[0]:
        found += not gaps[row]
        row += 1
    return row, found


Steps = Callable[[np.ndarray, RecordedWindows, np.ndarray, np.ndarray | None], tuple[int, int]]
"""Make a step on `params` for each step size, with a correction or none; return how many left the
parameters finite, and the cell that the last one wrote."""


class RecordedAgent:
    """An agent that makes local steps on recorded data; `steps` runs its rule."""

    state = 0
    """there is no chain to know the state of"""

    def __init__(self, stream: RecordedStream, steps: Steps, step_size: float) -> None:
        self._stream, self._steps, self._step_size = stream, steps, step_size
        self._sizes = np.zeros(0)
        self.cell = 0
        """the cell that the last step wrote, where the rule writes one"""
        self.finite_steps = 0
        """the steps of the last call that left the parameters finite"""

    @property
    def time(self) -> int:
        return self._stream.time

    def local_steps(
        self,
        params: np.ndarray,
        count: int,
        step_sizes: np.ndarray | None = None,
        correction: np.ndarray | None = None,
    ) -> np.ndarray:
        params = np.array(params, np.float64)
        sizes = self._constant(count) if step_sizes is None else step_sizes
        windows = self._stream.take(count)
        self.finite_steps, self.cell = self._steps(params, windows, sizes, correction)
        return params

    def _constant(self, count: int) -> np.ndarray:
        """(count): the step size; kept, since rounds have the same length."""
        if len(self._sizes) != count:
            self._sizes = np.full(count, self._step_size)
        return self._sizes

    def direction(self, params: np.ndarray) -> np.ndarray:
        place = self._stream.save()
        moved = self.local_steps(params, 1, np.ones(1))
        self._stream.restore(place)
        return moved - params

    def skip(self, count: int) -> None:
        """Let the data move on by `count` steps that are not made."""
        self._stream.take(count)

    def save(self) -> dict[str, np.ndarray]:
        return self._stream.save()

    def restore(self, state: State) -> None:
        self._stream.restore(state)


def recorded_agent(job: Job, index: int, agent: int, steps: Steps) -> RecordedAgent:
    """The `agent`-th agent under the `index`-th seed, at the start of its data."""
    data, needs, open_reader = job.data, job.on_data, job.reader
    assert data is not None
    assert needs is not None
    assert open_reader is not None
    kind = int(data.assignment[agent])
    stream = RecordedStream(
        open_reader(agent, job.settings.seeds[index]),
        needs,
        data.target_policy,
        window=job.window,
        kind=kind,
        at_once=LOG_ROWS_AT_ONCE if data.kinds[kind].live is None else LIVE_ROWS_AT_ONCE,
        num_actions=data.num_actions,
    )
    return RecordedAgent(stream, steps, job.settings.step_size)
