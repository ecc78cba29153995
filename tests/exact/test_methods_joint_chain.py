"""Exact moments under every linear method, against the joint chain of all agents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fegsam as fg
from helpers import golden
from helpers.joint_methods import MethodMoments, Oracle

CLOSE = {"rtol": 1e-9, "atol": 1e-12}
WEIGHTS = fg.Mean((0.2, 0.5, 0.3))
KIND, AGENT = fg.ControlVariates("kind"), fg.ControlVariates("agent")
TWO, MOST = (
    fg.Participation(agents=2, others="go_on"),
    fg.Participation(probability=0.6, others="go_on"),
)
ALL = fg.Participation(probability=0.6, others="go_on", divide_by="all")

METHODS = {
    "plain": fg.Method(),
    "weights": fg.Method(WEIGHTS),
    "weights by kind": fg.Method(fg.Mean((0.3, 0.7))),
    "server": fg.Method(server=fg.Server(0.7)),
    "momentum": fg.Method(server=fg.Server(0.7, 0.5)),
    "nesterov": fg.Method(server=fg.Server(0.7, 0.5, True)),
    "variates by kind": fg.Method(correction=KIND),
    "variates by agent": fg.Method(correction=AGENT),
    "first step by kind": fg.Method(correction=fg.ControlVariates("kind", "first_step")),
    "first step by agent": fg.Method(correction=fg.ControlVariates("agent", "first_step")),
    "two of three": fg.Method(participation=TWO),
    "two of three, divided by all": fg.Method(
        participation=fg.Participation(agents=2, others="go_on", divide_by="all")
    ),
    "most": fg.Method(participation=MOST),
    "most, divided by all": fg.Method(participation=ALL),
    "all of three": fg.Method(participation=fg.Participation(agents=3)),
    "dither": fg.Method(rounding=fg.Rounding(0.5, dither=True)),
    "some cells": fg.Method(rounding=fg.SomeCells(1)),
    "local steps": fg.Method(local_steps=fg.LocalSteps((1, 3))),
    "local steps, not normalised": fg.Method(local_steps=fg.LocalSteps((3, 2), normalised=False)),
    "weights, variates, nesterov": fg.Method(WEIGHTS, KIND, fg.Server(0.7, 0.5, True)),
    "weights, first step, momentum": fg.Method(
        WEIGHTS, fg.ControlVariates("agent", "first_step"), fg.Server(0.7, 0.5)
    ),
    "weights, first step by kind, nesterov": fg.Method(
        WEIGHTS, fg.ControlVariates("kind", "first_step"), fg.Server(0.7, 0.5, True)
    ),
    "weights, momentum, two": fg.Method(WEIGHTS, server=fg.Server(0.7, 0.5), participation=TWO),
    "weights, momentum, most by all": fg.Method(
        WEIGHTS, server=fg.Server(0.7, 0.5), participation=ALL
    ),
    "variates by kind, most": fg.Method(correction=KIND, participation=MOST),
    "variates by agent, two": fg.Method(correction=AGENT, participation=TWO),
    "weights, variates by kind, two, nesterov": fg.Method(
        WEIGHTS, KIND, fg.Server(0.7, 0.5, True), TWO
    ),
    "dither, two, momentum": fg.Method(
        server=fg.Server(0.7, 0.5),
        participation=TWO,
        rounding=fg.Rounding(0.5, dither=True),
    ),
    "some cells, weights, local steps": fg.Method(
        WEIGHTS, rounding=fg.SomeCells(1), local_steps=fg.LocalSteps((1, 3))
    ),
    "dither, most by all, local steps": fg.Method(
        rounding=fg.Rounding(0.5, dither=True),
        participation=ALL,
        local_steps=fg.LocalSteps((3, 1)),
    ),
}


def noise_problem(seed: int) -> tuple[Any, Any]:
    """Three agents of two kinds, two states of noise, two parameters."""
    rng = np.random.default_rng(seed)
    kernels = rng.dirichlet(np.ones(2), size=(2, 2)) * 0.8 + 0.1
    problem = fg.MarkovNoise(kernels, num_agents=3, initial_distribution=[0.9, 0.1])
    matrices = -np.eye(2) + 0.4 * rng.normal(size=(2, 2, 2, 2))
    return problem, fg.LinearSA(matrices, rng.normal(size=(2, 2, 2)))


def settings(method: fg.Method) -> dict[str, Any]:
    return {"sync_period": 3, "step_size": 0.3, "method": method}


def check_run(
    problem: Any,
    algorithm: Any,
    method: fg.Method,
    truth: MethodMoments,
    tail: Any = 0.5,
    **changes: Any,
) -> None:
    """Every moment at every time of a run, and its tail average."""
    given = settings(method) | {"order": problem.num_agents} | changes
    times = np.arange(len(truth.mse))
    found = fg.exact.moments(problem, algorithm, times=times, **given)
    assert_allclose(found.mse, truth.mse, **CLOSE)
    assert_allclose(found.mean, truth.mean, **CLOSE)
    assert_allclose(found.sync_error, truth.sync_error, **CLOSE)
    averaged = fg.exact.tail_error(problem, algorithm, num_steps=len(times) - 1, tail=tail, **given)
    assert_allclose(averaged.mse, truth.tail_mse, **CLOSE)
    assert_allclose(averaged.mean, truth.tail_mean, **CLOSE)


@pytest.mark.parametrize("name", METHODS)
def test_moments_are_those_of_the_joint_chain(name) -> None:
    problem, algorithm = noise_problem(3)
    method = METHODS[name]
    star = fg.fixed_point(problem, algorithm, method=method)
    start = np.array([0.5, -1.0])
    truth = Oracle(problem, algorithm, method, star, "markov").run(
        lambda t: 0.3, [3], 8, initial_params=start
    )
    check_run(problem, algorithm, method, truth, initial_params=start)


def test_oracle_tells_the_methods_apart() -> None:
    problem, algorithm = noise_problem(3)
    star = fg.fixed_point(problem, algorithm)
    last = [
        Oracle(problem, algorithm, method, star, "markov").run(lambda t: 0.3, [3], 7).mse[-1]
        for name, method in METHODS.items()
        if name not in ("all of three",)
    ]
    assert len(np.unique(np.round(last, 9))) == len(last)


@pytest.mark.parametrize("over", ["steps", "syncs"])
@pytest.mark.parametrize(
    "name",
    ["plain", "momentum", "variates by kind", "first step by agent", "variates by kind, most"],
)
def test_rounds_and_step_sizes_may_differ(name, over) -> None:
    problem, algorithm = noise_problem(5)
    method, schedule = METHODS[name], fg.schedules.Polynomial(0.5, 2.0)
    star = fg.fixed_point(problem, algorithm, method=method)
    truth = Oracle(problem, algorithm, method, star, "markov").run(
        lambda t: 0.4 * (t + 2.0) ** -0.5, [1, 3, 2], 10, tail=0.6, over=over
    )
    changes = {"sync_period": (1, 3, 2), "schedule": schedule, "step_size": 0.4}
    check_run(problem, algorithm, method, truth, fg.Tail(0.6, over), **changes)


@pytest.mark.parametrize(
    "name", ["plain", "nesterov", "weights, variates, nesterov", "two of three"]
)
def test_growing_rounds_have_the_lengths_that_they_say(name) -> None:
    problem, algorithm = noise_problem(6)
    method = METHODS[name]
    star = fg.fixed_point(problem, algorithm, method=method)
    truth = Oracle(problem, algorithm, method, star, "markov").run(lambda t: 0.3, [1, 2, 4], 13)
    growing = fg.schedules.Growing(first=1, factor=2, most=4)
    check_run(problem, algorithm, method, truth, sync_period=growing)


TD_METHODS = [
    "weights by kind",
    "nesterov",
    "variates by kind",
    "first step by kind",
    "first step by agent",
    "some cells",
    "local steps",
    "variates by kind, most",
    "most, divided by all",
]


@pytest.mark.parametrize("sampling", ["markov", "iid"])
@pytest.mark.parametrize("name", TD_METHODS)
@pytest.mark.parametrize(
    "algorithm", [fg.OffPolicyTabularTD(1), fg.OffPolicyTabularTD(2)], ids=["n=1", "n=2"]
)
def test_temporal_differences_have_their_moments(algorithm, name, sampling) -> None:
    problem, method = golden.federation(), METHODS[name]
    star = fg.fixed_point(problem, algorithm, method=method)
    truth = Oracle(problem, algorithm, method, star, sampling).run(lambda t: 0.3, [3], 7)
    check_run(problem, algorithm, method, truth, sampling=sampling)


@pytest.mark.parametrize("sampling", ["markov", "iid"])
@pytest.mark.parametrize(
    "name", ["plain", "nesterov", "first step by agent", "most, divided by all"]
)
def test_gradient_corrections_have_their_moments(name, sampling) -> None:
    problem = golden.federation()
    algorithm, method = fg.TDC(ratio=0.6), METHODS[name]
    star = fg.fixed_point(problem, algorithm, method=method)
    truth = Oracle(problem, algorithm, method, star, sampling).run(lambda t: 0.3, [3], 7)
    check_run(problem, algorithm, method, truth, sampling=sampling)


def test_two_of_three_cells_are_sent_together_as_often_as_they_should() -> None:
    rng = np.random.default_rng(4)
    problem = fg.MarkovNoise(rng.dirichlet(np.ones(2), size=(2, 2)), num_agents=2)
    matrices = -np.eye(3) + 0.4 * rng.normal(size=(2, 2, 3, 3))
    algorithm = fg.LinearSA(matrices, rng.normal(size=(2, 2, 3)))
    method = fg.Method(rounding=fg.SomeCells(2))
    star = fg.fixed_point(problem, algorithm)
    truth = Oracle(problem, algorithm, method, star, "markov").run(lambda t: 0.3, [3], 8)
    check_run(problem, algorithm, method, truth)


def test_waiting_does_not_matter_to_independent_draws() -> None:
    problem, algorithm = noise_problem(8)
    method = fg.Method(participation=fg.Participation(agents=2, others="wait"))
    star = fg.fixed_point(problem, algorithm)
    truth = Oracle(problem, algorithm, method, star, "iid").run(lambda t: 0.3, [3], 8)
    check_run(problem, algorithm, method, truth, sampling="iid")


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"server": fg.Server(0.7, 0.5, True), "average": WEIGHTS},
        {"rounding": fg.SomeCells(1), "local_steps": fg.LocalSteps((1, 3))},
    ],
    ids=["alone", "weights, nesterov", "some cells, local steps"],
)
def test_agents_that_wait_by_coins_of_their_own_have_their_moments(more) -> None:
    problem, algorithm = noise_problem(9)
    method = fg.Method(participation=fg.Participation(probability=0.6, divide_by="all"), **more)
    star = fg.fixed_point(problem, algorithm, method=method)
    truth = Oracle(problem, algorithm, method, star, "markov").run(
        lambda t: 0.3, [3], 8, over="syncs"
    )
    check_run(problem, algorithm, method, truth, fg.Tail(0.5, "syncs"))
    going_on = fg.Participation(probability=0.6, divide_by="all", others="go_on")
    other = fg.Method(participation=going_on, **more)
    gone_on = Oracle(problem, algorithm, other, star, "markov").run(lambda t: 0.3, [3], 8)
    assert abs(gone_on.mse[-1] / truth.mse[-1] - 1) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_stationary_error_is_the_limit(name) -> None:
    problem, algorithm = noise_problem(3)
    given = settings(METHODS[name]) | {"order": 3}
    limit = fg.exact.stationary_error(problem, algorithm, **given)
    late = fg.exact.moments(problem, algorithm, times=[3 * 400], **given)
    assert_allclose(limit, late.mse[0], rtol=1e-9)
    varying = fg.exact.stationary_error(problem, algorithm, **given | {"sync_period": (7, 3)})
    if METHODS[name].local_steps is None:
        assert varying == limit


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "nesterov",
        "first step by agent",
        "local steps",
        "variates by kind, most",
        "weights, momentum, most by all",
    ],
)
def test_weighted_error_is_the_weighted_mean_of_the_curve(name) -> None:
    problem, algorithm = noise_problem(3)
    given, decay = settings(METHODS[name]), 0.9
    periods = [3] if METHODS[name].local_steps is not None else [3, (1, 4, 2)]
    for period in periods:
        given["sync_period"] = period
        curve = fg.exact.mean_squared_error(problem, algorithm, num_steps=19, **given)
        weights = decay ** (19.0 - np.arange(20))
        found = fg.exact.weighted_error(problem, algorithm, num_steps=20, decay=decay, **given)
        assert_allclose(found, weights @ curve / weights.sum(), rtol=1e-8)
