"""A node holds its server to the terms: what goes beyond them is refused, logged and not run."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cases
import fegsam as fg
from fegsam.federation.deployment import load_node, load_server
from fegsam.federation.founding import Entrance, init
from fegsam.federation.hosting import NodeSettings, experiment_of
from fegsam.federation.protocol.experiment import Experiment, new_salt
from fegsam.federation.protocol.share import load_share, load_terms, save_share, save_terms
from fegsam.federation.protocol.sparse_rows import pack_rows
from fegsam.federation.protocol.wire import (
    FROM_NODE,
    Reply,
    Request,
    Start,
    Trouble,
    decode,
    encode,
)
from helpers.beyond_terms import BEYOND, PERIOD, agreed, asked, assert_refused, assert_served
from helpers.deployed import write_study
from helpers.in_memory import InMemory, serve, spread


@pytest.fixture(scope="module")
def experiment():
    return agreed()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("way", BEYOND)
def test_what_goes_beyond_the_terms_is_refused_and_logged(folder, experiment, way, shared):
    save_share(experiment, [0], folder / "share")
    whole = load_share(folder / "share") if shared else experiment
    node = whole.node([0], folder / "node")
    answer = node.answer(asked(experiment, **BEYOND[way][0]))
    assert_refused(experiment, answer, folder / "node", way)
    assert_served(node.answer(asked(experiment)))


def test_the_output_time_may_be_asked_for(folder, experiment):
    output = experiment.terms().output_time
    number, step = divmod(output, PERIOD)
    assert step > 0
    node = experiment.node([0], folder)
    changes = {"number": number, "stops": (step, PERIOD), "times": (number * PERIOD,)}
    (answer,) = decode(node.answer(asked(experiment, **changes)), FROM_NODE)
    assert isinstance(answer, Reply)


def test_parameters_that_are_not_those_of_their_digest_are_refused(folder, experiment):
    node, start = experiment.node([0], folder), experiment.start[None]
    payload = encode(
        Start(experiment.fingerprint, 1, (PERIOD,), "ab" * 32, "00" * 32, pack_rows(start)),
        Request(experiment.fingerprint, 1, (0,), (0,)),
    )
    (answer,) = decode(node.answer(payload), FROM_NODE)
    assert answer.reason is Trouble.DAMAGED_REQUEST
    unknown = encode(
        Start(experiment.fingerprint, 1, (PERIOD,), "ab" * 32, "cd" * 32, pack_rows(start)),
        Request(experiment.fingerprint, 1, (0,), (0,)),
    )
    (answer,) = decode(node.answer(unknown), FROM_NODE)
    assert answer.reason is Trouble.UNKNOWN_BASE


def test_few_changes_are_few_bytes_each_way(folder):
    mdp = fg.examples.garnet(1000, 5, 3, discount=0.7, seed=0)
    fed = fg.Federation(mdp, fg.policies.uniform(1000, 5), num_agents=4)
    experiment = Experiment(fed, fg.QLearning(), step_size=0.1, sync_period=50, num_steps=500)
    transport = InMemory(spread(experiment, folder, [(0,), (1,), (2,), (3,)]))
    outcome, _ = serve(experiment, transport, folder)
    rounds = [len(payload) for _, payload in transport.received if len(payload) > 200]
    assert max(rounds) < 1500
    starts = [len(payload) for _, payload in transport.sent if len(payload) > 200]
    assert max(starts[:4]) > 8 * 5000
    assert max(starts[4:]) < 4000
    simulated = fg.run(
        fed, fg.QLearning(), step_size=0.1, sync_period=50, num_steps=500, seeds=(0,)
    )
    np.testing.assert_allclose(
        outcome.history.data.final_params, simulated.data.final_params, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("remembers", [True, False])
def test_nodes_that_forget_are_sent_everything_if_the_transport_says_so(folder, remembers):
    """Each message has a process of its own, as on Flower."""
    case = cases.case("alg4", num_agents=2, differ="both")
    experiment = Experiment(
        case.problem, case.algorithm, step_size=0.1, sync_period=7, num_steps=42
    )
    nodes = spread(experiment, folder, [(0,), (1,)])
    behaviours = {
        f"n{i}": lambda _, payload, i=i: experiment.node([i], folder / f"n{i}").answer(payload)
        for i in range(2)
    }
    transport = InMemory(nodes, behaviours)
    transport.remembers = remembers
    outcome, events = serve(experiment, transport, folder)
    reasons = [event["reason"] for event in events if event["event"] == "failed"]
    assert reasons == (2 * ["parameters not known"] if remembers else [])
    assert outcome.participation.all()


def test_a_salt_changes_what_can_be_guessed_and_nothing_else(folder, experiment):
    one, other = (dataclasses.replace(experiment, salt=new_salt()) for _ in range(2))
    prints = {each.fingerprint for each in (experiment, one, other)}
    assert len(prints) == 3
    content = {each.terms().settings.fingerprint for each in (experiment, one, other)}
    assert len(content) == 3
    save_terms(one.terms(), folder / "terms")
    terms = load_terms(folder / "terms")
    assert (terms.salt, terms.fingerprint) == (one.salt, one.fingerprint)
    assert dataclasses.replace(experiment, salt=terms.salt).fingerprint == one.fingerprint
    save_share(one, [1], folder / "share")
    assert load_share(folder / "share").fingerprint == one.fingerprint
    assert one.salt.encode() not in (folder / "share").read_bytes()


def test_what_init_writes_is_salted_and_agrees(tmp_path):
    study = write_study(tmp_path)
    prints = set()
    for name in ("one", "other"):
        nodes = init(tmp_path / name, study, Entrance(["::1"], 8000), num_nodes=2)
        terms = load_terms(load_server(tmp_path / name / "server").terms)
        hosted = {experiment_of(load_node(node)).fingerprint for node in nodes}
        assert hosted == {terms.fingerprint}
        prints |= hosted
        salted = NodeSettings(study, None, (0,), tmp_path, salt=terms.salt)
        assert experiment_of(salted).fingerprint == terms.fingerprint
    assert len(prints) == 2
