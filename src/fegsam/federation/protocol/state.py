"""Stored state: files that are complete or absent, and detect damage. Nothing is ever unpickled.

A *sealed* file is ``magic, length of the header, header (JSON), arrays in order, SHA-256 of all
before``. It gets its name only when all of it is on the disk. An agent's file holds the position of
its path, and the last round that it computed with its result. After a crash at any moment, a round
was therefore either not computed, and its samples are unused, or its result is there to be sent.
Each agent has one file, so that it can move to another node with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fegsam.federation.errors import StateError
from fegsam.locks import Locked, lock
from fegsam.safe_files import read_plain, whole

_MAGIC = b"FGSTATE1"
_LENGTH = struct.Struct("<Q")
_CHECKSUM = hashlib.sha256().digest_size
_LONGEST_LOG = 1 << 26
"""Bytes of a log before it is rotated."""
_LONGEST_TEXT = 300


class HeldError(StateError):
    """Another process uses the same state."""


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
        raise StateError(
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
        if file.tell() > _LONGEST_LOG:
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
class ComputedRound:
    """A round that an agent computed, with its result."""

    round: int
    request: str
    """digest of the request"""
    params: np.ndarray
    """(stops, d)"""
    variates: np.ndarray | None = None
    """(2, d): the agent's control variate in this round, and the next one if the round counts"""


class AgentFile:
    """The state of one agent of one experiment."""

    def __init__(self, directory: pathlib.Path, fingerprint: str, agent: int) -> None:
        self.folder = directory / fingerprint[:16]
        self._fingerprint, self._agent = fingerprint, agent
        self.path = self.folder / f"agent-{agent}.state"

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Lock the agent, so that two processes never use it at once."""
        return held(self.folder / f".agent-{self._agent}.lock", f"agent {self._agent}")

    def read(self) -> tuple[dict[str, np.ndarray], ComputedRound] | None:
        """The stored state and round, or None if the agent has not begun."""
        try:
            header, arrays = read_sealed(self.path)
        except FileNotFoundError:
            return None
        if (header["fingerprint"], header["agent"]) != (self._fingerprint, self._agent):
            raise StateError(
                f"{str(self.path)!r} is the state of agent {header['agent']} of experiment "
                f"{header['fingerprint'][:16]}, "
                f"not of agent {self._agent} of {self._fingerprint[:16]}; put the right file there."
            )
        result, variates = arrays.pop("result"), arrays.pop("variates", None)
        return arrays, ComputedRound(header["round"], header["request"], result, variates)

    def write(self, state: Mapping[str, np.ndarray], computed: ComputedRound) -> None:
        """Store a state and the round that led to it, both or neither."""
        header = {
            "fingerprint": self._fingerprint,
            "agent": self._agent,
            "round": computed.round,
            "request": computed.request,
        }
        result = {"result": computed.params}
        if computed.variates is not None:
            result["variates"] = computed.variates
        write_sealed(self.path, header, {**state, **result})
