"""How contestants are timed: in turns of a fixed short duration.

Taking turns makes a busy machine equally busy for all contestants.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fegsam.bench.contestants import REASONS, Clock, Contestant, Run
from fegsam.bench.problems import BenchCase

_LONG = 4.0
_MORE = 1.5
"""If two rounds take this many times as long as one, the rounds dominate the time of a call."""


@dataclass(frozen=True)
class Effort:
    """How long a contestant runs in a cell."""

    seconds: float
    """approximate duration of one timing"""
    repeats: int

    @property
    def patience(self) -> float:
        """A contestant whose round takes longer than this many seconds is skipped."""
        return 10 * self.seconds


@dataclass(frozen=True)
class Entry:
    """One contestant in one cell: its timings, or why there are none."""

    family: str
    threads: int
    clock: Clock
    agent_steps: int = 0
    """agent-steps of one timing"""
    seconds: tuple[float, ...] = ()
    call_seconds: float = 0.0
    """duration of a call of one round, with the fixed cost of a call"""
    skipped: str | None = None
    fault: bool = False
    """whether it failed instead of declining the case"""

    @property
    def name(self) -> str:
        return self.family if self.threads == 1 else f"{self.family}, {self.threads} threads"

    @property
    def best(self) -> float:
        """Seconds per agent-step."""
        return min(self.seconds) / self.agent_steps

    @property
    def median(self) -> float:
        return statistics.median(self.seconds) / self.agent_steps


class Field:
    """Times contestants and remembers how fast each was, to skip those that would take too long."""

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self._last: dict[str, dict[str, float]] = {}
        """seconds per agent-step by contestant and axis"""

    def race(self, axis: str, case: BenchCase, contestants: Sequence[Contestant]) -> list[Entry]:
        """Time the contestants in turns, after warming up and finding their numbers of rounds."""
        runs: dict[Contestant, tuple[Run, int, float]] = {}
        found: dict[Contestant, Entry] = {}
        for contestant in contestants:
            outcome = self._enter(axis, case, contestant)
            if isinstance(outcome, Entry):
                found[contestant] = outcome
            else:
                runs[contestant] = outcome
        seconds: dict[Contestant, list[float]] = {contestant: [] for contestant in runs}
        for _ in range(self._effort.repeats):
            for contestant, (run, rounds, _) in runs.items():
                # A contestant whose single round exceeds the duration gets fewer turns.
                if sum(seconds[contestant]) < self._effort.repeats * self._effort.seconds:
                    seconds[contestant].append(_timed(run, rounds, contestant.clock))
        for contestant, (_, rounds, call) in runs.items():
            steps = rounds * case.setting.agent_steps_per_round
            times = tuple(seconds[contestant])
            found[contestant] = Entry(
                contestant.family, contestant.threads, contestant.clock, steps, times, call
            )
            self._last.setdefault(contestant.name, {})[axis] = found[contestant].best
        return [found[contestant] for contestant in contestants]

    def _enter(
        self, axis: str, case: BenchCase, contestant: Contestant
    ) -> Entry | tuple[Run, int, float]:
        empty = Entry(contestant.family, contestant.threads, contestant.clock)
        seen = self._last.get(contestant.name, {})
        expected = (
            seen.get(axis, min(seen.values(), default=0.0)) * case.setting.agent_steps_per_round
        )
        if expected > self._effort.patience:
            return _skip(
                empty,
                f"a round of {case.setting.agent_steps_per_round:.0e} agent-steps would take about "
                f"{expected:.0f} s",
            )
        try:
            run = contestant.enter(case)
            run(1)
            return (run, *self._size(run, contestant.clock))
        except REASONS as reason:
            return _skip(empty, str(reason))
        # One broken contestant must not lose the others' timings; the exit status reports it.
        except Exception as fault:
            return _skip(empty, f"failed: {type(fault).__name__}: {fault}", fault=True)

    def _size(self, run: Run, clock: Clock) -> tuple[int, float]:
        """The number of rounds that take about the wanted time, and the time of a call of one.

        The fixed cost of a call should not show in the result. So only the time that further rounds
        add counts as work, and the longer a call of one round takes, the more rounds are timed.
        """
        seconds, call = self._effort.seconds, _timed(run, 1, clock)
        rounds, taken, work = 1, call, 0.0
        if call > _LONG * seconds:
            # Find out whether the round, the fixed cost of a call or chance took so long.
            rounds, taken = 2, _timed(run, 2, clock)
            if taken > _MORE * call:
                return 1, call
            call = min(call, taken)
        while work < seconds / 3:
            # At most _LONG times the wanted time, even if all of the last run was work.
            rounds = int(rounds * min(100.0, max(2.0, _LONG * seconds / max(taken, 1e-6))))
            taken = _timed(run, rounds, clock)
            work = taken - call
        wanted = max(seconds, min(_LONG * call, 2 * _LONG * seconds))
        return max(1, round(rounds * wanted / work)), call


def _skip(entry: Entry, reason: str, fault: bool = False) -> Entry:
    return Entry(
        entry.family, entry.threads, entry.clock, skipped=" ".join(reason.split()), fault=fault
    )


def _timed(run: Run, rounds: int, clock: Clock) -> float:
    now = time.process_time if clock == "cpu" else time.perf_counter
    began = now()
    run(rounds)
    return now() - began
