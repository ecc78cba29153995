"""Intervals hold the truth as often as they say, on distributions whose truth is known; slopes,
times and ratios are right."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray as xr

import fegsam as fg
from fegsam.errors import ProblemError
from fegsam.experiments.estimates import (
    communications_to_reach,
    curve_estimate,
    error_at_budget,
    mean_estimate,
    plateau,
    plateau_ratio,
    ratio_estimate,
    slope_estimate,
    speed_up,
    time_to_reach,
)
from fegsam.history import intervals
from fegsam.methods.rounds import Rounds

STUDIES = 400
SEEDS = 20
TIMES = np.arange(0, 2001, 20)


def coverage(holds, studies: int = STUDIES) -> float:
    return float(np.mean([holds(np.random.default_rng(k)) for k in range(studies)]))


def history(
    curves: np.ndarray,
    *,
    times: np.ndarray = TIMES,
    sync_period: int = 10,
    seeds: range | None = None,
):
    """What the estimates read of a history, with curves given by hand."""
    seeds = seeds or range(len(curves))
    data = xr.Dataset(
        {"squared_error_2": (("seed", "time"), curves)}, coords={"seed": list(seeds), "time": times}
    )
    steps = int(times[-1])
    settings = SimpleNamespace(
        seeds=tuple(seeds),
        num_steps=steps,
        sync_period=sync_period,
        communications=steps // sync_period,
        exchanges=1,
        rounds=Rounds((), sync_period),
    )
    return SimpleNamespace(data=data, settings=settings)


def decaying(
    rate: float, floor: float, rng: np.random.Generator | None = None, noise: float = 0.3
) -> np.ndarray:
    """(SEEDS, time) curves exp(-rate t) + floor with multiplicative noise of mean one."""
    mean = np.exp(-rate * TIMES) + floor
    factor = 1.0 if rng is None else rng.gamma(1 / noise**2, noise**2, size=(SEEDS, len(TIMES)))
    return np.broadcast_to(mean, (SEEDS, len(TIMES))) * factor


# Four standard errors of a coverage of 95 % over 400 studies are 4.4 %.
@pytest.mark.parametrize("method", ["t", "bootstrap"])
def test_the_interval_of_a_normal_mean_covers_it_as_often_as_it_says(method) -> None:
    covered = coverage(
        lambda rng: mean_estimate(rng.normal(3.0, 2.0, SEEDS), method=method).contains(3.0)
    )
    assert covered == pytest.approx(0.95, abs=0.044)


def test_the_bootstrap_follows_a_skewed_law_better_than_students_interval() -> None:
    covered = {
        method: coverage(
            lambda rng, m=method: mean_estimate(rng.chisquare(1, SEEDS), method=m).contains(1.0)
        )
        for method in ("t", "bootstrap")
    }
    assert covered["bootstrap"] == pytest.approx(0.95, abs=0.044)
    assert covered["t"] < covered["bootstrap"]


def test_a_level_of_one_half_covers_one_half() -> None:
    covered = coverage(lambda rng: mean_estimate(rng.normal(size=SEEDS), level=0.5).contains(0.0))
    assert covered == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("method", ["t", "bootstrap"])
@pytest.mark.parametrize("seeds", [5, SEEDS])
def test_the_interval_of_a_positive_mean_is_positive_and_covers_a_squared_error_more_often(
    method, seeds
) -> None:
    covered = np.zeros(2)
    for k in range(STUDIES):
        samples = np.random.default_rng(k).chisquare(1, seeds)
        plain, positive = (
            mean_estimate(samples, method=method, positive=sign) for sign in (False, True)
        )
        assert 0 < positive.low <= positive.value <= positive.high
        assert positive.value == plain.value
        covered += plain.contains(1.0), positive.contains(1.0)
    worse = 4 * math.sqrt(0.95 * 0.05 / STUDIES)
    assert covered[1] / STUDIES > (0.95 if seeds == SEEDS else 0.9) - worse
    if method == "t":
        assert covered[1] > covered[0]


@pytest.mark.parametrize("method", ["t", "bootstrap"])
def test_the_interval_of_a_positive_mean_is_the_one_of_its_logarithm(method) -> None:
    """As `log_combination` has it, which ratios and slopes use; close to the plain one where the
    spread is small."""
    samples = np.random.default_rng(3).gamma(4.0, size=12)
    found = mean_estimate(samples, method=method, positive=True)
    expected = np.exp(intervals.log_combination([(samples[:, None], np.ones(1))], method, 0.95, 0))
    np.testing.assert_allclose([found.value, found.low, found.high], expected, rtol=1e-12)
    narrow = 100.0 + samples / 100
    plain, positive = (
        mean_estimate(narrow, method=method, positive=sign) for sign in (False, True)
    )
    np.testing.assert_allclose([positive.low, positive.high], [plain.low, plain.high], rtol=1e-6)


def test_zeros_have_an_interval_of_no_width_and_what_is_not_finite_has_none() -> None:
    table = np.array(
        [[0.0, 1.0, np.nan], [0.0, 0.0, 1.0], [0.0, 0.0, 2.0], [0.0, 0.0, 2.0], [0.0, 0.0, 2.0]]
    )
    for method in ("t", "bootstrap"):
        band = curve_estimate(table, method=method, positive=True)
        assert band.value[0] == band.low[0] == band.high[0] == 0.0
        assert 0 < band.low[1] < band.value[1] < band.high[1], "all but one seed are zero"
        assert np.isnan([band.value[2], band.low[2], band.high[2]]).all()


def test_an_interval_at_each_time_is_the_interval_of_that_times_samples() -> None:
    curves = np.random.default_rng(0).gamma(2.0, size=(SEEDS, 7))
    for method in ("t", "bootstrap"):
        band = curve_estimate(curves, method=method)
        for k in range(7):
            single = mean_estimate(curves[:, k], method=method)
            assert (band.value[k], band.low[k], band.high[k]) == pytest.approx(
                (single.value, single.low, single.high)
            )


def test_a_curve_is_read_by_its_labels_not_by_the_order_of_its_axes() -> None:
    curves = xr.DataArray(np.arange(6.0).reshape(2, 3), dims=("seed", "time"))
    np.testing.assert_array_equal(
        curve_estimate(curves).value, curve_estimate(curves.transpose("time", "seed")).value
    )


@pytest.mark.parametrize("method", ["t", "bootstrap"])
@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_of_a_ratio_covers_it_as_often_as_it_says(method, paired, monkeypatch) -> None:
    monkeypatch.setattr(intervals, "RESAMPLES", 500)

    def holds(rng) -> bool:
        shared = rng.gamma(4.0, 0.25, SEEDS) if paired else 1.0
        above, below = (
            8.0 * shared * rng.gamma(9.0, 1 / 9, SEEDS),
            2.0 * shared * rng.gamma(9.0, 1 / 9, SEEDS),
        )
        return ratio_estimate(above, below, paired=paired, method=method).contains(4.0)

    assert coverage(holds) == pytest.approx(0.95, abs=0.044)


def test_pairing_narrows_the_interval_of_samples_that_move_together() -> None:
    rng = np.random.default_rng(1)
    shared = rng.gamma(4.0, 0.25, SEEDS)
    above, below = shared * rng.uniform(0.9, 1.1, SEEDS), shared * rng.uniform(0.9, 1.1, SEEDS)
    assert (
        ratio_estimate(above, below, paired=True).half_width
        < ratio_estimate(above, below).half_width / 3
    )


@pytest.mark.parametrize("exponent", [-1.0, 0.5, 2.0])
def test_the_slope_of_an_exact_power_law_is_its_exponent(exponent) -> None:
    x = np.array([1.0, 2.0, 5.0, 30.0])
    estimate = slope_estimate(x, 7.0 * x**exponent)
    assert (estimate.low, estimate.value, estimate.high) == pytest.approx(
        (exponent,) * 3, abs=1e-12
    )


@pytest.mark.parametrize("method", ["t", "bootstrap"])
@pytest.mark.parametrize("shared", [True, False])
def test_the_interval_of_a_slope_covers_the_exponent_as_often_as_it_says(
    method, shared, monkeypatch
) -> None:
    monkeypatch.setattr(intervals, "RESAMPLES", 500)
    x = np.array([1.0, 2.0, 4.0, 8.0, 16.0])

    def holds(rng) -> bool:
        factor = rng.gamma(4.0, 0.25, size=(SEEDS, len(x)))
        if shared:
            return slope_estimate(
                x, 3.0 / x * factor * rng.gamma(4.0, 0.25, size=(SEEDS, 1)), method=method
            ).contains(-1.0)
        return slope_estimate(x, list((3.0 / x * factor).T), method=method).contains(-1.0)

    assert coverage(holds) == pytest.approx(0.95, abs=0.044)


def test_noisy_points_weigh_less_in_a_slope() -> None:
    rng = np.random.default_rng(2)
    x = np.array([1.0, 2.0, 4.0, 8.0])
    y = 1 / x * rng.gamma(400.0, 1 / 400, size=(SEEDS, 4))
    y[:, 3] = rng.gamma(0.2, 5.0, size=SEEDS)
    assert abs(slope_estimate(x, y).value + 1) < 0.1 * abs(
        np.polyfit(np.log(x), np.log(y.mean(axis=0)), 1)[0] + 1
    )


def test_what_all_seeds_share_does_not_widen_a_slope() -> None:
    x = np.array([1.0, 2.0, 4.0])
    y = np.random.default_rng(3).gamma(2.0, size=(SEEDS, 1)) / x
    assert slope_estimate(x, y, method="t").half_width < 1e-12


def test_the_plateau_is_the_mean_of_the_late_part() -> None:
    curves = np.stack([np.where(TIMES < 1000, 9.0, level) for level in (1.0, 2.0)])
    np.testing.assert_array_equal(plateau(history(curves)), [1.0, 2.0])
    assert plateau(history(curves), 1.0)[0] > 4.0


def test_the_time_to_reach_an_exponential_is_its_logarithm() -> None:
    curves = history(decaying(0.01, 0.0)).data.squared_error_2
    estimate = time_to_reach(curves, 1e-3)
    assert (estimate.low, estimate.value, estimate.high) == pytest.approx(
        (math.log(1000) / 0.01,) * 3, rel=1e-9
    )
    assert time_to_reach(curves, 2.0).value == 0.0


def test_an_accuracy_below_the_floor_is_never_reached() -> None:
    estimate = time_to_reach(history(decaying(0.01, 0.1)).data.squared_error_2, 0.05)
    assert (estimate.low, estimate.value, estimate.high) == (math.inf,) * 3


def test_noise_on_a_plateau_just_above_the_accuracy_does_not_count_as_reaching_it() -> None:
    curves = decaying(0.01, 0.1, np.random.default_rng(4))
    assert curves.mean(axis=0).min() < 0.09
    assert time_to_reach(history(curves).data.squared_error_2, 0.09).value == math.inf


def test_the_interval_of_a_time_covers_it_as_often_as_it_says(monkeypatch) -> None:
    monkeypatch.setattr(intervals, "RESAMPLES", 300)
    truth = math.log(10) / 0.01

    def holds(rng) -> bool:
        curves = np.exp(-0.01 * TIMES) * rng.gamma(4.0, 0.25, size=(SEEDS, 1))
        return time_to_reach(history(curves).data.squared_error_2, 0.1).contains(truth)

    assert coverage(holds, 150) == pytest.approx(0.95, abs=0.071)


@pytest.mark.parametrize("shared", [True, False])
def test_a_speed_up_with_known_truth_is_found(shared) -> None:
    rng = np.random.default_rng(5)
    one, many = decaying(0.004, 0.0, rng), decaying(0.016, 0.0, rng)
    estimate = speed_up(
        history(one), history(many, seeds=None if shared else range(100, 100 + SEEDS)), 0.01
    )
    assert estimate.contains(4.0)
    assert estimate.half_width < 0.4


def test_a_speed_up_that_only_many_agents_reach_is_infinite_and_one_of_none_is_unknown() -> None:
    one, many = history(decaying(0.01, 0.1)), history(decaying(0.01, 0.001))
    assert speed_up(one, many, 0.01).value == math.inf
    nobody = speed_up(one, many, 1e-4)
    assert math.isnan(nobody.value)
    assert (nobody.low, nobody.high) == (0.0, math.inf)


def test_the_ratio_of_plateaus_is_that_of_their_floors() -> None:
    rng = np.random.default_rng(6)
    estimate = plateau_ratio(history(decaying(0.05, 0.8, rng)), history(decaying(0.05, 0.1, rng)))
    assert estimate.contains(8.0)
    assert estimate.half_width < 0.5


def test_errors_and_communications_are_read_off_the_same_curve() -> None:
    run = history(decaying(0.01, 0.0), sync_period=20)
    assert error_at_budget(run, 10).value == pytest.approx(math.exp(-2.0))
    assert communications_to_reach(run, math.exp(-2.0)).value == 10
    assert communications_to_reach(run, math.exp(-2.0) * 0.999).value == 11


def test_a_real_run_gives_what_its_arrays_say() -> None:
    federation = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=3)
    run = fg.run(
        federation,
        fg.QLearning(),
        step_size=0.1,
        sync_period=4,
        num_steps=400,
        seeds=range(6),
        record=4,
    )
    late = run.data.squared_error.sel(time=slice(300, None)).values.mean(axis=1)
    np.testing.assert_allclose(plateau(run, 0.25, error="squared_error"), late)
    at_fifty = run.data.squared_error_2.sel(time=200).values
    assert error_at_budget(run, 50).value == pytest.approx(at_fifty.mean())


def test_a_diverged_seed_gives_no_number() -> None:
    curves = decaying(0.01, 0.1, np.random.default_rng(7)).copy()
    curves[3, 50:] = np.nan
    run = history(curves)
    assert math.isnan(mean_estimate(plateau(run)).value)
    assert time_to_reach(run.data.squared_error_2, 0.2).value < TIMES[50]
    assert time_to_reach(run.data.squared_error_2, 0.01).value == math.inf


def test_the_same_samples_give_the_same_interval() -> None:
    samples = np.random.default_rng(8).gamma(2.0, size=SEEDS)
    assert mean_estimate(samples, method="bootstrap") == mean_estimate(samples, method="bootstrap")
    assert mean_estimate(samples, method="bootstrap") != mean_estimate(
        samples, method="bootstrap", seed=1
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mean_estimate([1.0]), "at least 2 seeds"),
        (lambda: mean_estimate([1.0, 2.0, 3.0], method="bootstrap"), "at least 5 seeds"),
        (lambda: mean_estimate([1.0, 2.0], method="normal"), "'normal'"),
        (lambda: mean_estimate([]), "shape"),
        (lambda: mean_estimate([1.0, -2.0], positive=True), "A sample is -2"),
        (lambda: curve_estimate([1.0, 2.0]), "(seeds, time)"),
        (
            lambda: ratio_estimate([1.0, 2.0], [1.0, 2.0, 3.0], paired=True),
            "2 samples in the numerator",
        ),
        (lambda: ratio_estimate([1.0, 2.0], [0.0, 0.0]), "positive"),
        (lambda: slope_estimate([1.0, 1.0], [1.0, 2.0]), "at least two"),
        (lambda: slope_estimate([1.0, 2.0], np.ones((3, 5))), "(seeds, 2)"),
        (lambda: slope_estimate([1.0, 2.0], [np.ones(3)]), "one array per value"),
        (lambda: slope_estimate([0.0, 2.0], [1.0, 2.0]), "positive"),
        (lambda: time_to_reach(history(decaying(0.01, 0.0)).data.squared_error_2, 0.0), "accuracy"),
        (lambda: error_at_budget(history(decaying(0.01, 0.0)), 201), "synchronised 200 times"),
        (
            lambda: error_at_budget(history(decaying(0.01, 0.0)[:, 1:], times=TIMES[1:]), 1),
            "record earlier",
        ),
    ],
)
def test_what_cannot_be_estimated_is_said_in_a_sentence(call, words) -> None:
    with pytest.raises(ProblemError) as caught:
        call()
    assert words in str(caught.value)


def test_the_speed_up_of_64_agents_on_a_garnet_is_the_exact_one() -> None:
    """Its interval contains the truth, and is no wider than a tenth to either side."""
    mdp = fg.examples.garnet(8, 2, 3, discount=0.7, seed=0)
    features = np.random.default_rng(1).normal(size=(8, 3))
    settings: dict[str, Any] = {"step_size": 0.05, "sync_period": 10}

    def federation(agents: int) -> fg.Federation:
        return fg.Federation(
            mdp, num_agents=agents, target_policy=fg.policies.uniform(8, 2), features=features
        )

    one, many = (
        fg.run(
            federation(agents),
            fg.OnPolicyTD(),
            num_steps=20_000,
            record=10,
            seeds=range(first, first + 100),
            **settings,
        )
        for agents, first in ((1, 0), (64, 1000))
    )
    exact = [
        fg.exact.stationary_error(federation(agents), fg.OnPolicyTD(), **settings)
        for agents in (1, 64)
    ]
    found = plateau_ratio(one, many)
    assert found.low < exact[0] / exact[1] < found.high, f"{found}, exact {exact[0] / exact[1]:.2f}"
    assert found.half_width <= 0.1 * found.value
    assert found.high < 64, "the bias of Markov data is not averaged away, and the interval tells"
