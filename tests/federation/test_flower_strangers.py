"""Strangers are kept out and logged: at the gate alone, and in front of a running federation."""

from __future__ import annotations

import base64
import contextlib
import datetime
import http.client
import json
import pathlib
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from fegsam.federation.credentials import (
    Tls,
    make_authority,
    make_flower_key,
    make_server,
    private_directory,
)
from fegsam.federation.flower.gate import Gate
from fegsam.federation.flower.processes import program
from fegsam.federation.flower.server import FLOWER_FOLDER
from fegsam.federation.flower.superlink import free_port
from helpers.deployed import write_study
from helpers.flower_commands import (
    FLOWER,
    PATIENCE,
    command,
    named,
    strangers,
    try_to_join,
    wait_for,
)

HEARTBEAT = "/v1/fleet/send-node-heartbeat"


@pytest.fixture
def tls(tmp_path) -> Tls:
    folder = private_directory(tmp_path / "server")
    make_server(folder, ["127.0.0.1"], make_authority(private_directory(tmp_path / "authority")))
    return Tls(folder / "ca.pem", folder / "server.pem", folder / "server.key")


class _Echo(BaseHTTPRequestHandler):
    """Stands in for the SuperLink: sends back what it got."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        heard = json.dumps(
            [
                self.path,
                {name.lower(): value for name, value in self.headers.items()},
                body.decode(),
            ]
        ).encode()
        self.send_response(401 if body == b"unknown" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(heard)))
        self.end_headers()
        self.wfile.write(heard)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def gate(tmp_path, tls) -> Iterator[Gate]:
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    upstream.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    upstream.socket = context.wrap_socket(upstream.socket, server_side=True)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    with Gate(
        "127.0.0.1", 0, ("127.0.0.1", upstream.server_port), tls, tmp_path / "strangers.jsonl"
    ) as opened:
        yield opened
    upstream.shutdown()
    upstream.server_close()


def connect(gate: Gate, tls: Tls) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection(
        "127.0.0.1", gate.port, context=ssl.create_default_context(cafile=tls.authority), timeout=20
    )


def call(
    connection: http.client.HTTPSConnection, path: str, body: bytes = b"x", **headers: str
) -> tuple[int, bytes]:
    connection.request(
        "POST",
        path,
        body=body,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )
    response = connection.getresponse()
    return response.status, response.read()


def test_the_gate_passes_on_calls_of_nodes_with_their_own_headers_alone(gate, tls) -> None:
    connection = connect(gate, tls)
    for moment in ("1", "2"):  # on one connection
        status, content = call(
            connection,
            HEARTBEAT,
            b"beat",
            flwr_timestamp=moment,
            flwr_public_key="a2V5",
            cookie="c=1",
        )
        path, headers, body = json.loads(content)
        assert (status, path, body) == (200, HEARTBEAT, "beat")
        assert headers["flwr-timestamp"] == moment
        assert "cookie" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/fleet/register-node",
        "/v1/runtime/x",
        "/docs",
        HEARTBEAT + "/../x",
    ],
)
def test_the_gate_passes_on_nothing_else(gate, tls, tmp_path, path) -> None:
    status, content = call(connect(gate, tls), path)
    assert status == 404
    assert b"beat" not in content
    (event,) = strangers(tmp_path)
    assert (event["reason"], event["call"]) == ("not a call of nodes", path)


def test_a_recorded_call_is_refused(gate, tls, tmp_path) -> None:
    recorded = {
        "flwr_timestamp": "2026-01-01T00:00:00",
        "flwr_public_key": "a2V5",
        "flwr_signature": "c2ln",
    }
    assert call(connect(gate, tls), HEARTBEAT, **recorded)[0] == 200
    # Another signature of the same moment is as good as the first, and as old.
    for again in (
        recorded,
        recorded | {"flwr_signature": "b3RoZXI="},
        recorded | {"flwr_public_key": "a2V5===="},
    ):
        assert call(connect(gate, tls), HEARTBEAT, **again)[0] == 409
    assert (
        call(connect(gate, tls), HEARTBEAT, **recorded | {"flwr_public_key": "b3RoZXI="})[0] == 200
    )
    assert [event["reason"] for event in strangers(tmp_path)] == ["a call that was made before"] * 3


def test_whom_the_superlink_refuses_is_logged_and_may_try_again(gate, tls, tmp_path) -> None:
    for _ in range(2):
        assert (
            call(
                connect(gate, tls),
                HEARTBEAT,
                b"unknown",
                flwr_timestamp="1",
                flwr_public_key="a2V5",
            )[0]
            == 401
        )
    assert [event["reason"] for event in strangers(tmp_path)] == [
        "the SuperLink refused the call (401)"
    ] * 2


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (f"POST {HEARTBEAT} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (f"POST {HEARTBEAT} HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 411),
        (f"POST {HEARTBEAT} HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (f"POST {HEARTBEAT} HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 411),
        (f"POST {HEARTBEAT} HTTP/1.1\r\nContent-Length: 1\r\nflwr-a: 1\r\nFLWR-A: 2\r\n\r\nx", 400),
        (f"GET {HEARTBEAT} HTTP/1.1\r\n\r\n", 501),
        ("random bytes\r\n\r\n", 400),
    ],
)
def test_requests_that_can_be_read_in_two_ways_are_turned_away(
    gate, tls, tmp_path, request_bytes, status
) -> None:
    context = ssl.create_default_context(cafile=tls.authority)
    plain = socket.create_connection(("127.0.0.1", gate.port), timeout=20)
    with plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
        secure.sendall(request_bytes.encode())
        assert f" {status} ".encode() in secure.recv(1 << 16)
    wait_for("a line in the log", lambda: strangers(tmp_path))


def test_plain_text_and_another_authority_get_no_handshake(gate, tls, tmp_path) -> None:
    with (
        socket.create_connection(("127.0.0.1", gate.port), timeout=20) as plain,
        contextlib.suppress(ConnectionResetError),
    ):
        plain.sendall(b"POST / HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in plain.recv(1000)
    wait_for("the first line", lambda: len(strangers(tmp_path)) == 1)
    other = private_directory(tmp_path / "other")
    make_authority(other)
    with pytest.raises(ssl.SSLCertVerificationError):
        call(connect(gate, Tls(other / "ca.pem", tls.certificate, tls.key)), HEARTBEAT)
    wait_for("the second line", lambda: len(strangers(tmp_path)) == 2)
    assert {event["reason"] for event in strangers(tmp_path)} == {"no TLS handshake"}


@pytest.mark.slow
def test_strangers_stay_out_of_a_federation_that_runs(tmp_path) -> None:
    """No key, an unregistered key, the wrong authority, plain text, a registration played back, an
    operator's command."""
    study, output, place, port = (
        write_study(tmp_path, num_agents=2),
        tmp_path / "out",
        tmp_path / "d",
        free_port(),
    )
    with command(
        "federate",
        "init",
        place,
        study,
        *FLOWER,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        output=output,
    ) as made:
        assert made.wait(PATIENCE) == 0
    other = private_directory(tmp_path / "other")
    make_authority(other)
    make_flower_key(other / "node.key", other / "node.pub")
    trust = ["--root-certificates", str(place / "server" / "ca.pem")]
    attempts = {
        "no key": (trust, "/v1/fleet/register-node"),
        "unregistered key": (
            [*trust, "--auth-supernode-private-key", str(other / "node.key")],
            "/v1/fleet/activate-node",
        ),
        "wrong authority": (["--root-certificates", str(other / "ca.pem")], "no TLS handshake"),
        "plain text": (["--insecure"], "no TLS handshake"),
    }
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            command("federate", "server", place / "server", "-o", output, output=output)
        )
        wait_for("the app", lambda: (output / FLOWER_FOLDER / "run").exists(), server)
        for name, (arguments, said) in attempts.items():
            before = len(strangers(output))
            words = [
                program("flower-supernode"),
                "--superlink",
                f"127.0.0.1:{port}",
                "--max-retries",
                "1",
            ]
            home = tmp_path / name.replace(" ", "-")
            assert try_to_join([*words, "--port", str(free_port()), *arguments], home) != 0, name
            assert any(said in json.dumps(event) for event in strangers(output)[before:]), name

        # node-0 comes in once; played back, even by someone who holds all of that call, it is
        # refused.
        recorded = _activation(place / "nodes" / "node-0" / "node.key")
        assert _send(port, place, *recorded) == 200
        assert _send(port, place, *recorded) == 409
        old = _activation(place / "nodes" / "node-1" / "node.key", age=400.0)
        assert _send(port, place, *old) == 401
        for path in ("/v1/control/register-node", "/v1/control/start-run"):
            assert _send(port, place, path, *recorded[1:]) == 404
        assert [event["reason"] for event in strangers(output)[-4:]] == [
            "a call that was made before",
            "the SuperLink refused the call (401)",
            "not a call of nodes",
            "not a call of nodes",
        ]
        assert named(output, "joined") == []


def _activation(key: pathlib.Path, age: float = 0.0) -> tuple[str, bytes, dict[str, str]]:
    """All of the call with which a node comes in: path, body, headers."""
    private = load_ssh_private_key(key.read_bytes(), None)
    public = public_key_to_bytes(private.public_key())
    moment = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)).isoformat()
    headers = {
        "flwr-public-key": base64.b64encode(public).decode(),
        "flwr-timestamp": moment,
        "flwr-signature": base64.b64encode(sign_message(private, moment.encode())).decode(),
        "content-type": "application/protobuf",
    }
    return (
        "/v1/fleet/activate-node",
        ActivateNodeRequest(public_key=public, heartbeat_interval=30).SerializeToString(),
        headers,
    )


def _send(port: int, place: pathlib.Path, path: str, body: bytes, headers: dict[str, str]) -> int:
    context = ssl.create_default_context(cafile=place / "server" / "ca.pem")
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
    return call(connection, path, body, **headers)[0]
