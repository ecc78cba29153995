"""Who stays silent, refuses or stands apart is counted and named; an operator may readmit it."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import cases
from fegsam.federation.errors import FederationError, StateError
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.ledger import Ledger, readmit
from fegsam.federation.protocol.server import Rules
from fegsam.federation.protocol.sparse_rows import pack_rows
from fegsam.federation.protocol.state import append_event, log_files
from fegsam.federation.protocol.transport import Lost
from fegsam.federation.protocol.wire import (
    FROM_NODE,
    Failure,
    Reply,
    Trouble,
    decode,
    encode,
)
from helpers.in_memory import InMemory, serve, spread
from helpers.requests import request_of

HOMES = [(0,), (1,), (2,), (3,)]
ROUNDS = 12


@pytest.fixture(scope="module")
def experiment():
    case = cases.case("alg4", num_agents=4, differ="both")
    return Experiment(
        case.problem, case.algorithm, step_size=0.1, sync_period=7, num_steps=7 * ROUNDS, seed=5
    )


def named(events, name):
    return [event for event in events if event["event"] == name]


def silent(node, payload):
    return None if request_of(payload) is not None else node.answer(payload)


def unwilling(node, payload):
    asked = request_of(payload)
    if asked is None:
        return node.answer(payload)
    return encode(Failure(node.fingerprint, asked.round, asked.agents, Trouble.BUSY))


@pytest.mark.parametrize("behave", [silent, unwilling])
def test_who_answers_nothing_is_quarantined_in_the_end(folder, experiment, behave):
    transport = InMemory(spread(experiment, folder, HOMES), {"n3": behave})
    rules = Rules(quorum=3, round_timeout=30, silences=4)
    outcome, events = serve(experiment, transport, folder, rules)
    (event,) = named(events, "quarantined")
    assert (event["agents"], event["reason"]) == ([3], "no answer in 4 rounds")
    assert (outcome.left_out, named(events, "finished")[0]["left_out"]) == ((3,), [3])
    # Four rounds waited for it, and no more.
    assert 4 * 30 <= transport.now < 5 * 30


def test_who_is_away_is_not_counted_as_silent(folder, experiment):
    transport = InMemory(spread(experiment, folder, HOMES))
    transport.away = {"n3"}
    rules = Rules(quorum=3, round_timeout=30, silences=2)

    def watch(event):
        if event["event"] == "round" and event["round"] == 6:
            transport.away = set()

    outcome, events = serve(experiment, transport, folder, rules, watch)
    assert not named(events, "quarantined")
    assert outcome.left_out == ()
    assert outcome.participation[8:, 3].all()


def test_an_operator_readmits_who_was_quarantined(folder, experiment):
    bad = []

    def lying(node, payload):
        answer = node.answer(payload)
        (message,) = decode(answer, FROM_NODE)
        if isinstance(message, Reply) and message.round == 2:
            bad.append(message)
            return b"junk"
        return answer

    def interrupt(event):
        if event["event"] == "round" and event["round"] == 5:
            raise KeyboardInterrupt

    transport = InMemory(spread(experiment, folder, HOMES), {"n3": lying})
    with pytest.raises(KeyboardInterrupt):
        serve(experiment, transport, folder, watch=interrupt)
    assert len(bad) == 3
    terms = experiment.terms()
    with pytest.raises(FederationError, match="there is no agent 4; give agents from 0 to 3"):
        readmit(terms, folder / "server", [4])
    with pytest.raises(FederationError, match="node 'x' has no offences"):
        readmit(terms, folder / "server", nodes=["x"])
    with pytest.raises(FederationError, match="has no checkpoint"):
        readmit(terms, folder / "nothing", [3])
    readmit(terms, folder / "server", [3])
    outcome, _ = serve(experiment, transport, folder)
    assert outcome.left_out == ()
    assert not outcome.participation[2:5, 3].any()
    assert outcome.participation[6:, 3].all()


def test_an_outlier_is_logged_once_and_not_refused(folder, experiment):
    def apart(node, payload):
        (message,) = decode(node.answer(payload), FROM_NODE)
        if isinstance(message, Reply) and message.round in (3, 4):
            lie = pack_rows(np.full((1, len(experiment.start)), 0.005))
            message = dataclasses.replace(message, params=lie)
        return encode(message)

    case = cases.case("alg4", num_agents=40)
    many = Experiment(
        case.problem, case.algorithm, step_size=0.001, sync_period=7, num_steps=77, seed=5
    )
    nodes = spread(many, folder, [(i,) for i in range(40)])
    outcome, events = serve(many, InMemory(nodes, {"n5": apart}), folder)
    (found,) = named(events, "outlier")
    assert (found["round"], found["agents"]) == (3, [5])
    assert found["distance"] > 10 * found["median"]
    assert not named(events, "refused")
    state = Ledger(many.terms(), folder / "server").load()
    assert (state.distances > 0).all()
    assert outcome.left_out == ()


def test_a_log_is_rotated_and_read_as_one(folder, monkeypatch):
    monkeypatch.setattr("fegsam.federation.protocol.state.LONGEST_LOG", 1000)
    path = folder / "events.jsonl"
    for number in range(100):
        append_event(path, {"event": "round", "round": number})
    assert sum(file.stat().st_size for file in log_files(path)) < 2500
    lines = [json.loads(line) for file in log_files(path) for line in file.open()]
    assert [line["round"] for line in lines][-20:] == list(range(80, 100))


def test_what_a_peer_says_never_reaches_a_terminal_as_it_is(folder, experiment):
    def dying(node, payload):
        if request_of(payload) is None:
            return node.answer(payload)
        del transport.behaviours["n0"]
        return Lost("\x1b]0;title\x07\n\u202e" + 1000 * "x")

    transport = InMemory(spread(experiment, folder, HOMES), {"n0": dying})
    _, events = serve(experiment, transport, folder)
    (event,) = named(events, "lost")
    assert event["reason"].isprintable()
    assert len(event["reason"]) == 300


def full(*_, **__):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("what", ["save", "event", "note_answers"])
def test_a_full_disk_of_the_server_is_one_sentence_and_it_resumes(
    folder, experiment, monkeypatch, what
):
    transport = InMemory(spread(experiment, folder, HOMES))
    rounds = []

    def fill(event):
        if event["event"] == "round":
            rounds.append(event)
        if len(rounds) == 4:
            monkeypatch.setattr(
                {
                    "save": "fegsam.federation.protocol.state.whole",
                    "event": "fegsam.federation.protocol.ledger.append_event",
                    "note_answers": "os.fsync",
                }[what],
                full,
            )

    with pytest.raises(
        StateError, match=r"cannot be written \(No space left on device\); make room"
    ):
        serve(experiment, transport, folder, watch=fill)
    monkeypatch.undo()
    transport.queue.clear()
    outcome, _ = serve(experiment, transport, folder)
    assert outcome.participation.all()


def test_a_full_disk_of_a_node_loses_nothing(folder, experiment, monkeypatch):
    transport = InMemory(spread(experiment, folder, HOMES))
    failed = []

    def fill(event):
        if event["event"] == "round" and event["round"] == 3:
            for name in ("ledger.write_sealed", "ledger.append_event"):
                monkeypatch.setattr(f"fegsam.federation.protocol.{name}", lambda *_, **__: None)
            monkeypatch.setattr("fegsam.federation.protocol.state.whole", full)
            monkeypatch.setattr("os.fdatasync", full)
        if event["event"] == "failed":
            failed.append(event["reason"])
            monkeypatch.undo()

    undisturbed, _ = serve(
        experiment, InMemory(spread(experiment, folder / "a", HOMES)), folder / "a"
    )
    outcome, _ = serve(experiment, transport, folder, watch=fill)
    assert set(failed) == {"state unusable"}
    np.testing.assert_array_equal(
        outcome.history.data.final_params, undisturbed.history.data.final_params
    )
