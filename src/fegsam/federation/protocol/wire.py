"""All messages between a server and its nodes; only those in `FROM_NODE` leave a node.

A payload is one or more frames, each ``magic, kind, length, body, SHA-256 of all before``; a body
is the fields of one message in their order, as plain typed values in little-endian layout:

=========  =====================================================================
digest     32 bytes
number     8 bytes, unsigned
numbers    their count (8 bytes), then each
reason     1 byte, an index into the fixed list `Trouble`
rows       their number of bytes (8 bytes), then rows of numbers (see `sparse_rows`)
=========  =====================================================================

Nothing is ever unpickled, every size is checked against the bytes received before it is used, and
damage anywhere rejects the whole payload. The checksum detects accidents, not attacks: the
transport authenticates senders (TLS and node keys), and `check_reply` checks a reply against its
request. The server encodes the `Start` of a round once, and sends it to each node with a `Request`.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from fegsam.federation.protocol.sparse_rows import RowsError, unpack_rows

_HEAD = struct.Struct("<4sBQ")
_MAGIC = b"FGS2"
_CHECKSUM = hashlib.sha256().digest_size
NO_BASE = "00" * 32
"""The base of a `Start` whose rows are not changes of other rows."""


class WireError(ValueError):
    """Bytes that are not a message; the text is a named reason."""


class Trouble(enum.Enum):
    """Why a node did not do a request: a fixed list, so that no other text leaves the node."""

    DAMAGED_REQUEST = "damaged request"
    OTHER_EXPERIMENT = "other experiment"
    NOT_HERE = "agent not here"
    BUSY = "busy"
    AHEAD = "its last round is not before this one"
    STATE = "state unusable"
    ERROR = "error"
    BEYOND_TERMS = "beyond the terms"
    UNKNOWN_BASE = "parameters not known"
    USED_UP = "its data is used up"


@dataclass(frozen=True)
class Ask:
    """Server to node: which agents do you host?"""

    fingerprint: str


@dataclass(frozen=True, eq=False)
class Start:
    """Server to node: where a round starts; the same for all nodes that know the base."""

    fingerprint: str
    round: int
    stops: tuple[int, ...]
    """the steps after which parameters are reported, in order; the last is the round's length"""
    digest: str
    """`digest_of` the rows"""
    base: str
    """that of the rows of an earlier start, from which these differ little; or `NO_BASE`"""
    params: bytes
    """(1, d): where agents start; where agents keep control variates, their mean as a second row"""


@dataclass(frozen=True, eq=False)
class Request:
    """Server to node: `agents` should take the local steps of the round that a `Start` begins."""

    fingerprint: str
    round: int
    agents: tuple[int, ...]
    times: tuple[int, ...]
    """steps of each agent at its last reply that was used"""
    heard: tuple[int, ...] = ()
    """where agents keep control variates: the number of rounds up to each one's last reply that
    was used, or 0"""
    corrections: bytes = b""
    """(agents, d): what each adds to its steps, where the server keeps the control variates"""


@dataclass(frozen=True)
class Hello:
    """Node to server: the agents on this node."""

    fingerprint: str
    agents: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Reply:
    """Node to server: the result of an agent's local steps."""

    fingerprint: str
    round: int
    agent: int
    steps: int
    """steps in this round"""
    time: int
    """steps since the agent's start"""
    params: bytes
    """(stops, d), as changes of the first row of the start"""


@dataclass(frozen=True, eq=False)
class NodeSum:
    """Node to server: the sum over agents of what each would reply (see `exact_sums`)."""

    fingerprint: str
    round: int
    agents: tuple[int, ...]
    times: tuple[int, ...]
    """steps of each agent since its start"""
    sums: bytes
    """int64 (3, stops, d + 1): of the parameters, and of the squared distances from the start"""


@dataclass(frozen=True)
class Failure:
    """Node to server: these agents did not do this round."""

    fingerprint: str
    round: int
    agents: tuple[int, ...]
    reason: Trouble


FROM_SERVER = (Ask, Start, Request)
FROM_NODE = (Hello, Reply, Failure, NodeSum)
"""The fields of these messages are all that ever leaves a node."""

_KINDS: dict[int, type] = dict(enumerate((*FROM_SERVER, *FROM_NODE), start=1))
_CODES = {message: code for code, message in _KINDS.items()}
_TROUBLES = tuple(Trouble)


def encode(*messages: Any) -> bytes:
    """The payload of some messages.

    >>> decode(encode(Ask("00" * 32)), FROM_SERVER)
    [Ask(fingerprint='0000000000000000000000000000000000000000000000000000000000000000')]
    """
    return b"".join(_frame(_CODES[type(message)], b"".join(_pack(message))) for message in messages)


def digest_of(rows: np.ndarray) -> str:
    """What identifies rows of parameters: the SHA-256 of their bytes."""
    return hashlib.sha256(np.ascontiguousarray(rows, "<f8").data).hexdigest()


def most_bytes(num_agents: int, dimension: int) -> int:
    """The most bytes of an honest payload from a node, or to it, with this many agents.

    >>> most_bytes(1, 10_000)
    321536
    """
    return (num_agents + 1) * (2 * 8 * dimension + 256) + 1024


def decode(payload: bytes, allowed: tuple[type, ...], most: int = 1 << 20) -> list[Any]:
    """The messages of a payload, each of an `allowed` kind; `WireError` on any fault.

    `most` is the largest number of agents that it may speak of.
    """
    found = []
    rest = memoryview(payload)
    while True:
        if len(rest) < _HEAD.size + _CHECKSUM:
            raise WireError("cut short")
        magic, code, length = _HEAD.unpack_from(rest)
        end = _HEAD.size + length
        if magic != _MAGIC:
            raise WireError("not a message")
        if len(rest) - _CHECKSUM < end:
            raise WireError("cut short")
        if hashlib.sha256(rest[:end]).digest() != rest[end : end + _CHECKSUM]:
            raise WireError("damaged")
        if _KINDS.get(code) not in allowed:
            raise WireError("not a message that is expected")
        found.append(_unpack(_KINDS[code], rest[_HEAD.size : end], most))
        if len(found) > most + 1:
            raise WireError("too many messages")
        rest = rest[end + _CHECKSUM :]
        if not rest:
            return found


def _frame(code: int, body: bytes) -> bytes:
    content = _HEAD.pack(_MAGIC, code, len(body)) + body
    return content + hashlib.sha256(content).digest()


class _Reader:
    """Reads fields from a body, never beyond its end."""

    def __init__(self, body: memoryview, most: int) -> None:
        self.rest, self._most = body, most

    def take(self, count: int) -> memoryview:
        if count > len(self.rest):
            raise WireError("wrong length")
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def digest(self) -> str:
        return self.take(32).hex()

    def number(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def numbers(self) -> tuple[int, ...]:
        count = self.number()
        if count > self._most:
            raise WireError("too many numbers")
        return struct.unpack(f"<{count}Q", self.take(8 * count))

    def reason(self) -> Trouble:
        code = self.take(1)[0]
        if code >= len(_TROUBLES):
            raise WireError("wrong length")
        return _TROUBLES[code]

    def rows(self) -> bytes:
        return bytes(self.take(self.number()))


class _Writer:
    """Writes the fields that `_Reader` reads."""

    digest: ClassVar[Callable[[str], bytes]] = staticmethod(bytes.fromhex)
    reason: ClassVar[Callable[[Trouble], bytes]] = staticmethod(
        lambda value: bytes([_TROUBLES.index(value)])
    )

    @staticmethod
    def number(value: int) -> bytes:
        return struct.pack("<Q", value)

    @staticmethod
    def numbers(values: tuple[int, ...]) -> bytes:
        return struct.pack(f"<{len(values) + 1}Q", len(values), *values)

    @staticmethod
    def rows(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value


_TYPES = {
    "str": "digest",
    "int": "number",
    "tuple[int, ...]": "numbers",
    "Trouble": "reason",
    "bytes": "rows",
}
"""The encoding of a field, by its declared type."""


_FIELDS = {
    kind: [(field.name, _TYPES[str(field.type)]) for field in fields(kind)]
    for kind in (*FROM_SERVER, *FROM_NODE)
}


def _pack(message: Any) -> Iterable[bytes]:
    return (
        getattr(_Writer, encoding)(getattr(message, name))
        for name, encoding in _FIELDS[type(message)]
    )


def _unpack(kind: type, body: memoryview, most: int) -> Any:
    reader = _Reader(body, most)
    values = [getattr(reader, encoding)() for _, encoding in _FIELDS[kind]]
    if reader.rest:
        raise WireError("wrong length")
    return kind(*values)


@dataclass(frozen=True)
class Expected:
    """What the server expects of a reply."""

    fingerprint: str
    round: int
    steps: int
    start: np.ndarray
    """(d): where the agents started"""
    out: Any
    """(stops, d): filled with the parameters of a reply that is accepted"""
    too_large: Callable[[np.ndarray], bool]
    """whether changes (m, d) are larger than a round can make them; zeros may be left out"""
    hosted: Collection[int]
    """agents on the node that sent it"""
    asked: Collection[int]
    """agents that were asked in this round"""
    answered: Collection[int]
    """agents whose reply was already accepted"""
    times: Sequence[int] | np.ndarray
    """steps of each agent at its last accepted reply"""
    unheard: Sequence[int] | np.ndarray
    """steps that each agent may have taken since then, in rounds that closed without it"""


@dataclass(frozen=True, eq=False)
class Accepted:
    """A reply that may enter the average."""

    reply: Reply
    lost: int
    """steps of the agent in rounds that closed without it: their samples are in no average"""


@dataclass(frozen=True)
class Refused:
    """A reply that must not enter the average."""

    reason: str


def check_reply(reply: Reply, expected: Expected) -> Accepted | Refused:
    """Accept or refuse a reply.

    A valid reply is of this experiment and this round, from an agent of the sending node that was
    asked and has not answered. It has the requested number of steps, a step counter that continues
    from the last reply, and finite parameters of the right shape,
    not further from the start than a round can lead.

    Parameters
    ----------
    reply : Reply
    expected : Expected
    """
    lost = check_claim(reply, expected)
    if isinstance(lost, Refused):
        return lost
    try:
        given = unpack_rows(reply.params, expected.start, expected.out)
    except RowsError as error:
        return Refused(str(error))
    for row, places in zip(expected.out, given, strict=True):
        values = row[places]
        if not np.isfinite(values).all():
            return Refused("not finite")
        if len(values) and expected.too_large((values - expected.start[places])[None]):
            return Refused("change too large")
    return Accepted(reply, lost)


def check_claim(reply: Reply, expected: Expected) -> int | Refused:
    """Check all of a reply but its parameters; return the steps that are in no average."""
    if reply.fingerprint != expected.fingerprint:
        return Refused("other experiment")
    if reply.agent not in expected.hosted:
        return Refused("not its agent")
    if reply.round != expected.round:
        return Refused("stale round" if reply.round < expected.round else "round not begun")
    if reply.agent not in expected.asked:
        return Refused("not asked")
    if reply.agent in expected.answered:
        return Refused("duplicate")
    if reply.steps != expected.steps:
        return Refused("wrong number of steps")
    lost = reply.time - int(expected.times[reply.agent]) - reply.steps
    if lost < 0:
        return Refused("step counter went back")
    if lost > int(expected.unheard[reply.agent]):
        return Refused("step counter ran ahead")
    return lost
