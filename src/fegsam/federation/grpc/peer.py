"""One node's stream, as the server sees it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from fegsam.federation.grpc.channel import END, PAYLOAD, PING, PONG, first_bound

_WAITING = 8
"""The most requests that wait for a node to answer the one before."""
_UNASKED = 3
"""The number of payloads that nobody asked for with which a node is cut off."""


@dataclass(frozen=True)
class Cut:
    """Why the server ended a stream."""

    status: Any
    reason: str


class Peer:
    """A connected node: one request in flight, the next ones in a queue.

    Parameters
    ----------
    name, key : the node's
    context : the stream
    most : bytes of its largest answer
    agents : the number of its agents
    deliver : it is called with each payload
    """

    def __init__(
        self,
        name: str,
        key: str,
        context: Any,
        *,
        most: int,
        agents: int,
        deliver: Callable[[bytes], None],
    ) -> None:
        self.name, self.key, self.peer = name, key, context.peer()
        self._context, self._deliver = context, deliver
        self._most, self._bound = most, first_bound(agents)
        self._loop = asyncio.get_running_loop()
        self.heard = self._loop.time()
        self._asked: bytes | None = None
        self._waiting: deque[bytes] = deque()
        self._unasked = 0
        self.announced = False
        """whether the server knows of this connection"""
        self._out: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()
        self._cut: asyncio.Future[Cut] = self._loop.create_future()
        self._sign = asyncio.Event()

    @property
    def owes(self) -> bool:
        """Whether a request has no answer yet."""
        return self._asked is not None or bool(self._waiting)

    def post(self, payload: bytes) -> bool:
        """Send a request, now or after the answer to the one before; False if too many wait."""
        if payload == self._asked or payload in self._waiting:
            return True
        if len(self._waiting) >= _WAITING:
            return False
        self._waiting.append(payload)
        self._next()
        return True

    def ping(self) -> None:
        self._out.put_nowait((PING, b""))

    def end(self) -> None:
        """Tell the node that the federation has ended."""
        self._out.put_nowait((END, b""))

    def cut(self, status: Any, reason: str) -> None:
        """End the stream."""
        if not self._cut.done():
            self._cut.set_result(Cut(status, reason))

    async def answers(self, seconds: float) -> bool:
        """Whether the node shows a sign of life when it is pinged."""
        self._sign.clear()
        self.ping()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._sign.wait(), seconds)
        return self._sign.is_set() and not self._cut.done()

    async def run(self) -> Cut | None:
        """Serve the stream until either side ends it; why, if it was this one."""
        parts = [self._loop.create_task(work) for work in (self._read(), self._write())]
        try:
            await asyncio.wait({*parts, self._cut}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
        return self._cut.result() if self._cut.done() and not self._cut.cancelled() else None

    def _next(self) -> None:
        if self._asked is None and self._waiting:
            self._asked = self._waiting.popleft()
            self._out.put_nowait((PAYLOAD, self._asked))

    async def _read(self) -> None:
        while isinstance(frame := await self._context.read(), bytes):
            self.heard = self._loop.time()
            self._sign.set()
            kind = frame[:1]
            if kind == PAYLOAD:
                self._take(frame)
            elif frame != PONG:
                self.cut(grpc.StatusCode.INVALID_ARGUMENT, "a frame of no known kind")

    def _take(self, frame: bytes) -> None:
        if len(frame) > self._bound + len(PAYLOAD):
            self.cut(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"a payload of {len(frame)} bytes, and at most {self._bound} are expected",
            )
            return
        self._bound = self._most
        if self._asked is None:
            self._unasked += 1
            if self._unasked >= _UNASKED:
                self.cut(grpc.StatusCode.FAILED_PRECONDITION, "payloads that nobody asked for")
                return
        self._asked = None
        self._deliver(frame[len(PAYLOAD) :])
        self._next()

    async def _write(self) -> None:
        while True:
            kind, payload = await self._out.get()
            await self._context.write(kind + payload)
