"""Machines that each hold only their own part run the whole experiment."""

from __future__ import annotations

import numpy as np
import pytest

import cases
import fegsam as fg
from fegsam.federation.errors import StateError
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.server import FederationServer
from fegsam.federation.protocol.share import load_share, load_terms, save_share, save_terms
from helpers.in_memory import InMemory, serve

SHARED = ("alg2", "alg3", "alg4", "alg5", "alg5-preconditioned", "tdc")


def experiment_of(name, differ, sampling="markov"):
    case = cases.case(name, n=2, num_agents=4, differ=differ)
    return Experiment(
        case.problem,
        case.algorithm,
        step_size=0.1,
        sync_period=7,
        num_steps=66,
        seed=2**63 + 1,
        sampling=sampling,
        initial_params=case.start,
    )


@pytest.mark.parametrize("differ", ["policies", "mdps", "both"])
@pytest.mark.parametrize("name", SHARED)
def test_a_federation_of_shares_and_terms_is_the_same_bits(folder, assert_same_bits, name, differ):
    experiment = experiment_of(name, differ, "iid" if differ == "mdps" else "markov")
    homes = {"a": [0, 3], "b": [2, 1]}
    nodes = {}
    for node, agents in homes.items():
        save_share(experiment, agents, folder / f"{node}.share")
        nodes[node] = load_share(folder / f"{node}.share").node(agents, folder / node)
    save_terms(experiment.terms(), folder / "terms")
    transport = InMemory(nodes)
    outcome = FederationServer(
        load_terms(folder / "terms"), transport, folder / "server", clock=transport.clock
    ).run()
    whole = {
        node: experiment.node(agents, folder / "whole" / node) for node, agents in homes.items()
    }
    expected, _ = serve(experiment, InMemory(whole), folder / "whole")
    assert_same_bits(outcome.history, expected.history)
    for field in (
        "algorithm",
        "seeds",
        "output_decay",
        "fingerprint",
        "sampling",
        "record_params",
        "communications",
    ):
        assert getattr(outcome.history.settings, field) == getattr(expected.history.settings, field)


def test_a_share_holds_nothing_of_others(folder):
    experiment = experiment_of("alg4", "both")
    save_share(experiment, [1], folder / "share")
    content = (folder / "share").read_bytes()
    problem = experiment.problem
    for kind in range(problem.num_kinds):
        private = [
            problem.behavior_policies[kind].tobytes(),
            problem.mdps[kind].rewards.tobytes(),
            problem.mdps[kind].transitions.data.tobytes(),
        ]
        assert all((part in content) == (kind == problem.assignment[1]) for part in private)


def test_a_share_runs_its_own_agents_alone(folder):
    experiment = experiment_of("alg4", "both")
    save_share(experiment, [1, 2], folder / "share")
    share = load_share(folder / "share")
    with pytest.raises(fg.ProblemError, match="agent is 0, but this machine has only agents 1, 2"):
        share.agent(0)
    with pytest.raises(fg.ProblemError, match="agents has 3, but this experiment has agents 1, 2"):
        share.node([1, 3], folder)
    with pytest.raises(
        fg.ProblemError, match="agents has 4, but this experiment has agents 0 to 3"
    ):
        experiment.node([4], folder)
    with pytest.raises(fg.ProblemError, match="agents is empty"):
        experiment.node([], folder)
    with pytest.raises(fg.ProblemError, match="the share of some agents"):
        share.terms()


def test_what_is_not_a_share_is_named(folder):
    experiment = experiment_of("alg4", "both")
    with pytest.raises(StateError, match="There is no share at"):
        load_share(folder / "missing")
    save_terms(experiment.terms(), folder / "terms")
    with pytest.raises(StateError, match="is not a share"):
        load_share(folder / "terms")
    noise = cases.case("alg1-linear", num_agents=2)
    with pytest.raises(fg.ProblemError, match="LinearSA has no share"):
        save_share(
            Experiment(noise.problem, noise.algorithm, step_size=0.1, sync_period=5, num_steps=10),
            [0],
            folder / "x",
        )
    np.testing.assert_array_equal(load_terms(folder / "terms").initial_params, experiment.start)
