"""Attacks on a federation over gRPC by those who have a key, and by those who recorded its bytes:
each is refused by name, and the average is that of the honest agents."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cases
from fegsam.cli import main
from fegsam.federation.deployment import load_node, load_server
from fegsam.federation.grpc.channel import Pulse
from fegsam.federation.grpc.node import Link
from fegsam.federation.grpc.server import opened, run_server
from fegsam.federation.hosting import node_of
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.ledger import read_events
from fegsam.federation.protocol.rules import Rules
from fegsam.federation.protocol.sparse_rows import pack_rows
from fegsam.federation.protocol.transport import Joined, Lost
from fegsam.federation.protocol.wire import FROM_NODE, Hello, Reply, decode, encode, most_bytes
from helpers.beyond_terms import BEYOND, agreed, asked, assert_refused, assert_served
from helpers.deployed import write_study
from helpers.grpc_commands import free_port, named
from helpers.grpc_federation import Nodes, Site, serve, wait_for
from helpers.relay import relay

PERIOD, ROUNDS, FIRST = 7, 9, 3
"""The liar begins in round `FIRST`."""


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    case = cases.case("alg4", num_agents=4, differ="both")
    return Experiment(
        case.problem,
        case.algorithm,
        step_size=0.1,
        sync_period=PERIOD,
        num_steps=PERIOD * ROUNDS,
        seed=5,
    )


def averaged(experiment: Experiment, taken: np.ndarray) -> np.ndarray:
    """The final average by a loop of its own, of the agents with ``taken[round, agent]``."""
    agents, average = [experiment.agent(i) for i in range(4)], experiment.start
    for row in taken:
        ends = [agents[i].local_steps(average, PERIOD) for i in np.flatnonzero(row)]
        average = sum(ends) / len(ends)
    return average


def with_params(value: float) -> Callable[[Reply, Reply], Reply]:
    def lie(reply: Reply, _: Reply) -> Reply:
        rows = np.zeros((1, len(cases.case("alg4", num_agents=4, differ="both").start)))
        rows[0, 0] = value
        return dataclasses.replace(reply, params=pack_rows(rows))

    return lie


LIES: dict[str, tuple[str, Callable[[Reply, Reply], Reply]]] = {
    "norm of 1e9": ("change too large", with_params(1e9)),
    "not a number": ("not finite", with_params(np.nan)),
    "a reply of another's agent": (
        "not its agent",
        lambda reply, _: dataclasses.replace(reply, agent=0),
    ),
    "the last round again": ("stale round", lambda _, last: last),
    "the next round": (
        "round not begun",
        lambda reply, _: dataclasses.replace(reply, round=reply.round + 1),
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_liar_with_a_key_is_refused_by_name_and_left_out(folder, experiment, name) -> None:
    reason, lie = LIES[name]
    site = Site(folder, [(0,), (1,), (2,), (3,)], dimension=len(experiment.start))
    last: list[Reply] = []

    def liar(payload: bytes) -> bytes:
        answer = experiment.node([3], folder / "n3" / "state").answer(payload)
        (message,) = decode(answer, FROM_NODE)
        if not isinstance(message, Reply):
            return answer
        last.append(message)
        return answer if message.round < FIRST else encode(lie(message, last[FIRST - 1]))

    events: list[dict] = []
    with site.transport() as transport, Nodes() as nodes:
        for agent in range(3):
            node = experiment.node([agent], folder / f"n{agent}" / "state")
            nodes.start(site.link(f"n{agent}"), node.answer)
        nodes.start(site.link("n3"), liar)
        outcome = serve(site, experiment, transport, Rules(retry_after=0.02), events.append)
        transport.finish()
    refused = [each for each in events if each["event"] == "refused"]
    in_others_name = reason == "not its agent"
    whose = [] if in_others_name else [3]
    assert [(each["reason"], each["node"], each["agents"]) for each in refused] == 3 * [
        (reason, "n3", whose)
    ]
    (quarantined,) = (each for each in events if each["event"] == "quarantined")
    assert (quarantined["node"], quarantined["agents"]) == ("n3", whose)
    assert outcome.left_out == (3,)
    expected = np.ones((ROUNDS, 4), bool)
    expected[FIRST:, 3] = False
    np.testing.assert_array_equal(outcome.participation, expected)
    final = outcome.history.data.final_params.values[0]
    np.testing.assert_allclose(final, averaged(experiment, expected), rtol=0, atol=1e-12)


def test_a_server_with_the_right_key_gets_nothing_beyond_the_terms(folder) -> None:
    experiment = agreed()
    site = Site(folder, [(0,)], dimension=len(experiment.start))
    state = folder / "n0" / "state"
    with site.transport() as transport, Nodes() as nodes:

        def ask(way: str, **changes: Any) -> bytes | Lost:
            transport.send("n0", asked(experiment, **changes))
            came: list[Any] = []
            wait_for(way, lambda: came.extend(transport.receive(0.1)) or came)
            assert came[0][0] == "n0"
            return came[0][1]

        # A node reads no request that is longer than an honest one.
        first = nodes.start(site.link("n0"), experiment.node([0], state).answer)
        wait_for("n0", lambda: ("n0", Joined()) in transport.receive(0.1))
        assert isinstance(ask("every step", **BEYOND["every step"][0]), Lost)
        first.cancel()
        wait_for("its end", lambda: transport.nodes() == [])
        assert not list(state.glob("*/node.jsonl"))

        longer = dataclasses.replace(site.link("n0"), most=1 << 20)
        nodes.start(longer, experiment.node([0], state).answer)
        wait_for("n0", lambda: ("n0", Joined()) in transport.receive(0.1))
        for way, (changes, _) in BEYOND.items():
            assert_refused(experiment, ask(way, **changes), state, way)
        assert_served(ask("an honest request"))


@pytest.mark.parametrize("place", ["first", "last"])
def test_who_claims_all_agents_gets_none_of_the_others(folder, experiment, place) -> None:
    site = Site(folder, [(0,), (1,), (2,), (3,)], dimension=len(experiment.start))
    answers = {
        agent: experiment.node([agent], folder / f"n{agent}" / "state").answer for agent in range(4)
    }

    def greedy(payload: bytes) -> bytes:
        (message,) = decode(answers[3](payload), FROM_NODE)
        if isinstance(message, Hello):
            message = dataclasses.replace(message, agents=(0, 1, 2, 3))
        return encode(message)

    events: list[dict] = []
    with site.transport() as transport, Nodes() as nodes:
        for agent in (3, 0, 1, 2) if place == "first" else (0, 1, 2, 3):
            nodes.start(site.link(f"n{agent}"), greedy if agent == 3 else answers[agent])
            wait_for("its place", lambda name=f"n{agent}": name in transport.nodes())
        outcome = serve(site, experiment, transport, Rules(retry_after=0.02), events.append)
        transport.finish()
    (claim,) = (each for each in events if each["event"] == "claim-refused")
    assert (claim["node"], claim["agents"]) == ("n3", [0, 1, 2])
    assert claim["reason"] == "the node's key may not speak for it"
    assert outcome.participation.all()
    final = outcome.history.data.final_params.values[0]
    expected = averaged(experiment, np.ones((ROUNDS, 4), bool))
    np.testing.assert_allclose(final, expected, rtol=0, atol=1e-12)


def test_a_recorded_stream_gets_nobody_in_and_no_node_obeys_one(folder) -> None:
    pulse = Pulse(every=50, dead=100, probe=0.5)
    site = Site(folder, [(0,), (1,)], dimension=3, pulse=pulse)
    asked: list[bytes] = []
    said, heard = bytearray(), bytearray()

    def answer(payload: bytes) -> bytes:
        asked.append(payload)
        return payload.upper()

    def record(visit: int, by_node: bool, some: bytes) -> bytes:
        if visit == 0:
            (said if by_node else heard).extend(some)
        return some

    with site.transport() as transport:
        with relay(site.port, record) as port, Nodes() as nodes:
            nodes.start(dataclasses.replace(site.link("n0"), server=f"127.0.0.1:{port}"), answer)
            wait_for("n0", lambda: ("n0", Joined()) in transport.receive(0.1))
            transport.send("n0", b"question")
            wait_for("the answer", lambda: ("n0", b"QUESTION") in transport.receive(0.1))
        wait_for("its end", lambda: transport.nodes() == [])
        transport.receive(0.0)
        # All that the node said, to the server.
        replay = socket.create_connection(("127.0.0.1", site.port), timeout=10)
        with replay, contextlib.suppress(OSError):
            replay.sendall(said)
            while replay.recv(4096):
                pass
        wait_for("the log", lambda: "the server ended the handshake" in site.reasons)
        assert (transport.nodes(), transport.receive(0.3)) == ([], [])
    # All that the server said, to the node.
    with socket.create_server(("127.0.0.1", 0)) as false, Nodes() as nodes:
        server = f"127.0.0.1:{false.getsockname()[1]}"
        node = nodes.start(dataclasses.replace(site.link("n0"), server=server), answer)
        visitor, _ = false.accept()
        with visitor:
            visitor.sendall(heard)
            while visitor.recv(65536):
                pass
        assert (asked, node.done()) == ([b"question"], False)


@pytest.mark.parametrize("blame", ["agents", "node"])
def test_who_was_quarantined_is_readmitted_by_a_command(tmp_path, capsys, blame) -> None:
    study, place, output = write_study(tmp_path, rounds=12), tmp_path / "d", tmp_path / "out"
    host = ["--host", "127.0.0.1", "--port", str(free_port()), "--nodes", "2"]
    assert main(["federate", "init", str(place), str(study), *host]) == 0
    side, sides = (
        load_server(place / "server"),
        [load_node(place / f"nodes/node-{i}") for i in (0, 1)],
    )
    side = dataclasses.replace(side, rules=Rules(retry_after=0.02))
    lying = True

    def liar(payload: bytes) -> bytes:
        answer = node_of(sides[1]).answer(payload)
        replies = decode(answer, FROM_NODE)
        if not lying or not isinstance(replies[0], Reply) or replies[0].round < 2:
            return answer
        if blame == "node":
            return encode(dataclasses.replace(replies[0], agent=0))
        return encode(*(dataclasses.replace(reply, params=b"<f8\0") for reply in replies))

    def stop(event: dict) -> None:
        if lying and event["event"] == "round" and event["round"] == 5:
            raise KeyboardInterrupt

    def federate() -> None:
        with opened(side, output) as transport, Nodes() as nodes:
            for each, answer in ((sides[0], node_of(sides[0]).answer), (sides[1], liar)):
                nodes.start(Link(each.name, each.server, each.tls, most_bytes(2, 12)), answer)
            run_server(side, output, transport, on_event=stop)

    with pytest.raises(KeyboardInterrupt):
        federate()
    assert named(output, "round")[-1]["answered"] == 2
    whom = ["--nodes", "node-1"] if blame == "node" else ["--agents", *map(str, sides[1].agents)]
    words = ["federate", "readmit", str(place / "server"), "-o", str(output)]
    assert main(words) == 2
    assert "name the agents (--agents) or the nodes (--nodes)" in capsys.readouterr().err
    assert main([*words, *whom]) == 0
    assert "readmitted: " in capsys.readouterr().out
    lying = False
    federate()
    rounds = {event["round"]: event["answered"] for event in named(output, "round")}
    assert [rounds[number] for number in range(12)] == [4, 4, 2, 2, 2, *7 * [4]]  # the fifth again
    names = [event["event"] for event in read_events(output)]
    assert names.index("quarantined") < names.index("readmitted") < names.index("finished")
    assert named(output, "finished")[0]["left_out"] == []
