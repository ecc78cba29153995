"""Agents that are late, away, or lie: the average stays finite and right, and the log names each
event."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

import cases
from fegsam.engines.agent import SeparateAgents
from fegsam.engines.round_draws import draw_participants
from fegsam.federation.errors import FederationError
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.node import Node
from fegsam.federation.protocol.server import Rules
from fegsam.federation.protocol.sparse_rows import pack_rows
from fegsam.federation.protocol.transport import Lost
from fegsam.federation.protocol.wire import (
    FROM_NODE,
    Failure,
    Hello,
    Reply,
    Request,
    Trouble,
    decode,
    encode,
)
from helpers.frames import body_of, sealed
from helpers.in_memory import InMemory, serve, spread
from helpers.requests import request, request_of, state_files

HOMES = [(0,), (1,), (2,), (3,)]
PERIOD, STEPS = 7, 66
ROUNDS = -(-STEPS // PERIOD)
DIMENSION = len(cases.case("alg4", num_agents=4, differ="both").start)


@pytest.fixture(scope="module")
def experiment():
    case = cases.case("alg4", num_agents=4, differ="both")
    return Experiment(
        case.problem, case.algorithm, step_size=0.1, sync_period=PERIOD, num_steps=STEPS, seed=5
    )


def averaged(experiment, taken):
    """The final average by a loop of its own, where only agents with ``taken[round, agent]`` go
    into each round."""
    agents = [experiment.agent(i) for i in range(4)]
    average = experiment.start
    for number, row in enumerate(taken):
        count = min(PERIOD, STEPS - number * PERIOD)
        average = (
            sum(agents[i].local_steps(average, count) for i in np.flatnonzero(row)) / row.sum()
        )
    return average


def lying(change, rounds=range(1000)):
    """A node whose replies in some rounds are changed."""

    def behave(node, payload):
        answer = node.answer(payload)
        (message,) = decode(answer, FROM_NODE)
        if not isinstance(message, Reply) or message.round not in rounds:
            return answer
        return change(message)

    return behave


def reply_with(**values):
    return lambda reply: encode(
        dataclasses.replace(reply, **{name: value(reply) for name, value in values.items()})
    )


def of_shape(*shape):
    return reply_with(params=lambda _: pack_rows(np.zeros(shape)))


def spoiled(value):
    rows = np.zeros((1, DIMENSION))
    rows[-1, 0] = value
    return reply_with(params=lambda _: pack_rows(rows))


def as_float32(reply):
    """An honest reply but for its numbers, which are of another type, sealed again."""
    return sealed(body_of(reply).replace(b"<f8\0", b"<f4\0"))


LIES = {
    "not finite": [spoiled(np.nan), spoiled(np.inf), spoiled(-np.inf)],
    "change too large": [spoiled(1e200), spoiled(2e9), spoiled(20.0)],
    "wrong shape": [
        of_shape(1, DIMENSION - 1),
        of_shape(0, DIMENSION),
        of_shape(3, DIMENSION),
    ],
    "stale round": [reply_with(round=lambda reply: reply.round - 1)],
    "round not begun": [reply_with(round=lambda reply: reply.round + 1)],
    "other experiment": [reply_with(fingerprint=lambda _: "ab" * 32)],
    "not its agent": [reply_with(agent=lambda _: 1), reply_with(agent=lambda _: 99)],
    "wrong number of steps": [reply_with(steps=lambda reply: reply.steps + 1)],
    "step counter went back": [reply_with(time=lambda reply: reply.time - 1)],
    "step counter ran ahead": [reply_with(time=lambda reply: reply.time + 1)],
    "wrong dtype": [as_float32],
    "duplicate agent": [lambda reply: encode(reply, reply)],
    "cut short": [
        lambda reply: encode(reply)[:-1],
        lambda _: b"",
        lambda reply: encode(reply) + b"\0",
    ],
    "not a message": [lambda _: np.random.default_rng(0).bytes(500)],
    "not a message that is expected": [
        lambda reply: encode(Request(reply.fingerprint, reply.round, (3,), (7,)))
    ],
    "damaged": [lambda reply: encode(reply)[:60] + b"\xff\xff" + encode(reply)[62:]],
}


@pytest.mark.parametrize(
    ("reason", "number"), [(reason, i) for reason, lies in LIES.items() for i in range(len(lies))]
)
def test_a_liar_is_refused_by_name_and_quarantined_and_the_others_average_is_right(
    folder, experiment, reason, number
):
    transport = InMemory(
        spread(experiment, folder, HOMES), {"n3": lying(LIES[reason][number], range(3, 1000))}
    )
    outcome, events = serve(experiment, transport, folder, Rules(quorum=3))
    refused = [event for event in events if event["event"] == "refused"]
    assert [(event["reason"], event["agents"]) for event in refused] == 3 * [(reason, [3])]
    assert [event["agents"] for event in events if event["event"] == "quarantined"] == [[3]]
    expected = np.ones((ROUNDS, 4), bool)
    expected[3:, 3] = False
    np.testing.assert_array_equal(outcome.participation, expected)
    final = outcome.history.data.final_params.values[0]
    np.testing.assert_allclose(final, averaged(experiment, expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("reason", ["not finite", "damaged", "not a message", "other experiment"])
def test_one_bad_answer_is_asked_for_again_and_nothing_is_lost(folder, experiment, reason):
    bad = []

    def once(node, payload):
        answer = node.answer(payload)
        (message,) = decode(answer, FROM_NODE)
        if isinstance(message, Reply) and message.round == 4 and not bad:
            bad.append(message)
            return LIES[reason][0](message)
        return answer

    outcome, events = serve(
        experiment, InMemory(spread(experiment, folder, HOMES), {"n3": once}), folder
    )
    assert [event["reason"] for event in events if event["event"] == "refused"] == [reason]
    whole = averaged(experiment, np.ones((ROUNDS, 4), bool))
    np.testing.assert_allclose(
        outcome.history.data.final_params.values[0], whole, rtol=0, atol=1e-12
    )


def test_without_a_quorum_to_spare_a_liar_is_left_out_and_the_rest_goes_on(folder, experiment):
    transport = InMemory(spread(experiment, folder, HOMES), {"n0": lying(spoiled(np.nan))})
    outcome, _ = serve(experiment, transport, folder)
    assert not outcome.participation[:, 0].any()
    assert outcome.participation[:, 1:].all()
    with pytest.raises(FederationError, match="only 3 of the agents asked are not quarantined"):
        serve(
            experiment,
            InMemory(spread(experiment, folder / "b", HOMES), transport.behaviours),
            folder / "b",
            Rules(quorum=4),
        )


def test_quarantine_outlives_the_server(folder, experiment):
    transport = InMemory(spread(experiment, folder, HOMES), {"n0": lying(spoiled(np.nan))})

    def interrupt(event):
        if event["event"] == "round" and event["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(experiment, transport, folder, watch=interrupt)
    transport.behaviours = {}
    outcome, _ = serve(experiment, transport, folder)
    assert not outcome.participation[:, 0].any()
    assert outcome.participation[:, 1:].all()


def test_a_node_absent_for_three_rounds_comes_back_where_it_was(folder, experiment):
    transport = InMemory(spread(experiment, folder, HOMES))

    def watch(event):
        if event["event"] == "round":
            transport.away = {"n2"} if event["round"] in (2, 3, 4) else set()

    outcome, events = serve(experiment, transport, folder, Rules(quorum=3), watch=watch)
    expected = np.ones((ROUNDS, 4), bool)
    expected[3:6, 2] = False
    np.testing.assert_array_equal(outcome.participation, expected)
    final = outcome.history.data.final_params.values[0]
    np.testing.assert_allclose(final, averaged(experiment, expected), rtol=0, atol=1e-12)
    names = Counter(event["event"] for event in events)
    assert (names["left"], names["joined"], names["samples-lost"]) == (1, 5, 0)
    missing = [event["missing"] for event in events if event["event"] == "round"]
    assert missing == [[2] if number in (3, 4, 5) else [] for number in range(ROUNDS)]
    # Connected agents had answered, so nobody waited for the timeout.
    assert transport.now < 60


def test_late_answers_are_no_offence_and_their_samples_are_accounted_for(folder, experiment):
    held_back = []

    def slow(node, payload):
        answer = node.answer(payload)
        (message,) = decode(answer, FROM_NODE)
        if isinstance(message, Reply) and message.round in (3, 4):
            held_back.append(answer)
            return None
        if isinstance(message, Reply) and held_back:
            transport.queue += [("n1", late) for late in held_back]
            held_back.clear()
        return answer

    transport = InMemory(spread(experiment, folder, HOMES), {"n1": slow})
    outcome, events = serve(experiment, transport, folder, Rules(quorum=3, round_timeout=30))
    assert [(event["agents"], event["reason"]) for event in events if event["event"] == "late"] == [
        ([1], "round 3"),
        ([1], "round 4"),
    ]
    assert [
        (event["round"], event["agents"], event["steps"])
        for event in events
        if event["event"] == "samples-lost"
    ] == [(5, [1], [2 * PERIOD])]
    assert not [event for event in events if event["event"] == "refused"]
    expected = np.ones((ROUNDS, 4), bool)
    expected[3:5, 1] = False
    np.testing.assert_array_equal(outcome.participation, expected)


def test_an_answer_that_comes_twice_counts_once(folder, experiment):
    def forgetful(node, payload):
        answer = node.answer(payload)
        if request_of(payload) is not None:
            # The loss is announced too early: the answer comes all the same, and so does the one to
            # the second request.
            transport.queue.append(("n0", Lost("gone")))
        return answer

    transport = InMemory(spread(experiment, folder, HOMES), {"n0": forgetful})
    outcome, events = serve(experiment, transport, folder)
    assert not [event for event in events if event["event"] in ("refused", "quarantined")]
    whole = averaged(experiment, np.ones((ROUNDS, 4), bool))
    np.testing.assert_allclose(
        outcome.history.data.final_params.values[0], whole, rtol=0, atol=1e-12
    )


def test_of_two_nodes_that_claim_one_agent_the_first_has_it(folder, experiment):
    nodes = spread(experiment, folder, HOMES) | {"thief": experiment.node([0], folder / "thief")}
    outcome, events = serve(experiment, InMemory(nodes), folder)
    claims = [
        (event["node"], event["agents"], event["reason"])
        for event in events
        if event["event"] == "claim-refused"
    ]
    assert claims == [("thief", [0], "another node hosts it")]
    assert not state_files(folder / "thief", experiment.fingerprint)
    assert outcome.participation.all()


def test_agents_that_do_not_exist_are_refused(folder, experiment):
    def boasting(node, payload):
        answer = node.answer(payload)
        (message,) = decode(answer, FROM_NODE)
        return encode(Hello(message.fingerprint, (0, 99))) if isinstance(message, Hello) else answer

    outcome, events = serve(
        experiment, InMemory(spread(experiment, folder, HOMES), {"n0": boasting}), folder
    )
    assert [event["reason"] for event in events if event["event"] == "claim-refused"] == [
        "there is no such agent"
    ]
    assert outcome.participation.all()


def test_participants_are_drawn_from_the_seed_alone(folder, experiment):
    rules = Rules(participants=2)
    one, _ = serve(
        experiment, InMemory(spread(experiment, folder / "a", HOMES)), folder / "a", rules
    )
    two, _ = serve(
        experiment, InMemory(spread(experiment, folder / "b", [(0, 1, 2, 3)])), folder / "b", rules
    )
    np.testing.assert_array_equal(one.participation, two.participation)
    assert (one.participation.sum(axis=1) == 2).all()
    final = one.history.data.final_params.values[0]
    np.testing.assert_allclose(final, averaged(experiment, one.participation), rtol=0, atol=1e-12)


def test_every_pair_takes_part_equally_often():
    draws = 3000
    counts = Counter(
        frozenset(draw_participants(np.arange(4), 2, 5, number).tolist()) for number in range(draws)
    )
    assert len(counts) == 6
    expected = draws / 6
    error = np.sqrt(draws * (1 / 6) * (5 / 6))
    assert max(abs(count - expected) for count in counts.values()) < 4 * error


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Rules(quorum=5), "quorum is 5; give a number from 1 to 4"),
        (Rules(quorum=3, participants=2), "quorum is 3; give a number from 1 to 2"),
        (Rules(participants=0), "participants is 0"),
        (Rules(round_timeout=0), "round_timeout is 0"),
        (Rules(norm_bound=float("nan")), "norm_bound is nan"),
    ],
)
def test_rules_that_make_no_sense_are_refused(folder, experiment, rules, message):
    with pytest.raises(FederationError, match=message):
        serve(experiment, InMemory({}), folder, rules)


def test_all_that_leaves_a_node_is_on_the_list(folder, experiment):
    transport = InMemory(spread(experiment, folder, HOMES))
    outcome, _ = serve(experiment, transport, folder)
    fields = {
        "Hello": {"fingerprint", "agents"},
        "Reply": {"fingerprint", "round", "agent", "steps", "time", "params"},
    }
    assert len(transport.received) == 4 + 4 * ROUNDS
    for _, payload in transport.received:
        (message,) = decode(payload, FROM_NODE)
        assert encode(message) == payload
        assert {field.name for field in dataclasses.fields(message)} == fields[
            type(message).__name__
        ]
    assert outcome.bytes_up == sum(len(payload) for _, payload in transport.received)
    assert outcome.bytes_down == sum(len(payload) for _, payload in transport.sent)


def test_agents_that_changed_places_are_found_again(folder, experiment):
    transport = InMemory(spread(experiment, folder, HOMES))

    def swap(event):
        if event["event"] == "round" and event["round"] == 4:
            for agent, old, new in ((2, "n2", "n3"), (3, "n3", "n2")):
                for file in state_files(folder / old, experiment.fingerprint):
                    if not file.name.startswith("moved"):
                        place = folder / new / experiment.fingerprint[:16]
                        file.rename(place / f"moved-{file.name}")
                transport.members[new] = experiment.node([agent], folder / new)

    outcome, events = serve(experiment, transport, folder, watch=swap)
    failed = {(event["node"], event["reason"]) for event in events if event["event"] == "failed"}
    assert failed >= {("n2", "agent not here"), ("n3", "agent not here")}
    whole = averaged(experiment, np.ones((ROUNDS, 4), bool))
    np.testing.assert_allclose(
        outcome.history.data.final_params.values[0], whole, rtol=0, atol=1e-12
    )


def test_a_node_of_another_experiment_is_named_and_left_alone(folder, experiment):
    other = dataclasses.replace(experiment, step_size=0.2)
    nodes = {"stranger": other.node([0], folder / "stranger")} | spread(experiment, folder, HOMES)
    outcome, events = serve(experiment, InMemory(nodes), folder)
    refused = {
        (event["node"], *event["agents"], event["reason"])
        for event in events
        if event["event"] == "refused"
    }
    assert refused == {("stranger", "other experiment")}
    assert outcome.participation.all()


class Failing:
    """An agent whose environment fails, and says a secret."""

    time = 0

    def local_steps(self, params, count):
        raise RuntimeError("the secret is 42")

    def save(self):
        return {}

    def restore(self, state):
        assert not state


def test_what_an_agent_says_when_it_fails_stays_on_its_node(folder, experiment):
    nodes = spread(experiment, folder, HOMES)
    group = SeparateAgents(lambda _: Failing())
    nodes["n0"] = Node(experiment.fingerprint, [0], group, folder / "n0", DIMENSION)
    transport = InMemory(nodes)
    outcome, events = serve(experiment, transport, folder, Rules(quorum=3, round_timeout=30))
    assert {event["reason"] for event in events if event["event"] == "failed"} == {"error"}
    assert not outcome.participation[:, 0].any()
    assert outcome.participation[:, 1:].all()
    assert not any(b"secret" in payload for _, payload in transport.received)
    assert (
        "the secret is 42"
        in (folder / "n0" / experiment.fingerprint[:16] / "node.jsonl").read_text()
    )


@pytest.mark.parametrize("stops", [(), (0,), (7, 3), (7, 7)])
def test_a_request_that_makes_no_round_uses_no_sample(folder, experiment, stops):
    node = experiment.node([0], folder)
    answer = node.answer(request(experiment.fingerprint, 0, (0,), stops, experiment.start[None]))
    assert decode(answer, FROM_NODE) == [
        Failure(experiment.fingerprint, 0, (0,), Trouble.BEYOND_TERMS)
    ]
    assert not state_files(folder, experiment.fingerprint)


def test_bytes_that_are_no_request_are_answered_by_name(folder, experiment):
    node = experiment.node([0], folder)
    good = request(experiment.fingerprint, 0, (0,), (7,), experiment.start[None])
    rng = np.random.default_rng(1)
    for payload in (b"", good[:-1], good + good, *(rng.bytes(100) for _ in range(50))):
        assert decode(node.answer(payload), FROM_NODE) == [
            Failure(experiment.fingerprint, 0, (0,), Trouble.DAMAGED_REQUEST)
        ]
    assert not state_files(folder, experiment.fingerprint)
