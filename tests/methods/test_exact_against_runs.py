"""The exact moments of every linear method against runs: at 20 times, on five problems.

A machine without pytest checks the same with ``python tests/methods/test_exact_against_runs.py``.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

import fegsam as fg

SEEDS, AGENTS, K, TIMES = range(3000), 4, 5, np.arange(2, 42, 2)
LARGEST_Z = 4.0


def _variates(of: Any, source: Any = "last_round") -> fg.Method:
    return fg.Method(correction=fg.ControlVariates(of, source))


METHODS: dict[str, dict[str, Any]] = {
    "weights": {"method": fg.Method(average=fg.Mean((0.3, 0.7)))},
    "server step and momentum": {"method": fg.methods.fedavgm(0.5, step=0.8)},
    "nesterov": {"method": fg.methods.fedavgm(0.5, nesterov=True)},
    "last round by kind": {"method": _variates("kind")},
    "last round by agent": {"method": _variates("agent")},
    "first step by kind": {"method": _variates("kind", "first_step")},
    "first step by agent": {"method": _variates("agent", "first_step")},
    "two of the agents": {
        "method": fg.Method(participation=fg.Participation(agents=2, others="go_on"))
    },
    "waiting by coins": {
        "method": fg.Method(participation=fg.Participation(probability=0.6, divide_by="all"))
    },
    "dithered rounding": {"method": fg.Method(rounding=fg.Rounding(0.2, dither=True))},
    "some cells": {"method": fg.Method(rounding=fg.SomeCells(1))},
    "normalised local steps": {"method": fg.methods.fednova((2, 5))},
    "raw local steps": {"method": fg.Method(local_steps=fg.LocalSteps((2, 5), normalised=False))},
    "schedule": {"schedule": fg.schedules.Polynomial(0.75, offset=2.0)},
    "growing rounds": {"sync_period": fg.schedules.Growing(1, 2.0, 9)},
}


def _coins() -> tuple[Any, Any]:
    """Two agents of each kind, with own points 1 and 0 and noise of their own."""
    noise = fg.MarkovNoise([[[0.5, 0.5], [0.5, 0.5]]] * 2, num_agents=AGENTS)
    matrices = [[[[-1.0]], [[-1.0]]], [[[-0.25]], [[-0.25]]]]
    return noise, fg.LinearSA(matrices, [[[0.0], [2.0]], [[-0.5], [0.5]]])


def _chains() -> tuple[Any, Any]:
    """Chains that stay, matrices that differ by state and kind."""
    rng = np.random.default_rng(5)
    kernels = 0.6 * np.eye(3) + 0.4 * rng.dirichlet(np.ones(3), size=(2, 3))
    matrices = 0.3 * rng.normal(size=(2, 3, 2, 2)) - np.eye(2)
    return fg.MarkovNoise(kernels, num_agents=AGENTS), fg.LinearSA(
        matrices, rng.normal(size=(2, 3, 2))
    )


def _federation() -> fg.Federation:
    return fg.Federation(
        fg.examples.garnet(4, 2, 3, discount=0.7, seed=2, connected=True),
        fg.policies.random(4, 2, count=2, seed=3),
        num_agents=AGENTS,
        target_policy=fg.policies.uniform(4, 2),
        features=np.random.default_rng(1).normal(size=(4, 2)),
    )


PROBLEMS: dict[str, Any] = {
    "coins": _coins,
    "chains": _chains,
    "on-policy TD": lambda: (_federation(), fg.OnPolicyTD(2)),
    "off-policy tabular TD": lambda: (_federation(), fg.OffPolicyTabularTD()),
    "off-policy linear TD": lambda: (_federation(), fg.OffPolicyLinearTD()),
}


def largest_z(problem_name: str, method_name: str) -> float:
    """The largest deviation of a mean over runs from its exact value, in standard errors."""
    problem, algorithm = PROBLEMS[problem_name]()
    settings = {"step_size": 0.15, "sync_period": K} | METHODS[method_name]
    exact = fg.exact.moments(problem, algorithm, times=TIMES, **settings)
    history = fg.run(
        problem,
        algorithm,
        num_steps=int(TIMES[-1]),
        record=TIMES,
        record_params=True,
        seeds=SEEDS,
        output_decay=0.9,
        **settings,
    )
    square, params = history.data.squared_error_2.values, history.data.average_params.values
    found = [*_z(square, exact.mse), *_z(params, exact.mean).ravel()]
    return float(np.abs(found).max())


def _z(samples: np.ndarray, exact: np.ndarray) -> np.ndarray:
    spread = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    rounding = 1e-12 * (1.0 + np.abs(exact))
    return (samples.mean(axis=0) - exact) / np.maximum(spread, rounding)


def main() -> None:
    pairs = [(problem, method) for problem in PROBLEMS for method in METHODS]
    with ProcessPoolExecutor(15, mp_context=get_context("spawn")) as pool:
        for pair, z in zip(pairs, pool.map(largest_z, *zip(*pairs, strict=True)), strict=True):
            print(
                f"{pair[0]}, {pair[1]}: {z:.2f}", "" if z < LARGEST_Z else "TOO LARGE", flush=True
            )


if __name__ == "__main__":
    main()
else:
    import pytest

    @pytest.mark.slow
    @pytest.mark.parametrize("method_name", METHODS)
    @pytest.mark.parametrize("problem_name", PROBLEMS)
    def test_runs_agree_with_the_exact_moments(problem_name, method_name) -> None:
        assert largest_z(problem_name, method_name) < LARGEST_Z
