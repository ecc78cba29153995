"""The gate: the process that listens, which passes bytes on and sees no key and no message.

It runs as a program of its own (``python gate.py``, with the standard library alone), so that a
flood of connections uses up this process's descriptors and not those of the server. It gets its
listening sockets and a control socket from the server, and ends when the server does.

A connection is a *stranger* until the server admits it. `StrangerLimits` says how much a stranger
may send and how long it may stay; what it sends must begin like TLS, or the server never sees it.
If there are too many strangers, in all or from one address, the oldest makes room once it has had
its grace; a node's handshake takes a fraction of that.

Control messages are lines of JSON: ``["admit", id]`` and ``["close", id]`` from the server,
``{"peer": address, "reason": text, "count": n}`` to it, one a second for each address and reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import socket
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, cast

_SPARE_DESCRIPTORS = 32
_TLS_START = b"\x16\x03"
_BUFFER = 1 << 20
_AT_ONCE = 8
"""The most connections that are accepted in one turn."""
_REPORTED_ADDRESSES = 256
"""The most addresses in one report; the others are counted together."""


def raise_descriptors() -> int:
    """Let this process open as many files as it may, and return how many these are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return soft
    return hard if hard != resource.RLIM_INFINITY else sys.maxsize


@dataclass(frozen=True)
class StrangerLimits:
    """What strangers may take."""

    first_bytes: int = 64 << 10
    patience: float = 10.0
    """seconds until a connection must be admitted"""
    grace: float = 2.0
    """seconds after which a stranger makes room for a newer one"""
    strangers: int = 1024
    strangers_per_address: int = 256


class ConnectionGate:
    """Counts connections, and decides which may stay."""

    def __init__(
        self, backend: str, secure: bool, control: socket.socket, limits: StrangerLimits
    ) -> None:
        self.backend, self.secure, self.limits = backend, secure, limits
        self._control = control
        self._known: dict[int, Visitor] = {}
        self._strangers: dict[int, Visitor] = {}
        """in the order of arrival"""
        self._here: defaultdict[str, dict[int, Visitor]] = defaultdict(dict)
        """the strangers from each address, in the order of arrival"""
        self._last = 0
        self._reports: Counter[tuple[str, str]] = Counter()
        # Each connection has two descriptors: the peer's side and the server's.
        self._most = max(8, (raise_descriptors() - _SPARE_DESCRIPTORS) // 2)

    def enter(self, visitor: Visitor) -> bool:
        """Note a new connection; False if there is no room for it."""
        limits, here = self.limits, self._here.get(visitor.address, {})
        for group, count, most in (
            (here, len(here), limits.strangers_per_address),
            (self._strangers, len(self._strangers), limits.strangers),
            (self._strangers, len(self._known), self._most),
        ):
            if count >= most and not self._make_room(group):
                self.report(visitor.address, "too many connections without a handshake")
                return False
        self._last += 1
        visitor.number = self._last
        self._known[visitor.number] = self._strangers[visitor.number] = visitor
        self._here[visitor.address][visitor.number] = visitor
        return True

    def _make_room(self, strangers: dict[int, Visitor]) -> bool:
        """Turn the oldest of some strangers away, if it has had its grace."""
        oldest = next(iter(strangers.values()), None)
        if oldest is None or asyncio.get_running_loop().time() - oldest.came < self.limits.grace:
            return False
        oldest.leave("made room for newer connections")
        return True

    def left(self, visitor: Visitor) -> None:
        self._known.pop(visitor.number, None)
        self.known(visitor)

    def known(self, visitor: Visitor) -> None:
        """A visitor is no stranger any more."""
        self._strangers.pop(visitor.number, None)
        here = self._here[visitor.address]
        here.pop(visitor.number, None)
        if not here:
            del self._here[visitor.address]

    def report(self, address: str, reason: str) -> None:
        if len(self._reports) >= _REPORTED_ADDRESSES:
            address = "others"
        self._reports[address, reason] += 1

    async def flush_reports(self) -> None:
        """Send the reports, each second."""
        while True:
            await asyncio.sleep(1.0)
            reports, self._reports = self._reports, Counter()
            lines = [
                json.dumps({"peer": peer, "reason": reason, "count": count}) + "\n"
                for (peer, reason), count in reports.items()
            ]
            if lines:
                await asyncio.get_running_loop().sock_sendall(
                    self._control, "".join(lines).encode()
                )

    async def obey(self) -> None:
        """Follow the server's commands until it ends."""
        rest = b""
        while some := await asyncio.get_running_loop().sock_recv(self._control, 1 << 16):
            *lines, rest = (rest + some).split(b"\n")
            for line in lines:
                command, number = json.loads(line)
                visitor = self._known.get(number)
                if visitor is None:
                    continue
                if command == "admit":
                    self.known(visitor)
                    visitor.admitted = True
                else:
                    visitor.leave()


class _Side(asyncio.Protocol):
    """One end of a connection; what it gets is written to the other end."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor = visitor
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(_BUFFER)

    def pause_writing(self) -> None:
        self.visitor.other(self).pause_reading()

    def resume_writing(self) -> None:
        self.visitor.other(self).resume_reading()

    def data_received(self, data: bytes) -> None:
        self.visitor.other(self).write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.visitor.leave("the server ended the handshake")


class Visitor(_Side):
    """The peer's end of a connection."""

    def __init__(self, gate: ConnectionGate, address: str) -> None:
        super().__init__(self)
        self.gate, self.address, self.number, self.admitted = gate, address, 0, False
        loop = asyncio.get_running_loop()
        self.came, self._gone = loop.time(), False
        self._timer = loop.call_later(gate.limits.patience, self._too_late)
        self._received, self._first = 0, b""
        self._backend: _Side | None = None
        self._connecting: asyncio.Task[None] | None = None
        self.joining: asyncio.Task[Any] | None = None
        """kept here, because the loop itself does not keep tasks"""

    def other(self, side: _Side) -> Any:
        other = self._backend if side is self else self
        return None if other is None else other.transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._gone and self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self.admitted:
            self._received += len(data)
            most = self.gate.limits.first_bytes
            if self._received > most:
                self.leave(f"more than {most} bytes before it was admitted")
                return
        if self._backend is not None:
            super().data_received(data)
            return
        self._first += data
        if self.gate.secure and not self._first.startswith(_TLS_START[: len(self._first)]):
            self.leave("not TLS")
        elif len(self._first) >= len(_TLS_START) and self._connecting is None:
            assert self.transport is not None
            self.transport.pause_reading()
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        """Connect to the server from a socket whose name has the visitor's address and number."""
        loop = asyncio.get_running_loop()
        end = socket.socket(socket.AF_UNIX)
        end.setblocking(False)
        name = f"{self.gate.backend}.{self.address}.{self.number}"
        try:
            end.bind(name)
            await loop.sock_connect(end, self.gate.backend)
            backend = _Side(self)
            await loop.create_unix_connection(lambda: backend, sock=end)
        except OSError:
            end.close()
            self.leave("the server does not answer")
            return
        finally:
            with contextlib.suppress(OSError):
                os.unlink(name)
        assert backend.transport is not None
        assert self.transport is not None
        if self._gone:
            backend.transport.abort()
            return
        self._backend = backend
        backend.transport.write(self._first)
        self._first = b""
        self.transport.resume_reading()

    def refuse(self) -> None:
        """Forget a connection that was not let in."""
        self._gone = True
        self._timer.cancel()

    def _too_late(self) -> None:
        if not self.admitted:
            self.leave(f"no handshake within {self.gate.limits.patience:g} seconds")

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave("it left before it was admitted")

    def leave(self, reason: str | None = None) -> None:
        """End both sides; a stranger's reason is reported."""
        if self._gone:
            return
        self._gone = True
        self._timer.cancel()
        self.gate.left(self)
        if reason is not None and not self.admitted:
            self.gate.report(self.address, reason)
        for side in (self, self._backend):
            if side is not None and side.transport is not None:
                # What the other side has said last is still delivered, if that does not take long.
                side.transport.close()
                asyncio.get_running_loop().call_later(self.gate.limits.grace, side.transport.abort)


def _accept(gate: ConnectionGate, port: socket.socket) -> None:
    """Let a few connections in; then those that are here have their turn, however many wait."""
    loop = asyncio.get_running_loop()
    for _ in range(_AT_ONCE):
        try:
            connection, (address, *_) = port.accept()
        except BlockingIOError:
            return
        except OSError:  # such as no descriptor being left
            loop.remove_reader(port)
            loop.call_later(0.2, loop.add_reader, port, _accept, gate, port)
            return
        visitor = Visitor(gate, str(address))
        if gate.enter(visitor):
            connection.setblocking(False)
            visitor.joining = loop.create_task(
                loop.connect_accepted_socket(lambda own=visitor: own, connection)
            )
        else:
            visitor.refuse()
            connection.close()


async def _serve(
    backend: str, secure: bool, control: int, listening: list[int], limits: StrangerLimits
) -> None:
    loop = asyncio.get_running_loop()
    own = socket.socket(fileno=control)
    own.setblocking(False)
    gate = ConnectionGate(backend, secure, own, limits)
    for number in listening:
        port = socket.socket(fileno=number)
        port.setblocking(False)
        loop.add_reader(port, _accept, gate, port)
    reports = loop.create_task(gate.flush_reports())
    with contextlib.suppress(ConnectionError):
        await gate.obey()
    reports.cancel()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    asyncio.run(_serve(**given | {"limits": StrangerLimits(**given["limits"])}))
    os._exit(0)
