"""The server's end of the gate: opens the port, runs the gate, admits and closes connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fegsam.federation.deployment import address
from fegsam.federation.errors import FederationError
from fegsam.federation.grpc import gate

_PAUSE = 0.5
"""Seconds before a gate that died is started again."""

_LONGEST = 30
"""The most characters of the path of temporary files."""

Report = Callable[[str, str, int], None]


def open_port(host: str, port: int) -> list[socket.socket]:
    """Listen on an address; "::" is every address of both families where the system has both.

    >>> [listening] = open_port("127.0.0.1", 0)
    >>> listening.getsockname()[1] > 0
    True
    >>> listening.close()
    """
    try:
        if host in ("", "::") and socket.has_dualstack_ipv6():
            options: dict[str, Any] = {"family": socket.AF_INET6, "dualstack_ipv6": True}
            return [socket.create_server(("::", port), backlog=1024, **options)]
        where = "0.0.0.0" if host in ("", "::") else host
        family = socket.AF_INET6 if ":" in where else socket.AF_INET
        return [socket.create_server((where, port), family=family, backlog=1024)]
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FederationError(
            f"the server cannot listen on {address(host, port)} ({reason}): choose another "
            "address, or end the process that uses it."
        ) from None


class Listener:
    """Runs the gate for as long as ``async with`` lasts, and starts it again if it dies.

    Parameters
    ----------
    sockets : those of `open_port`
    secure : whether connections must begin like TLS
    report : callable
        It is called with the address, the reason and the number of strangers turned away.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        *,
        secure: bool,
        report: Report,
        limits: gate.StrangerLimits | None = None,
    ) -> None:
        self._sockets, self._secure, self._report = sockets, secure, report
        self._limits = gate.StrangerLimits() if limits is None else limits
        # The name of a Unix socket has at most some 100 characters.
        short = "/tmp" if len(tempfile.gettempdir()) > _LONGEST else None
        self._folder = tempfile.TemporaryDirectory(prefix="fegsam-", dir=short)
        self.backend = str(Path(self._folder.name) / "s")
        """the socket that the gate connects to"""
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process of the gate."""
        return None if self._process is None else self._process.pid

    async def __aenter__(self) -> Listener:
        # This process has half as many connections as the gate may have descriptors.
        gate.raise_descriptors()
        self._start()
        self._task = asyncio.get_running_loop().create_task(self._care())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for listening in self._sockets:
            listening.close()
        self._folder.cleanup()

    def admit(self, peer: str) -> None:
        """Lift the limits of a connection; `peer` is gRPC's name for it."""
        self._command("admit", peer)

    def close(self, peer: str) -> None:
        """End a connection."""
        self._command("close", peer)

    def address_of(self, peer: str) -> str:
        """The address of a connection, which the gate put into its name."""
        return unquote(peer).rpartition("/s.")[2].rpartition(".")[0] or "unknown"

    def _command(self, command: str, peer: str) -> None:
        number = peer.rpartition(".")[2]
        if self._control is not None and number.isdigit():
            # A gate that does not read is dead, and with it its connections.
            with contextlib.suppress(OSError):
                self._control.send(json.dumps([command, int(number)]).encode() + b"\n")

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        listening = [each.fileno() for each in self._sockets]
        given = {
            "backend": self.backend,
            "secure": self._secure,
            "control": theirs.fileno(),
            "listening": listening,
            "limits": asdict(self._limits),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-I", gate.__file__, json.dumps(given)],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), *listening),
            # Ctrl-C in a terminal ends the server, and the gate with it.
            start_new_session=True,
        )
        theirs.close()
        self._control = ours

    async def _care(self) -> None:
        """Take the gate's reports; where it died, start it again."""
        while True:
            assert self._control is not None
            async for line in _lines(self._control):
                with contextlib.suppress(ValueError, KeyError):
                    said = json.loads(line)
                    self._report(said["peer"], said["reason"], said["count"])
            self._control.close()
            assert self._process is not None
            self._process.kill()
            self._process.wait()
            self._report("gate", "the gate died and was started again", 1)
            await asyncio.sleep(_PAUSE)
            self._start()


async def _lines(source: socket.socket) -> AsyncIterator[bytes]:
    loop, rest = asyncio.get_running_loop(), b""
    with contextlib.suppress(OSError):
        while some := await loop.sock_recv(source, 1 << 16):
            *whole, rest = (rest + some).split(b"\n")
            for line in whole:
                yield line


def addresses(sockets: list[socket.socket]) -> Iterator[tuple[str, int]]:
    """The addresses and ports that sockets listen on."""
    for each in sockets:
        host, port = each.getsockname()[:2]
        yield host, port
