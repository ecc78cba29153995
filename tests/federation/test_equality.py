"""A federation gives the simulator's numbers, wherever its agents live."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cases
import fegsam as fg
from fegsam.experiments.spec.study import EXAMPLE, parse_study
from fegsam.federation.protocol.experiment import Experiment
from helpers.in_memory import InMemory, serve, spread

HOMES = {1: [(0, 1, 2, 3)], 2: [(0, 3), (1, 2)], 4: [(2,), (0,), (3,), (1,)]}
STEPS = 107
SEED = 5


def experiment_of(case, period, **options):
    return Experiment(
        case.problem,
        case.algorithm,
        step_size=0.1,
        sync_period=period,
        num_steps=STEPS,
        seed=SEED,
        initial_params=case.start,
        record_params=True,
        **options,
    )


def assert_equal_histories(found, simulated):
    """To 1e-12, relative to the largest parameter; every variable, every time."""
    assert set(found.data.variables) == set(simulated.data.variables)
    scale = max(1.0, float(np.abs(simulated.data.average_params).max()))
    for name in simulated.data.variables:
        ours, theirs = found.data[name].values, simulated.data[name].values
        np.testing.assert_allclose(
            ours, theirs, rtol=1e-12 * scale, atol=1e-12 * scale, err_msg=str(name)
        )


@pytest.mark.parametrize("nodes", HOMES)
@pytest.mark.parametrize("period", [1, 7, 50])
@pytest.mark.parametrize("name", cases.ALGORITHMS)
def test_deployed_equals_simulated_wherever_agents_live(folder, name, period, nodes):
    case = cases.case(name, n=3, num_agents=4, differ="both")
    experiment = experiment_of(case, period)
    outcome, _ = serve(experiment, InMemory(spread(experiment, folder, HOMES[nodes])), folder)
    settings = outcome.history.settings
    simulated = case.run(alpha=0.1, K=period, T=STEPS, seeds=(SEED,), record=settings.record)
    assert_equal_histories(outcome.history, simulated)
    for field in (
        "algorithm",
        "num_agents",
        "seeds",
        "sampling",
        "output_decay",
        "fingerprint",
        "version",
        "communications",
    ):
        assert getattr(settings, field) == getattr(simulated.settings, field)
    assert outcome.participation.all()
    assert outcome.participation.shape == (-(-STEPS // period), 4)
    assert outcome.communications == 4 * len(outcome.participation)


@pytest.mark.parametrize("name", cases.ALGORITHMS)
def test_independent_windows_are_the_simulators_too(folder, name):
    case = cases.case(name, n=2, num_agents=4, differ="mdps")
    experiment = experiment_of(case, 7, sampling="iid")
    outcome, _ = serve(experiment, InMemory(spread(experiment, folder, HOMES[2])), folder)
    record = outcome.history.settings.record
    assert_equal_histories(
        outcome.history,
        case.run(alpha=0.1, K=7, T=STEPS, seeds=(SEED,), record=record, sampling="iid"),
    )


def test_a_round_longer_than_one_piece_of_path(folder):
    case = cases.case("alg3", n=3, num_agents=2)
    experiment = dataclasses.replace(experiment_of(case, 9000), num_steps=20_000)
    outcome, _ = serve(experiment, InMemory(spread(experiment, folder, [(0,), (1,)])), folder)
    simulated = case.run(
        alpha=0.1, K=9000, T=20_000, seeds=(SEED,), record=outcome.history.settings.record
    )
    assert_equal_histories(outcome.history, simulated)


def test_one_agent_equals_the_run_of_one_agent_bit_for_bit(folder, assert_same_bits):
    case = cases.case("alg4", num_agents=1)
    experiment = experiment_of(case, 7)
    outcome, _ = serve(experiment, InMemory(spread(experiment, folder, [(0,)])), folder)
    simulated = case.run(
        alpha=0.1, K=7, T=STEPS, seeds=(SEED,), record=outcome.history.settings.record
    )
    assert_same_bits(outcome.history, simulated)


def test_the_order_of_arrival_changes_no_bit(folder, assert_same_bits):
    experiment = experiment_of(cases.case("alg4", num_agents=4), 7)
    one, _ = serve(
        experiment, InMemory(spread(experiment, folder / "one", HOMES[4])), folder / "one"
    )

    class Shuffled(InMemory):
        def receive(self, timeout):
            return super().receive(timeout)[::-1]

    other, _ = serve(
        experiment, Shuffled(spread(experiment, folder / "other", HOMES[4][::-1])), folder / "other"
    )
    assert_same_bits(one.history, other.history)


def test_a_node_knows_only_its_own_environment_and_policy():
    case = cases.case("alg5", n=2, num_agents=5, differ="both")
    experiment = experiment_of(case, 7)
    part = experiment.only([3])
    kind = case.problem.assignment[3]
    assert len(part.problem.mdps) == len(part.problem.behavior_policies) == 1
    np.testing.assert_array_equal(
        part.problem.behavior_policies[0], case.problem.behavior_policies[kind]
    )
    assert part.fingerprint == experiment.fingerprint
    start = np.ones(cases.FEATURES)
    np.testing.assert_array_equal(
        part.agent(3).local_steps(start, 30), experiment.agent(3).local_steps(start, 30)
    )


def test_a_study_is_an_experiment_under_its_first_seed(folder):
    study = parse_study(EXAMPLE).override({"grid.num_agents": 3, "run.num_steps": 95})
    experiment = Experiment.from_cell(study.cells()[0])
    outcome, _ = serve(experiment, InMemory(spread(experiment, folder, [(0, 1, 2)])), folder)
    simulated = fg.run(
        experiment.problem, experiment.algorithm, step_size=0.1, sync_period=10, num_steps=95,
        seeds=(study.seeds[0],), record=outcome.history.settings.record,
    )  # fmt: skip
    np.testing.assert_allclose(
        outcome.history.data.final_params, simulated.data.final_params, rtol=0, atol=1e-12
    )


def test_whatever_decides_the_numbers_changes_the_fingerprint():
    case = cases.case("alg4", num_agents=4)
    base = experiment_of(case, 7)
    changes = [
        {"step_size": 0.2},
        {"sync_period": 8},
        {"num_steps": 50},
        {"seed": 1},
        {"sampling": "iid"},
        {"initial_params": None},
    ]
    prints = [dataclasses.replace(base, **change).fingerprint for change in changes]
    others = [
        experiment_of(cases.case("alg4", num_agents=3), 7).fingerprint,
        experiment_of(cases.case("alg3", num_agents=4), 7),
    ]
    assert len({base.fingerprint, *prints, *others}) == len(prints) + 3
    assert dataclasses.replace(base, record=10).fingerprint == base.fingerprint


def test_without_the_truth_the_parameters_are_there_and_the_errors_are_not_known(folder):
    experiment = experiment_of(cases.case("alg4", num_agents=2), 7)
    terms = experiment.terms(truth=False)
    assert np.isnan(terms.truth.fixed_point).all()
    assert terms.settings.fingerprint == experiment.terms().settings.fingerprint
