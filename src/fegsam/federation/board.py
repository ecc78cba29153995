"""The display of a federation: a table of rounds, agents and error on a terminal, else lines."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from fegsam.federation.errors import FederationError
from fegsam.federation.output import say
from fegsam.federation.protocol.ledger import Event, read_events

_QUIET = frozenset({"round", "started", "resumed", "finished", "joined", "waiting"})
"""Events of normal operation; all others are shown as they occur."""

_APART = 0.25
"""Seconds between two rounds that are shown."""
_SHOWN_AGENTS = 24
_SHOWN_TROUBLES = 8


@dataclass
class EventSummary:
    """A summary of a log of events."""

    rounds: int | None = None
    """rounds closed so far"""
    total: int | None = None
    time: int = 0
    error: float | None = None
    moved: float | None = None
    """how far the average moved in the last round"""
    seconds: float | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    state: str = "starting"
    asked: int = 0
    """agents asked in the last round"""
    answered: int = 0
    used_up: set[int] = field(default_factory=set)
    """agents whose data is used up"""
    left_out: set[int | str] = field(default_factory=set)
    """the agents and the nodes that are quarantined"""
    missed: Counter[int] = field(default_factory=Counter)
    """the rounds that closed without an agent"""
    troubles: list[Event] = field(default_factory=list)

    def take(self, event: Event) -> None:
        name = event["event"]
        if name in ("started", "resumed"):
            self.total = event.get("rounds", self.total)
            self.state = "running"
        elif name == "round":
            self._take_round(event)
        elif name == "used-up":
            self.used_up.update(event["agents"])
        elif name == "quarantined":
            self.left_out.update(event["agents"] or [event["node"]])
        elif name == "readmitted":
            self.used_up.difference_update(event["agents"])
            self.left_out.difference_update(event["agents"], event["nodes"])
        elif name in ("finished", "gave-up"):
            self.state = "finished" if name == "finished" else "gave up"
        if name not in _QUIET:
            self.troubles.append(event)

    def _take_round(self, event: Event) -> None:
        self.rounds, self.time, self.error = (
            event["round"] + 1,
            event["time"],
            event["squared_error"],
        )
        self.seconds, self.moved = event["seconds"], event.get("moved")
        self.bytes_up, self.bytes_down = event["bytes_up"], event["bytes_down"]
        self.answered, self.asked = event["answered"], event["asked"]
        self.missed.update(event["missing"])

    def line(self) -> str:
        """The current state in one line."""
        rounds = f"round {self.rounds or 0}" + (f"/{self.total}" if self.total else "")
        error = "" if self.moved is None else f", the average moved by {self.moved:.3e}"
        error = error if self.error is None else f", squared error {self.error:.3e}"
        pace = "" if self.seconds is None else f", {_duration(self.seconds)} a round"
        answers = f", {self.answered} of {self.asked} answered" if self.rounds else ""
        spent = f", data of {_listed(self.used_up)} used up" if self.used_up else ""
        out = f", left out: {_listed(self.left_out)}" if self.left_out else ""
        return f"{self.state}: {rounds}, time {self.time}{error}{pace}{answers}{spent}{out}"


def _listed(some: Iterable[int | str]) -> str:
    """Agents by their numbers and nodes by their names.

    >>> _listed({3, "node-1", 12})
    'agents 3, 12, node-1'
    """
    agents = sorted(one for one in some if isinstance(one, int))
    nodes = sorted(one for one in some if isinstance(one, str))
    more = [f"and {len(agents) - _SHOWN_AGENTS} more"] if len(agents) > _SHOWN_AGENTS else []
    name = "agent" if len(agents) == 1 else "agents"
    numbers = [f"{name} {', '.join(map(str, agents[:_SHOWN_AGENTS]))}"] if agents else []
    return ", ".join([*numbers, *more, *nodes])


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{1e3 * seconds:.0f} ms"


def described(event: Event) -> str:
    """An event as one line of text.

    >>> described({"event": "node-died", "clock": 0.0, "node": "node-1", "agents": [1]})
    'node-died: node node-1, agents [1]'
    """
    details = ", ".join(
        f"{name} {value}" for name, value in event.items() if name not in ("event", "clock")
    )
    return event["event"] + (f": {details}" if details else "")


class Board:
    """Shows events: ``with Board() as board: board.show(event)``."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._summary = EventSummary()
        self._live: Any = None
        self._shown_at = -math.inf
        self._unseen = False
        """whether a round closed after the last one that was shown"""

    def __enter__(self) -> Board:
        if self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                self._table(), console=Console(file=self._stream), refresh_per_second=4
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._unseen:
            self._show_round()
        if self._live is not None:
            self._live.stop()

    def show(self, event: Event) -> None:
        self._summary.take(event)
        if event["event"] == "round":
            # Rounds of milliseconds are not all shown.
            self._unseen = time.monotonic() - self._shown_at < _APART
            if not self._unseen:
                self._show_round()
        elif self._live is not None:
            self._live.update(self._table())
        elif event["event"] == "finished":
            self._unseen = True
        elif event["event"] not in _QUIET:
            say(described(event), self._stream)

    def _show_round(self) -> None:
        self._shown_at = time.monotonic()
        if self._live is not None:
            self._live.update(self._table())
        else:
            say(self._summary.line(), self._stream)

    def _table(self) -> Any:
        return table(self._summary)


def table(summary: EventSummary) -> Any:
    """The summary as a rich table."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    missed = Table("agent", "rounds missed")
    for agent, count in summary.missed.most_common(_SHOWN_AGENTS):
        missed.add_row(str(agent), str(count))
    if len(summary.missed) > _SHOWN_AGENTS:
        missed.add_row(f"and {len(summary.missed) - _SHOWN_AGENTS} more", "")
    troubles = [
        Text(f"{clock_of(event)} {described(event)}")
        for event in summary.troubles[-_SHOWN_TROUBLES:]
    ]
    return Group(Text(summary.line()), *([missed] if summary.missed else []), *troubles)


def clock_of(event: Event) -> str:
    """The time of day of an event, on this machine."""
    return time.strftime("%H:%M:%S", time.localtime(event["clock"]))


def read_summary(directory: Path) -> EventSummary:
    """The summary of the log in a directory of results."""
    try:
        events = read_events(directory)
    except OSError as error:
        raise FederationError(
            f"the log of events in {directory} cannot be read ({error.strerror}): restore it from "
            "a copy."
        ) from None
    if not events:
        raise FederationError(
            f"{directory} has no log of events: give the directory of results of a federation."
        )
    try:
        return summary_of(events)
    except (KeyError, TypeError) as error:
        raise FederationError(
            f"the log of events in {directory} is damaged ({error!r}): restore it from a copy."
        ) from None


def summary_of(events: Iterable[Event]) -> EventSummary:
    """The summary of some events."""
    summary = EventSummary()
    for event in events:
        summary.take(event)
    return summary
