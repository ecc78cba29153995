"""(g) The scalar example of the appendix on the lower bound.

The appendix is "Lower Bound on the Convergence of General Stochastic Approximation". The iteration
``x += alpha (X_t - x)`` with independent X_t of mean zero and variance s^2, run by N agents that
average every K steps, has

    E x_t^2 = (x_0^2 - f) (1 - alpha)^(2t) + f,    f = alpha s^2 / (N (2 - alpha)),

for every K. The paper has N = 1: a geometric term and a floor proportional to the step size,
without any inequality.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fegsam as fg
from fegsam.experiments.estimates import (
    curve_estimate,
    mean_estimate,
    ratio_estimate,
    slope_estimate,
)
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.thresholds import ClaimSpec, certain, fresh_seeds, widest


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """The example against its closed form."""
    curve, figure = against_time(spec, engine or "cpu")
    return Section(
        spec.letter,
        spec.title,
        "With a constant step size the error of the last iterate falls geometrically to a floor "
        "proportional to the step size, and this cannot be improved in general: a scalar example "
        "has exactly that error.",
        (*curve, *_floors(spec, engine or "cpu")),
        (figure,),
        (
            "The example is a scalar that moves a tenth of the way towards independent noise of "
            "mean zero at each step.",
            "The lower bound is on the last iterate with a constant step size. The mean over time "
            "of the same run has no such floor, so 'cannot be improved' is about the iterate that "
            "is returned, not about what the samples can "
            "tell.",
        ),
    )


def closed_form(
    times: np.ndarray, *, start: float, step_size: float, variance: float, agents: int = 1
) -> np.ndarray:
    """E x_t^2.

    >>> closed_form(np.array([0, 1, 2]), start=3.0, step_size=0.1, variance=4.0)
    array([9.    , 7.33  , 5.9773])
    """
    floor = step_size * variance / (agents * (2 - step_size))
    return (start**2 - floor) * (1 - step_size) ** (2 * times) + floor


def _example(spec: ClaimSpec, agents: int) -> tuple[fg.MarkovNoise, fg.LinearSA]:
    distribution, values = np.array(spec.sizes.distribution), np.array(spec.sizes.values)
    kernel = np.tile(distribution, (len(values), 1))
    noise = fg.MarkovNoise(kernel, num_agents=agents, initial_distribution=distribution)
    return noise, fg.LinearSA(np.full((len(values), 1, 1), -1.0), values[:, None])


def _variance(spec: ClaimSpec) -> float:
    return float(np.array(spec.sizes.distribution) @ np.array(spec.sizes.values) ** 2)


def _curve(spec: ClaimSpec, times: np.ndarray) -> np.ndarray:
    """E x_t^2 in closed form, at the step size of the curve over time."""
    sizes = spec.sizes
    return closed_form(
        times, start=sizes.start, step_size=sizes.step_size, variance=_variance(spec)
    )


def against_time(spec: ClaimSpec, engine: Any) -> tuple[list[Verdict], FigureData]:
    """The error over time, run and exact, against its closed form."""
    sizes = spec.sizes
    times = np.array(sizes.times)
    settings: dict[str, Any] = {
        "step_size": sizes.step_size,
        "sync_period": 1,
        "initial_params": [sizes.start],
    }
    problem, algorithm = _example(spec, 1)
    truth = _curve(spec, times)
    history = fg.run(
        problem,
        algorithm,
        num_steps=int(times[-1]),
        seeds=fresh_seeds(sizes.curve_seeds),
        record=times,
        engine=engine,
        **settings,
    )
    errors = history.data.squared_error_2.values
    # The statement is about all times at once, so each interval is wider (Bonferroni).
    level = 1 - 0.05 / len(times)
    sampled = widest(mean_estimate(errors[:, j] / truth[j], level=level) for j in range(len(times)))
    exact = fg.exact.moments(problem, algorithm, times=times, **settings).mse
    verdicts = [
        spec.verdict(
            "curve",
            "scalar example, sampled",
            sampled,
            f"Measured over closed form, at {len(times)} times together.",
        ),
        spec.verdict(
            "exact",
            "scalar example, exact",
            certain(np.abs(exact / truth - 1).max()),
            "The largest relative difference.",
        ),
    ]
    return verdicts, _time_figure(spec, times, errors)


def _time_figure(spec: ClaimSpec, times: np.ndarray, errors: np.ndarray) -> FigureData:
    sizes = spec.sizes
    bars, fine = curve_estimate(errors, positive=True), np.arange(times[-1] + 1)
    smooth = _curve(spec, fine)
    floor = np.full(2, smooth[-1] - (sizes.start**2) * (1 - sizes.step_size) ** (2 * times[-1]))
    series = (
        Series("one agent", times, bars.value, bars.low, bars.high),
        Series("closed form", fine, smooth, style="exact", group="one agent"),
        Series("floor", fine[[0, -1]], floor, style="reference"),
    )
    return FigureData(
        "lower_bound",
        "Geometric fall to a floor",
        "The squared error of the example falls geometrically to a floor; points are runs, the "
        "line is the closed form.",
        "steps t",
        "E x²",
        "linear",
        "log",
        series,
    )


def _floors(spec: ClaimSpec, engine: Any) -> list[Verdict]:
    sizes = spec.sizes
    by_step = [_long_run(spec, engine, step_size=step) for step in sizes.step_sizes]
    last, mean = by_step[0]
    by_agents = [_long_run(spec, engine, agents=agents)[0] for agents in sizes.agents]
    rare = [
        _long_run(spec, engine, agents=sizes.agents[1], period=period)[0]
        for period in sizes.sync_periods
    ]
    return [
        spec.verdict(
            "floor_exponent",
            "floor against step size",
            slope_estimate(sizes.step_sizes, [floor for floor, _ in by_step], method="t"),
        ),
        spec.verdict(
            "agents_exponent",
            "floor against agents",
            slope_estimate(sizes.agents, by_agents, method="t"),
        ),
        spec.verdict(
            "periods",
            "floor against averaging period",
            certain(np.abs(rare[1] - rare[0]).max() / rare[0].mean()),
            f"Every {sizes.sync_periods[-1]} steps against every step.",
        ),
        spec.verdict(
            "averaged",
            "mean over time",
            ratio_estimate(mean, last, paired=True),
            f"Error of the mean over error of the last step, at step size {sizes.step_sizes[0]}.",
        ),
    ]


def _long_run(
    spec: ClaimSpec,
    engine: Any,
    *,
    step_size: float | None = None,
    agents: int = 1,
    period: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """(seeds,): the squares of the last iterate and of the mean over the run's second half."""
    step = spec.sizes.step_size if step_size is None else step_size
    settled = math.ceil(spec.sizes.relaxations / step)
    problem, algorithm = _example(spec, agents)
    history = fg.run(
        problem,
        algorithm,
        step_size=step,
        sync_period=period,
        num_steps=2 * settled,
        seeds=fresh_seeds(spec.sizes.seeds),
        record=np.arange(settled, 2 * settled + 1, max(1, settled // 100)),
        record_params=True,
        engine=engine,
    )
    path = history.data.average_params.isel(param=0).values
    return path[:, -1] ** 2, path.mean(axis=1) ** 2
