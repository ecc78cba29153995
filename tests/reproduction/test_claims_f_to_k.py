"""Claims (f) to (k) of the reproduction on small runs, and controls that must come out as "does not
hold"."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fegsam as fg
from fegsam.engines.job import Job, lower_chain
from fegsam.report import Section
from fegsam.reproduction import consensus, local_sgd, lower_bound, output, privacy, sampling
from fegsam.reproduction.problems import cases
from fegsam.reproduction.replay import replay
from fegsam.reproduction.thresholds import claim_spec


def outcomes(section: Section) -> dict[str, str]:
    return {verdict.claim: verdict.outcome for verdict in section.verdicts}


# --- Engines that are wrong on purpose ------------------------------------------------------------


def one_stream(job: Job) -> fg.History:
    """Agents that all draw the same random numbers: together they are one."""
    agents = job.agents._replace(kinds=job.agents.kinds[:1])
    return fg.engines.Cpu()(
        replace(job, settings=replace(job.settings, num_agents=1), agents=agents)
    )


def no_averaging(job: Job) -> fg.History:
    """Agents that never hear of each other."""
    return fg.engines.Cpu()(replace(job, settings=replace(job.settings, sync_period=10**9)))


def forgetful(job: Job) -> fg.History:
    """Paths reset at every averaging: with K = 1, and a uniform start, noise of two states loses
    its memory."""
    if job.settings.sampling == "iid":
        return fg.engines.Cpu()(job)
    fresh = fg.MarkovNoise(np.full((2, 2), 0.5), num_agents=job.num_agents)
    chain = lower_chain(fresh, np.ones((1, 2, 1)), "markov")
    return fg.engines.Cpu()(replace(job, chain=chain))


# --- (f) Markov against independent draws ---------------------------------------------------------

SCALAR = claim_spec("sampling", quick=True).resized(seeds=150, num_steps=600, agents=[1, 4, 16])


def scalar_outcomes(engine: Any) -> dict[str, str]:
    samples = {kind: sampling.scalar_runs(SCALAR, kind, engine) for kind in sampling.SAMPLINGS}
    return {
        verdict.claim.partition(", ")[2]: verdict.outcome
        for verdict in sampling.scalar_verdicts(SCALAR, samples)
    }


def test_memory_costs_a_factor_and_not_the_speed_up() -> None:
    found = scalar_outcomes("cpu")
    assert "does not hold" not in found.values()
    assert found["Markov draws"] == found["independent draws"] == "holds"


def test_agents_on_one_stream_have_no_speed_up() -> None:
    found = scalar_outcomes(one_stream)
    assert (
        found["Markov draws"]
        == found["independent draws"]
        == found["correlation with the noise"]
        == "does not hold"
    )


def test_paths_that_are_reset_pay_no_price_for_memory() -> None:
    found = scalar_outcomes(forgetful)
    assert found["price of memory"] == "does not hold"
    assert found["correlation with the noise"] != "holds"


def test_closed_forms_of_the_scalar_example_are_the_exact_ones() -> None:
    independent, markov, _ = sampling.closed_forms(0.1, 0.5)
    noise = fg.MarkovNoise([[0.75, 0.25], [0.25, 0.75]], num_agents=1)
    follow = fg.LinearSA(np.full((2, 1, 1), -1.0), [[1.0], [-1.0]])
    for kind, expected in (("iid", independent), ("markov", markov)):
        found = fg.exact.moments(
            noise, follow, step_size=0.1, sync_period=1, times=[500], sampling=kind
        )
        assert_allclose(found.mse, expected, rtol=1e-9)


# --- (g) The lower bound --------------------------------------------------------------------------

SCALAR_FLOOR = claim_spec("lower_bound", quick=True).resized(
    seeds=1500, curve_seeds=1500, step_sizes=[0.05, 0.1, 0.2]
)


def test_scalar_example_has_its_closed_form() -> None:
    section = lower_bound.examine(SCALAR_FLOOR)
    found = outcomes(section)
    assert "does not hold" not in found.values()
    assert (
        found["scalar example, exact"]
        == found["floor against averaging period"]
        == found["mean over time"]
        == "holds"
    )
    # Averages do not depend on K path by path, so that this is no evidence.
    (identity,) = [verdict for verdict in section.verdicts if verdict.kind == "identity"]
    assert identity.claim == "floor against averaging period"
    assert identity.estimate.value < 1e-12


def test_averages_that_depend_on_the_sync_period_in_the_sixth_digit_are_told_apart() -> None:
    """What is called equal up to rounding is held to rounding, and not to a thousandth."""

    def slightly_off(job: Job) -> fg.History:
        step = job.settings.step_size * (1 + 1e-6 * (job.settings.sync_period > 1))
        return fg.engines.Cpu()(replace(job, settings=replace(job.settings, step_size=step)))

    assert (
        outcomes(lower_bound.examine(SCALAR_FLOOR, slightly_off))["floor against averaging period"]
        == "does not hold"
    )


def test_seeds_of_the_demo_are_enough_to_tell_that_the_curve_is_the_closed_form() -> None:
    verdicts, _ = lower_bound.against_time(claim_spec("lower_bound", quick=True), "cpu")
    assert [verdict.outcome for verdict in verdicts] == ["holds", "holds"]


def test_floor_of_agents_on_one_stream_is_that_of_one() -> None:
    assert (
        outcomes(lower_bound.examine(SCALAR_FLOOR, one_stream))["floor against agents"]
        == "does not hold"
    )


# --- (h) What to hand out -------------------------------------------------------------------------


def test_readouts_of_a_run_of_two_steps() -> None:
    """Errors 4, 2, 1 at the times 0, 1, 2; with decay 1/2 the times 0 and 1 weigh 1/3 and 2/3."""
    params = np.array([[[4.0], [2.0], [1.0]]]) + 10.0
    found = output.readouts(params, np.arange(3), np.array([10.0]), 0.5, np.array([2]))
    assert_allclose(found.random, [[16 / 3 + 8 / 3]])
    assert_allclose(found.last, [[1.0]])
    assert_allclose(found.averaged, [[(8 / 3) ** 2]])


def test_last_iterate_is_no_worse_and_the_weighted_mean_is_better() -> None:
    spec = claim_spec("output", quick=True).resized(algorithms=[2], seeds=60)
    found = outcomes(output.examine(spec))
    assert "does not hold" not in found.values()
    assert found["On-policy TD, Garnet, weighted mean against last"] == "holds"


# --- (i) Privacy ----------------------------------------------------------------------------------

SECRETS = claim_spec("privacy", quick=True).resized(
    problems=2, num_steps=2000, td_num_steps=1200, sync_periods=[1, 10, 1000]
)


def test_messages_give_paths_rewards_and_policies_away_unless_they_are_rare() -> None:
    found = outcomes(privacy.examine(SECRETS))
    for key in ("steps", "rewards", "policies"):
        assert found[f"Q-learning, averaging every step: {key}"] == "does not hold"
        assert found[f"Q-learning, averaging every 1000 steps: {key}"] == "holds"
    assert found["Q-learning, averaging every 10 steps: rewards"] == "does not hold"
    assert found["off-policy TD, averaging every step: policies"] == "does not hold"


@pytest.mark.parametrize(
    "algorithm",
    [fg.QLearning(), fg.OffPolicyTabularTD(), fg.OffPolicyTabularTD(horizon=2)],
    ids=repr,
)
def test_replayed_messages_average_to_those_of_the_engine(algorithm) -> None:
    problem = privacy.private_problem(SECRETS, 0, evaluated=True)
    settings: dict[str, Any] = {"step_size": 0.1, "sync_period": 7, "num_steps": 70}
    history = fg.run(problem, algorithm, seeds=[3], record=7, record_params=True, **settings)
    assert_allclose(
        replay(problem, algorithm, seed=3, **settings).returned,
        history.data.average_params[0],
        atol=1e-13,
    )


def test_at_every_step_the_server_names_the_whole_path() -> None:
    problem = privacy.private_problem(SECRETS, 1)
    messages = replay(problem, fg.QLearning(), step_size=0.1, sync_period=1, num_steps=300, seed=0)
    looks = privacy.Looks.of(messages, 0, 0.1, problem.discount, problem.num_actions)
    named = np.argwhere(privacy.named_steps(looks, np.full(30, np.nan), 1))
    cells = messages.states[0, :299] * problem.num_actions + messages.actions[0, :299]
    assert_allclose(named, np.stack([np.arange(299), cells, messages.states[0, 1:300]], axis=1))


def test_noise_on_the_messages_hides_the_rewards() -> None:
    problem = privacy.private_problem(SECRETS, 0)
    messages = replay(
        problem, fg.QLearning(), step_size=0.1, sync_period=10, num_steps=2000, seed=0
    )
    noise = 1e-3 * np.random.default_rng(0).normal(size=messages.sent.shape)
    shares = []
    for sent in (messages.sent, messages.sent + noise):
        looks = privacy.Looks.of(
            messages._replace(sent=sent), 0, 0.1, problem.discount, problem.num_actions
        )
        guessed = privacy.guessed_rewards(looks, 10)
        shares.append(np.mean(np.abs(guessed - problem.mdps[0].rewards.ravel()) < 1e-6))
    assert shares[0] > 0.9
    assert shares[1] == 0.0


# --- (j) Consensus --------------------------------------------------------------------------------


def test_agents_part_no_further_than_the_lemma_allows() -> None:
    spec = claim_spec("consensus", quick=True).resized(algorithms=[2, 4], rounds=6, seeds=100)
    found = outcomes(consensus.examine(spec))
    assert "does not hold" not in found.values()
    assert found["On-policy TD, Garnet"] == found["Q-learning, Garnet"] == "holds"


def test_agents_that_never_average_part_further_than_is_computed() -> None:
    spec = claim_spec("consensus", quick=True).resized(algorithms=[2], rounds=6, seeds=100)
    assert (
        outcomes(consensus.examine(spec, no_averaging))["On-policy TD, Garnet, sampled"]
        == "does not hold"
    )


def test_lemma_for_coins_is_five_times_the_noise() -> None:
    """A_1 = A_2 = 0 and B = 1: 5 alpha^2 k."""
    spread, _ = consensus.coin_spread([[1.0, -1.0]], 10, 1e-3, 8)
    assert_allclose(spread.allowed, 5e-6 * np.arange(8), rtol=1e-9)


def test_norm_shares_bound_the_sup_norm() -> None:
    case = cases(True, (4,))[0]
    given = fg.theory.assumptions(case.federate(2), case.algorithm)
    assert_allclose(consensus.norm_shares(given), (1 / given.dimension, 1.0))


# --- (k) Local SGD --------------------------------------------------------------------------------

SGD = claim_spec("local_sgd", quick=True).resized(
    seeds=60, agents=[1, 4, 16], drift_seeds=12, drift_agents=16
)


def test_local_sgd_speeds_up_and_drifts() -> None:
    found = outcomes(local_sgd.examine(SGD))
    assert "does not hold" not in found.values()
    assert (
        found["speed-up, independent data"]
        == found["drift, different inputs and labels"]
        == "holds"
    )


def test_local_sgd_on_one_stream_has_no_speed_up() -> None:
    verdicts, _ = local_sgd.measured_speed_up(SGD, one_stream)
    assert {verdict.claim: verdict.outcome for verdict in verdicts}[
        "speed-up, independent data"
    ] == "does not hold"


def test_local_sgd_that_differs_in_its_inputs_is_seen_to_drift(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        local_sgd,
        "regression",
        lambda spec, differ="", real=local_sgd.regression: real(spec, "both"),
    )
    verdicts, _ = local_sgd.measured_drift(SGD, "cpu")
    assert {v.claim: v.outcome for v in verdicts}[
        "no drift, different labels alone"
    ] == "does not hold"


@pytest.mark.parametrize("differ", ["", "both", "labels"])
def test_common_solution_is_the_least_squares_fit_of_all_data(differ) -> None:
    data = local_sgd.regression(SGD, differ)
    fit = np.linalg.lstsq(data.inputs.reshape(-1, SGD.sizes.dim), data.labels.ravel(), rcond=None)[
        0
    ]
    assert_allclose(fg.fixed_point(data.problem(4), data.algorithm()), fit, rtol=1e-9)
