"""(h) What to return: the average at the random time T-hat, the last average, or a weighted mean.

The theorems are about the average at a time drawn from q(t) ~ c^-t, c = 1 - alpha phi_2 / 2 (eq.
q_dist): their proofs bound the weighted mean of the errors. By convexity the error of the weighted
mean of the iterates is no larger.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import fegsam as fg
from fegsam.experiments.estimates import curve_estimate, mean_estimate, ratio_estimate
from fegsam.problem.federation import Problem
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.problems import Case, cases
from fegsam.reproduction.thresholds import ClaimSpec, fresh_seeds


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """Three outputs of one run."""
    verdicts, figures, notes = [], [], []
    for case in cases(spec.sizes.one_problem, spec.sizes.algorithms):
        found, figure, note = _examine(spec, case, engine or "cpu")
        verdicts, figures, notes = verdicts + found, [*figures, figure], [*notes, note]
    return Section(
        spec.letter,
        spec.title,
        "The theorems are about the parameters at a random time, with later times more likely. The "
        "last parameters are no worse, and a weighted mean over time is better than both.",
        tuple(verdicts),
        tuple(figures),
        (
            "The random time is drawn before the run, so a run may end there and keep only one "
            "vector. But its distribution reaches back further than the memory of the error. In a "
            "short run it returns parameters close to the start; in a long run it does so rarely, "
            "and a few runs do not show the contribution of those rare cases to its mean error. "
            "Here its error is therefore averaged over the distribution of the time, run by run.",
            *notes,
        ),
    )


class Readouts(NamedTuple):
    """(seeds, lengths of the run) squared errors in the 2-norm."""

    random: np.ndarray
    """the expectation over the output time, given the run"""
    last: np.ndarray
    averaged: np.ndarray


def readouts(
    params: np.ndarray, times: np.ndarray, point: np.ndarray, decay: float, ends: np.ndarray
) -> Readouts:
    """The errors of recorded averages (seeds, times, d); `ends` are indices of recorded times."""
    errors = params - point
    squares = (errors**2).sum(axis=2)
    columns = []
    for end in ends:
        # The distribution of the output time on the recorded times before the end.
        weights = decay ** (times[end] - times[:end].astype(float))
        weights /= weights.sum()
        mean = np.einsum("t,std->sd", weights, errors[:, :end])
        columns.append((squares[:, :end] @ weights, squares[:, end], (mean**2).sum(axis=1)))
    return Readouts(*(np.stack(each, axis=1) for each in zip(*columns, strict=True)))


def _examine(spec: ClaimSpec, case: Case, engine: Any) -> tuple[list[Verdict], FigureData, str]:
    sizes = spec.sizes
    problem, algorithm, period = case.federate(sizes.agents), case.algorithm, sizes.sync_period
    decay = fg.theory.default_output_decay(
        problem, algorithm, step_size=case.step_size, num_steps=10**9
    )
    look_back = 1 / (1 - decay)
    stride = period * math.ceil(sizes.long_run * look_back / sizes.records / period)
    length = stride * sizes.records
    settings: dict[str, Any] = {
        "step_size": case.step_size,
        "sync_period": period,
        "num_steps": length,
    }
    history = fg.run(
        problem,
        algorithm,
        seeds=fresh_seeds(sizes.seeds),
        record=stride,
        record_params=True,
        output_decay=decay,
        engine=engine,
        **settings,
    )
    times, point = history.data.time.values, fg.fixed_point(problem, algorithm)
    short = round(sizes.records * sizes.short_run / sizes.long_run)
    ends = np.unique(np.append(np.geomspace(4, sizes.records, 12).astype(int), short))
    found = readouts(history.data.average_params.values, times, point, decay, ends)
    exact = None
    if case.has_exact:
        exact = [_exact_random(case, problem, decay, int(times[end]), period) for end in ends]
    verdicts = _verdicts(spec, case, found, None if exact is None else exact[-1])
    too_short = int(np.flatnonzero(ends == short)[0])
    verdicts.append(
        spec.verdict(
            "short",
            f"{case.name}, short run",
            ratio_estimate(found.last[:, too_short], found.random[:, too_short], paired=True),
            f"A run of {times[short]} steps.",
        )
    )
    share = fg.theory.output_time_distribution(length, decay).mean / length
    note = (
        f"{case.name}: runs of {length} steps; the random time is on average at {share:.0%} of "
        "the run."
    )
    return verdicts, _figure(case, times[ends], found, exact), note


def _exact_random(case: Case, problem: Problem, decay: float, length: int, period: int) -> float:
    settings: dict[str, Any] = {
        "step_size": case.step_size,
        "sync_period": period,
        "num_steps": length,
        "order": 1,
    }
    return fg.exact.weighted_error(problem, case.algorithm, decay=decay, **settings)


def _verdicts(spec: ClaimSpec, case: Case, found: Readouts, exact: float | None) -> list[Verdict]:
    last, averaged, random = found.last[:, -1], found.averaged[:, -1], found.random[:, -1]
    verdicts = []
    if exact is not None:
        verdicts.append(
            spec.verdict("exact", f"{case.name}, random time", mean_estimate(random / exact))
        )
    return [
        *verdicts,
        spec.verdict("last", f"{case.name}, last", ratio_estimate(last, random, paired=True)),
        spec.verdict(
            "averaged", f"{case.name}, weighted mean", ratio_estimate(averaged, random, paired=True)
        ),
        spec.verdict(
            "averaged_last",
            f"{case.name}, weighted mean against last",
            ratio_estimate(averaged, last, paired=True),
        ),
    ]


def _figure(case: Case, ends: np.ndarray, found: Readouts, exact: list[float] | None) -> FigureData:
    names = {"random": "random time", "last": "last", "averaged": "weighted mean"}
    series = []
    for key, name in names.items():
        curve = curve_estimate(getattr(found, key), positive=True)
        series.append(Series(name, ends, curve.value, curve.low, curve.high))
    if exact is not None:
        series.append(Series("random time, exact", ends, exact, style="exact", group="random time"))
    return FigureData(
        f"output_{case.key}",
        "Three outputs of one run",
        "The error of three outputs after a number of steps: that at the random time is the "
        "largest, and in the end that of the weighted mean is the smallest.",
        "steps T",
        "E‖output − θ*‖²",
        series=tuple(series),
        panel=case.name,
    )
