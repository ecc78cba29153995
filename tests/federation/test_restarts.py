"""Whatever dies, and whenever: no sample serves twice, none is skipped, and the numbers are the
undisturbed run's."""

from __future__ import annotations

import json
import multiprocessing
import pathlib

import numpy as np
import pytest

import cases
from fegsam.engines.agent import SeparateAgents
from fegsam.federation.errors import FederationError, StateError
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.ledger import Ledger, read_events
from fegsam.federation.protocol.node import Node
from fegsam.federation.protocol.server import FederationServer, Rules
from fegsam.federation.protocol.sparse_rows import unpack_rows
from fegsam.federation.protocol.state import HeldError, NodeFile, held, read_sealed, write_sealed
from fegsam.federation.protocol.transport import Lost
from fegsam.federation.protocol.wire import (
    FROM_NODE,
    Failure,
    Reply,
    Trouble,
    decode,
)
from helpers.in_memory import InMemory, serve, spread
from helpers.requests import request, request_of, state_files

HOMES = [(0, 1), (2,), (3,)]
PERIOD, STEPS = 7, 66
ROUNDS = -(-STEPS // PERIOD)


class DiedError(Exception):
    """Stands in for the death of a process."""


@pytest.fixture(scope="module")
def experiment():
    case = cases.case("alg3", n=3, num_agents=4, differ="both")
    return Experiment(
        case.problem,
        case.algorithm,
        step_size=0.1,
        sync_period=PERIOD,
        num_steps=STEPS,
        seed=5,
        record_params=True,
    )


@pytest.fixture(scope="module")
def undisturbed(experiment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return serve(experiment, InMemory(spread(experiment, folder, HOMES)), folder)[0].history


def samples(folder, agent):
    """The steps whose samples an agent's computed rounds used, in order, over all nodes it lived
    on."""
    lines = [
        json.loads(line)
        for log in folder.glob("n*/*/node.jsonl")
        for line in log.read_text().splitlines()
    ]
    used = [event for event in lines if event["event"] == "computed" and agent in event["agents"]]
    return [
        step
        for event in sorted(used, key=lambda event: event["clock"])
        for step in range(event["first"], event["last"] + 1)
    ]


def assert_nothing_lost(folder, history, undisturbed, assert_same_bits):
    assert_same_bits(history, undisturbed)
    for agent in range(4):
        assert samples(folder, agent) == list(range(STEPS))


@pytest.mark.parametrize(
    "when", ["before computing", "after computing", "before the state is written"]
)
def test_a_node_that_dies_in_a_round_loses_nothing(
    folder, experiment, undisturbed, assert_same_bits, monkeypatch, when
):
    nodes = spread(experiment, folder, HOMES)
    deaths = []

    def dying(node, payload):
        if request_of(payload) is None or len(deaths) % 2:
            deaths.append("survived")
            return transport.members["n0"].answer(payload)
        deaths.append("died")
        if when == "after computing":
            transport.members["n0"].answer(payload)
        if when == "before the state is written":
            with monkeypatch.context() as patch:
                patch.setattr(NodeFile, "write", lambda *_: (_ for _ in ()).throw(DiedError))
                answer = transport.members["n0"].answer(payload)
            assert all(isinstance(message, Failure) for message in decode(answer, FROM_NODE))
            # What never reached the disk never happened, for the node's log neither.
        # Nothing of the process is left but its files.
        transport.members["n0"] = experiment.node(HOMES[0], folder / "n0")
        return Lost("the node died")

    transport = InMemory(nodes, {"n0": dying})
    outcome, events = serve(experiment, transport, folder)
    assert deaths.count("died") >= ROUNDS // 2
    assert [event["event"] for event in events].count("lost") == deaths.count("died")
    assert_nothing_lost(folder, outcome.history, undisturbed, assert_same_bits)


def test_an_agent_moves_to_another_node_with_its_file(
    folder, experiment, undisturbed, assert_same_bits
):
    nodes = spread(experiment, folder, HOMES)
    transport = InMemory(nodes)

    def move(event):
        if event["event"] == "round" and event["round"] == 4:
            transport.members["n9"] = experiment.node([3], folder / "n9")
            for file in state_files(folder / "n2", experiment.fingerprint):
                file.rename(folder / "n9" / experiment.fingerprint[:16] / file.name)
            del transport.members["n2"]

    outcome, events = serve(experiment, transport, folder, watch=move)
    assert {event["event"] for event in events} >= {"left", "joined"}
    assert_nothing_lost(folder, outcome.history, undisturbed, assert_same_bits)


@pytest.mark.parametrize(
    "point",
    ["before record", "before checkpoint", "after checkpoint", "before event", "while waiting"],
)
@pytest.mark.parametrize("number", [0, 4, ROUNDS - 1])
def test_a_server_that_dies_resumes_at_its_round(
    folder, experiment, undisturbed, assert_same_bits, monkeypatch, point, number
):
    transport = InMemory(spread(experiment, folder, HOMES))
    server = FederationServer(
        experiment.terms(), transport, folder / "server", clock=transport.clock
    )

    closing = {
        "record": lambda label, *_, **__: label == str(min(PERIOD * (number + 1), STEPS)),
        "event": lambda name, **details: name == "round" and details["round"] == number,
        "save": lambda standing: standing.round == number + 1,
    }

    def die_at(method, late=False):
        original = getattr(Ledger, method)

        def dying(self, *arguments, **details):
            if late:
                original(self, *arguments, **details)
            if closing[method](*arguments, **details):
                raise DiedError
            return None if late else original(self, *arguments, **details)

        return dying

    with monkeypatch.context() as patch:
        if point == "while waiting":
            receive = transport.receive
            patch.setattr(
                transport,
                "receive",
                lambda timeout: die() if asked(transport) == number else receive(timeout),
            )
        else:
            method = {"before record": "record", "before event": "event"}.get(point, "save")
            patch.setattr(Ledger, method, die_at(method, late=point == "after checkpoint"))
        with pytest.raises(DiedError):
            server.run()
    # Answers to the dead server never reach the next one.
    transport.queue.clear()
    outcome, events = serve(experiment, transport, folder)
    assert events[0]["event"] == "resumed"
    assert events[0]["round"] == number + (point == "after checkpoint")
    assert outcome.participation.all()
    assert_nothing_lost(folder, outcome.history, undisturbed, assert_same_bits)


def asked(transport):
    """The last round that the server has asked its nodes for; -1 before the first."""
    requests = [request_of(payload) for _, payload in transport.sent]
    return max((each.round for each in requests if each is not None), default=-1)


def die():
    raise DiedError


@pytest.mark.parametrize("reborn", [True, False])
@pytest.mark.parametrize("fate", ["torn", "empty", "lost"])
def test_a_torn_checkpoint_falls_back_to_the_one_before_and_loses_nothing(
    folder, experiment, undisturbed, assert_same_bits, monkeypatch, fate, reborn
):
    transport = InMemory(spread(experiment, folder, HOMES))
    server = FederationServer(
        experiment.terms(), transport, folder / "server", clock=transport.clock
    )
    receive = transport.receive
    with monkeypatch.context() as patch:
        patch.setattr(
            transport,
            "receive",
            lambda timeout: die() if asked(transport) == 5 else receive(timeout),
        )
        with pytest.raises(DiedError):
            server.run()
    transport.queue.clear()
    # The nodes have computed round 5, and the server has lost that round 4 is closed.
    newest = folder / "server" / "checkpoint"
    content = newest.read_bytes()
    newest.write_bytes(content[:-7] if fate == "torn" else b"")
    if fate == "lost":
        newest.unlink()
    if reborn:
        transport.members |= spread(experiment, folder, HOMES)
    outcome, events = serve(experiment, transport, folder)
    assert [event["event"] for event in events[:2]] == ["damaged", "resumed"]
    assert events[1]["round"] == 4
    assert_nothing_lost(folder, outcome.history, undisturbed, assert_same_bits)


def test_answers_to_a_dead_server_are_no_offence_to_the_next(
    folder, experiment, undisturbed, assert_same_bits, monkeypatch
):
    transport = InMemory(spread(experiment, folder, HOMES))
    server = FederationServer(
        experiment.terms(), transport, folder / "server", clock=transport.clock
    )
    receive = transport.receive
    with monkeypatch.context() as patch:
        patch.setattr(
            transport,
            "receive",
            lambda timeout: die() if asked(transport) == 4 else receive(timeout),
        )
        with pytest.raises(DiedError):
            server.run()
    outcome, events = serve(experiment, transport, folder)
    # They come before the nodes have said who lives there, and are asked for again.
    assert {event["node"] for event in events if event["event"] == "refused"} == {"n0", "n1", "n2"}
    assert not [
        event
        for event in events
        if event["event"] == "quarantined" or (event["event"] == "refused" and event["agents"])
    ]
    assert_nothing_lost(folder, outcome.history, undisturbed, assert_same_bits)


def test_a_finished_federation_gives_its_history_again(
    folder, experiment, undisturbed, assert_same_bits
):
    transport = InMemory(spread(experiment, folder, HOMES))
    serve(experiment, transport, folder)
    sent = len(transport.sent)
    again, _ = serve(experiment, transport, folder)
    assert_same_bits(again.history, undisturbed)
    assert len(transport.sent) == sent


def test_a_round_is_delivered_again_and_not_computed_again(folder, experiment):
    node = experiment.node([0], folder)
    output = experiment.terms().output_time
    number = output // PERIOD
    stops = (output % PERIOD, PERIOD)
    assert stops[0] > 0
    asked = request(experiment.fingerprint, number, (0,), stops, np.ones((1, 6)))
    first = node.answer(asked)
    assert experiment.node([0], folder).answer(asked) == node.answer(asked) == first
    (reply,) = decode(first, FROM_NODE)
    assert (reply.round, reply.steps, reply.time) == (number, PERIOD, PERIOD)
    agent, rows = experiment.agent(0), np.empty((2, 6))
    unpack_rows(reply.params, np.ones(6), rows)
    np.testing.assert_array_equal(rows[0], agent.local_steps(np.ones(6), stops[0]))
    np.testing.assert_array_equal(rows[1], agent.local_steps(rows[0], PERIOD - stops[0]))


@pytest.mark.parametrize(("number", "value"), [(3, 2.0), (2, 1.0)])
def test_a_round_whose_samples_are_used_is_not_computed_from_other_parameters(
    folder, experiment, number, value
):
    node = experiment.node([0], folder)
    node.answer(request(experiment.fingerprint, 3, (0,), (7,), np.ones((1, 6))))
    again = node.answer(request(experiment.fingerprint, number, (0,), (7,), np.full((1, 6), value)))
    assert decode(again, FROM_NODE) == [
        Failure(experiment.fingerprint, number, (0,), Trouble.AHEAD)
    ]


@pytest.mark.parametrize("written", [0, 100, 700, 4000])
def test_a_crash_while_a_state_is_written_over_leaves_the_two_before(folder, experiment, written):
    node = experiment.node([0], folder)

    def asked(number):
        return request(experiment.fingerprint, number, (0,), (7,), np.full((1, 6), 1.0 + number))

    answers = [node.answer(asked(number)) for number in range(5)]
    oldest = state_files(folder, experiment.fingerprint)[0]
    before = oldest.read_bytes()
    answers.append(node.answer(asked(5)))
    after = oldest.read_bytes()
    assert len(before) == len(after)
    assert before != after
    oldest.write_bytes(after[:written] + before[written:])
    for number in (3, 4, 5):
        assert experiment.node([0], folder).answer(asked(number)) == answers[number]


@pytest.mark.parametrize("fate", ["lost", "torn", "old"])
def test_no_sample_is_used_twice_where_a_state_is_lost_torn_or_old(
    folder, experiment, undisturbed, assert_same_bits, fate
):
    transport = InMemory(spread(experiment, folder, HOMES))
    copies = {}

    def lose(event):
        files = state_files(folder / "n2", experiment.fingerprint)
        if event["event"] == "round" and event["round"] == 2:
            copies.update({path: path.read_bytes() for path in files})
        if event["event"] == "round" and event["round"] == 4:
            if fate == "torn":
                files[-1].write_bytes(files[-1].read_bytes()[:-5])
            for path in files if fate != "torn" else []:
                path.unlink()
            if fate == "old":
                for path, content in copies.items():
                    path.write_bytes(content)

    outcome, events = serve(experiment, transport, folder, watch=lose)
    assert read_events(folder / "server") == events
    assert_nothing_lost(folder, outcome.history, undisturbed, assert_same_bits)
    log = [json.loads(line) for line in next(folder.glob("n2/*/node.jsonl")).open()]
    steps = {"lost": 5, "torn": 1, "old": 2}[fate] * PERIOD
    assert [event["steps"] for event in log if event["event"] == "skipped"] == [steps]
    assert len([event for event in log if event["event"] == "damaged"]) == (fate == "torn")


def damaged(content):
    yield b""
    yield content[:-1]
    yield content[: len(content) // 2]
    yield content + b"\0"
    for place in range(0, len(content), max(1, len(content) // 97)):
        yield content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]


def test_a_damaged_state_is_named_and_never_used(folder, experiment):
    node = experiment.node([0], folder)
    asked = request(experiment.fingerprint, 0, (0,), (7,), np.zeros((1, 6)))
    node.answer(asked)
    (path,) = state_files(folder, experiment.fingerprint)
    content = path.read_bytes()
    for broken in damaged(content):
        path.write_bytes(broken)
        with pytest.raises(StateError, match="is damaged"):
            read_sealed(path)
    failure = decode(node.answer(asked), FROM_NODE)
    assert failure == [Failure(experiment.fingerprint, 0, (0,), Trouble.STATE)]
    log = (path.parent / "node.jsonl").read_text()
    assert "restore it from a copy" in log


def test_a_state_of_another_experiment_is_named(folder, experiment):
    node = experiment.node([0], folder)
    node.answer(request(experiment.fingerprint, 0, (0,), (7,), np.zeros((1, 6))))
    (path,) = state_files(folder, experiment.fingerprint)
    other = NodeFile(folder / "other", "ab" * 32)
    other.folder.mkdir(parents=True)
    (other.folder / path.name).write_bytes(path.read_bytes())
    with pytest.raises(StateError, match=r"is of experiment .* put the right file there"):
        other.read(print)


def hold(path, ready, done):
    with held(pathlib.Path(path), "the agents of this node"):
        ready.set()
        done.wait(60)


def test_two_processes_never_work_on_one_agent(folder, experiment):
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    file = NodeFile(folder, experiment.fingerprint)
    other = context.Process(target=hold, args=(str(file.folder / ".node.lock"), ready, done))
    other.start()
    try:
        assert ready.wait(60)
        with (
            pytest.raises(HeldError, match=f"Process {other.pid} is at work on the agents of"),
            file.held(),
        ):
            pass
        node = experiment.node([0], folder)
        asked = request(experiment.fingerprint, 0, (0,), (7,), np.zeros((1, 6)))
        assert decode(node.answer(asked), FROM_NODE) == [
            Failure(experiment.fingerprint, 0, (0,), Trouble.BUSY)
        ]
        assert not state_files(folder, experiment.fingerprint)
    finally:
        done.set()
        other.join(60)
    assert isinstance(decode(node.answer(asked), FROM_NODE)[0], Reply)


def test_two_servers_never_work_in_one_directory(folder, experiment):
    transport = InMemory(spread(experiment, folder, HOMES))
    with (
        held(folder / "server" / ".lock", "it"),
        pytest.raises(HeldError, match="a federation's server"),
    ):
        serve(experiment, transport, folder)


def test_a_directory_of_another_experiment_is_refused(folder, experiment):
    serve(experiment, InMemory(spread(experiment, folder, HOMES)), folder)
    other = Experiment(
        experiment.problem, experiment.algorithm, step_size=0.2, sync_period=PERIOD, num_steps=STEPS
    )
    with pytest.raises(StateError, match="holds another experiment's federation"):
        serve(other, InMemory(spread(other, folder / "other", HOMES)), folder)


def test_a_sealed_file_is_whole_or_not_there(folder, monkeypatch):
    path = folder / "file"
    write_sealed(path, {"a": 1}, {"x": np.arange(3.0)})
    monkeypatch.setattr("os.replace", lambda *_: die())
    with pytest.raises(DiedError):
        write_sealed(path, {"a": 2}, {"x": np.zeros(1)})
    header, arrays = read_sealed(path)
    assert header == {"a": 1}
    np.testing.assert_array_equal(arrays["x"], np.arange(3.0))
    assert [file.name for file in folder.iterdir()] == ["file"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_server_gives_up_by_name_and_can_be_started_again(
    folder, experiment, undisturbed, assert_same_bits
):
    transport = InMemory(spread(experiment, folder, HOMES))
    transport.away = {"n2"}
    with pytest.raises(
        FederationError, match=r"Round 0 has 3 replies, and agents \[3\] did not answer for 100 s"
    ):
        serve(experiment, transport, folder, Rules(round_timeout=30, give_up=100))
    names = [event["event"] for event in read_events(folder / "server")]
    assert (names.count("waiting"), names[-1]) == (1, "gave-up")
    transport.away = set()
    outcome, _ = serve(experiment, transport, folder)
    assert_nothing_lost(folder, outcome.history, undisturbed, assert_same_bits)


def test_a_node_without_agents_is_refused(folder, experiment):
    with pytest.raises(FederationError, match="has no agents"):
        Node(experiment.fingerprint, [], SeparateAgents(experiment.agent), folder, 6)
