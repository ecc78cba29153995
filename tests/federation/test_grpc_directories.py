"""The directories and commands of a federation over gRPC: credentials, renewal, revocation, and the
page of its state."""

from __future__ import annotations

import contextlib
import http.client
import io
import pathlib
import textwrap
import threading
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

import fegsam as fg
from fegsam.cli import main
from fegsam.federation.board import Board, EventSummary
from fegsam.federation.credentials import key_id, listed_key, load_certificate
from fegsam.federation.deployment import load_node, load_server
from fegsam.federation.founding import Entrance, init
from fegsam.federation.grpc.channel import Pulse
from fegsam.federation.grpc.keys import KeyBook
from fegsam.federation.grpc.listener import addresses, open_port
from fegsam.federation.grpc.node import Link
from fegsam.federation.grpc.transport import GrpcTransport, Hall
from fegsam.federation.protocol.state import append_event
from fegsam.federation.protocol.transport import Joined
from fegsam.federation.status_page import page, status_server
from helpers import processes
from helpers.deployed import write_study
from helpers.grpc_federation import Nodes, wait_for

STARTED = {"event": "started", "clock": 0.0, "round": 0, "rounds": 3, "agents": 2}
ROUND = {
    "event": "round", "clock": 1.0, "round": 0, "time": 50, "asked": 2, "answered": 1,
    "missing": [1], "squared_error": 0.25, "seconds": 0.008, "bytes_up": 10, "bytes_down": 20,
}  # fmt: skip


@pytest.fixture
def place(tmp_path) -> pathlib.Path:
    entrance = Entrance(["hub.example.org", "::1"], 8000)
    init(tmp_path / "fed", write_study(tmp_path), entrance, num_nodes=2)
    return tmp_path / "fed"


def uses(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_each_key_is_small_private_and_for_one_purpose(place) -> None:
    authority = load_certificate(place / "server" / "ca.pem")
    server = load_certificate(place / "server" / "server.pem")
    nodes = [load_certificate(place / "nodes" / f"node-{i}" / "node.pem") for i in range(2)]
    for certificate in (server, *nodes):
        certificate.verify_directly_issued_by(authority)
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"
    assert uses(server) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert [uses(node) for node in nodes] == [[ExtendedKeyUsageOID.CLIENT_AUTH]] * 2
    for path in place.rglob("*.key"):
        assert path.stat().st_mode & 0o777 == 0o600
    listed = [listed_key(place / "server" / "nodes" / f"node-{i}.pub") for i in range(2)]
    pems = [(place / "nodes" / f"node-{i}" / "node.pem").read_bytes() for i in range(2)]
    assert [key_id(pem) for pem in pems] == listed


def test_the_directories_say_who_speaks_for_whom(place) -> None:
    side = load_server(place / "server")
    assert (side.transport, side.listen) == ("grpc", ("::", 8000))
    assert side.claims is not None
    assert {node: sorted(side.claims.of(node)) for node in side.claims.nodes} == {
        "node-0": [0, 2],
        "node-1": [1, 3],
    }
    node = load_node(place / "nodes" / "node-1")
    assert (node.transport, node.agents, node.server) == ("grpc", (1, 3), "hub.example.org:8000")


def test_two_names_for_one_key_are_refused(place) -> None:
    keys = place / "server" / "nodes"
    (keys / "other.pub").write_bytes((keys / "node-0.pub").read_bytes())
    with pytest.raises(fg.ProblemError, match=r"other\.pub has the key of node node-0"):
        KeyBook(keys)
    (keys / "other.pub").write_bytes(b"no key")
    with pytest.raises(fg.ProblemError, match=r"other\.pub is not a public key"):
        KeyBook(keys)


def test_renewed_certificates_are_new_and_their_keys_old(place, capsys) -> None:
    files = [place / "server" / "server.pem", *sorted(place.glob("nodes/*/node.pem"))]
    before = [load_certificate(path) for path in files]
    assert main(["federate", "renew", str(place)]) == 0
    said = capsys.readouterr().out
    assert all(str(path) in said for path in files)
    for path, old in zip(files, before, strict=True):
        new = load_certificate(path)
        new.verify_directly_issued_by(load_certificate(place / "server" / "ca.pem"))
        assert new.serial_number != old.serial_number
        assert new.public_key() == old.public_key()
        assert uses(new) == uses(old)
    names = load_certificate(files[0]).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert "hub.example.org" in names.value.get_values_for_type(x509.DNSName)
    (place / "authority" / "ca.key").unlink()
    assert main(["federate", "renew", str(place)]) == 2
    assert "ca.key cannot be read" in capsys.readouterr().err


def test_a_revoked_key_is_gone_and_an_unknown_one_named(place, capsys) -> None:
    words = ["federate", "revoke", str(place / "server")]
    assert main([*words, "node-1", "node-7"]) == 2
    assert "no key of 'node-7'; it has those of: node-0, node-1" in capsys.readouterr().err
    assert main([*words, "node-1"]) == 0
    assert [path.name for path in (place / "server" / "nodes").iterdir()] == ["node-0.pub"]


def test_grpc_needs_no_flower(tmp_path) -> None:
    code = f"""
    import sys
    sys.modules["flwr"] = None  # which makes its import fail
    from fegsam.cli import main
    import fegsam.federation.grpc.local
    words = ["federate", "run", {str(write_study(tmp_path))!r}, "-o", {str(tmp_path / "out")!r}]
    assert main([*words, "--transport", "flower", "--nodes", "1"]) == 2
    words = ["federate", "init", {str(tmp_path / "fed")!r}, {str(tmp_path / "study.toml")!r}]
    assert main([*words, "--host", "::1"]) == 0
    """
    with processes.started(textwrap.dedent(code)) as process:
        _, said = processes.finish(process)
    assert said.endswith("needs Flower; run: pip install 'fegsam[flower]'\n")


def test_a_damaged_list_of_agents_is_named(place, tmp_path, capsys) -> None:
    (place / "server" / "agents.toml").write_text("[agents")
    assert main(["federate", "server", str(place / "server"), "-o", str(tmp_path / "out")]) == 2
    assert "agents.toml" in capsys.readouterr().err


def test_without_keys_a_node_is_who_it_says(folder) -> None:
    sockets = open_port("127.0.0.1", 0)
    ((_, port),) = addresses(sockets)
    hall, refusals = Hall(None, None, ["n0"], 3, lambda name: 1, Pulse()), []
    with (
        GrpcTransport(sockets, hall, lambda *said, **_: refusals.append(said)) as transport,
        Nodes() as nodes,
    ):
        nodes.start(Link("n0", f"127.0.0.1:{port}", None, 10_000), bytes.upper)
        nodes.start(Link("no/name", f"127.0.0.1:{port}", None, 10_000), bytes)
        wait_for("n0", lambda: ("n0", Joined()) in transport.receive(0.1))
        transport.send("n0", b"plain")
        wait_for("the answer", lambda: ("n0", b"PLAIN") in transport.receive(0.1))
        wait_for("the log", lambda: ("127.0.0.1", "it says no name") in refusals)


def test_the_board_shows_a_few_rounds_a_second_and_always_the_last() -> None:
    stream = io.StringIO()
    with Board(stream) as board:
        board.show(STARTED)
        for number in range(500):
            board.show(ROUND | {"round": number})
    lines = stream.getvalue().splitlines()
    assert 2 <= len(lines) <= 6
    assert lines[0].startswith("running: round 1/3")
    assert ", 8 ms a round" in lines[0]
    assert lines[-1].startswith("running: round 500/3")


def test_the_page_shows_rounds_and_events_and_obeys_no_text() -> None:
    events = [
        STARTED,
        ROUND,
        ROUND | {"round": 1, "squared_error": 0.1, "bytes_up": 30},
        {"event": "refused", "clock": 2.0, "reason": "<script>alert(1)</script>\x1b[31m"},
    ]
    text = page(events, "a & b")
    assert "<th>squared error</th>" in text
    assert "<td>50</td><td>1 of 2</td><td>1.00e-01</td><td>0.008</td><td>20</td>" in text
    assert "polyline" in text
    assert "squared error from 2.50e-01 to 1.00e-01" in text
    assert "a &amp; b" in text
    assert "<script" not in text
    assert "\x1b" not in text


def test_where_no_truth_is_known_page_and_board_say_how_far_the_average_moves() -> None:
    blind = ROUND | {"squared_error": None, "moved": 0.5}
    text = page([STARTED, blind, blind | {"round": 1, "moved": 0.25}], "results")
    assert "<th>move of the average</th>" in text
    assert "move of the average from 5.00e-01 to 2.50e-01" in text
    summary = EventSummary()
    summary.take(blind)
    assert "the average moved by 5.000e-01" in summary.line()


def test_the_summary_says_who_is_left_out_and_who_is_back() -> None:
    stream = io.StringIO()
    out = {"event": "quarantined", "clock": 2.0, "node": "node-1"}
    back = {"event": "readmitted", "clock": 3.0, "agents": [7], "nodes": []}
    with Board(stream) as board:
        for event in (
            STARTED,
            ROUND,
            out | {"agents": [7, 3]},
            out | {"agents": []},
            back,
            {"event": "finished", "clock": 4.0, "round": 1, "left_out": [3]},
        ):
            board.show(event)
    last = stream.getvalue().splitlines()[-1]
    assert last.startswith("finished: round 1/3")
    assert last.endswith(", left out: agent 3, node-1")


@contextlib.contextmanager
def served(folder: pathlib.Path):
    with status_server(folder, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def get(port: int, path: str = "/", host: str = "127.0.0.1") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": f"{host}:{port}"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_the_page_is_served_for_its_own_name_alone_and_as_things_stand(tmp_path) -> None:
    append_event(tmp_path / "events.jsonl", STARTED)
    with served(tmp_path) as port:
        assert "no rounds yet" in get(port)[1]
        append_event(tmp_path / "events.jsonl", ROUND)
        for host in ("127.0.0.1", "localhost"):
            status, text = get(port, host=host)
            assert (status, "1 of 2" in text) == (200, True)
        assert get(port, host="evil.example")[0] == 404
        assert get(port, "/events.jsonl")[0] == 404
        append_event(tmp_path / "events.jsonl", {"event": "round", "clock": time.time()})
        assert "polyline" not in get(port)[1]
        with pytest.raises(fg.ProblemError, match="cannot be served on"):
            status_server(tmp_path, "127.0.0.1", port)
