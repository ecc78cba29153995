"""Claims (l) to (n): look-ahead, the theorem's inequality, orders in the problem's size; and
controls that must fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fegsam as fg
from fegsam.engines.job import Job
from fegsam.report import Verdict
from fegsam.reproduction import inequality, look_ahead, problem_size
from fegsam.reproduction.thresholds import claim_spec

AHEAD = claim_spec("look_ahead", quick=True).resized(seeds=40, random_problems=6)
BOUND = claim_spec("inequality", quick=True).resized(
    settings=[[1, 1], [4, 3]], times=[0.1, 1.0, 16.0], algorithms=[2, 5]
)
SIZE = claim_spec("problem_size", quick=True)


def outcomes(verdicts: list[Verdict]) -> dict[str, str]:
    return {verdict.claim: verdict.outcome for verdict in verdicts}


# --- (l) Look-ahead -------------------------------------------------------------------------------


def test_example_diverges_below_the_closed_form_and_converges_from_it_on() -> None:
    verdicts, figure = look_ahead.measured_example(AHEAD, "cpu")
    for series in figure.series:
        # Intervals on a logarithmic axis are those of the logarithm.
        np.testing.assert_allclose(
            np.multiply(series.low, series.high), np.square(series.y), rtol=1e-9
        )
    assert set(outcomes(verdicts).values()) == {"holds"}
    assert [verdict.claim[-5:] for verdict in verdicts[1:]] == ["n = 1", "n = 2", "n = 3"]


@pytest.mark.parametrize("horizon", [2, 3, 7])
def test_closed_form_of_the_example_is_its_mean_increment(horizon: int) -> None:
    problem, algorithm = look_ahead.example(AHEAD, 3), fg.OffPolicyLinearTD(horizon=horizon)
    matrix, point = look_ahead.matrix_and_point(AHEAD, horizon)
    np.testing.assert_allclose(fg.fixed_point(problem, algorithm), [point], rtol=1e-12)
    settings = {"step_size": 0.01, "sync_period": 1, "sampling": "iid"}
    after = fg.exact.moments(problem, algorithm, times=[0, 50], **settings).mean[:, 0] - point
    np.testing.assert_allclose(after[1] / after[0], (1 - 0.01 * matrix) ** 50, rtol=1e-9)


def shorter(job: Job) -> fg.History:
    """Agents that look one step ahead, whatever they were told."""
    settings = job.settings
    return fg.run(
        look_ahead.example(AHEAD, 4),
        fg.OffPolicyLinearTD(horizon=1),
        step_size=settings.step_size,
        num_steps=settings.num_steps,
        sync_period=settings.sync_period,
        seeds=settings.seeds,
        record=settings.record,
        fixed_point=[SHORT_SIGHTED],
        output_decay=0.5,
    )


SHORT_SIGHTED = look_ahead.matrix_and_point(AHEAD, 1)[1]


def test_agents_that_look_one_step_ahead_are_seen_to_diverge() -> None:
    verdicts, _ = look_ahead.measured_example(AHEAD, shorter)
    assert outcomes(verdicts)["two states, one feature, n = 2"] == "does not hold"


def test_threshold_does_not_hold_for_a_smaller_n(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look_ahead.threshold_verdict(AHEAD).outcome == "holds"
    real = fg.theory.scan_horizons
    hard = AHEAD.resized(random_problems=6, random_discount=0.995)
    monkeypatch.setattr(
        fg.theory, "scan_horizons", lambda *given: replace(real(*given), threshold=1)
    )
    assert look_ahead.threshold_verdict(hard).outcome == "does not hold"


def test_speed_up_at_n_above_one_holds_and_does_not_for_agents_on_one_stream() -> None:
    few = AHEAD.resized(agents=[2, 8], far_agents=[64], horizons=[1, 2], seeds=120)
    assert set(outcomes(look_ahead.measured_speed_up(few, 2, "cpu")[0]).values()) == {"holds"}

    def one_stream(job: Job) -> fg.History:
        agents = job.agents._replace(kinds=job.agents.kinds[:1])
        alone = replace(job.settings, num_agents=1)
        return fg.engines.Cpu()(replace(job, settings=alone, agents=agents))

    verdicts, _ = look_ahead.measured_speed_up(few, 2, one_stream)
    assert {verdict.kind: verdict.outcome for verdict in verdicts} == {
        "exact": "holds",
        "measured": "does not hold",
    }


# --- (m) The theorem's inequality -----------------------------------------------------------------


def test_exact_error_is_below_the_bound_at_every_admitted_setting() -> None:
    section = inequality.examine(BOUND)
    assert section.outcome == "holds"
    assert all(verdict.kind == "exact" for verdict in section.verdicts)
    assert all(len(inequality.compared(BOUND, number, "Two states")) == 12 for number in (2, 5))


def test_a_bound_without_its_constants_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The theorem with S_1, S_2 and S_3 divided by the same large number."""
    real = fg.theory.error_bound

    def smaller(*given: Any, **settings: Any) -> Any:
        found = real(*given, **settings)
        return replace(found, terms={name: value / 1e7 for name, value in found.terms.items()})

    monkeypatch.setattr(fg.theory, "error_bound", smaller)
    assert inequality.examine(BOUND).outcome == "does not hold"


def test_settings_that_the_theorem_does_not_admit_are_left_out() -> None:
    assert inequality.compared(BOUND.resized(shares=[10.0]), 2, "Two states") == []


# --- (n) Orders in the problem's size -------------------------------------------------------------


def test_variance_grows_with_the_corrected_order_and_faster_than_the_printed_one() -> None:
    for parameter, printed, corrected in (("mu_min", -2, -3), ("1-gamma", -4, -5)):
        variance = problem_size.growths(SIZE, problem_size.EXAMINED[0], parameter)[0]
        assert (variance.printed, variance.corrected) == (printed, corrected)
        assert variance.exponent == pytest.approx(corrected, abs=0.05)
        assert [verdict.outcome for verdict in problem_size.growth_verdicts(SIZE, variance)] == [
            "does not hold",
            "holds",
        ]


@pytest.mark.parametrize("examined", problem_size.EXAMINED)
def test_true_number_of_steps_grows_as_the_closed_form_of_independent_states(
    examined: problem_size.Examined,
) -> None:
    """alpha is of order accuracy / |S|, and the slowest rate alpha mu_min, so T is of order |S| /
    mu_min up to a logarithm."""
    truth = {
        parameter: problem_size.growths(SIZE, examined, parameter)[-1]
        for parameter in ("mu_min", "|S|")
    }
    assert {growth.quantity for growth in truth.values()} == {"The true T"}
    assert truth["mu_min"].exponent == pytest.approx(-1.0, abs=0.05)
    assert truth["|S|"].exponent == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("parameter", problem_size.NAMES)
def test_small_step_law_of_q_learning_holds_throughout_the_families(parameter: str) -> None:
    """Else the true number of steps would not be true."""
    for problem in problem_size.family(parameter, 2, SIZE.sizes)[1]:
        plan = fg.theory.complexity(problem, fg.QLearning(), accuracy=SIZE.sizes.accuracy)
        given = {"step_size": plan.step_size, "sync_period": plan.sync_period}
        assert fg.theory.small_step_law(problem, fg.QLearning(), **given).holds


@pytest.mark.parametrize(("parameter", "sign"), [("mu_min", -1), ("|S|", 1)])
def test_an_order_that_is_exceeded_does_not_hold(parameter: str, sign: int) -> None:
    x = np.array([0.1, 0.01]) if sign < 0 else np.array([10.0, 100.0])
    growth = problem_size.Growth(
        "TD", "The true T", "", parameter, x, x ** (sign * 3.0), sign * 4.0, sign * 5.0
    )
    assert problem_size.growth_verdicts(SIZE, growth)[0].outcome == "holds"
    assert (
        problem_size.growth_verdicts(SIZE, growth._replace(y=x ** (sign * 4.5)))[0].outcome
        == "does not hold"
    )


def test_families_vary_in_one_number_alone() -> None:
    for actions in (1, 2):
        for parameter in problem_size.NAMES:
            x, problems = problem_size.family(parameter, actions, SIZE.sizes)
            rarest = [
                np.min(fg.exact.kind_stationary_laws(problem, fg.OffPolicyTabularTD()))
                for problem in problems
            ]
            seen = {
                "mu_min": rarest,
                "1-gamma": [1 - p.discount for p in problems],
                "|S|": [p.num_states for p in problems],
            }
            for name, values in seen.items():
                np.testing.assert_allclose(values, x if name == parameter else values[0], rtol=1e-9)
