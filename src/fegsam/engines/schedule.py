"""The schedule of one seed's run: a sequence of calls of the compiled loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Call:
    """One call of the compiled loop."""

    time: int
    """where the call begins: a synchronisation"""
    stop: int
    points: np.ndarray
    """int64: the record points, times after `time` and up to `stop` at which it returns averages"""
    recorded: bool = True
    """False for a call that only takes an output or final average, from the start of its round"""


@dataclass(frozen=True)
class CallLimits:
    """The limits of one call."""

    steps: int
    """steps of each agent after which the call returns to Python; this never splits a round"""
    rows: int
    """averages returned by one call"""
    points: int
    """averages inside one round"""


class CallSchedule:
    """The calls of one seed, from a synchronisation at `start` to `end`.

    Averages are taken at the times in `record`, at the `output` time and at the end. Where averages
    inside a round are `logged`, the rounding of each depends on the record points before it in its
    round. An output or final average must be the same whatever else is recorded, and must not
    change what is recorded; otherwise a resumed run would differ from the uninterrupted one in the
    last bit. So if it shares its round with other record points, it is taken in a separate call.
    """

    def __init__(
        self,
        record: np.ndarray,
        output: int,
        start: int,
        end: int,
        period: int,
        logged: bool,
        limits: CallLimits,
    ) -> None:
        self._start, self._end, self._period, self._limits = start, end, period, limits
        special = np.unique([output, end])
        times = np.union1d(record, special)
        self._alone: list[int] = []
        if logged:
            inside = times[times % period > 0]
            rounds, counts = np.unique(inside // period, return_counts=True)
            shared = np.isin(special // period, rounds[counts > 1]) & (special % period > 0)
            self._alone = [int(t) for t in special[shared] if start < t <= end]
        self._times = np.setdiff1d(times, np.setdiff1d(self._alone, record))

    def takes(self, call: Call, time: int) -> bool:
        """Whether an output or final average at `time` is taken from `call`."""
        return call.recorded != (time in self._alone)

    def __iter__(self) -> Iterator[Call]:
        time, alone = self._start, list(self._alone)
        while time < self._end:
            while alone and alone[0] < time + self._period:
                yield Call(time, alone[0], np.array(alone[:1]), recorded=False)
                del alone[0]
            horizon = alone[0] // self._period * self._period if alone else self._end
            stop = self._reach(time, horizon)
            yield from self._pieces(time, stop)
            time = stop

    def _reach(self, time: int, horizon: int) -> int:
        """The end of one call: as many rounds as its limits allow, but at least one."""
        rounds = max(1, self._limits.steps // self._period)
        while rounds > 1 and not self._fits(time, time + rounds * self._period):
            rounds //= 2
        return min(horizon, time + rounds * self._period)

    def _fits(self, time: int, stop: int) -> bool:
        points = between(self._times, time, stop)
        return (
            len(points) <= self._limits.rows
            and most_in_a_round(points, self._period) <= self._limits.points
        )

    def _pieces(self, time: int, stop: int) -> Iterator[Call]:
        points = between(self._times, time, stop)
        most = min(self._limits.points, self._limits.rows)
        while stop - time <= self._period and len(points) > most:
            # Too many averages for one call: run the round up to some of its record points, then
            # again from its start for the others.
            yield Call(time, int(points[most - 1]), points[:most])
            points = points[most:]
        yield Call(time, stop, points)


def between(times: np.ndarray, after: int, until: int) -> np.ndarray:
    """Those of the sorted `times` with ``after < t <= until``."""
    first, last = np.searchsorted(times, (after, until), side="right")
    return times[first:last]


def most_in_a_round(times: np.ndarray, period: int) -> int:
    """The largest number of the sorted `times` inside one round, synchronisations excluded."""
    inside = times[times % period > 0] // period
    return int(np.unique(inside, return_counts=True)[1].max()) if len(inside) else 0
