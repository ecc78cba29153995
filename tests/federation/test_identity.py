"""A key speaks for its own agents: what it says of others counts against its node alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cases
from fegsam.federation.errors import FederationError
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.identity import Claims
from fegsam.federation.protocol.server import Rules
from fegsam.federation.protocol.sparse_rows import pack_rows
from fegsam.federation.protocol.transport import Joined, Lost
from fegsam.federation.protocol.wire import FROM_NODE, Hello, Reply, decode, encode
from helpers.in_memory import InMemory, serve, spread

HOMES = [(0, 1), (2,), (3,)]
CLAIMS = Claims({"n0": [0, 1], "n1": [2], "n2": [3]})
ROUNDS = 6


@pytest.fixture(scope="module")
def experiment():
    case = cases.case("alg4", num_agents=4, differ="both")
    return Experiment(
        case.problem, case.algorithm, step_size=0.1, sync_period=7, num_steps=7 * ROUNDS, seed=5
    )


@pytest.fixture(scope="module")
def undisturbed(experiment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return serve(experiment, InMemory(spread(experiment, folder, HOMES)), folder)[0].history


def named(events, name):
    return [event for event in events if event["event"] == name]


def greedy(node, payload):
    """A node that claims all agents, and lies in the name of each."""
    (message, *_) = decode(node.answer(payload), FROM_NODE)
    if isinstance(message, Reply):
        lie = pack_rows(np.full((1, 6), 1e3))
        return encode(*(dataclasses.replace(message, agent=i, params=lie) for i in range(4)))
    return encode(Hello(message.fingerprint, (0, 1, 2, 3)))


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_node_that_claims_all_agents_gets_none_of_the_others(
    folder, experiment, undisturbed, assert_same_bits, place
):
    honest = spread(experiment, folder, HOMES)
    thief = {"thief": experiment.node([0], folder / "thief")}
    nodes = thief | honest if place == "first" else honest | thief
    outcome, events = serve(experiment, InMemory(nodes, {"thief": greedy}), folder, claims=CLAIMS)
    assert_same_bits(outcome.history, undisturbed)
    assert {event["node"] for event in named(events, "claim-refused")} == {"thief"}
    assert not named(events, "refused")


def test_lies_in_the_names_of_others_count_against_the_liar(folder, experiment):
    def lying(node, payload):
        (message,) = decode(node.answer(payload), FROM_NODE)
        if isinstance(message, Reply) and message.round >= 2:
            message = dataclasses.replace(message, agent=0, params=pack_rows(np.ones((1, 6))))
        return encode(message)

    transport = InMemory(spread(experiment, folder, HOMES), {"n2": lying})
    outcome, events = serve(experiment, transport, folder, claims=CLAIMS)
    refused = [(event["node"], event["agents"]) for event in named(events, "refused")]
    assert refused == 3 * [("n2", [])]
    assert [event["node"] for event in named(events, "quarantined")] == ["n2"]
    # The node's agent is left out, and no round waits for it.
    expected = np.ones((ROUNDS, 4), bool)
    expected[2:, 3] = False
    np.testing.assert_array_equal(outcome.participation, expected)
    assert transport.now < 60


@pytest.mark.parametrize(
    ("size", "name"), [(1, "claim-refused"), (4, "claim-refused"), (400_000, "refused")]
)
def test_a_node_that_makes_one_claim_after_another_is_quarantined(folder, experiment, size, name):
    asked = []

    def flood(node, payload):
        asked.append(payload)
        agents = tuple(range(1 + len(asked), 1 + len(asked) + size))
        transport.queue.append(("thief", encode(Hello(experiment.fingerprint, agents))))
        return Lost("again") if len(asked) < 10 else None

    nodes = spread(experiment, folder, HOMES) | {"thief": experiment.node([0], folder / "thief")}
    transport = InMemory(nodes, {"thief": flood})
    transport.away = {"n2"}

    def come_back(event):
        if event["event"] == "quarantined":
            transport.away = set()

    _, events = serve(experiment, transport, folder, Rules(), come_back, claims=CLAIMS)
    assert [event["node"] for event in named(events, "quarantined")] == ["thief"]
    assert {event["node"] for event in named(events, name)} == {"thief"}
    assert len(named(events, "refused") + named(events, "claim-refused")) <= 6
    log = (folder / "server" / "events.jsonl").read_bytes()
    assert max(map(len, log.splitlines())) < 1000


@pytest.mark.parametrize("told", [True, False])
def test_a_node_that_comes_back_is_asked_at_once(
    folder, experiment, undisturbed, assert_same_bits, told
):
    """Whether or not the transport tells that the answer is lost."""
    lost = []

    def dying(node, payload):
        answer = node.answer(payload)
        (message, *_) = decode(answer, FROM_NODE)
        if isinstance(message, Reply) and len(lost) < 3:
            lost.append(message)
            transport.queue += [("n1", Lost("cut"))] if told else []
            return Joined()
        return answer

    transport = InMemory(spread(experiment, folder, HOMES), {"n1": dying})
    outcome, events = serve(experiment, transport, folder, Rules(retry_after=1000.0))
    assert len(named(events, "lost")) == (3 if told else 0)
    assert transport.now < 20
    assert_same_bits(outcome.history, undisturbed)


def test_claims_come_back_from_their_file(folder):
    path = folder / "agents.toml"
    Claims({"node-0": [2, 0], 'an "odd" name': [1]}).save(path)
    again = Claims.load(path)
    assert again.of("node-0") == {0, 2}
    assert again.of('an "odd" name') == {1}
    assert (2 in again.of("node-0"), again.of("x")) == (True, frozenset())


@pytest.mark.parametrize(
    "text", ["", "agents = 3", "[agents]\na = 3", "[agents]\na = ['x']", "[agents", "\x00"]
)
def test_a_damaged_file_of_claims_is_named(folder, text):
    path = folder / "agents.toml"
    path.write_text(text)
    with pytest.raises(FederationError, match="does not say which agents each node has"):
        Claims.load(path)


def test_an_agent_has_one_node():
    with pytest.raises(FederationError, match="agent 1 is of node 'a' and of node 'b'"):
        Claims({"a": [0, 1], "b": [1]})
