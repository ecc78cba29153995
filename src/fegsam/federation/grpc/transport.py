"""The server's transport over gRPC: an asyncio thread behind the synchronous `Transport`."""

from __future__ import annotations

import asyncio
import queue
import re
import socket
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from fegsam.federation.credentials import Tls, key_id
from fegsam.federation.errors import FederationError
from fegsam.federation.grpc import channel
from fegsam.federation.grpc.channel import METHOD, Pulse
from fegsam.federation.grpc.gate import StrangerLimits
from fegsam.federation.grpc.keys import KeyBook
from fegsam.federation.grpc.listener import Listener
from fegsam.federation.grpc.peer import Peer
from fegsam.federation.protocol.transport import Joined, Lost
from fegsam.federation.protocol.wire import most_bytes

_TICK = 0.5
"""Seconds between two looks at the pulse of nodes and at the keys."""
_HANDSHAKE = 10_000
"""Milliseconds for a TLS handshake."""
_CUT_AFTER = 2.0
"""Seconds before the connection of a node that was refused is closed by force."""
_NAME = re.compile(r"[\w.-]{1,64}")

Refusal = Callable[..., None]
Came = tuple[str, bytes | Lost | Joined]


@dataclass(frozen=True)
class Hall:
    """What the server of a federation knows of its nodes."""

    tls: Tls | None
    """None: no encryption and no keys"""
    keys: KeyBook | None
    names: Collection[str]
    """the nodes that it may have"""
    dimension: int
    agents_of: Callable[[str], int]
    """the number of agents of a node"""
    pulse: Pulse = field(default_factory=Pulse)
    limits: StrangerLimits = field(default_factory=StrangerLimits)


class GrpcTransport:
    """A `Transport` over gRPC: ``with GrpcTransport(...) as transport``.

    Parameters
    ----------
    sockets : those of `listener.open_port`
    hall : Hall
    refused : callable
        It is called with the address and the reason of each refusal.
    """

    remembers = True

    def __init__(self, sockets: list[socket.socket], hall: Hall, refused: Refusal) -> None:
        self._hall, self._refused = hall, refused
        self._listener = Listener(
            sockets,
            secure=hall.tls is not None,
            report=lambda address, reason, count: refused(address, reason, count=count),
            limits=hall.limits,
        )
        self._certificates = None if hall.tls is None else hall.tls.read()
        self._peers: dict[str, Peer] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._told: set[str] = set()
        self._ended, self._problem = False, ""
        self._came: queue.SimpleQueue[list[Came]] = queue.SimpleQueue()
        self._batch: list[Came] = []
        """what came in this turn of the loop, which wakes the server once"""
        self._going: list[tuple[str, bytes]] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="grpc", daemon=True)
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> GrpcTransport:
        self._thread.start()
        self._ready.wait()
        self._check()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def nodes(self) -> list[str]:
        return list(self._peers)

    def send(self, node: str, payload: bytes) -> None:
        self._check()
        with self._lock:
            self._going.append((node, payload))
            asleep = len(self._going) == 1
        if asleep:  # one wake-up for many messages
            self._loop.call_soon_threadsafe(self._pump)

    def receive(self, timeout: float) -> list[Came]:
        came: list[Came] = []
        try:
            came += self._came.get(timeout=timeout)
            while True:
                came += self._came.get_nowait()
        except queue.Empty:
            self._check()
        for node, what in came:
            if isinstance(what, Joined) and (peer := self._peers.get(node)) is not None:
                peer.announced = True
        return came

    @property
    def gate(self) -> int | None:
        """The process that listens."""
        return self._listener.pid

    def finish(self, linger: float = 5.0) -> None:
        """Tell every node that the federation has ended; wait for those that are away."""
        future = asyncio.run_coroutine_threadsafe(self._finish(linger), self._loop)
        future.result()

    def fail(self, error: FederationError) -> None:
        """Make the server end with an error; any thread may call this."""
        self._failure = error
        self._came.put([("", Lost(str(error)))])

    def _check(self) -> None:
        if isinstance(self._failure, FederationError):
            raise self._failure
        if self._failure is not None:
            raise FederationError(
                f"the server's connections broke down ({self._failure!r}): start it again."
            ) from self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._came.put([("", Lost("the server's connections broke down"))])
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        hall = self._hall
        agents = max(map(hall.agents_of, hall.names), default=1)
        most = max(most_bytes(agents, hall.dimension), channel.first_bound(agents))
        server = grpc.aio.server(
            options=[
                *channel.options(hall.pulse, most),
                ("grpc.server_handshake_timeout_ms", _HANDSHAKE),
                ("grpc.max_concurrent_streams", 1),
            ]
        )
        server.add_generic_rpc_handlers((_Works(self._work),))
        async with self._listener as listener:
            where = f"unix:{listener.backend}"
            if self._certificates is None:
                server.add_insecure_port(where)
            else:
                authority, certificate, key = self._certificates
                server.add_secure_port(
                    where, grpc.ssl_server_credentials([(key, certificate)], authority, True)
                )
            await server.start()
            self._ready.set()
            watch = self._loop.create_task(self._watch())
            stop = self._loop.create_task(self._stop.wait())
            await asyncio.wait({watch, stop}, return_when=asyncio.FIRST_COMPLETED)
            watch.cancel()
            await server.stop(0)
            if watch.done() and not watch.cancelled():
                watch.result()

    async def _watch(self) -> None:
        """Ping silent nodes, cut off dead ones and those whose key was deleted."""
        pulse, keys = self._hall.pulse, self._hall.keys
        while True:
            await asyncio.sleep(min(_TICK, pulse.every / 2))
            now = self._loop.time()
            self._refresh()
            for peer in list(self._peers.values()):
                if keys is not None and keys.name_of(peer.key) != peer.name:
                    peer.cut(grpc.StatusCode.UNAUTHENTICATED, "its key was revoked")
                elif now - peer.heard > pulse.dead:
                    peer.cut(
                        grpc.StatusCode.DEADLINE_EXCEEDED, f"no sign of life for {pulse.dead:g} s"
                    )
                elif now - peer.heard > pulse.every:
                    peer.ping()

    def _refresh(self) -> None:
        """Read the keys; what is wrong with their files is logged once."""
        problem = None if self._hall.keys is None else self._hall.keys.refresh()
        if problem is not None and str(problem) != self._problem:
            self._refused("server", str(problem))
        self._problem = "" if problem is None else str(problem)

    async def _work(self, _: Any, context: Any) -> None:
        address = self._listener.address_of(context.peer())
        named = self._named(context)
        if isinstance(named, str):
            await self._refuse(context, address, grpc.StatusCode.UNAUTHENTICATED, named)
            return
        name, key = named
        async with self._locks.setdefault(name, asyncio.Lock()):
            older = self._peers.get(name)
            if older is not None:
                if await older.answers(self._hall.pulse.probe):
                    await self._refuse(
                        context,
                        address,
                        grpc.StatusCode.ALREADY_EXISTS,
                        f"the key of {name} is in use by another process, which is alive",
                    )
                    return
                older.cut(grpc.StatusCode.ABORTED, "a newer connection with its key")
                self._leave(older, "it was silent, and a newer connection came")
            peer = self._join(name, key, context)
        cut = None
        try:
            cut = await peer.run()
        finally:
            self._leave(peer, "the connection was lost" if cut is None else cut.reason)
        if cut is not None:
            await self._refuse(context, address, cut.status, cut.reason, node=name)

    def _named(self, context: Any) -> tuple[str, str] | str:
        """The name and the key of a peer, or why it is refused."""
        if self._hall.keys is None:
            name = dict(context.invocation_metadata() or ()).get(channel.NAME_HEADER, "")
            return (str(name), "") if _NAME.fullmatch(str(name)) else "it says no name"
        shown = context.auth_context()
        if shown.get("ssl_tls_version") != [b"TLSv1.3"]:
            return "the connection is not TLS 1.3"
        key = key_id(shown["x509_pem_cert"][0])
        name = self._hall.keys.name_of(key)
        if name is None:  # it may have been listed a moment ago
            self._refresh()
            name = self._hall.keys.name_of(key)
        return (name, key) if name else f"the key {key[:16]} is not among the server's"

    def _join(self, name: str, key: str, context: Any) -> Peer:
        agents = self._hall.agents_of(name)
        peer = Peer(
            name,
            key,
            context,
            most=most_bytes(agents, self._hall.dimension),
            agents=agents,
            deliver=lambda payload: self._deliver(name, payload),
        )
        self._peers[name] = peer
        self._listener.admit(peer.peer)
        peer.ping()  # which tells the node that it was admitted
        if self._ended:
            self._told.add(name)
            peer.end()
        else:
            self._deliver(name, Joined())
        return peer

    def _leave(self, peer: Peer, reason: str) -> None:
        if self._peers.get(peer.name) is peer:
            del self._peers[peer.name]
            if peer.owes:
                self._deliver(peer.name, Lost(reason))

    def _deliver(self, node: str, came: bytes | Lost | Joined) -> None:
        """Give the server what came, with all else that comes in this turn of the loop."""
        self._batch.append((node, came))
        if len(self._batch) == 1:
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._came.put(self._batch)
        self._batch = []

    async def _refuse(
        self, context: Any, address: str, status: Any, reason: str, **details: Any
    ) -> None:
        self._refused(address, reason, **details)
        self._loop.call_later(_CUT_AFTER, self._listener.close, context.peer())
        await context.abort(status, reason)

    def _pump(self) -> None:
        with self._lock:
            going, self._going = self._going, []
        for node, payload in going:
            peer = self._peers.get(node)
            if peer is None or not peer.announced:
                # A request for an older connection must not be the first on a newer one.
                self._deliver(node, Lost("it is not connected"))
            elif not peer.post(payload):
                self._deliver(node, Lost("too many requests wait"))

    async def _finish(self, linger: float) -> None:
        self._ended = True
        for peer in self._peers.values():
            self._told.add(peer.name)
            peer.end()
        known = frozenset(self._hall.names)
        deadline = self._loop.time() + linger
        while (self._peers or known - self._told) and self._loop.time() < deadline:
            await asyncio.sleep(0.02)


class _Works(grpc.GenericRpcHandler):
    """Knows one method, whose messages are bytes."""

    def __init__(self, work: Any) -> None:
        self._handler = grpc.stream_stream_rpc_method_handler(work)

    def service(self, handler_call_details: Any) -> Any:
        return self._handler if handler_call_details.method == METHOD else None
