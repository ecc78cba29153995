"""Stored state: files that are complete or absent, and detect damage. Nothing is ever unpickled.

A *sealed* file is ``magic, length of the header, header (JSON), arrays in order, SHA-256 of all
before``, perhaps with zeros before the SHA-256. It gets its name when all of it is on the disk.
A node's file holds the positions of its agents' paths, and the last round that each computed with
its result. After a crash at any moment, a round was therefore either not computed, and its samples
are unused, or its result is there to be sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fegsam.federation.errors import StateError
from fegsam.locks import Locked, lock
from fegsam.safe_files import read_plain, whole

_MAGIC = b"FGSTATE1"
_LENGTH = struct.Struct("<Q")
_CHECKSUM = hashlib.sha256().digest_size
_BLOCK = 4096
"""Bytes of a disk's block: a file that is written over has whole ones."""
LONGEST_LOG = 1 << 26
"""Bytes of a log before it is rotated."""
_LONGEST_TEXT = 300
_NAMED = 20
"""The most agents that one event names."""


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
    content = _content(header, arrays)
    try:
        _write_whole(path, content + hashlib.sha256(content).digest(), settled=not followed)
    except OSError as error:
        raise cannot_write(path, error) from error


def overwrite_sealed(
    path: pathlib.Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a sealed file durably over the one at `path`, if there is one that is long enough.

    A file that keeps its blocks and its name takes the disk a fraction of the time of a new one. A
    crash may leave it damaged, so it must not be the only file; a failure leaves none.
    """
    content = _content(header, arrays)
    try:
        size = path.stat().st_size if path.exists() else 0
        fits = len(content) + _CHECKSUM <= size
        room = size if fits else -(-(len(content) + _CHECKSUM) // _BLOCK) * _BLOCK
        content = content.ljust(room - _CHECKSUM, b"\0")
        content += hashlib.sha256(content).digest()
        if fits:
            _write_over(path, content)
        else:
            _write_whole(path, content)
    except OSError as error:
        raise cannot_write(path, error) from error


def _content(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """A sealed file without its checksum."""
    layout = [[name, array.dtype.str, array.shape] for name, array in arrays.items()]
    head = json.dumps({"header": dict(header), "arrays": layout}, sort_keys=True).encode()
    parts = (np.ascontiguousarray(array).tobytes() for array in arrays.values())
    return b"".join((_MAGIC, _LENGTH.pack(len(head)), head, *parts))


def _write_whole(path: pathlib.Path, content: bytes, *, settled: bool = True) -> None:
    with (
        whole(path, settled=settled) as temporary,
        open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
    ):
        file.write(content)


def _write_over(path: pathlib.Path, content: bytes) -> None:
    try:
        with path.open("r+b", buffering=0) as file:
            file.write(content)
            getattr(os, "fdatasync", os.fsync)(file.fileno())  # which macOS does not have
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


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


def named(agents: Sequence[int]) -> dict[str, Any]:
    """What an event says of agents: the first of them, and how many they are.

    >>> named(range(1000))["agents"][-1], named(range(1000))["count"]
    (19, 1000)
    """
    return {"agents": list(agents[:_NAMED]), "count": len(agents)}


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


_NODE_FILES = ("agents-0.state", "agents-1.state", "agents-2.state")


class NodeFile:
    """The stored states of the agents in one folder.

    They are in three files, of which the oldest is written over: whatever happens to it, the last
    two generations are there. All files ``*.state`` of the folder are read, and of each agent its
    newest state counts: an agent moves to another node with a copy of them.
    """

    def __init__(self, directory: pathlib.Path, fingerprint: str) -> None:
        self.folder, self._fingerprint = directory / fingerprint[:16], fingerprint
        self._generations: dict[str, int] = {}
        """of each file that can be read"""
        self._seen: object = None
        self._states: dict[int, AgentState] = {}
        self.before: dict[int, AgentState] = {}
        """the state of each agent before its last, with the result of that round"""

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Lock the folder, so that two processes never use it at once."""
        return held(self.folder / ".node.lock", "the agents of this node")

    def _mark(self) -> list[tuple[str, int, int, int]]:
        """What changes when any file does."""
        found = [
            (entry.name, entry.stat())
            for entry in os.scandir(self.folder)
            if entry.name.endswith(".state")
        ]
        return sorted((name, at.st_ino, at.st_size, at.st_mtime_ns) for name, at in found)

    def read(self, log: Callable[..., None]) -> tuple[dict[int, AgentState], bool]:
        """The states of all agents that have begun, and whether the files were read for that.

        A damaged file is named in the log; if no other file holds the state before, it is an error.
        """
        mark = self._mark()
        if mark == self._seen:
            return self._states, False
        self._generations, damaged = {}, []
        found: dict[int, dict[int, AgentState]] = {}
        for name, *_ in mark:
            try:
                self._generations[name], states = self._load(self.folder / name)
            except DamagedState as error:
                damaged.append(str(error))
                continue
            for agent, state in states.items():
                found.setdefault(agent, {})[state.round] = state
        if damaged and not found:
            raise StateError(damaged[0])
        for reason in damaged:
            log("damaged", reason=reason, cure="the state before it is used")
        self._states = {agent: each[max(each)] for agent, each in found.items()}
        self.before = {
            agent: each[sorted(each)[-2]] for agent, each in found.items() if len(each) > 1
        }
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
            "generation": max(self._generations.values(), default=-1) + 1,
            "agents": list(states),
            "times": [state.time for state in every],
            "rounds": [state.round for state in every],
            "requests": [state.request for state in every],
            "sizes": [len(state.result) for state in every],
        }
        arrays = {name: _stacked([state.path[name] for state in every]) for name in every[0].path}
        arrays["results"] = np.frombuffer(b"".join(state.result for state in every), np.uint8)
        variates = [state.variates for state in every if state.variates is not None]
        if variates:
            arrays["variates"] = np.stack(variates)
        name = min(_NODE_FILES, key=lambda each: self._generations.get(each, -1))
        overwrite_sealed(self.folder / name, header, arrays)
        self.before |= {agent: self._states[agent] for agent in fresh if agent in self._states}
        self._states, self._generations[name] = states, header["generation"]
        self._seen = self._mark()


def _stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The arrays as one, with zeros behind rows that are shorter than others."""
    if len({array.shape for array in arrays}) == 1:
        return np.stack(arrays)
    rows = np.zeros((len(arrays), max(map(len, arrays))), arrays[0].dtype)
    for row, array in zip(rows, arrays, strict=True):
        row[: len(array)] = array
    return rows
