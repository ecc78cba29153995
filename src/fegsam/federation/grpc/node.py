"""A node over gRPC: connects to the server, answers its requests, and ends when it says so.

The node computes in a thread of its own, so that it answers pings while it computes. It connects
again whenever the connection is lost, after a pause that grows and is different for every node.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from fegsam.federation.credentials import Tls
from fegsam.federation.deployment import NodeSide, split_address
from fegsam.federation.grpc import channel
from fegsam.federation.grpc.channel import END, METHOD, PAYLOAD, PING, PONG, Pulse
from fegsam.federation.grpc.diagnosis import diagnose
from fegsam.federation.hosting import experiment_of, node_of
from fegsam.federation.output import say
from fegsam.federation.protocol.state import printable
from fegsam.federation.protocol.wire import most_bytes

_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 15.0
"""Seconds before a node connects again: after the first failure, and at most."""
_PENDING = 4
"""The most requests that a node takes before it has answered; the server sends one at a time."""

_BROKEN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN)
"""How a stream ends without a word of the server."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Link:
    """How a node reaches its server."""

    name: str
    server: str
    """host:port"""
    tls: Tls | None
    most: int
    """bytes of the largest request"""
    pulse: Pulse = field(default_factory=Pulse)


def run_node(side: NodeSide, server: str | None = None) -> None:
    """Run a node until the federation ends; `server` overrides the address in its file."""
    experiment = experiment_of(side)
    node = node_of(side)
    most = most_bytes(len(side.agents), len(experiment.start))
    link = Link(side.name, server or side.server, side.tls, most)
    gc.freeze()  # All that was imported stays; there is no need to look through it again.
    with ThreadPoolExecutor(1, thread_name_prefix="agents") as worker:
        asyncio.run(stay_connected(link, node.answer, worker, say))


async def stay_connected(
    link: Link, answer: Callable[[bytes], bytes], worker: Executor, say: Say
) -> None:
    """Answer the server's requests until it says that the federation has ended.

    `worker` computes the answers, one after the other, while this answers pings.
    """
    pause, said = _FIRST_PAUSE, ""
    while True:
        session = _Session(link, answer, worker, say)
        if await session.run():
            say(f"{link.name}: the federation has ended")
            return
        if session.admitted:
            pause, said = _FIRST_PAUSE, ""
        reason = await session.why()
        if reason != said:
            say(f"{link.name}: {reason}; it tries again")
            said = reason
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(2 * pause, _LONGEST_PAUSE)


class _Session:
    """One connection of a node."""

    def __init__(
        self, link: Link, answer: Callable[[bytes], bytes], worker: Executor, say: Say
    ) -> None:
        self._link, self._answer, self._worker, self._say = link, answer, worker, say
        self.admitted = False
        """whether the server has asked something"""
        self._pending: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()
        self._reason: str | None = None

    async def run(self) -> bool:
        """Serve the connection until it ends; whether the federation has ended, too."""
        link = self._link
        settings = [
            *channel.options(link.pulse, link.most),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
        ]
        if link.tls is None:
            opened = grpc.aio.insecure_channel(link.server, settings)
        else:
            authority, certificate, key = link.tls.read()
            shown = grpc.ssl_channel_credentials(authority, key, certificate)
            opened = grpc.aio.secure_channel(link.server, shown, settings)
        async with opened:
            call: Any = opened.stream_stream(METHOD)(metadata=((channel.NAME_HEADER, link.name),))
            try:
                return await self._serve(call)
            except grpc.aio.AioRpcError as error:
                if error.code() not in _BROKEN:
                    self._reason = f"the server refuses it: {printable(error.details() or '')}"
            except TimeoutError:
                self._reason = f"the server showed no sign of life for {link.pulse.dead:g} s"
            finally:
                for task in self._pending:
                    task.cancel()
                call.cancel()
        return False

    async def why(self) -> str:
        """Why the connection ended."""
        if self._reason is None and self.admitted:
            return "the connection was lost"
        host, port = split_address(self._link.server, self._link.name)
        return self._reason or await asyncio.to_thread(diagnose, host, port, self._link.tls)

    async def _serve(self, call: Any) -> bool:
        while True:
            async with asyncio.timeout(self._link.pulse.dead):
                frame = await call.read()
            if not isinstance(frame, bytes):
                # The end of the stream; its status says why.
                code, details = await call.code(), await call.details()
                raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)
            if not self.admitted:
                self.admitted = True
                self._say(f"{self._link.name}: connected to {self._link.server}")
            if frame == END:
                await call.done_writing()
                return True
            if frame == PING:
                await self._write(call, PONG)
            elif frame[:1] == PAYLOAD and len(self._pending) < _PENDING:
                task = asyncio.get_running_loop().create_task(self._compute(call, frame[1:]))
                self._pending.add(task)
                task.add_done_callback(self._pending.discard)
            else:
                self._reason = "the server sent what this node does not understand"
                return False

    async def _compute(self, call: Any, payload: bytes) -> None:
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(self._worker, self._answer, payload)
        with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            await self._write(call, PAYLOAD + answer)

    async def _write(self, call: Any, frame: bytes) -> None:
        async with self._writing:
            await call.write(frame)
