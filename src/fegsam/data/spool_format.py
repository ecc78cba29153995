"""The file of a spool: a header and records of one size, which are only ever appended.

The header is a line of JSON, filled up to 128 bytes. A record begins with the CRC-32 of the rest of
it, started at the record's number, so that a record that was torn or moved is noticed. A MARK is
written when everything before it is on the disk: only rows before a mark are read, so that a row
that was read is never lost, not even if the machine stops.
"""

from __future__ import annotations

import json
import os
import struct
import uuid
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fegsam.errors import ProblemError
from fegsam.safe_files import open_plain, whole

HEADER = 128
"""The bytes of the header."""
ROW, LAST, CUT, MARK, CLOSED = range(1, 6)
"""Kinds of records: an action; an episode's last observation; a cut, since the effect of the last
action was not recorded and the action does not count; a mark; the end of the spool."""
TERMINATED, TRUNCATED = 1, 2
"""Bits of `ends`. In a MARK, 1 says that an episode is open."""


class Header(NamedTuple):
    """What a spool says of itself."""

    width: int | None
    """the numbers of an observation; None for state numbers"""
    name: str
    """a name of its own, by which it is known again"""


class Record(NamedTuple):
    """One record. Fields that a kind does not need are 0."""

    kind: int
    ends: int = 0
    action: int = 0
    reward: float = 0.0
    behavior: float = 0.0
    observation: tuple[Any, ...] = ()


class Form:
    """How the records of a spool with observations of `width` numbers are stored."""

    def __init__(self, width: int | None) -> None:
        self._count = 1 if width is None else width
        self._packing = struct.Struct("<BBHqdd" + ("q" if width is None else f"{width}d"))
        kind = ("<i8",) if width is None else ("<f8", (width,))
        fields = [("kind", "u1"), ("ends", "u1"), ("unused", "<u2"), ("action", "<i8")]
        fields += [("reward", "<f8"), ("behavior", "<f8"), ("observation", *kind)]
        self.dtype = np.dtype([("sum", "<u4"), *fields])
        self.size = self.dtype.itemsize
        """the bytes of a record"""

    def pack(self, number: int, record: Record) -> bytes:
        """The bytes of record number `number`."""
        kind, ends, action, reward, behavior, observation = record
        observation = observation or (0,) * self._count
        rest = self._packing.pack(kind, ends, 0, action, reward, behavior, *observation)
        return _sum(number, rest).to_bytes(4, "little") + rest

    def valid(self, first: int, data: bytes) -> int:
        """How many records at the beginning of `data`, of number `first` on, are sound."""
        view, size = memoryview(data), self.size
        for i in range(len(data) // size):
            at = i * size
            if int.from_bytes(view[at : at + 4], "little") != _sum(
                first + i, view[at + 4 : at + size]
            ):
                return i
        return len(data) // size

    def last_mark(self, first: int, data: bytes) -> int:
        """The place of the last sound MARK or CLOSED in `data`; -1 if there is none."""
        for i in reversed(range(len(data) // self.size)):
            one = data[i * self.size : (i + 1) * self.size]
            if one[4] in (MARK, CLOSED) and self.valid(first + i, one):
                return i
        return -1


def _sum(number: int, rest: bytes | memoryview) -> int:
    return zlib.crc32(rest, number & 0xFFFFFFFF)


def create(path: Path, width: int | None) -> None:
    """Write an empty spool, unless there is a file."""
    if path.exists():
        return
    said = json.dumps({"fegsam spool": 1, "width": width, "name": uuid.uuid4().hex})
    with whole(path) as temporary:
        temporary.write_bytes(said.encode().ljust(HEADER - 1) + b"\n")


def read_header(path: Path) -> Header:
    """The header of a spool; an error if the file is none."""
    if not path.exists():
        raise ProblemError(f"{path} does not exist: let its owner begin it with fegsam.Spool")
    with open_plain(path) as file:
        line = file.read(HEADER)
    try:
        said = json.loads(line)
        if said["fegsam spool"] != 1 or len(line) < HEADER:
            raise ValueError
        width = said["width"]
        return Header(None if width is None else int(width), str(said["name"]))
    except (ValueError, KeyError, TypeError):
        raise ProblemError(f"{path} is not a spool: name a file that fegsam.Spool wrote") from None


def records_in(file: Any, form: Form) -> int:
    """The number of whole records in an open file."""
    return max(0, os.fstat(file.fileno()).st_size - HEADER) // form.size


def read_records(file: Any, form: Form, first: int, count: int) -> bytes:
    """The bytes of up to `count` whole records from number `first` on."""
    file.seek(HEADER + first * form.size)
    data = file.read(count * form.size)
    return data[: len(data) // form.size * form.size]
