"""A federation follows a method as the simulator does, whatever dies or is late."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

import cases
import fegsam as fg
from fegsam.federation.errors import FederationError
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.ledger import Ledger
from fegsam.federation.protocol.server import FederationServer, Rules
from fegsam.federation.protocol.share import load_share, load_terms, save_share, save_terms
from fegsam.federation.protocol.sparse_rows import pack_rows
from fegsam.federation.protocol.state import NodeFile, read_sealed
from fegsam.federation.protocol.wire import FROM_NODE, FROM_SERVER, Reply, decode, encode
from helpers.deployed import assert_equal
from helpers.in_memory import InMemory, serve, spread
from helpers.method_cases import AGENTS, BY_AGENT, BY_KIND, EVERY_METHOD, METHODS
from helpers.requests import request, request_of, state_files

HOMES = [(0, 3), (1, 2), (4,)]
STEPS, PERIOD, SEED = 37, 4, 5
"""The last round is cut short."""
REFUSED = {
    name: method
    for name, method in EVERY_METHOD.items()
    if isinstance(method.average, fg.ByVisits)
    or method.exchanges > 1
    or (method.participation is not None and method.participation.others == "go_on")
}
MORE = {
    "rounded local steps of those who wait": fg.Method(
        rounding=fg.Rounding(0.05),
        local_steps=fg.LocalSteps((2, 4, 3)),
        participation=fg.Participation(agents=3),
    ),
    "often nobody, with momentum and nesterov": fg.Method(
        participation=fg.Participation(probability=0.2, divide_by="all"),
        server=fg.Server(0.9, 0.5, nesterov=True),
    ),
    "last round of some by kind, often nobody": fg.Method(
        fg.Mean(BY_AGENT),
        fg.ControlVariates("kind"),
        participation=fg.Participation(probability=0.3),
    ),
    "weighted last round of some with nesterov": fg.Method(
        fg.Mean(BY_KIND),
        fg.ControlVariates(),
        fg.Server(0.8, 0.5, nesterov=True),
        fg.Participation(probability=0.5, divide_by="all"),
    ),
}
DEPLOYED = {name: method for name, method in METHODS.items() if name not in REFUSED} | MORE
SCHEDULES = {
    "polynomial": fg.schedules.Polynomial(0.75),
    "rescaled": fg.schedules.Rescaled(),
    "steps": fg.schedules.Steps((3, 9), (0.5, 0.25)),
}
PERIODS = {"list": (1, 3, 2), "growing": fg.schedules.Growing(1, 1.6, 9)}
WITH_MEMORY = (
    "nesterov",
    "last round by agent",
    "last round by kind",
    "last round of some agents",
    "weighted last round of some with nesterov",
    "rounded local steps of those who wait",
)


def experiment_of(name="alg4", method=None, **options):
    case = cases.case(name, n=2, num_agents=AGENTS, differ="both")
    settings = {"step_size": 0.1, "sync_period": PERIOD, "num_steps": STEPS, "seed": SEED}
    return Experiment(
        case.problem,
        case.algorithm,
        initial_params=case.start,
        record=1,
        record_params=True,
        method=fg.Method() if method is None else method,
        **(settings | options),
    )


def simulated(experiment, engine="reference"):
    names = (
        "step_size",
        "sync_period",
        "num_steps",
        "method",
        "schedule",
        "initial_params",
        "sampling",
    )
    return fg.run(
        experiment.problem,
        experiment.algorithm,
        seeds=(experiment.seed,),
        record=experiment.terms().settings.record,
        record_params=True,
        engine=engine,
        **{name: getattr(experiment, name) for name in names},
    )


def deployed(experiment, folder, homes=HOMES, **options):
    return serve(experiment, InMemory(spread(experiment, folder, homes)), folder, **options)


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [(name, "alg5") for name in DEPLOYED]
    + [(name, algorithm) for name in WITH_MEMORY for algorithm in ("alg4", "alg1-linear")],
)
def test_a_deployed_method_equals_the_simulated_one(folder, name, algorithm):
    experiment = experiment_of(algorithm, DEPLOYED[name])
    outcome, _ = deployed(experiment, folder)
    expected = simulated(experiment)
    assert_equal(outcome.history, expected)
    for field in ("method", "schedule", "periods", "exchanges", "communications", "fingerprint"):
        assert getattr(outcome.history.settings, field) == getattr(expected.settings, field)
    assert len(outcome.participation) == 10
    if DEPLOYED[name].participation is None:
        assert outcome.participation.all()


@pytest.mark.parametrize("periods", [PERIOD, *PERIODS.values()], ids=["equal", *PERIODS])
@pytest.mark.parametrize("shape", [None, *SCHEDULES.values()], ids=["constant", *SCHEDULES])
@pytest.mark.parametrize("name", ["plain", "last round of some agents", "last round by kind"])
def test_step_sizes_and_rounds_that_change_are_the_simulators(folder, name, shape, periods):
    experiment = experiment_of(
        method=DEPLOYED[name], schedule=shape, sync_period=periods, step_size=0.3
    )
    outcome, _ = deployed(experiment, folder)
    assert_equal(outcome.history, simulated(experiment))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["rounded local steps of those who wait", *WITH_MEMORY[1:3]])
def test_the_output_inside_a_round_is_the_simulators(folder, name, seed):
    experiment = experiment_of(
        method=DEPLOYED[name], seed=seed, sync_period=18, schedule=SCHEDULES["polynomial"]
    )
    assert experiment.terms().output_time % 18
    outcome, _ = deployed(experiment, folder)
    assert_equal(outcome.history, simulated(experiment))


@pytest.mark.parametrize("name", ["momentum", "rounding", "last round by agent", "lost at random"])
def test_one_agent_follows_a_method_too(folder, name):
    case = cases.case("alg4", num_agents=1)
    experiment = dataclasses.replace(
        experiment_of(method=METHODS[name]), problem=case.problem, algorithm=case.algorithm
    )
    outcome, _ = deployed(experiment, folder, [(0,)])
    assert_equal(outcome.history, simulated(experiment))


class DiedError(Exception):
    """Stands in for the death of a process."""


@pytest.mark.parametrize("late", [False, True], ids=["before the checkpoint", "after it"])
@pytest.mark.parametrize("name", WITH_MEMORY)
def test_a_server_that_dies_resumes_with_the_same_bits(
    folder, monkeypatch, assert_same_bits, name, late
):
    experiment = experiment_of("alg5", DEPLOYED[name], schedule=SCHEDULES["polynomial"])
    undisturbed, _ = deployed(experiment, folder / "undisturbed")
    transport, save = InMemory(spread(experiment, folder, HOMES)), Ledger.save

    def dying(self, state):
        if late:
            save(self, state)
        if state.round % 2 and state.round not in died:
            died.add(state.round)
            raise DiedError
        save(self, state)

    died = set()
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "save", dying)
        for _ in range(5):
            with pytest.raises(DiedError):
                serve(experiment, transport, folder)
            transport.queue.clear()
        outcome, _ = serve(experiment, transport, folder)
    assert died == {1, 3, 5, 7, 9}
    assert_same_bits(outcome.history, undisturbed.history)


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_a_node_that_dies_keeps_its_variates(folder, assert_same_bits, name):
    experiment = experiment_of("alg5", DEPLOYED[name])
    undisturbed, _ = deployed(experiment, folder / "undisturbed")
    transport = InMemory(spread(experiment, folder, HOMES))

    def reborn(event):
        if event["event"] == "round":
            transport.members |= spread(experiment, folder, HOMES)

    outcome, _ = serve(experiment, transport, folder, watch=reborn)
    assert_same_bits(outcome.history, undisturbed.history)


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_shares_and_terms_hold_the_method(folder, assert_same_bits, name):
    experiment = experiment_of(method=DEPLOYED[name], schedule=SCHEDULES["steps"])
    nodes = {}
    for number, agents in enumerate(HOMES):
        save_share(experiment, list(agents), folder / f"{number}.share")
        nodes[f"n{number}"] = load_share(folder / f"{number}.share").node(
            agents, folder / str(number)
        )
    save_terms(experiment.terms(), folder / "terms")
    transport = InMemory(nodes)
    terms = load_terms(folder / "terms")
    outcome = FederationServer(terms, transport, folder / "server", clock=transport.clock).run()
    undisturbed, _ = deployed(experiment, folder / "whole")
    assert_same_bits(outcome.history, undisturbed.history)


@pytest.mark.parametrize("periods", PERIODS.values(), ids=PERIODS)
def test_shares_and_terms_hold_rounds_that_change(folder, periods):
    experiment = experiment_of(sync_period=periods)
    save_share(experiment, [2], folder / "share")
    save_terms(experiment.terms(), folder / "terms")
    assert load_share(folder / "share").sync_period == periods
    assert load_terms(folder / "terms").settings.rounds == experiment.plan.rounds


# --- Agents that are late, away or lie ------------------------------------------------------------


def by_hand(experiment, taken):
    """The final average with control variates by a loop of its own, where only agents with
    ``taken[round, agent]`` take part in each round."""
    agents = [experiment.agent(i) for i in range(AGENTS)]
    x, g = experiment.start, np.zeros((AGENTS, len(experiment.start)))
    for number, row in enumerate(taken):
        count = min(PERIOD, STEPS - number * PERIOD)
        sizes, corrections = np.full(count, 0.1), g.mean(axis=0) - g
        ends = {
            i: agents[i].local_steps(x, count, sizes, corrections[i]) for i in np.flatnonzero(row)
        }
        for i, end in ends.items():
            g[i] = (end - x) / sizes.sum() - corrections[i]
        x = sum(ends.values()) / len(ends)
    return x


def variates(experiment, folder, homes=HOMES):
    """gbar of the server, and the mean of the variates that the nodes held in the last round."""
    _, server = read_sealed(folder / "server" / "checkpoint")
    kept = []
    for number, agents in enumerate(homes):
        states, _ = NodeFile(folder / f"n{number}", experiment.fingerprint).read(print)
        kept += [states[agent].variates[0] for agent in agents]
    return server["variate_mean"], np.mean(kept, axis=0)


def test_an_agent_that_is_away_keeps_its_variate(folder):
    experiment = experiment_of(method=fg.methods.scafflsa())
    transport = InMemory(spread(experiment, folder, HOMES))

    def watch(event):
        if event["event"] == "round":
            transport.away = {"n2"} if event["round"] in (2, 3, 4) else set()

    outcome, _ = serve(experiment, transport, folder, Rules(quorum=4), watch=watch)
    expected = np.ones((10, AGENTS), bool)
    expected[3:6, 4] = False
    np.testing.assert_array_equal(outcome.participation, expected)
    final = outcome.history.data.final_params.values[0]
    np.testing.assert_allclose(final, by_hand(experiment, expected), rtol=0, atol=1e-12)
    np.testing.assert_allclose(*variates(experiment, folder), rtol=0, atol=1e-12)


def test_a_round_that_an_agent_computed_in_vain_does_not_change_its_variate(folder):
    experiment = experiment_of(method=fg.methods.scafflsa())

    def slow(node, payload):
        answer = node.answer(payload)
        (message,) = decode(answer, FROM_NODE)
        late = isinstance(message, Reply) and message.round in (3, 4, 6)
        return None if late else answer

    transport = InMemory(spread(experiment, folder, HOMES), {"n2": slow})
    outcome, events = serve(experiment, transport, folder, Rules(quorum=4, round_timeout=30))
    assert not outcome.participation[[3, 4, 6], 4].any()
    assert outcome.participation.sum() == 50 - 3
    assert [event["steps"] for event in events if event["event"] == "samples-lost"] == [[8], [4]]
    # The sum of the corrections stays zero: gbar is the mean of the variates that nodes hold.
    np.testing.assert_allclose(*variates(experiment, folder), rtol=0, atol=1e-12)


def test_who_answers_late_counts_neither_in_the_weights_nor_in_the_steps(folder):
    method = fg.Method(fg.Mean(BY_AGENT), local_steps=fg.LocalSteps((1, 4, 3)))
    experiment = experiment_of(method=method)

    def silent(node, payload):
        asked = request_of(payload)
        return None if asked is not None and asked.round == 0 else node.answer(payload)

    transport = InMemory(spread(experiment, folder, HOMES), {"n2": silent})
    outcome, events = serve(experiment, transport, folder, Rules(quorum=4, round_timeout=30))
    assert {event["event"] for event in events}.isdisjoint({"refused", "samples-lost"})
    kinds = experiment.problem.assignment
    steps = np.array((1, 4, 3))[kinds]
    weights = np.array(BY_AGENT)[:4] / sum(BY_AGENT[:4])
    changes = [
        experiment.agent(i).local_steps(experiment.start, int(steps[i])) - experiment.start
        for i in range(4)
    ]
    first = experiment.start + sum(
        weights[i] * steps.mean() / steps[i] * changes[i] for i in range(4)
    )
    found = outcome.history.data.average_params.sel(time=PERIOD).values[0]
    np.testing.assert_allclose(found, first, rtol=0, atol=1e-12)


def test_an_agent_that_used_more_samples_than_its_own_steps_is_refused(folder):
    experiment = experiment_of(method=fg.methods.fednova((2, 2, 2)))

    def greedy(node, payload):
        answer = node.answer(payload)
        (message,) = decode(answer, FROM_NODE)
        if not isinstance(message, Reply) or message.round < 3:
            return answer
        if message.round == 3:
            return None
        return encode(dataclasses.replace(message, time=message.time + 1))

    transport = InMemory(spread(experiment, folder, HOMES), {"n2": greedy})
    _, events = serve(experiment, transport, folder, Rules(quorum=4, round_timeout=30))
    refused = {
        (*event["agents"], event["reason"]) for event in events if event["event"] == "refused"
    }
    assert refused == {(4, "step counter ran ahead")}


@pytest.mark.parametrize("steps", [4, 0])
def test_an_agent_that_made_other_steps_than_its_own_is_refused(folder, steps):
    experiment = experiment_of(method=fg.methods.fednova((3, 3, 3)))

    def lying(node, payload):
        (message, *others) = decode(node.answer(payload), FROM_NODE)
        if isinstance(message, Reply):
            message = dataclasses.replace(message, steps=steps)
        return encode(message, *others)

    transport = InMemory(spread(experiment, folder, HOMES), {"n2": lying})
    _, events = serve(experiment, transport, folder, Rules(quorum=4))
    refused = {
        (*event["agents"], event["reason"]) for event in events if event["event"] == "refused"
    }
    assert refused == {(4, "wrong number of steps")}


def test_drawn_agents_that_are_quarantined_are_left_out(folder):
    experiment = experiment_of(method=METHODS["m of N, divided by all"])

    def lying(node, payload):
        (message,) = decode(node.answer(payload), FROM_NODE)
        if isinstance(message, Reply):
            lie = pack_rows(np.full((1, len(experiment.start)), np.nan))
            message = dataclasses.replace(message, params=lie)
        return encode(message)

    transport = InMemory(spread(experiment, folder, HOMES), {"n2": lying})
    outcome, _ = serve(experiment, transport, folder)
    honest, _ = deployed(experiment, folder / "honest")
    expected = honest.participation.copy()
    expected[:, 4] = False
    assert expected.sum() < honest.participation.sum()
    np.testing.assert_array_equal(outcome.participation, expected)


def test_a_round_whose_drawn_agents_are_all_quarantined_is_named(folder):
    experiment = experiment_of(method=fg.Method(participation=fg.Participation(agents=1)))

    def lying(node, payload):
        return b"" if request_of(payload) is not None else node.answer(payload)

    nodes = spread(experiment, folder, HOMES)
    with pytest.raises(FederationError, match="only 0 of the agents asked are not quarantined"):
        serve(experiment, InMemory(nodes, dict.fromkeys(nodes, lying)), folder)


# --- What is agreed, sent and refused -------------------------------------------------------------


def test_whatever_the_method_says_changes_the_fingerprint():
    every = [experiment_of(method=method) for method in DEPLOYED.values()]
    every += [experiment_of(schedule=shape) for shape in SCHEDULES.values()]
    every += [experiment_of(sync_period=periods) for periods in PERIODS.values()]
    assert len({each.fingerprint for each in every}) == len(every)
    plain = experiment_of()
    for same in ((PERIOD, PERIOD), np.int64(PERIOD), [PERIOD]):
        assert experiment_of(sync_period=same).fingerprint == plain.fingerprint
    one, other = (experiment_of(method=fg.Method(server=fg.Server(0.5, m))) for m in (0, 0.0))
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize("name", ["plain", "momentum", "last round by agent", "last round by kind"])
def test_nothing_more_leaves_a_node_and_only_variates_travel_to_it(folder, name):
    experiment = experiment_of(method=DEPLOYED[name])
    transport = InMemory(spread(experiment, folder, HOMES))
    serve(experiment, transport, folder)
    most = 4 + 2 * (8 + 8 * len(experiment.start))
    for _, payload in transport.received:
        for message in decode(payload, FROM_NODE):
            if isinstance(message, Reply):
                assert len(message.params) <= most
    first = next(payload for _, payload in transport.sent if request_of(payload) is not None)
    start, asked = decode(first, FROM_SERVER)
    rows = 2 if name == "last round by agent" else 1
    assert len(start.params) == 4 + rows * (8 + 8 * len(experiment.start))
    assert bool(asked.corrections) == (name == "last round by kind")
    assert bool(asked.heard) == (name == "last round by agent")


def test_a_request_without_its_variates_uses_no_sample(folder):
    experiment = experiment_of(method=fg.methods.scafflsa())
    node, start = experiment.node([0], folder), experiment.start
    for rows, heard in ((1, (0,)), (3, (0,)), (0, (0,)), (2, ()), (2, (0, 0))):
        asked = request(
            experiment.fingerprint, 0, (0,), (PERIOD,), np.tile(start, (rows, 1)), heard=heard
        )
        (failure,) = decode(node.answer(asked), FROM_NODE)
        assert not isinstance(failure, Reply)
    assert not state_files(folder, experiment.fingerprint)


def test_a_round_is_delivered_again_whoever_else_is_asked(folder):
    experiment = experiment_of(method=DEPLOYED["last round by kind"])
    node, d = experiment.node([0, 3], folder), len(experiment.start)
    start, *rows = np.random.default_rng(0).normal(size=(3, 1, d))
    asked = experiment.fingerprint, 0
    both = request(*asked, (3, 0), (PERIOD,), start, corrections=np.concatenate(rows))
    alone = request(*asked, (0,), (PERIOD,), start, corrections=rows[1])
    other = request(*asked, (0,), (PERIOD,), start, corrections=rows[0])
    _, first = decode(node.answer(both), FROM_NODE)
    (again,) = decode(node.answer(alone), FROM_NODE)
    assert first.params == again.params
    assert not isinstance(decode(node.answer(other), FROM_NODE)[0], Reply)


def test_a_round_from_another_variate_is_another_round(folder):
    experiment = experiment_of(method=fg.methods.scafflsa())
    node, rows = experiment.node([0], folder), np.tile(experiment.start, (2, 1))
    for heard, answered in ((0, True), (0, True), (1, False)):
        asked = request(experiment.fingerprint, 1, (0,), (PERIOD,), rows, heard=(heard,))
        (message,) = decode(node.answer(asked), FROM_NODE)
        assert isinstance(message, Reply) == answered


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_deployment_cannot_do_is_refused_in_one_sentence(name):
    with pytest.raises(fg.ProblemError, match=r"simulate it with fegsam\.run\.$"):
        experiment_of(method=REFUSED[name])


def test_what_cannot_be_agreed_on_is_refused(folder):
    class Own:
        def factors(self, times, discount):
            return np.ones(len(times))

    with pytest.raises(fg.ProblemError, match=r"schedule is .* cannot be written as plain data"):
        experiment_of(schedule=Own())
    with pytest.raises(fg.ProblemError, match="method is 'scafflsa'"):
        experiment_of(method="scafflsa")
    with pytest.raises(fg.ProblemError, match="sync_period is empty"):
        experiment_of(sync_period=())
    with pytest.raises(fg.ProblemError, match="asks for 9 agents of 5"):
        experiment_of(method=fg.Method(participation=fg.Participation(agents=9))).terms()
    some = experiment_of(method=METHODS["m of N wait"])
    for rules, message in (
        (Rules(participants=2), "participants is 2, but the method has a participation of its own"),
        (Rules(quorum=3), "quorum is 3; give a number from 1 to 2"),
    ):
        with pytest.raises(FederationError, match=message):
            deployed(some, folder, rules=rules)


def test_a_study_with_a_tail_average_is_refused():
    cell = SimpleNamespace(
        build=lambda: (experiment_of().problem, fg.QLearning()),
        build_simulated=lambda: (experiment_of().problem, fg.QLearning()),
        arguments=lambda dimension: {"stop_at_output": False, "tail": fg.Tail(0.5), "seeds": (0,)},
    )
    with pytest.raises(fg.ProblemError, match="a federation keeps none"):
        Experiment.from_cell(cell)


def test_a_quorum_beyond_those_drawn_asks_for_all_of_them(folder):
    experiment = experiment_of(method=METHODS["lost at random"])
    outcome, _ = deployed(experiment, folder, rules=Rules(quorum=3))
    assert_equal(outcome.history, simulated(experiment))
    assert outcome.participation.sum(axis=1).min() < 3


def test_a_stored_method_of_another_version_is_named(folder, monkeypatch):
    experiment = experiment_of(method=DEPLOYED["momentum"])
    with monkeypatch.context() as patch:
        patch.setattr("fegsam.methods.plain.VERSION", 2)
        save_terms(experiment.terms(), folder / "terms")
    with pytest.raises(fg.ProblemError, match="install the version that wrote it"):
        load_terms(folder / "terms")
