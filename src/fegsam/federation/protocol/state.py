"""Stored state: files that are complete or absent, and detect damage. Nothing is ever unpickled.

A *sealed* file is ``magic, length of the header, header (JSON), arrays in order, SHA-256 of all
before``. It gets its name only when all of it is on the disk. A node's file holds the positions of
its agents' paths, and the last round that each computed with its result. After a crash at any
moment, a round was therefore either not computed, and its samples are unused, or its result is
there to be sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fegsam.federation.errors import StateError
from fegsam.locks import Locked, lock
from fegsam.safe_files import read_plain, whole

_MAGIC = b"FGSTATE1"
_LENGTH = struct.Struct("<Q")
_CHECKSUM = hashlib.sha256().digest_size
LONGEST_LOG = 1 << 26
"""Bytes of a log before it is rotated."""
_LONGEST_TEXT = 300


class HeldError(StateError):
    """Another process uses the same state."""


class DamagedState(StateError):
    """A sealed file is not as it was written."""


def write_sealed(
    path: pathlib.Path,
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    *,
    followed: bool = False,
) -> None:
    """Write a sealed file at `path` durably: it survives a crash of the process or the machine.

    With `followed`, another file of the same folder is written after this one, and the name of this
    one need not be on the disk before the other's.
    """
    layout = [[name, array.dtype.str, array.shape] for name, array in arrays.items()]
    head = json.dumps({"header": dict(header), "arrays": layout}, sort_keys=True).encode()
    parts = [
        _MAGIC,
        _LENGTH.pack(len(head)),
        head,
        *(np.ascontiguousarray(array).tobytes() for array in arrays.values()),
    ]
    content = b"".join(parts)
    try:
        with (
            whole(path, settled=not followed) as temporary,
            open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
        ):
            file.write(content)
            file.write(hashlib.sha256(content).digest())
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: pathlib.Path, error: OSError) -> StateError:
    return StateError(
        f"{str(path)!r} cannot be written ({error.strerror}); make room there, then start again."
    )


def read_sealed(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and arrays of a sealed file.

    Raises `FileNotFoundError` if it is missing, and `StateError` if it is damaged.
    """
    try:
        content = memoryview(read_plain(path))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StateError(
            f"{str(path)!r} cannot be read ({error.strerror}); give this process access to it."
        ) from error
    body = content[:-_CHECKSUM]
    if body[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != content[-_CHECKSUM:]:
        raise DamagedState(
            f"{str(path)!r} is damaged or was not written by fegsam; restore it from a copy."
        )
    (length,) = _LENGTH.unpack_from(body, len(_MAGIC))
    start = len(_MAGIC) + _LENGTH.size
    head, rest = json.loads(bytes(body[start : start + length])), body[start + length :]
    arrays = {}
    for name, dtype, shape in head["arrays"]:
        size = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(rest[:size], dtype).reshape(shape)
        rest = rest[size:]
    return head["header"], arrays


@contextlib.contextmanager
def held(path: pathlib.Path, what: str) -> Iterator[None]:
    """Keep other processes from using `what`; the lock of a dead process does not count."""
    try:
        own = lock(path, mode=0o700)
    except Locked as other:
        raise HeldError(
            f"Process {other} is at work on {what} ({str(path)!r}); stop it, or give each its own "
            "directory."
        ) from None
    except OSError as error:
        raise StateError(
            f"{str(path.parent)!r} cannot be written to ({error.strerror}); choose another "
            "directory."
        ) from error
    with own:
        yield


def append_event(path: pathlib.Path, event: Mapping[str, Any]) -> None:
    """Append one line of JSON to a log in one write, so that processes may share the log.

    A log that has grown too long is kept as the one before.
    """
    with path.open("ab", buffering=0) as file:
        file.write(json.dumps(event).encode() + b"\n")
        if file.tell() > LONGEST_LOG:
            os.replace(path, log_files(path)[0])


def log_files(path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """The files of a log: that before the last, and the last."""
    return path.with_name(f"{path.name}.1"), path


def printable(text: str) -> str:
    """Text from elsewhere in one short line that no terminal obeys.

    >>> printable("red\x1b[31m and\\na line")
    'red?[31m and?a line'
    """
    return "".join(each if each.isprintable() else "?" for each in text[:_LONGEST_TEXT])


@dataclass(frozen=True, eq=False)
class AgentState:
    """An agent after the last round that it computed, with its result."""

    path: Mapping[str, np.ndarray]
    """what `AgentGroup.save` returned"""
    time: int
    """steps since its start"""
    round: int
    request: str
    """digest of the request"""
    result: bytes
    """(stops, d): rows as changes of the round's start"""
    variates: np.ndarray | None = None
    """(2, d): the agent's control variate in this round, and the next one if the round counts"""


class NodeFile:
    """The stored states of the agents in one folder.

    The last two generations are kept, in two files that are written in turn. All files
    ``*.state`` of the folder are read, and of each agent its newest state counts: an agent moves to
    another node with a copy of them.
    """

    def __init__(self, directory: pathlib.Path, fingerprint: str) -> None:
        self.folder, self._fingerprint = directory / fingerprint[:16], fingerprint
        self._generation = 0
        self._seen: object = None
        self._states: dict[int, AgentState] = {}
        self.before: dict[int, AgentState] = {}
        """the state of each agent before its last, with the result of that round"""

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Lock the folder, so that two processes never use it at once."""
        return held(self.folder / ".node.lock", "the agents of this node")

    def _mark(self) -> list[tuple[str, int, int, int]]:
        """What changes when any file does."""
        found = [(path.name, path.stat()) for path in sorted(self.folder.glob("*.state"))]
        return [(name, seen.st_ino, seen.st_size, seen.st_mtime_ns) for name, seen in found]

    def read(self, log: Callable[..., None]) -> tuple[dict[int, AgentState], bool]:
        """The states of all agents that have begun, and whether the files were read for that.

        A damaged file is named in the log; if no other file holds the state before, it is an error.
        """
        mark = self._mark()
        if mark == self._seen:
            return self._states, False
        self._states, self.before, self._generation, damaged = {}, {}, 0, []
        for name, *_ in mark:
            try:
                generation, states = self._load(self.folder / name)
            except DamagedState as error:
                damaged.append(str(error))
                continue
            self._generation = max(self._generation, generation + 1)
            for agent, state in states.items():
                known = self._states.setdefault(agent, state)
                if state.round != known.round:
                    older, newer = sorted((known, state), key=lambda each: each.round)
                    self._states[agent], self.before[agent] = newer, older
        if damaged and not self._states:
            raise StateError(damaged[0])
        for reason in damaged:
            log("damaged", reason=reason, cure="the state before it is used")
        self._seen = mark
        return self._states, True

    def _load(self, path: pathlib.Path) -> tuple[int, dict[int, AgentState]]:
        header, arrays = read_sealed(path)
        if header["fingerprint"] != self._fingerprint:
            raise StateError(
                f"{str(path)!r} is of experiment {header['fingerprint'][:16]}, not of "
                f"{self._fingerprint[:16]}; put the right file there."
            )
        results, variates = arrays.pop("results").tobytes(), arrays.pop("variates", None)
        states, at = {}, 0
        for row, agent in enumerate(header["agents"]):
            end = at + header["sizes"][row]
            states[agent] = AgentState(
                {name: array[row] for name, array in arrays.items()},
                header["times"][row],
                header["rounds"][row],
                header["requests"][row],
                results[at:end],
                None if variates is None else variates[row],
            )
            at = end
        return header["generation"], states

    def write(self, fresh: Mapping[int, AgentState]) -> None:
        """Store the new states of some agents, all or none."""
        states = {**self._states, **fresh}
        every = list(states.values())
        header = {
            "fingerprint": self._fingerprint,
            "generation": self._generation,
            "agents": list(states),
            "times": [state.time for state in every],
            "rounds": [state.round for state in every],
            "requests": [state.request for state in every],
            "sizes": [len(state.result) for state in every],
        }
        arrays = {name: np.stack([state.path[name] for state in every]) for name in every[0].path}
        arrays["results"] = np.frombuffer(b"".join(state.result for state in every), np.uint8)
        variates = [state.variates for state in every if state.variates is not None]
        if variates:
            arrays["variates"] = np.stack(variates)
        write_sealed(self.folder / f"agents-{self._generation % 2}.state", header, arrays)
        self.before |= {agent: self._states[agent] for agent in fresh if agent in self._states}
        self._states, self._generation = states, self._generation + 1
        self._seen = self._mark()
