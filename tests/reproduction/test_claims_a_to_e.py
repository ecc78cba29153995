"""The claims (a) to (e) on small runs: they hold with the product's engines, and do not with
engines that have a fault."""

from __future__ import annotations

import importlib
import math
import sys
from dataclasses import replace

import numpy as np
import pytest

import fegsam as fg
from fegsam.report import Section, Verdict
from fegsam.reproduction import (
    bias_variance,
    corollary,
    heterogeneity,
    local_steps,
    problems,
    reproduce,
    speed_up,
)
from fegsam.reproduction.differing_agents import by_environments, by_policies, preferences
from fegsam.reproduction.mean_q_learning import MeanQLearning
from fegsam.reproduction.thresholds import claim_spec
from fegsam.run import Engine
from fegsam.theory.assumptions.drift import drift
from fegsam.theory.bound.large_enough import LargeEnough
from helpers.controls import Faulty


def small_speed_up(engine: str | Engine | None, **sizes: object) -> Section:
    few = {"algorithms": [1], "agents": [1, 8], "seeds": 6, "relaxations": 6}
    few |= {"timed_agents": [1, 2], "timed_relaxations": 3}
    return speed_up.examine(claim_spec("speed_up", True).resized(**(few | sizes)), engine)


def small_local_steps(engine: str | Engine | None, **sizes: object) -> Section:
    few = {"algorithms": [1], "agents": 4, "periods": 2, "seeds": 6, "relaxations": 6}
    return local_steps.examine(claim_spec("local_steps", True).resized(**(few | sizes)), engine)


def small_heterogeneity(engine: str | Engine | None, **sizes: object) -> Section:
    few = {"agents": 4, "seeds": 3, "relaxations": 2, "periods": [3, 9], "strengths": [0.2, 0.4]}
    few |= {"table_seeds": 2, "table_relaxations": 0.5}
    return heterogeneity.examine(claim_spec("heterogeneity", True).resized(**(few | sizes)), engine)


def small_bias_variance(engine: str | Engine | None, **sizes: object) -> Section:
    few = {"algorithms": [1], "settings": [[1.0, 2], [0.5, 8]], "seeds": 10, "relaxations": 6}
    few |= {"decay_agents": 2, "curve_relaxations": 0.125, "curve_agents": 2}
    return bias_variance.examine(claim_spec("bias_variance", True).resized(**(few | sizes)), engine)


def named(section: Section, words: str) -> list[Verdict]:
    found = [verdict for verdict in section.verdicts if words in verdict.sentence]
    assert found
    return found


# --- The claims hold ------------------------------------------------------------------------------


def test_error_is_divided_by_the_number_of_agents() -> None:
    section = small_speed_up(None, algorithms=[1, 4], agents=[1, 4, 16], seeds=60, relaxations=16)
    assert [verdict.outcome for verdict in named(section, "long-run error above its floor")] == [
        "holds",
        "holds",
    ]
    assert section.outcome != "does not hold"


def test_few_communications_cost_little() -> None:
    section = small_local_steps(None, seeds=60, relaxations=16)
    assert section.outcome == "holds"
    assert [verdict.kind for verdict in section.verdicts] == ["measured", "measured", "exact"]
    assert len(section.figures) == 1


def test_floor_of_differing_agents_grows_as_the_square_of_local_steps() -> None:
    section = small_heterogeneity(
        None, agents=16, seeds=30, relaxations=12, table_seeds=10, table_relaxations=8
    )
    assert {verdict.claim.partition(",")[0] for verdict in named(section, "square of K - 1")} == {
        "On-policy TD", "Off-policy tabular TD", "Q-learning", "Off-policy linear TD",
    }  # fmt: skip
    for verdict in (
        *named(section, "square of K - 1"),
        *named(section, "only in their rewards do not drift"),
    ):
        assert verdict.outcome == "holds", verdict
    assert all(verdict.outcome == "holds" for verdict in named(section, "at least as fast as"))


def test_corollary_brings_its_rate_though_no_number_of_steps_is_large_enough() -> None:
    few = {"algorithms": [3], "runs": [[2, 5000], [8, 20000]], "seeds": 60}
    section = corollary.examine(claim_spec("corollary", True).resized(**few))
    assert named(section, "slope -1")[0].outcome != "does not hold"
    assert (named(section, "N times")[0].outcome, named(section, "N times")[0].kind) == (
        "holds",
        "identity",
    )
    admitted = named(section, "T large enough")[0]
    assert (admitted.outcome, admitted.kind) == ("does not hold", "exact")
    assert "the condition on the sync period (c2a" in admitted.detail
    assert section.outcome != "does not hold", "the condition is judged apart from the claim"


def test_corollary_of_agents_that_differ_is_admitted_from_some_number_of_steps_on() -> None:
    few = {"algorithms": [5], "runs": [[2, 2000], [4, 4000]], "seeds": 5}
    admitted = named(
        corollary.examine(claim_spec("corollary", True).resized(**few)), "T large enough"
    )[0]
    assert admitted.outcome == "holds"
    assert 1e6 < admitted.estimate.value < 1e12


def test_corollary_of_which_nothing_is_proved_cannot_be_told() -> None:
    spec = claim_spec("corollary", True)
    unknown = LargeEnough(
        math.inf, math.inf, heterogeneous=True, limit=0.1, drift=0.1, num_agents=4
    )
    assert "nothing is proved" in unknown.why
    outcomes = [
        corollary.admitted_verdict("TD", found, spec).outcome
        for found in (
            unknown,
            replace(unknown, log_fails_from=20.0),
            replace(unknown, num_steps=1e9),
        )
    ]
    assert outcomes == ["cannot be told", "does not hold", "holds"]


def test_corollary_has_three_usable_problems_for_each_algorithm() -> None:
    spec = claim_spec("corollary", False)
    for number in problems.ALGORITHMS:
        usable = []
        for place in spec.sizes.q_problems if number == 4 else spec.sizes.problems:
            algorithm, federate = corollary.setting(number, place, spec.sizes.discount)
            if drift(federate(2), algorithm).drift >= spec.claim.drift:
                usable.append(place)
        assert {"Garnet", "River swim"} < set(usable)
        assert any(place.startswith("FrozenLake") for place in usable)


def test_fits_of_the_corollary_are_never_perfect() -> None:
    """Else Algorithm 1 would have no noise, and no floor to be divided by N T."""
    for place in ("Two states", *claim_spec("corollary", False).sizes.problems):
        algorithm, federate = corollary.setting(1, place, 0.5)
        point = fg.fixed_point(federate(2), algorithm)
        assert np.abs(algorithm.matrices @ point + algorithm.offsets).max() > 0.01


def test_unusable_problems_are_left_out_of_the_corollary_and_named() -> None:
    few = {"algorithms": [4], "discount": 0.95}
    section = corollary.examine(claim_spec("corollary", True).resized(**few))
    assert not section.verdicts
    assert "Q-learning, Two states" in section.notes[-1]


def test_error_decays_geometrically_to_a_floor_proportional_to_step_over_agents() -> None:
    section = small_bias_variance(
        None, algorithms=[1, 4], seeds=60, relaxations=16, decay_agents=64
    )
    assert section.outcome == "holds"


def test_curves_over_time_speak_of_floors_only_where_these_are_reached() -> None:
    short = {"algorithms": [2], "seeds": 10, "curve_relaxations": 1.0}
    case = problems.cases(True, (2,))[0]
    spec = claim_spec("bias_variance", True)
    assert (
        "No floor was reached at"
        in bias_variance.error_curves(case, spec.resized(**short), None).caption
    )
    assert (
        "end at a higher floor"
        in bias_variance.error_curves(case, spec.resized(algorithms=[2], seeds=10), None).caption
    )


def test_speed_up_ends_at_a_floor_of_the_order_of_the_squared_step() -> None:
    """Tabular TD: the error itself has the local slopes -0.81, -0.52 and -0.22 from N = 16 to 64,
    256 and 1024."""
    section = small_speed_up(None, algorithms=[3], agents=[4, 16, 64], far_agents=[256, 1024])
    far, floor = (
        named(section, "exact error above its floor")[0],
        named(section, "squared step size")[0],
    )
    assert (far.outcome, floor.outcome) == ("holds", "holds")
    assert far.estimate.value == pytest.approx(-1.0, abs=0.01)
    for local in ("-0.81 to N = 64", "-0.52 to N = 256", "-0.22 to N = 1024"):
        assert local in far.detail


# --- And do not hold for engines with a fault -----------------------------------------------------


def test_the_control_without_a_fault_passes() -> None:
    section = small_speed_up(Faulty("none"))
    assert all(verdict.outcome != "does not hold" for verdict in section.verdicts)


@pytest.mark.parametrize(
    "fault",
    ["shared stream", "no averaging", pytest.param("paths reset", marks=pytest.mark.slow)],
)
def test_speed_up_does_not_hold_for_faulty_engines(fault: str) -> None:
    section = small_speed_up(Faulty(fault))
    assert named(section, "long-run error above its floor")[0].outcome == "does not hold"


def test_speed_up_in_time_does_not_hold_for_agents_that_share_a_stream() -> None:
    section = small_speed_up(
        Faulty("shared stream"),
        timed_agents=[1, 8],
        agents=[1, 2],
        accuracy=2.0,
        timed_relaxations=6,
    )
    assert named(section, "sooner")[0].outcome == "does not hold"


@pytest.mark.slow
def test_price_of_communications_does_not_hold_where_paths_are_reset() -> None:
    assert small_local_steps(Faulty("paths reset")).outcome == "does not hold"


def test_drift_does_not_hold_without_averaging() -> None:
    section = small_heterogeneity(Faulty("no averaging"))
    assert {verdict.outcome for verdict in named(section, "square of K - 1")} == {"does not hold"}


@pytest.mark.parametrize("fault", ["shared stream", "no averaging"])
def test_floor_does_not_hold_for_faulty_engines(fault: str) -> None:
    section = small_bias_variance(Faulty(fault))
    assert named(section, "slope 1")[0].outcome == "does not hold"


# --- Nor do exact checks for numbers that are wrong -----------------------------------------------


def test_exact_speed_up_does_not_hold_for_an_error_that_falls_more_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case, spec = problems.cases(True, (2,))[0], claim_spec("speed_up", True)
    monkeypatch.setattr(
        speed_up,
        "exact_level",
        lambda case, n, K, step=0.05: step * (0.1 + (0 if n is None else n**-0.5)),
    )
    far, floor = speed_up.far_verdicts(case, spec, 0.005)[0]
    assert far.outcome == floor.outcome == "does not hold"


def test_price_of_communications_that_is_the_same_at_every_step_does_not_vanish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case, spec = problems.cases(True, (2,))[0], claim_spec("local_steps", True)
    monkeypatch.setattr(
        local_steps, "exact_level", lambda case, n, K, step: step * (1.0 if K == 1 else 1.3)
    )
    assert local_steps.vanishing_verdict(case, spec).outcome == "does not hold"


def test_agents_that_differ_in_more_than_rewards_are_seen_to_drift(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = claim_spec("heterogeneity", True).resized(
        agents=4, seeds=3, relaxations=2, periods=[3, 9]
    )
    monkeypatch.setattr(
        heterogeneity, "by_environments", lambda *given, only_rewards: by_environments(*given)
    )
    verdicts, _ = heterogeneity.rewards_alone(spec, None)
    assert {v.sentence: v.outcome for v in verdicts}[
        spec.checks["no_drift"].claim
    ] == "does not hold"


# --- The problems, the specs, the whole -----------------------------------------------------------


def test_full_run_has_three_problems_for_each_algorithm_and_quick_one() -> None:
    full, quick = problems.cases(False), problems.cases(True)
    for number in problems.ALGORITHMS:
        places = [case.place for case in full if case.number == number]
        assert len(places) == 3
        assert {"Garnet", "FrozenLake"} < set(places)
        assert [case.place for case in quick if case.number == number] == ["Garnet"]


def test_relaxation_is_that_of_the_mean_recursion() -> None:
    case = problems.cases(True, (2,))[0]
    start = bias_variance.slow_start(case, 4)
    assert bias_variance.mean_fall(case, 4, start, round(case.relaxation)) == pytest.approx(
        2.0, rel=0.02
    )


def test_drift_of_q_learning_is_where_runs_without_noise_end() -> None:
    """To first order in the step size: the difference goes with its square."""
    case = by_environments(4, "Garnet", 1.0, 0.05)
    problem = case.federate(2)
    mean, point = MeanQLearning.of(problem), fg.fixed_point(problem, case.algorithm)
    assert np.abs(mean.weights @ mean.increments(point[None])).max() < 1e-12
    misses = []
    for step in (0.02, 0.01):
        rounds = round(8 * case.relaxation * case.step_size / step / 9)
        found = mean.after(point, step, 9, rounds) - point
        misses.append(np.linalg.norm(found - mean.drift(point, step, 9)) / np.linalg.norm(found))
    assert misses[0] < 0.02
    assert misses[0] / misses[1] == pytest.approx(2.0, rel=0.2)


def test_q_learning_without_noise_takes_the_mean_of_sampled_steps() -> None:
    case = by_environments(4, "FrozenLake at a price", 1.0, 0.05)
    start = fg.fixed_point(case.federate(2), case.algorithm) + 1.0
    history = fg.run(
        case.federate(512),
        case.algorithm,
        step_size=0.05,
        sync_period=1,
        num_steps=10,
        seeds=range(20),
        record=[10],
        record_params=True,
        initial_params=start,
        sampling="iid",
        output_decay=0.5,
    )
    found = history.data.average_params.isel(time=0).transpose("seed", "param").values
    errors = found.std(axis=0, ddof=1) / np.sqrt(20) + 1e-12
    gap = found.mean(axis=0) - MeanQLearning.of(case.federate(2)).after(start, 0.05, 1, 10)
    assert (np.abs(gap) < 4.5 * errors).all()


def test_agents_that_differ_have_different_fixed_points_and_those_alike_do_not() -> None:
    for differing in (
        by_policies("Random walk", 1.0, 0.05),
        by_environments(2, "Random walk", 1.0, 0.05, only_rewards=True),
    ):
        assert fg.heterogeneity(differing.federate(4), differing.algorithm) > 0.05
    alike = by_policies("Random walk", 0.0, 0.05)
    assert fg.heterogeneity(alike.federate(4), alike.algorithm) < 1e-12
    np.testing.assert_allclose(preferences(2), np.eye(2))


def test_reproduce_runs_the_claims_in_order_and_writes_the_report(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    pytest.importorskip("plotly")
    pytest.importorskip("matplotlib")
    module = importlib.import_module("fegsam.reproduction.reproduce")
    small, other = small_local_steps(None), small_bias_variance(None)
    monkeypatch.setattr(module, "CLAIMS", ("local_steps", "bias_variance"))
    monkeypatch.setattr(local_steps, "examine", lambda spec, engine: small)
    monkeypatch.setattr(bias_variance, "examine", lambda spec, engine: other)
    sections, page = reproduce(tmp_path / "new", quick=True)
    assert [section.claim for section in sections] == ["b", "e"]
    assert page.exists()
    assert page.parent == tmp_path / "new"
    for suffix in ("svg", "pdf", "png"):
        assert (tmp_path / "new" / "figures" / f"local-steps-1.{suffix}").stat().st_size > 1000
    assert "[2/2]" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["matplotlib", "plotly", "gymnasium"])
def test_what_is_missing_is_said_before_any_claim_is_run(
    tmp_path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(speed_up, "examine", lambda spec, engine: pytest.fail("a claim was run"))
    monkeypatch.setitem(sys.modules, missing, None)
    for name in [name for name in sys.modules if name.startswith(f"{missing}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(fg.ProblemError, match="pip install 'fegsam"):
        reproduce(tmp_path / "new")
    assert not (tmp_path / "new").exists()
