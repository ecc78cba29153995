"""Nodes with their own data: logs, live environments and spools behind the protocol."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import fegsam as fg
from fegsam.federation.board import summary_of
from fegsam.federation.errors import FederationError, StateError
from fegsam.federation.protocol.ledger import readmit
from fegsam.federation.protocol.share import load_share, save_share
from fegsam.federation.protocol.state import read_sealed, write_sealed
from fegsam.federation.protocol.transport import Lost
from fegsam.federation.protocol.wire import FROM_NODE, Ask, Failure, Trouble, decode, encode
from helpers import private_data as private
from helpers.deployed import assert_equal
from helpers.grpc_federation import Nodes, Site
from helpers.grpc_federation import serve as serve_over_grpc
from helpers.in_memory import InMemory, serve


@pytest.fixture
def log(folder):
    return private.write_log(folder / "wards.parquet")


def hosted(folder, log, **options):
    """The nodes, each made from the share that its machine has."""
    experiment = private.experiment(**options)
    found = {}
    for number, agents in enumerate(private.NODES):
        home = folder / f"n{number}"
        home.mkdir(exist_ok=True)
        if not (home / "share").exists():
            save_share(experiment, list(agents), home / "share")
        data = {agent: private.own_data(log)[agent] for agent in agents}
        found[f"n{number}"] = load_share(home / "share").node(agents, home / "state", data)
    return experiment, found


def events_named(events, name):
    return [event for event in events if event["event"] == name]


def ranges_of(folder):
    """The samples of each agent that were used, as the nodes logged them."""
    found: dict[int, list[tuple[int, int]]] = {}
    for path in folder.glob("n*/state/*/node.jsonl"):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "computed":
                for agent in event["agents"]:
                    found.setdefault(agent, []).append((event["first"], event["last"]))
    return found


def test_a_federation_over_grpc_gives_the_numbers_of_a_run(folder, log) -> None:
    experiment, nodes = hosted(folder, log)
    site = Site(folder / "site", private.NODES, dimension=len(experiment.start))
    with site.transport() as transport, Nodes() as running:
        ends = [running.start(site.link(name), node.answer) for name, node in nodes.items()]
        outcome = serve_over_grpc(site, experiment, transport)
        transport.finish()
        for end in ends:
            end.result(10)
    expected = private.simulated(log, record=outcome.history.settings.record)
    for history in (outcome.history, expected):
        assert np.isnan(history.data.squared_error).all()
    # What is in a log stays on its node.
    facts = {name for name in expected.data.variables if name.startswith("data_")}
    assert facts
    assert facts.isdisjoint(outcome.history.data.variables)
    known = [
        name
        for name in expected.data.variables
        if "squared_error" not in name and name not in facts
    ]
    assert_equal(
        fg.History(outcome.history.data[known], outcome.history.settings),
        fg.History(expected.data[known], expected.settings),
    )
    by_hand = private.by_hand(log, 15, {})
    at_sync = outcome.history.data.average_params.sel(time=150).values[0]
    np.testing.assert_allclose(at_sync, by_hand, atol=1e-12)


def test_nodes_that_die_at_any_moment_change_no_bit_and_use_no_sample_twice(folder, log) -> None:
    experiment, nodes = hosted(folder, log)
    undisturbed, _ = serve(experiment, InMemory(nodes), folder / "calm")
    for home in ("n0", "n1", "n2"):
        shutil.rmtree(folder / home / "state")
    _, nodes = hosted(folder, log)
    requests, deaths = Counter[str](), Counter[str]()

    def dying(node, payload):
        """Dies before it computes, before it answers, or loses its last state."""
        name = next(name for name, one in transport.members.items() if one is node)
        requests[name] += 1
        fate, state, old = requests[name] % 4, folder / name / "state", folder / f"{name}-old"
        if fate == 0 and old.exists():
            for path in state.glob("*/*.state"):
                path.unlink()
            shutil.copytree(
                old, state, ignore=shutil.ignore_patterns("*.jsonl"), dirs_exist_ok=True
            )
        shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(state, old)
        if fate == 1:
            node.answer(payload)
        if fate != 3:
            deaths[name] += 1
            transport.members[name] = hosted(folder, log)[1][name]
        return Lost("it died") if fate == 1 else transport.members[name].answer(payload)

    transport = InMemory(nodes, dict.fromkeys(nodes, dying))
    outcome, events = serve(experiment, transport, folder / "disturbed")
    assert deaths.total() > 20
    assert len(events_named(events, "lost")) > 5
    np.testing.assert_array_equal(
        outcome.history.data.average_params, undisturbed.history.data.average_params
    )
    assert events_named(events, "samples-lost") == []
    for used in ranges_of(folder).values():
        assert sum(last - first + 1 for first, last in used) == private.STEPS
        assert all(last < first for (_, last), (first, _) in pairwise(sorted(used)))
    assert "skipped" in (next((folder / "n0" / "state").glob("*/node.jsonl"))).read_text()


def test_nodes_refuse_a_server_that_agreed_on_something_else(folder, log) -> None:
    tiles = {"features": fg.features.tiles([0.0], [16.0], tiles=4, tilings=2)}
    other = {"features": fg.features.tiles([0.0], [16.0], tiles=4, tilings=3)}
    target = {"target_policy": private.UNIFORM}
    turned = {"target_policy": fg.policies.random(16, 4, 1, 0)[0]}
    charters = [private.charter(**options) for options in ({}, tiles, other, target, turned)]
    assert len({each.fingerprint() for each in charters}) == 5
    experiment, nodes = hosted(folder, log)
    for charter in charters[3:]:
        agreed = private.experiment().__class__(
            charter, fg.QLearning(), private.STEP_SIZE, private.PERIOD, private.STEPS
        )
        (said,) = decode(nodes["n0"].answer(encode(Ask(agreed.fingerprint))), FROM_NODE)
        assert said == Failure(experiment.fingerprint, 0, (0, 1), Trouble.OTHER_EXPERIMENT)


def test_nodes_with_other_features_refuse_each_other(folder, log) -> None:
    experiments, nodes = [], []
    for number, phi in enumerate(np.random.default_rng(0).normal(size=(2, 16, 3))):
        charter = private.charter(features=fg.features.table(phi))
        experiments.append(
            private.experiment().__class__(
                charter, fg.OnPolicyTD(), private.STEP_SIZE, private.PERIOD, private.STEPS
            )
        )
        save_share(experiments[-1], [0], folder / f"share-{number}")
        data = {0: private.own_data(log)[0]}
        share = load_share(folder / f"share-{number}")
        nodes.append(share.node((0,), folder / f"state-{number}", data))
    for number, node in enumerate(nodes):
        own, other = experiments[number].fingerprint, experiments[1 - number].fingerprint
        (said,) = decode(node.answer(encode(Ask(other))), FROM_NODE)
        assert said == Failure(own, 0, (0,), Trouble.OTHER_EXPERIMENT)
        (said,) = decode(node.answer(encode(Ask(own))), FROM_NODE)
        assert not isinstance(said, Failure)


def test_a_machine_that_computes_other_features_is_refused(folder) -> None:
    features = fg.features.fourier([0.0, 0.0], [1.0, 1.0], order=2)
    charter = fg.data.Charter(num_agents=2, discount=0.9, num_actions=2, features=features)
    experiment = private.experiment()
    linear = experiment.__class__(charter, fg.OnPolicyTD(2), 0.1, 5, 50)
    save_share(linear, [0], folder / "share")
    assert load_share(folder / "share").fingerprint == linear.fingerprint
    header, arrays = read_sealed(folder / "share")
    for error, refused in ((1e-10, False), (1e-8, True)):
        write_sealed(folder / "other", header, arrays | {"probed": arrays["probed"] + error})
        if refused:
            with pytest.raises(fg.ProblemError, match="probe observation 0 differ by 1e-08"):
                load_share(folder / "other")
        else:
            load_share(folder / "other")
        (folder / "other").unlink()


def test_a_log_that_changed_is_refused_until_it_is_put_back(folder, log) -> None:
    experiment, nodes = hosted(folder, log)
    undisturbed, _ = serve(experiment, InMemory(nodes), folder / "calm")
    for home in ("n0", "n1", "n2"):
        shutil.rmtree(folder / home / "state")
    _, nodes = hosted(folder, log)
    shutil.copy(log, folder / "kept")

    def changes(event):
        if event["event"] == "round" and event["round"] == 5:
            private.write_log(log, (30, 29))
            transport.members["n0"] = hosted(folder, log)[1]["n0"]
        if event.get("reason") == "state unusable":
            with pytest.raises(StateError, match="not the file this agent began with: put it back"):
                transport.members["n0"].check_state()
            os.replace(folder / "kept", log)
            transport.members["n0"] = hosted(folder, log)[1]["n0"]

    transport = InMemory(nodes)
    outcome, events = serve(experiment, transport, folder / "disturbed", watch=changes)
    reasons = {event["reason"] for event in events_named(events, "failed")}
    # A node that starts anew does not know the parameters before.
    assert reasons == {"parameters not known", "state unusable"}
    np.testing.assert_array_equal(
        outcome.history.data.average_params, undisturbed.history.data.average_params
    )


def test_a_log_that_changes_while_the_node_reads_it_is_refused(folder, log) -> None:
    reader = fg.data.private_reader(private.charter(), private.own_data(log)[0], seed=0, agent=0)
    reader.read(5)
    os.utime(log)
    assert len(reader.read(5).gap) == 5
    private.write_log(log, (30, 29))
    with pytest.raises(fg.ProblemError, match="put it back"):
        reader.read(5)


def test_rounds_close_without_an_agent_whose_log_is_used_up(folder) -> None:
    log = private.write_log(folder / "wards.parquet", (30, 4))
    experiment, nodes = hosted(folder, log, num_steps=150)
    outcome, events = serve(experiment, InMemory(nodes), folder / "server")
    # Ward 1 has 40 transitions at most; how many, its log says.
    rows = fg.LogSource(log, by="ward").read(discount=0.9, agent="ward 1")
    whole = int((~rows.gap).sum()) // private.PERIOD
    assert 0 < whole < 15
    assert outcome.participation[:, 1].tolist() == [True] * whole + [False] * (15 - whole)
    assert outcome.participation[:, [0, 2, 3]].all()
    final = outcome.history.data.final_params.values[0]
    np.testing.assert_allclose(final, private.by_hand(log, 15, {1: whole}), atol=1e-12)
    (said,) = events_named(events, "used-up")
    assert (said["round"], said["agents"]) == (whole, [1])
    assert said["reason"] == "its data is used up"
    assert events_named(events, "quarantined") == []
    assert (outcome.used_up, events[-1]["used_up"]) == ((1,), [1])
    assert summary_of(events).line().endswith("data of agent 1 used up")


class Stopped(Exception):
    """The operator stops the server."""


def test_an_agent_without_data_takes_part_again_when_its_log_may_be_read_again(folder) -> None:
    log = private.write_log(folder / "wards.parquet", (30, 4))
    experiment, nodes = hosted(folder, log, num_steps=150)

    def stop(event):
        if event["event"] == "round" and event["round"] == 6:
            raise Stopped

    with pytest.raises(Stopped):
        serve(experiment, InMemory(nodes), folder, watch=stop)
    readmit(experiment.terms(), folder / "server", [1])
    again = replace(private.own_data(log)[0].source, passes=2)
    wards = {ward: fg.data.OwnData(again, f"ward {ward}") for ward in (0, 1)}
    nodes["n0"] = load_share(folder / "n0" / "share").node((0, 1), folder / "n0" / "state", wards)
    outcome, _ = serve(experiment, InMemory(nodes), folder)
    # The event of round 6 came before its state was stored, so the round is asked for again.
    assert outcome.participation[:, 1].tolist() == [
        *[True] * 4,
        *[False] * 2,
        *[True] * 4,
        *[False] * 5,
    ]


def test_a_spool_is_waited_for_while_it_grows_and_used_up_when_it_is_closed(folder, log) -> None:
    spool = fg.Spool(log.with_name("plant.spool"))
    private.write_spool(log, spool, range(10))
    experiment, nodes = hosted(folder, log, num_steps=300)
    grown = iter([range(10, 20), range(20, 40)])

    def grow(event):
        if event.get("reason") == "busy":
            more = next(grown, None)
            if more is None:
                spool.close()
            else:
                private.write_spool(log, spool, more)

    outcome, events = serve(experiment, InMemory(nodes), folder / "server", watch=grow)
    busy = [event for event in events_named(events, "failed") if event["reason"] == "busy"]
    assert {(event["node"], *event["agents"]) for event in busy} == {("n2", 3)}
    rows = fg.LogSource(private.plant_log(log)).read(discount=0.9)
    whole = int((~rows.gap).sum()) // private.PERIOD
    assert outcome.participation[:, 3].sum() == whole
    assert outcome.used_up == (3,)
    wards = {0: 30, 1: 30, 3: whole}
    final = outcome.history.data.final_params.values[0]
    np.testing.assert_allclose(final, private.by_hand(log, 30, wards), atol=1e-12)


def test_a_spool_that_is_another_one_is_refused(folder, log) -> None:
    experiment, nodes = hosted(folder, log, num_steps=100)
    serve(experiment, InMemory(nodes), folder / "server")
    nodes["n2"].check_state()
    log.with_name("plant.spool").unlink()
    with pytest.raises(StateError, match="is not the spool that this agent began with"):
        hosted(folder, log, num_steps=100)[1]["n2"].check_state()


def test_a_source_of_another_kind_is_refused_until_the_first_is_put_back(folder, log) -> None:
    experiment, nodes = hosted(folder, log, num_steps=100)
    serve(experiment, InMemory(nodes), folder / "server")
    own = private.own_data(log)
    kinds = {"log": own[0], "live environment": own[2], "spool": own[3]}
    for node, agent, began in (("n1", 2, "live environment"), ("n2", 3, "spool")):
        home = folder / node
        for other in kinds.keys() - {began}:
            changed = load_share(home / "share").node(
                (agent,), home / "state", {agent: kinds[other]}
            )
            told = f"it is a {other}, but this agent began with a {began}: put the {began} back"
            with pytest.raises(StateError, match=told):
                changed.check_state()
        hosted(folder, log, num_steps=100)[1][node].check_state()
    for other in ("live environment", "spool"):
        changed = {0: kinds[other], 1: own[1]}
        node = load_share(folder / "n0" / "share").node((0, 1), folder / "n0" / "state", changed)
        with pytest.raises(StateError, match="but this agent began with a log: put the log back"):
            node.check_state()


def test_when_all_data_is_used_up_the_server_gives_up_and_says_so(folder) -> None:
    log = private.write_log(folder / "wards.parquet", (2, 2))
    experiment = private.experiment(num_steps=100)
    two = experiment.__class__(
        private.charter(num_agents=2), fg.QLearning(), 0.1, 10, 100, seed=private.SEED
    )
    data = {agent: private.own_data(log)[agent] for agent in (0, 1)}
    nodes = {"n0": two.node((0, 1), folder / "n0", data)}
    with pytest.raises(FederationError, match=r"only 0 .* not quarantined and have data left"):
        serve(two, InMemory(nodes), folder / "server")


def test_a_method_that_draws_agents_closes_rounds_whose_agents_have_no_data(folder) -> None:
    log = private.write_log(folder / "wards.parquet", (30, 2))
    method = fg.Method(participation=fg.Participation(agents=1))
    experiment, nodes = hosted(folder, log, num_steps=150, method=method)
    outcome, events = serve(experiment, InMemory(nodes), folder / "server")
    counts = outcome.participation.sum(axis=1)
    assert outcome.used_up == (1,)
    assert set(counts.tolist()) == {0, 1}
    assert len(events_named(events, "round")) == 15


def test_a_node_without_data_for_an_agent_is_refused(folder, log) -> None:
    with pytest.raises(fg.ProblemError, match=r"agent 2 has no data; name it under \[data\]"):
        private.experiment().node((2,), folder, {0: private.own_data(log)[0]})
    with pytest.raises(fg.ProblemError, match="simulates no agent"):
        private.experiment().agent(0)
    with pytest.raises(fg.ProblemError, match="a charter holds no code"):
        private.charter(features=fg.features.function(np.sin, 1))
