"""A federation over gRPC, with mutual TLS on loopback, gives the simulator's numbers."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

import cases
import fegsam as fg
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.server import Outcome
from helpers.deployed import assert_equal
from helpers.grpc_federation import Nodes, Site, serve

HOMES = [(0, 3), (1,), (2,)]
SEED, STEPS = 5, 107


def experiment_of(case, **options) -> Experiment:
    settings = {"step_size": 0.1, "sync_period": 7, "num_steps": STEPS, "seed": SEED}
    return Experiment(
        case.problem,
        case.algorithm,
        initial_params=case.start,
        record_params=True,
        **settings | options,
    )


def deployed(folder: pathlib.Path, experiment: Experiment, host: str = "127.0.0.1") -> Outcome:
    site = Site(folder, HOMES, dimension=len(experiment.start), host=host)
    with site.transport() as transport, Nodes() as nodes:
        ends = [
            nodes.start(site.link(name), experiment.node(agents, folder / name / "state").answer)
            for name, agents in site.homes.items()
        ]
        outcome = serve(site, experiment, transport)
        transport.finish()
        for end in ends:
            end.result(10)
    assert site.reasons == []
    return outcome


def simulated(case, outcome: Outcome, **options) -> fg.History:
    settings = {"step_size": 0.1, "sync_period": 7, "num_steps": STEPS, "seeds": (SEED,)}
    return fg.run(
        case.problem,
        case.algorithm,
        initial_params=case.start,
        record=outcome.history.settings.record,
        record_params=True,
        **settings | options,
    )


@pytest.mark.parametrize("name", ["alg2", "alg3", "alg4", "alg5"])
def test_every_algorithm_gives_the_simulators_history(folder, name) -> None:
    case = cases.case(name, n=3, num_agents=4, differ="both")
    outcome = deployed(folder, experiment_of(case))
    assert_equal(outcome.history, simulated(case, outcome))
    assert outcome.participation.all()


def test_so_does_a_method_with_participation(folder) -> None:
    case = cases.case("alg4", n=3, num_agents=4, differ="both")
    method = fg.Method(participation=fg.Participation(agents=2))
    outcome = deployed(folder, experiment_of(case, method=method))
    assert_equal(outcome.history, simulated(case, outcome, method=method))
    assert (outcome.participation.sum(axis=1) == 2).all()


def test_an_output_time_inside_a_round_is_the_simulators(folder) -> None:
    case = cases.case("alg4", n=3, num_agents=4, differ="both")
    experiment = experiment_of(case)
    inside = next(
        seed
        for seed in range(100)
        if dataclasses.replace(experiment, seed=seed).terms(truth=False).output_time % 7
    )
    outcome = deployed(folder, dataclasses.replace(experiment, seed=inside))
    assert_equal(outcome.history, simulated(case, outcome, seeds=(inside,)))


def test_over_ipv6(folder) -> None:
    case = cases.case("alg4", n=3, num_agents=4, differ="both")
    outcome = deployed(folder, experiment_of(case), host="::1")
    assert_equal(outcome.history, simulated(case, outcome))
