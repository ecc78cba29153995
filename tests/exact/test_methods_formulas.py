"""Exact moments under methods, against golden enumerations and closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fegsam as fg
from fegsam.exact.method_system import method_system
from fegsam.exact.server_state import RoundSteps
from helpers import golden
from helpers.scalar_problems import pulled, two_unequal

LAST, FIRST = fg.ControlVariates("kind"), fg.ControlVariates("kind", "first_step")


def some_of(agents: int) -> fg.Participation:
    return fg.Participation(agents=agents, others="go_on")


def bias_and_variance(
    problem: Any, algorithm: Any, step_size: float, period: int, method: fg.Method | None
) -> tuple[float, float]:
    given = {"step_size": step_size, "sync_period": period, "method": method}
    error = fg.exact.stationary_error(problem, algorithm, **given)
    late = fg.exact.moments(problem, algorithm, times=[2000 * period], **given)
    bias = float(late.mean[0, 0] - fg.fixed_point(problem, algorithm, method=method)[0])
    return bias, float(error) - bias**2


# --- Golden enumerations --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "mean", "square"),
    [
        ({"method": fg.Method(correction=LAST)}, 0.456107289268, 0.293495558420),
        ({"method": fg.methods.scafflsa()}, 0.456107289268, 0.293495558420),
        ({"method": fg.Method(correction=FIRST)}, 0.465337945505, 0.302567366425),
        ({"method": fg.methods.fedhsa()}, 0.465337945505, 0.302567366425),
        ({"method": fg.Method(server=fg.Server(0.5))}, 0.253920918731, 0.090797906893),
        ({"method": fg.Method(server=fg.Server(1.0, 0.5))}, 0.620182061306, 0.536852222757),
        (
            {"schedule": fg.schedules.Polynomial(1.0, 2.0), "step_size": 1.0},
            0.368827398086,
            0.190376312993,
        ),
        ({"sync_period": (1, 3)}, 0.456711901352, 0.294938201421),
    ],
    ids=["last", "scafflsa", "first", "fedhsa", "server", "momentum", "schedule", "periods"],
)
def test_golden_problem_has_its_golden_moments(settings, mean, square) -> None:
    problem, algorithm = golden.federation(), fg.OffPolicyLinearTD()
    given = {"step_size": 0.5, "sync_period": 2} | settings
    found = fg.exact.moments(problem, algorithm, times=[4], **given)
    star = float(fg.fixed_point(problem, algorithm, method=settings.get("method"))[0])
    average = float(found.mean[0, 0])
    assert_allclose(average, mean, rtol=0, atol=1e-11)
    assert_allclose(float(found.mse[0]) + 2 * star * average - star**2, square, rtol=0, atol=1e-11)


# --- Control variates -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "bias", "variance"),
    [
        (None, -0.055625645407, 2.426526253350e-2),
        (fg.Method(correction=LAST), 0.0, 2.554395905505e-2),
        (fg.Method(correction=fg.ControlVariates("agent")), 0.0, 2.554395905505e-2),
        (fg.Method(correction=FIRST), 0.0, 3.051185320633e-2),
    ],
    ids=["plain", "last round", "last round by agent", "first step"],
)
def test_control_variates_remove_the_drift_of_two_unequal_agents(method, bias, variance) -> None:
    found = bias_and_variance(*two_unequal(), 0.1, 10, method)
    assert_allclose(found, (bias, variance), rtol=0, atol=1e-11)


def test_markov_bias_stays_under_control_variates() -> None:
    """Golden problem: the drift of plain averaging is a small part of its bias."""
    given = {"step_size": 0.1, "sync_period": 10, "times": [10000]}
    problem, algorithm = golden.federation(), fg.OffPolicyLinearTD()
    star = float(fg.fixed_point(problem, algorithm)[0])
    bias = [
        float(fg.exact.moments(problem, algorithm, method=method, **given).mean[0, 0]) - star
        for method in (None, fg.Method(correction=LAST))
    ]
    assert_allclose(bias, [-0.012987, -0.012972], rtol=0, atol=5e-7)


def rate(slopes: tuple[float, ...], step_size: float, period: int) -> float:
    """How fast the mean of last-round control variates forgets its start, per round."""
    problem, algorithm = pulled(slopes, (1.0, -1.0), (0.0, 0.0))
    system = method_system(problem, algorithm, fg.Method(correction=LAST), None, "markov")
    hierarchy = system.round(RoundSteps.plain((step_size,) * period), 1)
    (((_, _, means),),) = hierarchy.means(system.maps.stationary).phases
    mean_map = means.total_left[:-1, :-1] / len(slopes)
    return float(np.abs(np.linalg.eigvals(mean_map)).max())


def test_rate_of_two_unequal_agents() -> None:
    assert_allclose(rate((1.0, 0.25), 0.1, 10), 0.440824, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("period", "truth"), [(100, 0.366032341273), (1000, 0.900004317125)])
def test_long_rounds_of_control_variates_are_slow(period, truth) -> None:
    assert_allclose(rate((1.0, 1.0), 0.01, period), truth, rtol=0, atol=1e-12)


def test_rounds_of_one_relaxation_time_are_best_for_control_variates() -> None:
    periods = [600, 800, 950, 1000, 1050, 1200, 1500]
    rates = [rate((1.0, 1.0), 0.001, period) for period in periods]
    assert periods[int(np.argmin(rates))] == 1000
    assert_allclose(min(rates), math.exp(-1), rtol=1e-3)


def test_variance_of_first_step_variates_does_not_fall_with_the_step_size() -> None:
    method = fg.Method(correction=FIRST)
    found = [
        bias_and_variance(*two_unequal(), step_size, round(4 / step_size), method)[1]
        for step_size in (0.01, 0.001)
    ]
    assert_allclose(found, [0.19115, 0.18894], rtol=0, atol=5e-6)
    plain = bias_and_variance(*two_unequal(), 0.001, 4000, None)[1]
    assert_allclose(plain, 2.42e-4, rtol=2e-3)


@pytest.mark.parametrize("of", ["kind", "agent"])
def test_one_step_rounds_of_last_round_variates_are_plain(of) -> None:
    problem, algorithm = golden.federation(), fg.OffPolicyLinearTD()
    given = {"step_size": 0.5, "sync_period": 1, "num_steps": 6}
    plain = fg.exact.mean_squared_error(problem, algorithm, **given)
    method = fg.Method(correction=fg.ControlVariates(of))
    assert_allclose(
        fg.exact.mean_squared_error(problem, algorithm, method=method, **given), plain, rtol=1e-12
    )


# --- Server, weights and tails --------------------------------------------------------------------


@pytest.mark.parametrize(("eta", "beta"), [(0.5, 0.5), (1.0, 0.9), (1.5, 0.0), (0.7, 0.3)])
def test_server_has_its_variance(eta, beta) -> None:
    step_size, period, weights = 0.1, 10, np.array([0.3, 0.7])
    problem, algorithm = pulled((1.0, 1.0), (1.0, -1.0), (0.6, 0.9))
    method = fg.Method(fg.Mean((0.3, 0.7)), server=fg.Server(eta, beta))
    phi = (1 - step_size) ** period
    own = step_size**2 * np.array([0.36, 0.81]) * (1 - phi**2) / (1 - (1 - step_size) ** 2)
    a = eta * (1 - phi)
    truth = eta**2 * weights**2 @ own * (1 + beta) / ((1 - beta) * a * (2 + 2 * beta - a))
    assert_allclose(
        bias_and_variance(problem, algorithm, step_size, period, method),
        (0.0, truth),
        rtol=1e-10,
        atol=1e-12,
    )


def test_reciprocal_steps_are_the_sample_mean() -> None:
    """With alpha_t = 1 / (t + 1) the average is the mean of all draws, for every period."""
    coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=3)
    average = fg.LinearSA([[[-1.0]], [[-1.0]]], [[0.0], [1.0]])
    for period in (1, 4, (2, 3)):
        found = fg.exact.moments(
            coin,
            average,
            step_size=1.0,
            sync_period=period,
            schedule=fg.schedules.Polynomial(1.0),
            times=np.arange(1, 9),
        )
        assert_allclose(found.mse, 0.25 / (3 * np.arange(1, 9)), rtol=1e-12)


@pytest.mark.parametrize("kappa", [0.5, 2.0])
def test_tail_over_synchronisations_loses_accuracy_with_long_rounds(kappa) -> None:
    problem, algorithm = pulled((1.0, 1.0), (0.0, 0.0), (1.0, 1.0))
    period = round(kappa / 0.002)
    given = {"step_size": 0.002, "sync_period": period, "num_steps": 20000 * period}
    steps, syncs = (
        fg.exact.tail_error(problem, algorithm, tail=fg.Tail(0.5, over), **given).mse
        for over in ("steps", "syncs")
    )
    assert_allclose(syncs / steps, kappa / 2 / math.tanh(kappa / 2), rtol=3e-3)


# --- Participation and rounding -------------------------------------------------------------------

POINTS = np.array([1.0, 0.2, -0.7, 0.3])
SPREAD = float(POINTS.var())


def four_agents(**changes: Any) -> tuple[Any, Any]:
    return pulled((1.0,) * 4, POINTS.tolist(), (0.6,) * 4)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_participation_has_its_variance(m) -> None:
    step_size, period, N = 0.3, 3, 4
    phi = (1 - step_size) ** period
    drawn = (N - m) / (m * (N - 1)) * SPREAD * (1 - phi) / (1 + phi)
    truth = drawn + step_size * 0.36 / ((2 - step_size) * m)
    found = bias_and_variance(
        *four_agents(), step_size, period, fg.Method(participation=some_of(m))
    )
    assert_allclose(found, (0.0, truth), rtol=1e-10, atol=1e-12)


def test_participation_of_many_agents_has_its_variance() -> None:
    """A thousand agents of four kinds, of which a hundred take part; equal slopes."""
    step_size, period, N, m = 0.3, 3, 1000, 100
    four, algorithm = four_agents()
    problem = fg.MarkovNoise(four.kernels, num_agents=N)
    phi = (1 - step_size) ** period
    drawn = (N - m) / (m * (N - 1)) * SPREAD * (1 - phi) / (1 + phi)
    truth = drawn + step_size * 0.36 / ((2 - step_size) * m)
    found = fg.exact.stationary_error(
        problem,
        algorithm,
        step_size=step_size,
        sync_period=period,
        method=fg.Method(participation=some_of(m)),
    )
    assert_allclose(found, truth, rtol=1e-9)
    assert found.truncation < 1e-9


@pytest.mark.parametrize(("m", "period"), [(1, 5), (2, 5), (3, 20)])
def test_participation_at_small_steps(m, period) -> None:
    """Control variates remove the differences between the agents, at the price of old noise."""
    step_size, N, noise = 1e-4, 4, 0.36
    given = {"step_size": step_size, "sync_period": period}
    plain = fg.exact.stationary_error(
        *four_agents(), method=fg.Method(participation=some_of(m)), **given
    )
    drawn = (N - m) / (m * (N - 1)) * period * SPREAD
    assert_allclose(plain, step_size / 2 * (noise / m + drawn), rtol=1e-3)
    corrected = fg.exact.stationary_error(
        *four_agents(),
        method=fg.Method(correction=fg.ControlVariates("agent"), participation=some_of(m)),
        **given,
    )
    assert_allclose(corrected, step_size / 2 * noise * (2 / m - 1 / N), rtol=1e-3)


def test_dither_adds_its_floor() -> None:
    step_size, period, delta = 0.1, 10, 0.3
    given = {"step_size": step_size, "sync_period": period}
    method = fg.Method(rounding=fg.Rounding(delta, dither=True))
    with_dither = fg.exact.stationary_error(*four_agents(), method=method, **given)
    without = fg.exact.stationary_error(*four_agents(), **given)
    phi = (1 - step_size) ** period
    assert_allclose(with_dither - without, delta**2 / (12 * 4 * (1 - phi**2)), rtol=1e-10)


# --- Fixed points ---------------------------------------------------------------------------------


def test_weights_and_local_steps_move_the_fixed_point() -> None:
    problem, algorithm = two_unequal()
    weights = np.array([0.3, 0.7])
    for method, share in (
        (fg.Method(fg.Mean((0.3, 0.7))), weights),
        (fg.Method(fg.Mean((0.3, 0.7)), local_steps=fg.LocalSteps((2, 6))), weights),
        (
            fg.Method(fg.Mean((0.3, 0.7)), local_steps=fg.LocalSteps((2, 6), normalised=False)),
            weights * [2, 6],
        ),
        (fg.Method(server=fg.Server(0.5)), np.ones(2)),
    ):
        truth = share @ [1.0, 0.0] / (share @ [1.0, 0.25])
        assert_allclose(fg.fixed_point(problem, algorithm, method=method), [truth], rtol=1e-14)


@pytest.mark.parametrize("normalised", [True, False])
def test_fixed_point_is_the_limit_of_small_steps(normalised) -> None:
    problem, algorithm = two_unequal()
    method = fg.Method(local_steps=fg.LocalSteps((2, 6), normalised))
    star = fg.fixed_point(problem, algorithm, method=method)
    given = {"sync_period": 6, "method": method, "order": 1}
    biases = [
        float(
            fg.exact.moments(
                problem, algorithm, step_size=step, times=[round(600 / step)], **given
            ).mean[0, 0]
            - star[0]
        )
        for step in (0.02, 0.01)
    ]
    assert abs(biases[1]) < 0.02
    assert_allclose(biases[0] / biases[1], 2.0, rtol=0.05)
