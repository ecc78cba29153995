"""The server's files: its checkpoint, the recorded averages and a log of events.

    DIR/checkpoint       the average after the last closed round, what the method keeps beside it,
                         and the state of each agent
    DIR/record-*         the averages of the history, one file each
    DIR/events.jsonl     one JSON object per line
    DIR/.lock, .lock.pid the process that uses the directory

The checkpoint is on the disk before the next round is requested, and a record before its
checkpoint. A server that dies therefore resumes at its current round, with the average that the
nodes received.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fegsam.federation.errors import StateError
from fegsam.federation.protocol.experiment import Terms
from fegsam.federation.protocol.state import append_event, held, read_sealed, write_sealed
from fegsam.history.history import History
from fegsam.history.recorder import Recorder
from fegsam.safe_files import read_plain

Event = dict[str, Any]

EVENTS_FILE = "events.jsonl"


@dataclass(eq=False)
class FederationState:
    """The state of a federation between two rounds."""

    round: int
    """number of closed rounds"""
    average: np.ndarray
    times: list[int]
    """steps of each agent at its last accepted reply"""
    unheard: list[int]
    """steps requested from each agent since then, in rounds that closed without it"""
    offences: list[int]
    communications: int = 0
    """replies that went into an average"""
    bytes_up: int = 0
    bytes_down: int = 0
    heard: list[int] = field(default_factory=list)
    """the number of rounds up to each agent's last reply that was used, or 0"""
    memory: dict[str, np.ndarray] = field(default_factory=dict)
    """what the method keeps beside the average (see `server_rounds`)"""

    @staticmethod
    def first(terms: Terms) -> FederationState:
        none = [0] * terms.settings.num_agents
        return FederationState(
            0, terms.initial_params.copy(), [*none], [*none], [*none], heard=[*none]
        )


class Ledger:
    """The files of one federation's server."""

    def __init__(
        self,
        terms: Terms,
        directory: str | pathlib.Path,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self._terms, self._on_event = terms, on_event
        self.directory = pathlib.Path(directory)
        self._checkpoint = self.directory / "checkpoint"

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Lock the directory, so that two servers never use it at once."""
        return held(self.directory / ".lock", "a federation's server")

    def event(self, name: str, **details: Any) -> None:
        """Log an event, and report it to `on_event`."""
        event = {"event": name, "clock": time.time(), **details}
        append_event(self.directory / EVENTS_FILE, event)
        if self._on_event is not None:
            self._on_event(event)

    def load(self) -> FederationState | None:
        """The stored state of the federation, or None if it has not begun."""
        try:
            header, arrays = read_sealed(self._checkpoint)
        except FileNotFoundError:
            return None
        if header.pop("fingerprint") != self._terms.fingerprint:
            raise StateError(
                f"{str(self.directory)!r} holds another experiment's federation; choose another "
                "directory, or remove this one."
            )
        memory = {name: array.copy() for name, array in arrays.items()}
        header.setdefault("heard", [0] * len(header["times"]))
        return FederationState(average=memory.pop("average"), memory=memory, **header)

    def save(self, state: FederationState) -> None:
        header = asdict(state)
        arrays = {"average": header.pop("average"), **header.pop("memory")}
        write_sealed(self._checkpoint, {"fingerprint": self._terms.fingerprint, **header}, arrays)

    def record(self, name: str, average: np.ndarray, sync_error: float = 0.0) -> None:
        """Store an average under its time or as "output"; the next checkpoint makes it durable."""
        header = {"fingerprint": self._terms.fingerprint, "sync_error": sync_error}
        write_sealed(self._record_file(name), header, {"average": average}, followed=True)

    def _record_file(self, name: str) -> pathlib.Path:
        return self.directory / f"record-{name}"

    def history(self, final: np.ndarray) -> History:
        """The history that the simulator would give, made from the records."""
        terms, recorder = self._terms, Recorder(self._terms.truth, self._terms.settings)
        for at in terms.settings.record:
            average, sync_error = self._read(str(at))
            recorder.add(0, np.array([at]), average[None], np.array([sync_error]))
        recorder.add_output(0, self._read("output")[0])
        recorder.add_final(0, final)
        return recorder.history(np.array([terms.output_time]), None)

    def participation(self) -> np.ndarray:
        """bool (rounds, N): whose reply went into each average, according to the log.

        If a round was closed twice, the last time counts.
        """
        taken = np.zeros((self._terms.rounds, self._terms.settings.num_agents), bool)
        for event in read_events(self.directory):
            if event["event"] == "round":
                taken[event["round"]] = False
                taken[event["round"], event["answered"]] = True
        return taken

    def _read(self, name: str) -> tuple[np.ndarray, float]:
        path = self._record_file(name)
        try:
            header, arrays = read_sealed(path)
        except FileNotFoundError:
            raise StateError(
                f"{str(path)!r} is missing; restore it, or start in an empty directory."
            ) from None
        if header["fingerprint"] != self._terms.fingerprint:
            raise StateError(f"{str(path)!r} is of another experiment; restore the right one.")
        return arrays["average"].copy(), float(header["sync_error"])


def read_events(directory: str | pathlib.Path) -> list[Event]:
    """All events so far; lines that are not events, such as a truncated last line, are left out."""
    events = []
    try:
        lines = (
            read_plain(pathlib.Path(directory) / EVENTS_FILE).decode(errors="replace").splitlines()
        )
    except FileNotFoundError:
        return []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                events.append(event)
    return events
