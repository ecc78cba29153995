"""The streams of nodes over gRPC: one connection for each key, one request at a time, bounds on
what is said, and signs of life."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

from fegsam.federation.grpc.channel import METHOD, PAYLOAD, PING, PONG, Pulse, first_bound
from fegsam.federation.grpc.transport import GrpcTransport
from fegsam.federation.protocol.transport import Joined, Lost
from fegsam.federation.protocol.wire import most_bytes
from helpers import processes
from helpers.grpc_federation import Nodes, Site, wait_for

PULSE = Pulse(every=0.2, dead=1.0, probe=0.5)


@pytest.fixture
def site(folder, request) -> Site:
    """Patient with peers that answer no ping, unless a test wants it otherwise."""
    pulse = getattr(request, "param", Pulse(every=50, dead=100, probe=0.5))
    return Site(folder, [(0,), (1,)], dimension=3, pulse=pulse)


quick = pytest.mark.parametrize("site", [PULSE], indirect=True, ids=["quick"])


@pytest.fixture
def opened(site) -> Iterator[tuple[GrpcTransport, Nodes]]:
    with site.transport() as transport, Nodes() as nodes:
        yield transport, nodes


def came(transport: GrpcTransport, seconds: float = 10.0, count: int = 1) -> list[Any]:
    """The next messages, joins left out."""
    found: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        found += [each for each in transport.receive(0.05) if not isinstance(each[1], Joined)]
    return found


def joined(transport: GrpcTransport) -> None:
    """Wait until the server knows of n0."""
    wait_for("n0", lambda: ("n0", Joined()) in transport.receive(0.05))


class Raw:
    """A peer with a node's key that says what it likes."""

    def __init__(self, site: Site, nodes: Nodes, name: str) -> None:
        self._nodes = nodes
        authority, certificate, key = site.tls_of(name).read()
        shown = grpc.ssl_channel_credentials(authority, key, certificate)

        async def call() -> Any:
            self._channel = grpc.aio.secure_channel(
                site.address, shown, [("grpc.use_local_subchannel_pool", 1)]
            )
            return self._channel.stream_stream(METHOD)()

        self._call = nodes.call(call())

    def hear(self) -> bytes:
        return self._nodes.call(self._call.read())

    def say(self, frame: bytes) -> None:
        self._nodes.call(self._call.write(frame))

    def end(self) -> tuple[grpc.StatusCode, str]:
        """Wait until the server has ended the stream; the reason that it gives."""

        async def status() -> Any:
            with contextlib.suppress(grpc.aio.AioRpcError):
                while isinstance(await self._call.read(), bytes):
                    pass
            return await self._call.code(), await self._call.details()

        return self._nodes.call(status())


def test_requests_are_answered_one_at_a_time_and_never_twice(opened, site) -> None:
    transport, nodes = opened
    seen, at_work, most = [], 0, 0

    def answer(payload: bytes) -> bytes:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        seen.append(payload)
        time.sleep(0.05)
        at_work -= 1
        return payload.upper()

    nodes.start(site.link("n0"), answer)
    joined(transport)
    for payload in (b"a", b"b", b"b", b"c", b"a"):
        transport.send("n0", payload)
    assert came(transport, count=3) == [("n0", b"A"), ("n0", b"B"), ("n0", b"C")]
    assert (seen, most) == ([b"a", b"b", b"c"], 1)


def test_a_node_that_is_not_there_is_a_loss(opened) -> None:
    transport, _ = opened
    transport.send("n1", b"x")
    assert came(transport) == [("n1", Lost("it is not connected"))]


@quick
def test_a_node_that_computes_for_long_is_not_taken_for_dead(opened, site) -> None:
    transport, nodes = opened
    nodes.start(site.link("n0"), lambda payload: time.sleep(3 * PULSE.dead) or payload)
    joined(transport)
    transport.send("n0", b"long")
    assert came(transport) == [("n0", b"long")]
    assert site.reasons == []


def test_a_second_process_with_a_key_is_refused_while_the_first_lives(opened, site) -> None:
    transport, nodes = opened
    nodes.start(site.link("n0"), lambda payload: b"first")
    joined(transport)
    nodes.start(site.link("n0"), lambda payload: b"second")
    wait_for("the log", lambda: any("in use by another process" in s for s in site.reasons))
    wait_for("its own", lambda: any("in use by another process" in s for s in nodes.said))
    transport.send("n0", b"who?")
    assert came(transport) == [("n0", b"first")]


def test_a_silent_connection_gives_way_to_a_newer_one_with_its_key(folder) -> None:
    site = Site(folder, [(0,)], dimension=3, pulse=Pulse(every=50, dead=100, probe=0.3))
    with site.transport() as transport, Nodes() as nodes:
        Raw(site, nodes, "n0")  # it answers no ping
        joined(transport)
        transport.send("n0", b"lost")
        nodes.start(site.link("n0"), lambda payload: b"second")
        found: list[Any] = []
        wait_for("both", lambda: found.extend(transport.receive(0.05)) or len(found) >= 2)
        lost = Lost("it was silent, and a newer connection came")
        assert found == [("n0", lost), ("n0", Joined())]
        transport.send("n0", b"who?")
        assert came(transport) == [("n0", b"second")]


@quick
def test_a_node_without_a_sign_of_life_is_cut_off(opened, site) -> None:
    transport, nodes = opened
    silent = Raw(site, nodes, "n0")
    joined(transport)
    assert silent.end() == (grpc.StatusCode.DEADLINE_EXCEEDED, "no sign of life for 1 s")
    assert transport.nodes() == []


STOPPED = """
import asyncio, pathlib, sys
from fegsam.federation.credentials import Tls
from fegsam.federation.grpc.channel import Pulse
from concurrent.futures import ThreadPoolExecutor
from fegsam.federation.grpc.node import Link, stay_connected
place = pathlib.Path({place!r})
link = Link("n0", {server!r}, Tls(place / "files/ca.pem", place / "n0/node.pem", place /
            "n0/node.key"), 10_000, Pulse(0.2, 1.0, 0.5))
asyncio.run(stay_connected(link, lambda payload: payload, ThreadPoolExecutor(1), print))
"""


@quick
def test_a_stopped_process_is_noticed_and_comes_back_when_it_goes_on(opened, site) -> None:
    transport, _ = opened
    with processes.started(STOPPED.format(place=str(site.folder), server=site.address)) as node:
        joined(transport)
        node.send_signal(signal.SIGSTOP)
        wait_for("that it is gone", lambda: not transport.nodes(), 10.0)
        node.send_signal(signal.SIGCONT)
        joined(transport)
        transport.send("n0", b"back?")
        assert came(transport) == [("n0", b"back?")]


def test_a_killed_process_is_noticed_at_once(opened, site) -> None:
    transport, _ = opened
    with processes.started(STOPPED.format(place=str(site.folder), server=site.address)) as node:
        joined(transport)
        os.kill(node.pid, signal.SIGSTOP)
        transport.send("n0", b"work")
        time.sleep(0.1)
        os.kill(node.pid, signal.SIGKILL)
        assert came(transport, 0.5) == [("n0", Lost("the connection was lost"))]


def test_a_payload_larger_than_the_terms_allow_ends_the_connection(opened, site) -> None:
    """At first what a hello may take, then what a reply may; beyond that the log names the node."""
    transport, nodes = opened
    raw = Raw(site, nodes, "n0")
    joined(transport)
    assert raw.hear() == PING  # from now on, the gate lets more than a handshake pass
    for most in (first_bound(1), most_bytes(1, 3)):
        transport.send("n0", b"request")
        raw.say(PAYLOAD + bytes(most))
        assert came(transport) == [("n0", bytes(most))]
    transport.send("n0", b"request")
    raw.say(PAYLOAD + bytes(most_bytes(1, 3) + 1))
    assert raw.end()[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    (lost,) = came(transport)
    assert f"a payload of {most_bytes(1, 3) + 2} bytes" in lost[1].reason
    assert site.refusals[-1][2] == {"node": "n0"}


def test_a_payload_that_fits_no_node_is_not_even_read(opened, site) -> None:
    transport, nodes = opened
    raw = Raw(site, nodes, "n0")
    joined(transport)
    assert raw.hear() == PING  # from now on, the gate lets more than a handshake pass
    transport.send("n0", b"request")
    raw.say(PAYLOAD + bytes(1_000_000))
    assert raw.end()[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    (lost,) = came(transport)
    assert isinstance(lost[1], Lost)


def test_payloads_that_nobody_asked_for_end_the_connection(opened, site) -> None:
    transport, nodes = opened
    raw = Raw(site, nodes, "n0")
    joined(transport)
    for number in range(3):
        raw.say(PAYLOAD + bytes([number]))
    assert raw.end() == (grpc.StatusCode.FAILED_PRECONDITION, "payloads that nobody asked for")
    assert came(transport, 1.0, 3) == [("n0", b"\0"), ("n0", b"\1")]
    assert ("127.0.0.1", "payloads that nobody asked for", {"node": "n0"}) in site.refusals


@pytest.mark.parametrize("frame", [b"", b"\7", PONG + b"more", b"\1"])
def test_a_frame_of_no_known_kind_ends_the_connection(opened, site, frame) -> None:
    transport, nodes = opened
    raw = Raw(site, nodes, "n0")
    joined(transport)
    raw.say(frame)
    assert raw.end() == (grpc.StatusCode.INVALID_ARGUMENT, "a frame of no known kind")


def test_nodes_end_with_the_federation_also_those_that_come_late(opened, site) -> None:
    transport, nodes = opened
    first = nodes.start(site.link("n0"), bytes)
    joined(transport)
    late: list[Any] = []
    timer = threading.Timer(0.5, lambda: late.append(nodes.start(site.link("n1"), bytes)))
    timer.start()
    transport.finish(linger=30.0)
    for end in (first, *late):
        end.result(10)
    ends = [said for said in nodes.said if "ended" in said]
    assert sorted(ends) == ["n0: the federation has ended", "n1: the federation has ended"]


def test_a_node_waits_for_its_server(site) -> None:
    with Nodes() as nodes:
        with site.transport() as transport:
            nodes.start(site.link("n0"), bytes.upper)
            joined(transport)
            wait_for("its log", lambda: any("connected to" in said for said in nodes.said))
        wait_for("its log", lambda: any("the connection was lost" in said for said in nodes.said))
        wait_for("its log", lambda: any("cannot be reached" in said for said in nodes.said))
        with site.transport() as transport:
            joined(transport)
            transport.send("n0", b"there?")
            assert came(transport) == [("n0", b"THERE?")]


def test_a_server_that_falls_silent_is_left(folder) -> None:
    """The server's process is frozen as far as a node can see: a stream that says nothing."""
    site = Site(folder, [(0,)], dimension=3, pulse=Pulse(every=50, dead=100))
    with site.transport() as transport, Nodes() as nodes:
        link = site.link("n0")
        nodes.start(type(link)(link.name, link.server, link.tls, link.most, PULSE), bytes)
        joined(transport)
        wait_for("its log", lambda: any("no sign of life for 1 s" in s for s in nodes.said))
