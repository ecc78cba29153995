"""(k) Local SGD as an instance of Algorithm 1, as the paper says below eq. SA_main.

Agent i fits labels u by inputs z, ``min E (z'theta - u)^2 / 2``, with one data point y per step:

    theta += alpha (u_y z_y - z_y z_y' theta),

which is `LinearSA` with matrices -z z' and offsets u z. Points are drawn independently, or the
agent keeps the same point with a given probability. Agents share one data set, or have one of two
whose inputs or labels differ.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import fegsam as fg
from fegsam.experiments.estimates import Estimate, curve_estimate, mean_estimate, ratio_estimate
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.runs import ENDLESS
from fegsam.reproduction.thresholds import (
    ClaimSpec,
    certain,
    exponent,
    fresh_seeds,
    widest,
)


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """Linear speed-up on shared data, and drift on different data."""
    speed, first = measured_speed_up(spec, engine or "cpu")
    drift, second = measured_drift(spec, engine or "cpu")
    return Section(
        spec.letter,
        spec.title,
        "Stochastic gradient descent in which agents take several steps on their own between "
        "averagings is a special case of the paper's algorithm, and behaves as the theory says: N "
        "agents are N times as accurate, and agents with different data drift from the common "
        "solution in proportion to the steps between averagings.",
        (*speed, *drift),
        (first, second),
        (
            f"Least squares in {spec.sizes.dim} dimensions on data sets of {spec.sizes.points} "
            "points, one point per step.",
            "Different data do not always make agents drift. Agents with the same inputs and "
            "different labels have the same curvature, and the averages of their local runs stay "
            "at the common solution. The paper's bound charges both cases.",
        ),
    )


class Regression(NamedTuple):
    """Data sets, one per kind of agent."""

    inputs: np.ndarray
    """(kinds, points, d)"""
    labels: np.ndarray
    """(kinds, points)"""

    def algorithm(self) -> fg.LinearSA:
        return fg.LinearSA(
            -np.einsum("kpi,kpj->kpij", self.inputs, self.inputs),
            self.labels[:, :, None] * self.inputs,
        )

    def problem(self, num_agents: int, memory: float = 0.0) -> fg.MarkovNoise:
        kinds, points = self.labels.shape
        chain = memory * np.eye(points) + (1 - memory) / points
        return fg.MarkovNoise(np.tile(chain, (kinds, 1, 1)), num_agents=num_agents)

    def relaxation(self, step_size: float) -> float:
        """The number of steps in which the slowest part of the mean error falls by the factor e."""
        curvature = np.einsum("kpi,kpj->ij", self.inputs, self.inputs) / self.labels.size
        return float(1 / (step_size * np.linalg.eigvalsh(curvature)[0]))


def regression(spec: ClaimSpec, differ: str = "") -> Regression:
    """One data set, or two that differ in "both" inputs and labels or only in the "labels"."""
    rng = np.random.default_rng(0)
    points, dim = spec.sizes.points, spec.sizes.dim
    kinds = 2 if differ else 1
    inputs = rng.normal(size=(kinds, points, dim))
    weights = (
        np.stack([np.ones(dim), -np.ones(dim)])[:kinds] if differ else rng.normal(size=(1, dim))
    )
    if differ == "labels":
        inputs[1] = inputs[0]
    labels = np.einsum("kpd,kd->kp", inputs, weights) + spec.sizes.noise * rng.normal(
        size=(kinds, points)
    )
    return Regression(inputs, labels)


def _times(spec: ClaimSpec, data: Regression, step: float, period: int) -> np.ndarray:
    """Multiples of the period after the start is forgotten, a fifth of a relaxation time apart."""
    relaxation = data.relaxation(step)
    apart = period * math.ceil(relaxation / 5 / period)
    begin = apart * math.ceil(spec.sizes.forgotten * relaxation / apart)
    return np.arange(begin, begin + spec.sizes.measured * relaxation + 1, apart).astype(np.int64)


def measured_speed_up(spec: ClaimSpec, engine: Any) -> tuple[list[Verdict], FigureData]:
    """How the error falls with the number of agents, on independent and on Markov data."""
    sizes, data = spec.sizes, regression(spec)
    times = _times(spec, data, sizes.step_size, sizes.sync_period)
    settings: dict[str, Any] = {"step_size": sizes.step_size, "sync_period": sizes.sync_period}
    verdicts, series = [], []
    for name, memory in (("independent data", 0.0), ("Markov data", sizes.memory)):
        columns, exact = [], []
        for agents in sizes.agents:
            problem, algorithm = data.problem(agents, memory), data.algorithm()
            history = fg.run(
                problem,
                algorithm,
                num_steps=int(times[-1]),
                seeds=fresh_seeds(sizes.seeds),
                record=times,
                engine=engine,
                output_decay=0.5,
                **settings,
            )
            columns.append(history.data.squared_error_2.mean("time").values)
            exact.append(fg.exact.stationary_error(problem, algorithm, order=1, **settings))
        table = np.stack(columns, axis=1)
        floor = fg.exact.stationary_error(
            data.problem(ENDLESS, memory), data.algorithm(), order=1, **settings
        )
        slope = exponent(sizes.agents, table - floor)
        ratio = widest(mean_estimate(table[:, j] / exact[j]) for j in range(len(exact)))
        detail = f"without subtracting the floor {floor:.2g}, {exponent(sizes.agents, table)}"
        verdicts.append(
            spec.verdict(
                "slope", f"speed-up, {name}", slope, detail, data=name, period=sizes.sync_period
            )
        )
        verdicts.append(spec.verdict("exact", f"sampled against exact, {name}", ratio))
        curve = curve_estimate(table, positive=True)
        series.append(Series(name, sizes.agents, curve.value, curve.low, curve.high))
        series.append(Series(f"{name}, exact", sizes.agents, exact, style="exact", group=name))
    return verdicts, FigureData(
        "local_sgd_speed_up",
        "Linear speed-up",
        "The long-run error of local SGD on a shared data set falls as 1/N above its floor, with "
        "independent and with Markov data.",
        "agents N",
        "E‖θ − θ*‖²",
        series=tuple(series),
    )


def measured_drift(spec: ClaimSpec, engine: Any) -> tuple[list[Verdict], FigureData]:
    """How the bias grows with the sync period, beside the small-step law."""
    sizes, periods = spec.sizes, spec.sizes.drift_sync_periods
    data, labels = regression(spec, "both"), regression(spec, "labels")
    laws = [_law(spec, data, period) for period in periods]
    direction = laws[-1] / np.linalg.norm(laws[-1])
    offsets = [_offsets(spec, data, period, engine).mean(axis=1) @ direction for period in periods]
    # The same seeds draw the same data, so subtracting the run that averages at every step removes
    # the noise that all runs share.
    drifts = np.stack([each - offsets[0] for each in offsets[1:]], axis=1)
    predicted = np.array([law @ direction for law in laws[1:]])
    beyond = np.array(periods[1:]) - 1
    alike = [_offsets(spec, labels, period, engine) for period in (1, periods[-1])]
    alike_error = [(each**2).sum(axis=2).mean(axis=1) for each in alike]
    (none, rarely), (_, often) = _exact(spec, labels, periods[-1]), _exact(spec, labels, 1)
    exact_drift, _ = _exact(spec, data, periods[-1])
    rise = ratio_estimate(alike_error[1], alike_error[0], paired=True)
    share = Estimate(*(bound * often / rarely for bound in (rise.value, rise.low, rise.high)))
    verdicts = [
        spec.verdict(
            "drift_exponent", "drift, different inputs and labels", exponent(beyond, drifts)
        ),
        spec.verdict(
            "drift_law",
            "drift against its law",
            widest(mean_estimate(drifts[:, j] / predicted[j]) for j in range(sizes.drift_small)),
            f"Measured drift over the law's, for K up to {periods[sizes.drift_small]}.",
        ),
        spec.verdict(
            "no_drift",
            "no drift, different labels alone",
            certain(none / exact_drift),
            f"K = {periods[-1]}: {none:.2g} against {exact_drift:.2g}",
        ),
        spec.verdict(
            "no_drift_error",
            "error, different labels alone",
            share,
            f"With K = {periods[-1]} the error is {rise} times that with K = 1, exactly "
            f"{rarely / often:.3f}.",
            period=periods[-1],
        ),
    ]
    curve = curve_estimate(drifts)
    none = curve_estimate(((alike[1] - alike[0]).mean(axis=1) @ direction)[:, None])
    name = "different inputs and labels"
    series = (
        Series(name, beyond, curve.value, curve.low, curve.high),
        Series("small-step law", beyond, predicted, style="reference"),
        Series("different labels alone", beyond[-1:], none.value, none.low, none.high),
    )
    caption = (
        "The distance of the long-run mean from the common solution: agents with different inputs "
        "drift, others do not."
    )
    label, axis = "drift from θ*", "local steps beyond the first, K − 1"
    return verdicts, FigureData(
        "local_sgd_drift", "Drift", caption, axis, label, "linear", "linear", series
    )


def _offsets(spec: ClaimSpec, data: Regression, period: int, engine: Any) -> np.ndarray:
    """(seeds, time, d): the average minus the common solution, after the start is forgotten."""
    sizes = spec.sizes
    problem, algorithm = data.problem(sizes.drift_agents), data.algorithm()
    times = _times(spec, data, sizes.drift_step_size, max(sizes.drift_sync_periods))
    history = fg.run(
        problem,
        algorithm,
        step_size=sizes.drift_step_size,
        sync_period=period,
        num_steps=int(times[-1]),
        seeds=fresh_seeds(sizes.drift_seeds),
        record=times,
        record_params=True,
        engine=engine,
        output_decay=0.5,
    )
    return history.data.average_params.values - fg.fixed_point(problem, algorithm)


def _exact(spec: ClaimSpec, data: Regression, period: int) -> tuple[float, float]:
    """The long-run distance of the mean from the common solution, and the long-run error.

    Both are taken right after an averaging.
    """
    problem, algorithm, step = (
        data.problem(spec.sizes.drift_agents),
        data.algorithm(),
        spec.sizes.drift_step_size,
    )
    times = _times(spec, data, step, max(spec.sizes.drift_sync_periods))[-1:]
    point = fg.fixed_point(problem, algorithm)
    settings: dict[str, Any] = {"step_size": step, "sync_period": period, "initial_params": point}
    found = fg.exact.moments(problem, algorithm, times=times, order=1, **settings)
    return float(np.linalg.norm(found.mean[0] - point)), float(found.mse[0])


def _law(spec: ClaimSpec, data: Regression, period: int) -> np.ndarray:
    """(d,): the bias to first order in the step size."""
    problem = data.problem(spec.sizes.drift_agents)
    return fg.theory.small_step_law(
        problem, data.algorithm(), step_size=spec.sizes.drift_step_size, sync_period=period
    ).bias
