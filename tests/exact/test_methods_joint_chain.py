"""Exact moments under every linear method, against the joint chain of all agents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fegsam as fg
from helpers.joint_methods import Oracle

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


@pytest.mark.parametrize("name", METHODS)
def test_moments_are_those_of_the_joint_chain(name) -> None:
    problem, algorithm = noise_problem(3)
    method = METHODS[name]
    star = fg.fixed_point(problem, algorithm, method=method)
    start = np.array([0.5, -1.0])
    truth = Oracle(problem, algorithm, method, star, "markov").run(
        lambda t: 0.3, [3], 8, initial_params=start
    )
    found = fg.exact.moments(
        problem, algorithm, times=np.arange(9), initial_params=start, order=3, **settings(method)
    )
    assert_allclose(found.mse, truth.mse, **CLOSE)
    assert_allclose(found.mean, truth.mean, **CLOSE)
    assert_allclose(found.sync_error, truth.sync_error, **CLOSE)
    tail = fg.exact.tail_error(
        problem,
        algorithm,
        num_steps=8,
        tail=0.5,
        initial_params=start,
        order=3,
        **settings(method),
    )
    assert_allclose(tail.mse, truth.tail_mse, **CLOSE)
    assert_allclose(tail.mean, truth.tail_mean, **CLOSE)
