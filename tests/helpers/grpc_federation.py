"""A federation over gRPC within this process: a server's transport, and nodes on a thread."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fegsam.federation.credentials import (
    Tls,
    make_authority,
    make_node,
    make_server,
    private_directory,
)
from fegsam.federation.grpc.channel import Pulse
from fegsam.federation.grpc.gate import StrangerLimits
from fegsam.federation.grpc.keys import KeyBook
from fegsam.federation.grpc.listener import addresses, open_port
from fegsam.federation.grpc.node import Link, stay_connected
from fegsam.federation.grpc.transport import GrpcTransport, Hall
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.identity import Claims
from fegsam.federation.protocol.rules import Rules
from fegsam.federation.protocol.server import FederationServer, Outcome
from fegsam.federation.protocol.wire import most_bytes

PATIENCE = 60.0
Answer = Callable[[bytes], bytes]


class Site:
    """The keys and the port of a federation, whose node "n0" has the agents `homes[0]`."""

    def __init__(
        self,
        folder: pathlib.Path,
        homes: Iterable[Iterable[int]],
        *,
        dimension: int,
        host: str = "127.0.0.1",
        pulse: Pulse | None = None,
        limits: StrangerLimits | None = None,
    ) -> None:
        self.limits = StrangerLimits() if limits is None else limits
        self.folder, self.host = folder, host
        self.pulse = Pulse() if pulse is None else pulse
        self.homes = {f"n{number}": tuple(home) for number, home in enumerate(homes)}
        self.claims, self.dimension = Claims(self.homes), dimension
        self.server = private_directory(folder / "files")
        self.keys = private_directory(self.server / "nodes")
        self.authority = make_authority(private_directory(folder / "authority"))
        make_server(self.server, [host], self.authority)
        for name in self.homes:
            make_node(private_directory(folder / name), self.keys / f"{name}.pub", self.authority)
        self.refusals: list[tuple[str, str, dict[str, Any]]] = []
        self.port = 0

    @property
    def tls(self) -> Tls:
        return Tls(self.server / "ca.pem", self.server / "server.pem", self.server / "server.key")

    def tls_of(self, name: str) -> Tls:
        return Tls(
            self.server / "ca.pem", self.folder / name / "node.pem", self.folder / name / "node.key"
        )

    @contextlib.contextmanager
    def transport(self) -> Iterator[GrpcTransport]:
        """Open the port: a new one the first time, later the same."""
        sockets = open_port(self.host, self.port)
        ((_, self.port),) = addresses(sockets)
        hall = Hall(
            self.tls,
            KeyBook(self.keys),
            self.homes,
            self.dimension,
            lambda name: len(self.homes.get(name, ())),
            self.pulse,
            self.limits,
        )

        def refused(address: str, reason: str, **details: Any) -> None:
            self.refusals.append((address, reason, details))

        with GrpcTransport(sockets, hall, refused) as transport:
            yield transport

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def link(self, name: str, tls: Tls | None = None) -> Link:
        most = most_bytes(len(self.homes.get(name, ())), self.dimension)
        return Link(name, self.address, tls or self.tls_of(name), most, self.pulse)

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.refusals]


class Nodes:
    """Nodes on a thread of their own: ``with Nodes() as nodes: nodes.start(link, answer)``."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.said: list[str] = []

    def __enter__(self) -> Nodes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self, link: Link, answer: Answer) -> Any:
        """A node that stays connected; the returned future ends when it does."""
        return asyncio.run_coroutine_threadsafe(
            stay_connected(link, answer, ThreadPoolExecutor(1), self.said.append), self._loop
        )

    def call(self, work: Any) -> Any:
        """Run a coroutine on the thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)


def serve(
    site: Site,
    experiment: Experiment,
    transport: Any,
    rules: Rules | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> Outcome:
    server = FederationServer(
        experiment.terms(),
        transport,
        site.folder / "results",
        rules,
        claims=site.claims,
        on_event=on_event,
    )
    return server.run()


def wait_for(what: str, met: Callable[[], object], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, f"{what} did not come within {seconds:g} s"
        time.sleep(0.01)
