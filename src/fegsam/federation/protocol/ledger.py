"""The server's files: its checkpoint, the recorded averages and a log of events.

    DIR/checkpoint       the average after the last closed round, what the method keeps beside it,
                         and the state of each agent; checkpoint.1 is that of the round before
    DIR/record-*         the averages of the history, one file each
    DIR/answers          one bit for each round and agent: whether its reply was used
    DIR/events.jsonl     one JSON object per line; events.jsonl.1 has those before
    DIR/.lock, .lock.pid the process that uses the directory

The checkpoint is on the disk before the next round is requested, and a record before its
checkpoint. A server that dies therefore resumes at its current round, with the average that the
nodes received.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fegsam.federation.errors import FederationError, StateError
from fegsam.federation.protocol.identity import Claims
from fegsam.federation.protocol.state import (
    DamagedState,
    append_event,
    cannot_write,
    held,
    log_files,
    printable,
    read_sealed,
    write_sealed,
)
from fegsam.federation.protocol.terms import Terms
from fegsam.history.history import History
from fegsam.history.recorder import Recorder
from fegsam.safe_files import read_plain

Event = dict[str, Any]

EVENTS_FILE = "events.jsonl"
_ANSWERS_FILE = "answers"


@dataclass(eq=False)
class FederationState:
    """The state of a federation between two rounds."""

    round: int
    """number of closed rounds"""
    average: np.ndarray
    times: np.ndarray
    """int64 (N): steps of each agent at its last accepted reply"""
    unheard: np.ndarray
    """int64 (N): steps requested from each agent since then, in rounds that closed without it"""
    offences: np.ndarray
    """int64 (N): of each agent"""
    heard: np.ndarray
    """int64 (N): the number of rounds up to each agent's last reply that was used, or 0"""
    silences: np.ndarray
    """int64 (N): rounds in a row that a connected agent was asked for and left unanswered"""
    distances: np.ndarray
    """(N): how far each agent's last reply that was used lay from the mean of its round"""
    used_up: np.ndarray
    """bool (N): the agents that have no data left"""
    node_offences: dict[str, int] = field(default_factory=dict)
    """offences of nodes that are no agent's: claims and replies beyond a node's own agents"""
    communications: int = 0
    """replies that went into an average"""
    bytes_up: int = 0
    bytes_down: int = 0
    memory: dict[str, np.ndarray] = field(default_factory=dict)
    """what the method keeps beside the average (see `server_rounds`)"""

    @staticmethod
    def first(terms: Terms) -> FederationState:
        zeros = np.zeros((len(_BY_AGENT), terms.settings.num_agents), np.int64)
        none: dict[str, Any] = dict(zip(_BY_AGENT, zeros, strict=True))
        none["distances"] = np.zeros(terms.settings.num_agents)
        none[_USED_UP] = np.zeros(terms.settings.num_agents, bool)
        return FederationState(round=0, average=terms.initial_params.copy(), **none)

    def quarantined(self, limit: int, claims: Claims | None) -> np.ndarray:
        """bool (N): the agents with `limit` offences, and those of a node that has as many."""
        out = self.offences >= limit
        for node, offences in self.node_offences.items():
            if claims is not None and offences >= limit:
                out[[agent for agent in claims.of(node) if agent < len(out)]] = True
        return out


_BY_AGENT = ("times", "unheard", "offences", "heard", "silences", "distances")
_USED_UP = "used_up"
_COUNTS = ("round", "node_offences", "communications", "bytes_up", "bytes_down")


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
        self._before = self.directory / "checkpoint.1"

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Lock the directory, so that two servers never use it at once."""
        return held(self.directory / ".lock", "a federation's server")

    def event(self, name: str, **details: Any) -> None:
        """Log an event, and report it to `on_event`."""
        event = {"event": name, "clock": time.time()} | {
            key: printable(value) if isinstance(value, str) else value
            for key, value in details.items()
        }
        path = self.directory / EVENTS_FILE
        try:
            append_event(path, event)
        except OSError as error:
            raise cannot_write(path, error) from error
        if self._on_event is not None:
            self._on_event(event)

    def load(self) -> FederationState | None:
        """The stored state of the federation, or None if it has not begun.

        If the last checkpoint is damaged or missing, it is that of the round before.
        """
        try:
            header, arrays = read_sealed(self._checkpoint)
        except (FileNotFoundError, DamagedState) as error:
            try:
                header, arrays = read_sealed(self._before)
            except FileNotFoundError:
                if isinstance(error, DamagedState):
                    raise error from None
                return None
            self.event("damaged", reason=str(error), cure="the checkpoint before it is used")
        if header["fingerprint"] != self._terms.fingerprint:
            raise StateError(
                f"{str(self.directory)!r} holds another experiment's federation; choose another "
                "directory, or remove this one."
            )
        if not set(_BY_AGENT) <= set(arrays):
            raise StateError(
                f"{str(self._checkpoint)!r} is of another version of fegsam; end its run with the "
                "version that began it."
            )
        memory = {name: array.copy() for name, array in arrays.items()}
        known = {name: memory.pop(name) for name in ("average", *_BY_AGENT)}
        # Checkpoints that were written before agents could be out of data do not have it.
        known[_USED_UP] = memory.pop(_USED_UP, np.zeros(len(known["times"]), bool))
        return FederationState(**known, memory=memory, **{name: header[name] for name in _COUNTS})

    def save(self, state: FederationState) -> None:
        header = {"fingerprint": self._terms.fingerprint}
        header |= {name: getattr(state, name) for name in _COUNTS}
        arrays = {name: getattr(state, name) for name in ("average", *_BY_AGENT, _USED_UP)}
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._checkpoint, self._before)
        write_sealed(self._checkpoint, header, arrays | state.memory)

    def note_answers(self, number: int, answered: list[int]) -> None:
        """Store whose replies a round used; a round that is closed twice is noted twice."""
        row = np.zeros(self._terms.settings.num_agents, bool)
        row[answered] = True
        bits = np.packbits(row).tobytes()
        path = self.directory / _ANSWERS_FILE
        try:
            path.touch(0o600)
            with path.open("r+b") as file:
                file.seek(number * len(bits))
                file.write(bits)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise cannot_write(path, error) from error

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
        """bool (rounds, N): whose reply went into each average."""
        rounds, agents = self._terms.rounds, self._terms.settings.num_agents
        path, width = self.directory / _ANSWERS_FILE, (agents + 7) // 8
        content = read_plain(path) if path.exists() else b""
        if len(content) != rounds * width:
            # The history does not depend on it, so a finished run still ends.
            self.event("damaged", reason=f"{str(path)!r} has {len(content)} bytes", cure="none")
        bits = np.frombuffer(content[: rounds * width].ljust(rounds * width, b"\0"), np.uint8)
        return np.unpackbits(bits.reshape(rounds, width), axis=1, count=agents).astype(bool)

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


def readmit(
    terms: Terms,
    directory: str | pathlib.Path,
    agents: Iterable[int] = (),
    nodes: Iterable[str] = (),
) -> None:
    """Forgive agents and nodes their offences, and ask agents again whose data was used up.

    The server must not run, and resumes with them.
    """
    ledger, agents, nodes = Ledger(terms, directory), list(agents), list(nodes)
    with ledger.held():
        state = ledger.load()
        if state is None:
            raise FederationError(
                f"{str(directory)!r} has no checkpoint; give the directory of results of a "
                "federation that has begun."
            )
        for agent in agents:
            if not 0 <= agent < len(state.offences):
                raise FederationError(
                    f"there is no agent {agent}; give agents from 0 to {len(state.offences) - 1}."
                )
        for node in nodes:
            if state.node_offences.pop(node, None) is None:
                known = ", ".join(sorted(state.node_offences)) or "none"
                raise FederationError(
                    f"node {node!r} has no offences; the nodes that have some are: {known}."
                )
        state.offences[agents] = state.silences[agents] = 0
        state.used_up[agents] = False
        ledger.save(state)
        ledger.event("readmitted", round=state.round, agents=agents, nodes=nodes)


def read_events(directory: str | pathlib.Path) -> list[Event]:
    """The events in a log, without the lines that are not events, such as a truncated one."""
    events, content = [], b""
    for path in log_files(pathlib.Path(directory) / EVENTS_FILE):
        with contextlib.suppress(FileNotFoundError):
            content += read_plain(path)
    for line in content.decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                events.append(event)
    return events
