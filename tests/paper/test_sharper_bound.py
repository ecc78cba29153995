"""The sharper bound of docs/sharper_bound.md: the steps of its proof on random problems, and the
whole beside exact errors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fegsam as fg
from fegsam.theory.bound import sharper
from fegsam.theory.bound.bound import bound_from
from fegsam.theory.bound.sharper import largest_sharper_step, sharper_from
from fegsam.theory.bound.sharper_drift import (
    correlated_noise,
    drift_polynomial,
    envelopes,
    movement,
    windows,
)
from helpers import golden
from helpers.assumed import assumed
from helpers.theorem_instances import FAMILIES, draw

INNER = ("linear-sa", "on-policy", "linear")


def beside(family: str, seed: int) -> tuple[float, float]:
    """The bound on a random run that it admits, and the exact error; of the sup norm the least that
    it can be."""
    rng = np.random.default_rng([40, FAMILIES.index(family), seed])
    problem, algorithm, given = draw(family, rng)
    period = int(rng.choice([1, 1, 3, 20]))
    step = largest_sharper_step(problem, algorithm, sync_period=period) * 10 ** rng.uniform(
        -3, -0.05
    )
    settings: dict[str, Any] = {
        "step_size": step,
        "sync_period": period,
        "num_steps": int(10 ** rng.uniform(2, 9)),
    }
    decay = 1 - 10 ** rng.uniform(-8, -1)
    bound = sharper_from(given, decay=decay, **settings)
    assert bound.holds
    exact = float(fg.exact.weighted_error(problem, algorithm, decay=decay, order=1, **settings))
    if given.norm == "sup":
        return bound.total, exact / given.dimension
    to_2_norm = 1.0 if given.weight is None else 1 / float(np.linalg.eigvalsh(given.weight)[0])
    return bound.total * to_2_norm, exact


@pytest.mark.parametrize("family", FAMILIES)
def test_bound_is_above_the_exact_error(family: str) -> None:
    for seed in range(8):
        bound, exact = beside(family, seed)
        assert 0 < exact < bound, f"{family}, seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_bound_is_above_the_exact_error_on_many_problems(family: str) -> None:
    for seed in range(8, 60):
        bound, exact = beside(family, seed)
        assert 0 < exact < bound, f"{family}, seed {seed}"


def way_and_bound(
    problem: Any, algorithm: Any, share: float, period: int, start: float
) -> list[tuple[float, float]]:
    """Over 2000 runs, the root mean square of the way of tau steps, and the bound plus 4 standard
    errors, for many tau."""
    given, point = fg.theory.assumptions(problem, algorithm), fg.fixed_point(problem, algorithm)
    root = np.eye(len(point)) if given.weight is None else np.linalg.cholesky(given.weight)
    step = share * largest_sharper_step(problem, algorithm, sync_period=period)
    history = fg.run(
        problem,
        algorithm,
        step_size=step,
        sync_period=period,
        num_steps=40,
        seeds=range(2000),
        record=1,
        record_params=True,
        initial_params=point + start,
    )
    path = (history.data["average_params"].values - point) @ root
    found = []
    for tau in (1, 2, 5, 12):
        allowed = movement(given, step * given.beta, tau, period)
        if allowed is None:
            continue
        for t in (2 * tau + period - 1, 40):
            ways = (np.linalg.norm(path[:, t - tau : t] - path[:, t : t + 1], axis=2) ** 2).max(
                axis=1
            )
            x, way = math.sqrt((path[:, t] ** 2).sum(axis=1).mean()), math.sqrt(ways.mean())
            error = ways.std() / math.sqrt(len(ways)) / (2 * way)
            found.append((way, allowed[0].slope * x + allowed[0].constant + 4 * error))
    return found


@pytest.mark.parametrize("period", [1, 3])
def test_the_way_of_tau_steps_is_bounded(period: int) -> None:
    """Three agents with random matrices and noise, and averaged coins, where the bound is nearly
    reached.

    Near theta* one step of the coins is their noise, and far from it several steps are the pull
    towards theta*.
    """
    for seed in range(2):
        problem, algorithm, _ = draw("linear-sa", np.random.default_rng([43, seed]), num_agents=3)
        for share, start in ((1.0, 0.0), (0.3, 3.0)):
            found = way_and_bound(problem, algorithm, share, period, start)
            assert len(found) >= 4
            assert all(0 < way <= allowed for way, allowed in found), f"seed {seed}"
    coins = (
        fg.MarkovNoise(np.full((2, 2), 0.5), num_agents=3),
        fg.LinearSA([[[-1.0]], [[-1.0]]], [[3.0], [-3.0]]),
    )
    near, far = (way_and_bound(*coins, 0.01, period, start) for start in (0.0, 1e4))
    assert all(way <= allowed for way, allowed in near + far)
    assert near[0][0] > 0.9 * near[0][1]
    assert all(way > 0.9 * allowed for way, allowed in far)


@pytest.mark.parametrize("family", INNER)
def test_error_falls_as_the_drift_polynomial_says(family: str) -> None:
    """One step at a time, for every window, from 2 tau + K - 1 on: y' <= y - 2 alpha (k y - q_1
    sqrt(y) - q_0).

    The root of the expected sync error is at most the affine function that the polynomial is made
    of.
    """
    checked = 0
    for seed in range(8):
        rng = np.random.default_rng([41, INNER.index(family), seed])
        problem, algorithm, given = draw(family, rng)
        if given.weight is not None:
            continue
        period = int(rng.choice([1, 3])) if given.num_agents > 1 else 1
        alpha = (
            largest_sharper_step(problem, algorithm, sync_period=period)
            * given.beta
            * rng.uniform(0.05, 1)
        )
        settings = {"step_size": alpha / given.beta, "sync_period": period}
        exact = fg.exact.moments(problem, algorithm, times=np.arange(60), **settings)
        y = exact.mse
        [envelope] = envelopes(given)
        for tau in [t for t in windows(given, alpha) if t < 25]:
            found = movement(given, alpha, tau, period)
            if found is None:
                continue
            apart = found[1]
            begin = 2 * tau + period - 1
            k, q1, q0 = drift_polynomial(given, envelope, alpha, tau, period)
            allowed = y - 2 * alpha * (k * y - q1 * np.sqrt(y) - q0)
            assert np.all(y[begin + 1 :] <= allowed[begin:-1] * (1 + 1e-10)), (
                f"{family}, seed {seed}, tau {tau}"
            )
            assert np.all(
                np.sqrt(exact.sync_error[begin:])
                <= (apart.slope * np.sqrt(y) + apart.constant)[begin:] + 1e-12
            )
            checked += 1
    assert checked > 10


def test_noise_is_as_correlated_as_the_chain_lets_it_be() -> None:
    """The standard deviations of E[b(y_k) | y_0] over the stationary y_0, added over the lags."""
    for seed in range(100):
        rng = np.random.default_rng([42, seed])
        problem, algorithm, given = draw("linear-sa", rng)
        theta = fg.fixed_point(problem, algorithm)
        tables = algorithm.tables(problem)
        for kind, kernel in enumerate(problem.kernels):
            chain = kernel.toarray()
            b = (tables.matrices[kind] @ theta + tables.offsets[kind]) / given.beta
            if given.weight is not None:
                b = b @ np.linalg.cholesky(given.weight)
            law = np.linalg.matrix_power(chain, 2000)[0]
            added = 0.0
            for tau in range(1, 8):
                b = chain @ b
                added += math.sqrt(law @ ((b - law @ b) ** 2).sum(axis=1))
                assert added <= correlated_noise(given, tau) * (1 + 1e-9)


def test_no_smaller_constant_is_possible_for_averaged_coins() -> None:
    """x += alpha (X - x), X = +-B by the toss of a coin: the error is alpha B^2 / (N (2 - alpha)),
    and so is the bound."""
    for agents in (1, 100):
        noise = fg.MarkovNoise(np.full((2, 2), 0.5), num_agents=agents)
        average = fg.LinearSA([[[-1.0]], [[-1.0]]], [[3.0], [-3.0]])
        for step, allowed in ((1e-4, 0.1), (1e-6, 0.01), (1e-8, 0.001)):
            bound = fg.theory.sharper_error_bound(noise, average, step_size=step, num_steps=10**12)
            exact = step * 9 / (agents * (2 - step))
            assert 1 < bound.stationary / exact < 1 + allowed


def test_speed_up_is_linear_and_the_plain_bound_is_far_above() -> None:
    given = fg.theory.assumptions(golden.federation(num_agents=10), fg.OnPolicyTD())
    step = 1e-9
    few, many = (
        sharper_from(
            replace(given, num_agents=agents), step_size=step, num_steps=10**15, decay=1 - 1e-12
        )
        for agents in (10, 1000)
    )
    assert few.stationary == pytest.approx(100 * many.stationary, rel=1e-2)
    plain = bound_from(given, step_size=step, sync_period=1, num_steps=10**15)
    assert plain.total > 1e4 * few.total


def test_sup_norm_bound_needs_no_inner_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smoothing is chosen among several; each alone gives a bound that is no smaller."""
    given = assumed(m_4=0.2, m_2=0.2, lag_sum=math.nan)
    settings: dict[str, Any] = {"step_size": 1e-7, "num_steps": 10**12, "decay": 1 - 1e-9}
    found, smoothings = sharper_from(given, **settings), envelopes(given)
    assert found.holds
    assert all(0 < envelope.phi_2 < 1 - given.contraction for envelope in smoothings)
    alone = {}
    for envelope in smoothings:
        monkeypatch.setattr(sharper, "envelopes", lambda _, one=envelope: [one])
        alone[envelope.psi] = sharper_from(given, **settings).total
    assert min(alone.values()) == alone[found.smoothing] == found.total
    assert max(alone.values()) > 1.1 * found.total


def test_steps_that_are_too_large_have_no_bound() -> None:
    fed = golden.federation(num_agents=2)
    largest = largest_sharper_step(fed, fg.OnPolicyTD())
    settings = {"num_steps": 10**9}
    assert fg.theory.sharper_error_bound(
        fed, fg.OnPolicyTD(), step_size=0.99 * largest, **settings
    ).holds
    with pytest.warns(
        RuntimeWarning,
        match=r"use at most largest_sharper_step\(problem, algorithm, sync_period=1\)\.",
    ):
        beyond = fg.theory.sharper_error_bound(
            fed, fg.OnPolicyTD(), step_size=1.1 * largest, **settings
        )
    assert not beyond.holds
    assert beyond.total == math.inf
    assert beyond.vacuous
    with pytest.raises(fg.ProblemError, match="decay"):
        fg.theory.sharper_error_bound(fed, fg.OnPolicyTD(), step_size=1e-3, num_steps=10, decay=1.5)


def test_the_cure_for_too_large_a_step_names_the_sync_period() -> None:
    fed, settings = golden.federation(num_agents=2), {"num_steps": 10**9, "sync_period": 1000}
    with pytest.warns(RuntimeWarning, match=r"sync_period=1000\)"):
        fg.theory.sharper_error_bound(
            fed, fg.OnPolicyTD(), step_size=largest_sharper_step(fed, fg.OnPolicyTD()), **settings
        )
    cured = largest_sharper_step(fed, fg.OnPolicyTD(), sync_period=1000)
    assert fg.theory.sharper_error_bound(fed, fg.OnPolicyTD(), step_size=cured, **settings).holds


def test_runs_that_nobody_makes_have_a_bound() -> None:
    """As `error_bound`, for up to 10^100 steps; the start is forgotten."""
    fed = golden.federation(num_agents=2)
    bound = fg.theory.sharper_error_bound(
        fed, fg.OnPolicyTD(), step_size=1e-6, num_steps=10**100, sync_period=20
    )
    assert bound.total == bound.stationary > 0
    assert 0 < largest_sharper_step(fed, fg.OnPolicyTD(), sync_period=10**100) < 1e-100
    with pytest.raises(fg.ProblemError, match="sync_period"):
        largest_sharper_step(fed, fg.OnPolicyTD(), sync_period=10**101)


def test_one_agent_does_not_feel_the_sync_period_and_many_pay_for_a_long_one() -> None:
    given = fg.theory.assumptions(golden.federation(num_agents=100), fg.OffPolicyLinearTD())
    settings: dict[str, Any] = {"step_size": 1e-6, "num_steps": 10**12, "decay": 1 - 1e-9}
    totals = [sharper_from(given, sync_period=period, **settings).total for period in (1, 10, 100)]
    assert totals == sorted(totals)
    assert totals[2] > 1.01 * totals[0]
    alone = replace(given, num_agents=1)
    assert (
        len({sharper_from(alone, sync_period=period, **settings).total for period in (1, 10, 100)})
        == 1
    )


def test_short_runs_are_bounded_by_the_start() -> None:
    fed = golden.federation(num_agents=2)
    bound = fg.theory.sharper_error_bound(fed, fg.OnPolicyTD(), step_size=1e-5, num_steps=1)
    exact = fg.exact.weighted_error(
        fed, fg.OnPolicyTD(), step_size=1e-5, sync_period=1, num_steps=1, decay=0.5
    )
    assert exact <= bound.total < 1.01 * exact
    assert "window tau" in str(bound)
