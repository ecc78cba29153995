"""Frontiers by hand, verdicts on synthetic errors, and the command on a tiny suite."""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
import shlex
from collections.abc import Callable

import numpy as np
import pytest

from fegsam.cli import main
from fegsam.comparison import against_plain, compare
from fegsam.comparison.contest import Contest, compete, section
from fegsam.comparison.contestants import CONTESTANTS, contestant
from fegsam.comparison.curve import Curve
from fegsam.comparison.frontier import GridPoint, best_within, grid
from fegsam.comparison.kept_curves import KeptCurves
from fegsam.comparison.suite import SuiteProblem, entries, entry, refusal
from fegsam.comparison.trials import Trials
from fegsam.errors import ProblemError
from fegsam.report.kept import KeptParts
from fegsam.reproduction.thresholds import ClaimSpec, claim_spec

contest_module = importlib.import_module("fegsam.comparison.contest")

TINY = {
    "agents": 2,
    "step_sizes": [0.1],
    "sync_periods": [1, 4],
    "lengths": [4, 8],
    "budgets": [1, 2, 8],
    "pilot_seeds": 2,
    "seeds": 3,
    "exact_rounds": 8,
    "judged": 2,
}


def tiny_spec() -> ClaimSpec:
    return claim_spec("contest", True, "fegsam.comparison").resized(**TINY)


# --- Frontiers ------------------------------------------------------------------------------------


def test_frontier_of_six_runs_by_hand() -> None:
    """Two step sizes; K = 2 or 8 and T = 8 or 16 cost 4, 8, 1 or 2 communications."""
    settings = grid([0.1, 0.4], [2, 8], [8, 16])
    costs = [each.communications() for each in settings]
    assert costs == [4, 8, 1, 2] * 2
    errors = [3.0, 1.0, 5.0, 4.0, 2.0, 1.5, np.nan, 4.5]
    chosen = best_within(costs, errors, [0, 1, 2, 4, 7, 8, 100])
    assert chosen.tolist() == [-1, 2, 3, 4, 4, 1, 1]


def test_runs_that_diverged_are_never_chosen() -> None:
    assert best_within([1, 1, 2], [np.inf, np.nan, np.nan], [1, 2]).tolist() == [-1, -1]
    assert best_within([], [], [1]).tolist() == [-1]


def test_two_exchanges_in_a_round_are_two_communications() -> None:
    assert {each.key: each.exchanges for each in CONTESTANTS if each.exchanges != 1} == {
        "fedhsa": 2
    }
    assert GridPoint(0.1, 4, 64).communications(2) == 32


def test_one_run_has_the_errors_of_its_shorter_ones() -> None:
    trials = Trials(entry("alike"), contestant("plain"), 2, "reference")
    settings = [GridPoint(0.1, 4, 8), GridPoint(0.1, 4, 4), GridPoint(0.2, 4, 8)]
    together = trials.errors(settings, range(3))
    alone = np.concatenate([trials.errors([each], range(3)) for each in settings])
    np.testing.assert_array_equal(together, alone)
    assert (together[0] != together[1]).all()


def test_a_tail_mean_is_of_its_own_run() -> None:
    trials = Trials(entry("alike"), contestant("polynomial"), 2, "reference")
    settings = [GridPoint(0.1, 4, 8), GridPoint(0.1, 4, 16)]
    together = trials.errors(settings, range(3))
    np.testing.assert_array_equal(together[:1], trials.errors(settings[:1], range(3)))
    assert (together[0] != together[1]).all()


def test_exact_error_is_the_mean_of_many_seeds() -> None:
    trials = Trials(entry("environments"), contestant("fedavgm"), 2, "reference")
    setting = GridPoint(0.05, 4, 16)
    errors = trials.errors([setting], range(300))[0]
    off = errors.mean() - trials.exact(setting, 4)
    assert abs(off) < 4 * errors.std() / np.sqrt(len(errors))
    assert np.isnan(trials.exact(setting, 3))


# --- Verdicts -------------------------------------------------------------------------------------


def contest(factor: float, noise: float = 0.1) -> Contest:
    """SCAFFLSA has `factor` times the error of plain averaging."""
    base = 1 + noise * np.random.default_rng(0).standard_normal(20)
    other = factor * (1 + noise * np.random.default_rng(1).standard_normal(20))
    curves = {
        contestant(key): Curve(
            np.array([2]), (GridPoint(0.1, 4, 8),), errors[None], np.array([np.nan])
        )
        for key, errors in (("plain", base), ("scafflsa", other))
    }
    return Contest(entry("alike"), curves, curves)


@pytest.mark.parametrize(
    ("factor", "noise", "outcome"),
    [
        (0.5, 0.1, "holds"),
        (2.0, 0.1, "does not hold"),
        (1.0, 0.3, "cannot be told"),
        (np.nan, 0.1, "cannot be told"),
    ],
)
def test_a_method_is_better_if_its_error_is_smaller(factor, noise, outcome) -> None:
    found = against_plain.examine(tiny_spec(), [contest(factor, noise)], ["One is left out."])
    assert [verdict.outcome for verdict in found.verdicts] == [outcome]
    assert "SCAFFLSA" in found.verdicts[0].sentence
    assert found.notes[-1] == "One is left out."


def test_a_method_that_is_plain_averaging_here_is_not_judged() -> None:
    found = against_plain.examine(tiny_spec(), [contest(1.0, 0.0)], [])
    assert found.verdicts == ()
    assert "SCAFFLSA and plain averaging are one method there" in found.notes[1]


def test_all_methods_are_tuned_over_the_same_effective_step_sizes() -> None:
    scales = {each.key: each.scale for each in CONTESTANTS if each.scale != 1}
    assert scales == {
        "fedavgm": pytest.approx(0.1),
        "server_step": pytest.approx(1 / 1.5),
        "polynomial": pytest.approx(8),
    }
    schedule = contestant("polynomial").schedule
    assert schedule is not None
    assert 8 * schedule.factors(np.zeros(1), None)[0] == pytest.approx(1)


def test_a_budget_that_no_setting_meets_cannot_be_told() -> None:
    spec = tiny_spec().resized(judged=1)
    [verdict] = against_plain.examine(spec, [contest(0.5)], []).verdicts
    assert verdict.outcome == "cannot be told"
    assert "No setting" in verdict.detail


# --- The whole ------------------------------------------------------------------------------------


def test_every_contestant_is_tuned_run_and_drawn() -> None:
    found = compete(entry("alike"), tiny_spec().sizes, "reference")
    assert len(found.by_communications) == len(CONTESTANTS)
    drawn = section(found, 1, tiny_spec().sizes)
    assert [figure.key for figure in drawn.figures] == [
        f"alike-{axis}-{part}"
        for axis in ("communications", "samples")
        for part in ("local", "server")
    ]
    names = {name for figure in drawn.figures for name in figure.groups}
    assert names == {each.name for each in CONTESTANTS}


def test_the_suite_accepts_its_problems() -> None:
    assert [each.key for each in entries() if refusal(each, 4)] == []


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    def run(directory: pathlib.Path, *, quick: bool, more_seeds: int) -> object:
        assert quick
        refused = dataclasses.replace(entry("alike"), title="Refused", problem=refuse)
        suite: list[SuiteProblem] = [entry("environments"), refused]
        return compare(
            directory,
            quick=True,
            more_seeds=more_seeds,
            engine="reference",
            spec=tiny_spec(),
            suite=suite,
            claims=("first_step",),
        )

    monkeypatch.setattr("fegsam.comparison.compare", run)
    return run


def refuse(agents: int) -> object:
    raise ProblemError("It is not a problem.")


def test_command_writes_the_report_and_says_what_is_left_out(tiny, tmp_path, capsys) -> None:
    words = ["compare", "--quick", "--more-seeds", "2", "-o", str(tmp_path / "new")]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "does not hold" in printed.out
    assert "Refused is left out: It is not a problem." in printed.err
    page = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    assert shlex.join(words) in page
    for said in ("Environments that differ", "Refused is left out", "FedHSA", "4 pilot seeds"):
        assert said in page
    drawn = {path.name for path in (tmp_path / "new" / "figures").iterdir()}
    assert {"environments-communications-local.png", "first-step.svg"} <= drawn


def test_an_interrupted_comparison_goes_on_and_ends_with_the_same_page(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is interrupted within a problem, within a claim and while it draws; then nothing runs."""
    module = importlib.import_module("fegsam.comparison.compare")
    claim = importlib.import_module("fegsam.comparison.first_step")
    suite = [entry("alike"), entry("environments")]

    def run(folder: str, **other: object) -> bytes:
        options = {"spec": tiny_spec(), "engine": "reference", "more_seeds": 1, **other}
        target = tmp_path / folder
        page = compare(
            target, quick=True, progress=False, suite=suite, claims=("first_step",), **options
        )[1]
        return page.read_bytes().replace(str(target).encode(), b"folder")

    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    def broken_off(trials: Trials, *others: object) -> object:
        if trials.entry.key == "environments" and trials.contestant.key == "fedhsa":
            raise KeyboardInterrupt
        return find(trials, *others)

    find, whole = contest_module.frontiers, run("whole")
    for place, name, instead in (
        (contest_module, "frontiers", broken_off),
        (claim, "examine", interrupted),
        (module, "save_figures", interrupted),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, instead)
            with pytest.raises(KeyboardInterrupt, match="run the same command again to go on"):
                run("again")
    monkeypatch.setattr(contest_module, "frontiers", interrupted)
    monkeypatch.setattr(claim, "examine", interrupted)
    assert run("again") == whole
    for other in ({"spec": tiny_spec().resized(seeds=4)}, {"engine": "cpu"}, {"more_seeds": 2}):
        with pytest.raises(KeyboardInterrupt):
            run("again", **other)


def test_frontiers_are_kept_number_for_number_for_their_own_trials(tmp_path) -> None:
    sizes, curve = tiny_spec().sizes, next(iter(contest(np.nan).by_samples.values()))
    trials = Trials(entry("alike"), contestant("plain"), 2, "reference")
    kept = KeptCurves(KeptParts(tmp_path, "reference"))
    kept.write(trials, sizes, (curve, curve))
    for found in kept.read(trials, sizes):
        np.testing.assert_array_equal(found.errors, curve.errors)
        np.testing.assert_array_equal(found.exact, curve.exact)
        assert (found.settings, found.budgets.tolist()) == (curve.settings, [2])
    for other in (
        Trials(entry("policies"), contestant("plain"), 2, "reference"),
        Trials(entry("alike"), contestant("scafflsa"), 2, "reference"),
        Trials(entry("alike"), contestant("plain"), 3, "reference"),
    ):
        assert kept.read(other, sizes) is None
    assert kept.read(trials, tiny_spec().resized(judged=1).sizes) is None


def test_default_claims_exist() -> None:
    module = importlib.import_module("fegsam.comparison.compare")
    for name in module.CLAIMS:
        assert callable(importlib.import_module(f"fegsam.comparison.{name}").examine)
