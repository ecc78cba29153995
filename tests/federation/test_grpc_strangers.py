"""Strangers at the port of a server over gRPC: each is turned away and logged, and those who belong
to the federation are served all the while."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import shutil
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

from fegsam.errors import ProblemError
from fegsam.federation import credentials
from fegsam.federation.credentials import Tls, make_authority, make_node, private_directory
from fegsam.federation.grpc.channel import METHOD, Pulse
from fegsam.federation.grpc.diagnosis import diagnose
from fegsam.federation.grpc.gate import StrangerLimits
from fegsam.federation.grpc.listener import open_port
from fegsam.federation.grpc.transport import GrpcTransport
from fegsam.federation.protocol.transport import Joined
from helpers.grpc_federation import Nodes, Site, wait_for

LIMITS = StrangerLimits(patience=1.0, grace=0.3, strangers=60, strangers_per_address=40)
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The beginning of a TLS handshake."""


@pytest.fixture
def site(folder) -> Site:
    pulse = Pulse(every=0.5, dead=5.0, probe=0.3)
    return Site(folder, [(0,), (1,)], dimension=3, pulse=pulse, limits=LIMITS)


@pytest.fixture
def opened(site) -> Iterator[tuple[GrpcTransport, Nodes]]:
    """A server with one node that echoes."""
    with site.transport() as transport, Nodes() as nodes:
        nodes.start(site.link("n0"), lambda payload: payload)
        wait_for("n0", lambda: transport.nodes() == ["n0"])
        assert transport.receive(5.0) == [("n0", Joined())]
        yield transport, nodes


def assert_served(transport: GrpcTransport, name: str = "n0", within: float = 5.0) -> None:
    """The node answers in time."""
    token = os.urandom(8)
    began = time.monotonic()
    transport.receive(0.0)
    transport.send(name, token)
    while time.monotonic() - began < within:
        if (name, token) in transport.receive(0.1):
            return
    raise AssertionError(f"{name} did not answer within {within} s")


def connect(site: Site) -> socket.socket:
    return socket.create_connection((site.host, site.port), timeout=10)


def ended(connection: socket.socket) -> bool:
    """Whether the other side has ended a connection."""
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not TLS"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "not TLS"),
        (os.urandom(1000).replace(b"\x16", b"x"), "not TLS"),
        (HELLO, "no handshake within 1 seconds"),
        (b"", "no handshake within 1 seconds"),
        (HELLO + bytes(70_000), "more than 65536 bytes before it was admitted"),
        (b"\x16\x03\x01\x00\x05junk!" * 3, "the server ended the handshake"),
    ],
)
def test_what_is_no_handshake_is_ended_and_logged(opened, site, said, reason) -> None:
    transport, _ = opened
    with connect(site) as stranger:
        with contextlib.suppress(OSError):
            stranger.sendall(said)
        assert ended(stranger)
    wait_for("a line in the log", lambda: reason in site.reasons)
    assert site.refusals[-1][0] == "127.0.0.1"
    assert_served(transport)


def test_a_slow_sender_is_ended_however_long_it_goes_on(opened, site) -> None:
    transport, _ = opened
    began = time.monotonic()
    with connect(site) as stranger, contextlib.suppress(OSError):
        for byte in HELLO * 100:
            stranger.sendall(bytes([byte]))
            time.sleep(0.05)
    assert time.monotonic() - began < 4
    wait_for("a line in the log", lambda: "no handshake within 1 seconds" in site.reasons)
    assert_served(transport)


def test_half_open_handshakes_keep_nobody_out(opened, site) -> None:
    """Five times as many as may be there at once, from the address that the nodes have, too."""
    transport, nodes = opened
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stranger = stack.enter_context(connect(site))
            with contextlib.suppress(OSError):
                stranger.sendall(HELLO)
        assert_served(transport)
        began = time.monotonic()
        nodes.start(site.link("n1"), lambda payload: payload)
        # What is sent to a node before its arrival has been read is lost.
        wait_for("n1", lambda: ("n1", Joined()) in transport.receive(0.1), 5.0)
        assert_served(transport, "n1")
        assert time.monotonic() - began < 5
    wait_for("the log", lambda: "too many connections without a handshake" in site.reasons)


def foreign(folder: pathlib.Path) -> Tls:
    """A node's credentials of another authority."""
    authority = make_authority(private_directory(folder / "foreign"))
    place = private_directory(folder / "foreign" / "n0")
    make_node(place, place / "n0.pub", authority)
    return Tls(folder / "foreign" / "ca.pem", place / "node.pem", place / "node.key")


def test_a_node_of_another_authority_is_refused(opened, site, folder) -> None:
    transport, nodes = opened
    other = foreign(folder)
    nodes.start(site.link("n1", Tls(site.tls.authority, other.certificate, other.key)), bytes)
    wait_for("the log", lambda: "the server ended the handshake" in site.reasons)
    wait_for("its own", lambda: any("refuses this node's certificate" in s for s in nodes.said))
    assert transport.nodes() == ["n0"]


def test_a_server_of_another_authority_is_refused(opened, site, folder) -> None:
    transport, nodes = opened
    tls = site.tls_of("n1")
    nodes.start(site.link("n1", Tls(foreign(folder).authority, tls.certificate, tls.key)), bytes)
    wait_for("its log", lambda: any("not of this federation" in said for said in nodes.said))
    assert transport.nodes() == ["n0"]


def test_a_peer_without_a_certificate_is_refused(opened, site) -> None:
    transport, nodes = opened

    async def call() -> Any:
        shown = grpc.ssl_channel_credentials(site.tls.authority.read_bytes())
        async with grpc.aio.secure_channel(site.address, shown) as channel:
            return await channel.stream_stream(METHOD)().read()

    with pytest.raises(grpc.aio.AioRpcError):
        nodes.call(call())
    wait_for("the log", lambda: "the server ended the handshake" in site.reasons)
    assert_served(transport)


def test_a_key_that_the_server_does_not_list_is_refused(opened, site, folder) -> None:
    transport, nodes = opened
    place = private_directory(folder / "unlisted")
    make_node(place, place / "unlisted.pub", site.authority)
    nodes.start(
        site.link("n1", Tls(site.tls.authority, place / "node.pem", place / "node.key")), bytes
    )
    wait_for("the log", lambda: any("is not among the server's" in s for s in site.reasons))
    wait_for("its own", lambda: any("is not among the server's" in s for s in nodes.said))
    assert transport.nodes() == ["n0"]


def test_a_key_that_is_deleted_is_cut_off_at_once_and_stays_out(opened, site) -> None:
    transport, _ = opened
    (site.keys / "n0.pub").unlink()
    wait_for("its end", lambda: transport.nodes() == [], 3.0)
    assert "its key was revoked" in site.reasons
    wait_for("its return", lambda: any("is not among" in reason for reason in site.reasons))
    assert transport.nodes() == []


def test_a_nodes_certificate_is_not_a_servers_nor_a_servers_a_nodes(opened, site) -> None:
    transport, nodes = opened
    tls = site.tls_of("n1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    context.set_alpn_protocols(["h2"])
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def pose() -> None:
            with contextlib.suppress(OSError):
                context.wrap_socket(listening.accept()[0], server_side=True)

        threading.Thread(target=pose, daemon=True).start()
        said = diagnose("127.0.0.1", listening.getsockname()[1], tls)
        assert "shows a certificate that is not a server's" in said
    nodes.start(site.link("n1", site.tls), bytes)
    wait_for("the log", lambda: "the server ended the handshake" in site.reasons)
    assert transport.nodes() == ["n0"]


def test_tls_1_2_is_refused(opened, site) -> None:
    tls = site.tls_of("n1")
    context = ssl.create_default_context(cafile=str(tls.authority))
    context.load_cert_chain(tls.certificate, tls.key)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    with context.wrap_socket(connect(site), server_hostname="127.0.0.1") as stranger:
        assert stranger.version() == "TLSv1.2"
        stranger.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b""))
        fields = {
            ":method": "POST", ":scheme": "https", ":path": METHOD, ":authority": "x",
            "te": "trailers", "content-type": "application/grpc",
        }  # fmt: skip
        block = b"".join(_literal(*each) for each in fields.items())
        stranger.sendall(_frame(1, 4, 1, block))
        assert ended(stranger)
    assert "the connection is not TLS 1.3" in site.reasons


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def _literal(name: str, value: str) -> bytes:
    """A header of HTTP/2 without compression."""
    return b"\0" + b"".join(bytes([len(part)]) + part.encode() for part in (name, value))


def aged(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """Certificates are made as they would have been some days from now."""

    class Then(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime.datetime:
            return datetime.datetime.now(tz) + datetime.timedelta(days=days)

    module = type("datetime", (), {"datetime": Then, "timedelta": datetime.timedelta})
    module.UTC = datetime.UTC
    monkeypatch.setattr(credentials, "datetime", module)


@pytest.mark.parametrize(
    ("days", "said"), [(-900, "expired on"), (2, "is valid from"), (11 / 1440, "is valid from")]
)
def test_a_certificate_that_is_not_valid_now_is_named_with_the_clock(
    site, folder, monkeypatch, days, said
) -> None:
    with monkeypatch.context() as patch:
        aged(patch, days)
        place = private_directory(folder / "aged")
        make_node(place, site.keys / "aged.pub", site.authority)
        credentials.make_server(private_directory(folder / "old"), ["127.0.0.1"], site.authority)
    tls = Tls(site.tls.authority, place / "node.pem", place / "node.key")
    with pytest.raises(ProblemError, match=f"node.pem.* {said} .*this machine's clock says"):
        tls.read()
    for name in ("server.pem", "server.key"):
        shutil.copy(folder / "old" / name, site.server / name)
    with pytest.raises(ProblemError, match=f"server.pem.* {said} "), site.transport():
        pass


def test_a_clock_may_differ_by_ten_minutes(site, folder, monkeypatch) -> None:
    place = private_directory(folder / "ahead")
    with monkeypatch.context() as patch:
        aged(patch, 9 / 1440)
        (site.keys / "n1.pub").unlink()
        make_node(place, site.keys / "n1.pub", site.authority)
    with site.transport() as transport, Nodes() as nodes:
        nodes.start(
            site.link("n1", Tls(site.tls.authority, place / "node.pem", place / "node.key")), bytes
        )
        wait_for("n1", lambda: transport.nodes() == ["n1"])


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (-900, "has expired by this machine's clock (20"),
        (2, "is not yet valid by this machine's clock (20"),
    ],
)
def test_a_node_says_that_its_clock_and_the_servers_differ(
    site, folder, monkeypatch, days, said
) -> None:
    """The server's clock is far ahead or behind, and its certificate is valid by that clock."""
    with contextlib.ExitStack() as stack:
        with monkeypatch.context() as patch:
            aged(patch, days)
            old = private_directory(folder / "old")
            credentials.make_server(old, ["127.0.0.1"], site.authority)
            for name in ("server.pem", "server.key"):
                shutil.copy(old / name, site.server / name)
            transport = stack.enter_context(site.transport())
        nodes = stack.enter_context(Nodes())
        nodes.start(site.link("n0"), bytes)
        wait_for("the reason", lambda: nodes.said)
        (reason,) = nodes.said
        assert reason.startswith(f"n0: the certificate of the server {site.address} {said}")
        assert "set the clock" in reason
        assert transport.nodes() == []


def test_a_key_that_others_can_read_is_refused(site) -> None:
    site.tls_of("n0").key.chmod(0o644)
    with pytest.raises(ProblemError, match=r"can be read by other users \(mode 644\)"):
        site.tls_of("n0").read()


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ProblemError, match=f"cannot listen on 127.0.0.1:{port}"):
            open_port("127.0.0.1", port)


def test_a_gate_that_is_killed_is_started_again_and_nodes_come_back(opened, site) -> None:
    transport, _ = opened
    os.kill(transport.gate, 9)
    wait_for("the log", lambda: "the gate died and was started again" in site.reasons)
    wait_for("n0", lambda: transport.nodes() == ["n0"])
    wait_for("word of it", lambda: ("n0", Joined()) in transport.receive(0.1))
    assert_served(transport)
