"""The schedule of a method's run: which rounds one call of the compiled code runs.

Averages at synchronisations come from calls that run whole rounds. Averages inside a round come
from calls that make the round's first steps again and change nothing, so that what a run computes
does not depend on what is recorded of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fegsam.engines.job import Job
from fegsam.engines.schedule import between
from fegsam.methods.rounds import Rounds


@dataclass(frozen=True)
class RoundCall:
    """One call: rounds of equal length, from one synchronisation on."""

    number: int
    """of the first round"""
    time: int
    stop: int
    """where it ends: at a synchronisation, or inside the round at the last of `times`"""
    length: int
    """of each round, or of the part of it that the run makes"""
    times: np.ndarray
    """int64: the recorded times"""
    inside: bool
    """whether these lie inside one round"""
    last: bool
    """whether that round is never completed"""

    @property
    def reports(self) -> bool:
        """Whether no later call makes the same steps again."""
        return self.last or not self.inside


@dataclass
class MethodSchedule:
    """The calls from a synchronisation at `start` to `end`, with averages at `times`."""

    rounds: Rounds
    rows: int
    """averages at synchronisations that one call hands over, at most"""
    points: int
    """averages inside a round that one call hands over, at most"""
    steps: int
    """steps of each agent after which a call returns; at least one round. It may change between
    calls."""

    def calls(self, start: int, end: int, times: np.ndarray) -> Iterator[RoundCall]:
        rounds, time = self.rounds, start
        times = between(times, start, end)
        at_sync = rounds.is_sync(times)
        inner, syncs = times[~at_sync], times[at_sync]
        while time < end:
            number = int(rounds.containing(np.asarray(time)))
            begin, stop = (int(rounds.start(np.asarray(r))) for r in (number, number + 1))
            last = stop > end
            length = min(stop, end) - begin
            points = between(inner, time, min(stop, end))
            for first in range(0, len(points), self.points):
                some = points[first : first + self.points]
                final = last and first + self.points >= len(points)
                yield RoundCall(number, time, int(some[-1]), length, some, True, final)
            if last:
                return
            ahead = between(inner, stop, end)
            limit = rounds.last_sync(int(ahead[0]) if len(ahead) else end)
            stop = self._reach(number, time, max(limit, stop), length)
            recorded = between(syncs, time, stop)
            yield RoundCall(number, time, stop, length, recorded, False, False)
            time = stop

    def _reach(self, number: int, time: int, limit: int, length: int) -> int:
        """The end of one call: rounds of one length, as many as its limits allow, at least one."""
        most = max(1, min(self.steps // length, self.rows))
        starts = self.rounds.start(np.arange(number, number + most + 1))
        equal = np.diff(starts) == length
        count = len(equal) if equal.all() else int(equal.argmin())
        return min(limit, time + count * length)


def tail_length(job: Job) -> int:
    """The number of averages that belong to the tail."""
    first, last = job.settings.tail_start, job.settings.num_steps
    if job.settings.tail_over == "syncs":
        return job.rounds.count(last) - job.rounds.count(first)
    return last - first
