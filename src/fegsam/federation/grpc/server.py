"""The server over gRPC, from the directory that `fegsam federate init` wrote."""

from __future__ import annotations

import contextlib
import gc
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from fegsam.federation.deployment import ServerSide
from fegsam.federation.grpc.keys import KeyBook
from fegsam.federation.grpc.listener import open_port
from fegsam.federation.grpc.transport import GrpcTransport, Hall
from fegsam.federation.interrupts import terminable
from fegsam.federation.protocol.ledger import Event
from fegsam.federation.protocol.server import FederationServer
from fegsam.federation.protocol.share import load_terms
from fegsam.federation.results import HISTORY_FILE
from fegsam.federation.strangers import STRANGERS_FILE, log_stranger


def serve(side: ServerSide, output: Path, *, on_event: Callable[[Event], None]) -> None:
    """Open the port of a server's directory, and run the server to its end."""
    with terminable(), opened(side, output) as transport:
        run_server(side, output, transport, on_event=on_event)


def run_server(
    side: ServerSide,
    output: Path,
    transport: GrpcTransport,
    *,
    on_event: Callable[[Event], None],
) -> None:
    """Run a federation's server to its end, and tell the nodes that it has ended."""
    server = FederationServer(
        load_terms(side.terms),
        transport,
        output,
        side.rules,
        claims=side.claims,
        on_event=on_event,
    )
    gc.freeze()  # All that was imported stays; there is no need to look through it again.
    server.run().history.save(output / HISTORY_FILE)
    transport.finish()


@contextlib.contextmanager
def opened(
    side: ServerSide, output: Path, sockets: list[socket.socket] | None = None
) -> Iterator[GrpcTransport]:
    """The transport of a server, which logs strangers in the directory of results."""
    terms, claims = load_terms(side.terms), side.claims
    assert claims is not None
    hall = Hall(
        tls=side.tls,
        keys=None if side.tls is None else KeyBook(side.directory / "nodes"),
        dimension=len(terms.initial_params),
        names=claims.nodes,
        agents_of=lambda node: len(claims.of(node)),
    )
    output.mkdir(parents=True, exist_ok=True)
    port = open_port(*side.listen) if sockets is None else sockets
    with GrpcTransport(port, hall, partial(log_stranger, output / STRANGERS_FILE)) as transport:
        yield transport
