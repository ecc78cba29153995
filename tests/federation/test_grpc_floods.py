"""Floods at the port of a server over gRPC, which has few descriptors: nodes are served all the
while, new ones get in, the server can open files, and memory stays."""

from __future__ import annotations

import contextlib
import json
import pathlib
import resource
import socket
import threading
import time
from collections.abc import Callable

import pytest

from helpers import processes

pytestmark = pytest.mark.slow

SECONDS = 20
SERVER = """
import json, os, pathlib, resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, {most}))
from helpers.grpc_federation import Nodes, Site, wait_for
place = pathlib.Path({place!r})
site = Site(place, [(0,), (1,)], dimension=3)
with site.transport() as transport, Nodes() as nodes:
    nodes.start(site.link("n0"), lambda payload: payload)
    wait_for("n0", lambda: transport.receive(0.1))
    print(site.port, transport.gate, flush=True)
    worst, begun, joined = 0.0, time.monotonic(), None
    while time.monotonic() - begun < {seconds}:
        asked, token = time.monotonic(), os.urandom(8)
        transport.send("n0", token)
        while ("n0", token) not in transport.receive(1.0):
            assert time.monotonic() - asked < 30
        worst = max(worst, time.monotonic() - asked)
        (place / "checkpoint").write_bytes(token)
        time.sleep(0.02)
        if joined is None and time.monotonic() - begun > {seconds} / 2:
            joined = time.monotonic()
            nodes.start(site.link("n1"), lambda payload: payload)
            wait_for("n1", lambda: "n1" in transport.nodes())
            joined = time.monotonic() - joined
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([worst, joined, peak, site.refusals]), flush=True)
"""


def under(flood: Callable[[int], None], folder: pathlib.Path, most: int = 1024) -> list[str]:
    """Serve during a flood of a port, with 1024 descriptors, or up to `most` if the server asks;
    the reasons in the log of strangers."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    code = SERVER.format(place=str(folder), seconds=SECONDS, most=most)
    with processes.started(code) as server:
        assert server.stdout is not None
        port, gate = map(int, server.stdout.readline().split())
        before = memory(gate)
        attack = threading.Thread(target=flood, args=(port,), daemon=True)
        attack.start()
        peak = before
        while server.poll() is None and attack.is_alive():
            peak = max(peak, memory(gate))
            time.sleep(0.1)
        out, _ = processes.finish(server)
    worst, joined, _, refusals = json.loads(out)
    print(f"worst {worst:.2f} s, join {joined:.2f} s, gate {before >> 20} to {peak >> 20} MiB")
    assert worst < 5
    assert joined < 5
    assert peak - before < 200 << 20
    return [reason for _, reason, _ in refusals]


def memory(process: int) -> int:
    """The bytes of a process in memory."""
    with contextlib.suppress(OSError, IndexError):
        fields = pathlib.Path(f"/proc/{process}/statm").read_text().split()
        return int(fields[1]) * resource.getpagesize()
    return 0


def keep(port: int, count: int, said: bytes, addresses: int = 1) -> None:
    """Open connections from some addresses, say something, and hold them."""
    held: list[socket.socket] = []
    deadline = time.monotonic() + SECONDS - 2
    while time.monotonic() < deadline:
        while len(held) < count and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                source = f"127.0.0.{1 + len(held) % addresses}", 0
                connection = socket.create_connection(("127.0.0.1", port), 2, source)
                connection.sendall(said)
                held.append(connection)
        time.sleep(0.5)
    for connection in held:
        connection.close()


def test_1100_bare_connections_under_1024_descriptors(folder) -> None:
    reasons = under(lambda port: keep(port, 1100, b""), folder)
    assert any("too many connections" in reason for reason in reasons)


def test_4096_half_open_handshakes(folder) -> None:
    reasons = under(lambda port: keep(port, 4096, b"\x16\x03\x01\x02\x00\x01\x00\x01"), folder)
    assert any("too many connections" in reason for reason in reasons)


def test_half_open_handshakes_from_many_addresses(folder) -> None:
    """As many as may wait at once are more than the descriptors that the server began with."""
    half = b"\x16\x03\x01\x02\x00\x01\x00\x01"
    reasons = under(lambda port: keep(port, 2000, half, addresses=16), folder, most=4096)
    assert any("too many connections" in reason for reason in reasons)


def test_six_times_200_megabytes_before_authentication(folder) -> None:
    def send(port: int) -> None:
        for _ in range(6):
            connection = socket.create_connection(("127.0.0.1", port), timeout=5)
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"\x16\x03\x01\x40\x00")
                for _ in range(200):
                    connection.sendall(bytes(1 << 20))

    reasons = under(send, folder)
    assert any("more than 65536 bytes" in reason for reason in reasons)


def test_connections_as_fast_as_they_can_be_made(folder) -> None:
    def storm(port: int) -> None:
        deadline = time.monotonic() + SECONDS - 2
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=2).close()

    reasons = under(storm, folder)
    assert "it left before it was admitted" in reasons
    assert len(reasons) < 3 * SECONDS, "one line a second for each address and reason"
