"""A method's value, translated to the oracle's rules, and an engine against the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import pytest

import fegsam as fg
import pseudocode_methods as oracle
from cases import Case
from helpers import philox

CPU_MARKS = [pytest.mark.method_loops]
"""The loops of `cpu` take some 13 s to compile for each combination of features. So these tests are
slow, but where Numba is switched off: `test_interpreted` runs them that way."""
if not numba.config.DISABLE_JIT:
    CPU_MARKS.append(pytest.mark.slow)
ENGINES = ("reference", pytest.param("cpu", marks=CPU_MARKS))
SEEDS = (3, 2**63 + 11)
ALPHA = 0.1


def on_cpu(test: Any) -> Any:
    """Mark a test of the compiled loops."""
    for mark in CPU_MARKS:
        test = mark(test)
    return test


def rules(method: Any, kinds: Sequence[int], d: int, seed: int) -> oracle.Rules:
    """What the oracle does in each place of a round for `method`, a `fegsam.Method`."""
    kinds, N = [int(k) for k in kinds], len(kinds)
    weights = agent_weights(method, kinds)
    some = method.participation
    divide_by = "answered" if some is None else some.divide_by
    visits = isinstance(method.average, fg.ByVisits)
    combine = oracle.importance_averaging(divide_by) if visits else oracle.mean(weights, divide_by)
    steps = method.local_steps
    made = oracle.Rules(combine, weights, variates=variates(method, weights, kinds, d))
    made.server = (method.server.step, method.server.momentum, method.server.nesterov)
    if some is not None:
        made.others_wait = some.others == "wait"
        made.taking_part = lambda r: (
            philox.answering(seed, N, some.probability, r)
            if some.agents is None
            else philox.drawn(seed, N, some.agents, r)
        )
    if steps is not None:
        made.local_steps = [steps.by_kind[k] for k in kinds]
    made.report = lambda i, r, change: reported(method, made, i, r, change, seed)
    return made


def agent_weights(method: Any, kinds: list[int]) -> np.ndarray:
    given, N = getattr(method.average, "weights", None), len(kinds)
    if given is None:
        return np.full(N, 1 / N)
    if len(given) == N:
        return np.array(given)
    return np.array([given[k] / kinds.count(k) for k in kinds])


def variates(method: Any, weights: np.ndarray, kinds: list[int], d: int) -> oracle.NoVariates:
    if method.correction is None:
        return oracle.NoVariates()
    groups = kinds if method.correction.of == "kind" else None
    if method.correction.source == "first_step":
        return oracle.Fedhsa(weights, groups)
    return oracle.Scaffold(weights, d, groups)


def reported(
    method: Any, made: oracle.Rules, i: int, r: int, change: np.ndarray, seed: int
) -> np.ndarray:
    if made.local_steps is not None and method.local_steps.normalised:
        change = oracle.normalised(change, made.local_steps[i], made.local_steps)
    if isinstance(method.rounding, fg.Rounding):
        how = oracle.dithered if method.rounding.dither else oracle.rounded
        return how(change, method.rounding.step, philox.uniforms(seed, i, r, len(change)))
    if isinstance(method.rounding, fg.SomeCells):
        kept = philox.cells(seed, i, r, len(change), method.rounding.count)
        return oracle.some_cells(change, kept)
    return change


def step_sizes(alpha: float, schedule: Any, T: int, discount: float | None) -> list[float]:
    """alpha_t for t = 0..T-1."""
    if schedule is None:
        return [alpha] * T
    if isinstance(schedule, fg.schedules.Polynomial):
        return [alpha / (t + schedule.offset) ** schedule.power for t in range(T)]
    if isinstance(schedule, fg.schedules.Rescaled):
        assert discount is not None
        return [alpha / (1 + (1 - discount) * (t + 1)) for t in range(T)]
    pairs = list(zip(schedule.times, schedule.values, strict=True))
    return [alpha * ([1.0] + [v for time, v in pairs if time <= t])[-1] for t in range(T)]


def period_lengths(sync_period: Any) -> list[int]:
    """The lengths of the rounds; the last one repeats."""
    if isinstance(sync_period, fg.schedules.Growing):
        lengths = [float(sync_period.first)]
        while lengths[-1] < sync_period.most:
            lengths.append(lengths[-1] * sync_period.factor)
        return [min(int(length), sync_period.most) for length in lengths]
    return list(sync_period) if isinstance(sync_period, list | tuple) else [sync_period]


def replay(
    case: Case,
    method: Any,
    seed: int,
    *,
    K: Any,
    T: int,
    alpha: float = ALPHA,
    schedule: Any = None,
    sampling: str = "markov",
) -> oracle.Trace:
    """The oracle's run on the paths of `seed`."""
    assert case.field is not None
    kinds = case.problem.assignment
    field = case.field(*case.paths(seed, T, sampling), kinds=kinds)
    discount = getattr(case.problem, "discount", None)
    return oracle.federate(
        field,
        case.start,
        rules(method, kinds, len(case.start), seed),
        periods=period_lengths(K),
        alphas=step_sizes(alpha, schedule, T, discount),
    )


def assert_replays(
    case: Case,
    method: Any,
    *,
    engine: Any,
    K: Any,
    T: int,
    seeds: Sequence[int] = SEEDS,
    alpha: float = ALPHA,
    schedule: Any = None,
    sampling: str = "markov",
) -> None:
    """Averages, sync errors and final parameters are the oracle's at every time, to 1e-12 of max(1,
    max|theta|)."""
    shared = {"K": K, "T": T, "alpha": alpha, "schedule": schedule, "sampling": sampling}
    data = case.run(seeds=seeds, engine=engine, method=method, **shared).data
    np.testing.assert_array_equal(data.time, np.arange(T + 1))
    for row, seed in enumerate(seeds):
        trace = replay(case, method, seed, **shared)
        size = trace.largest
        assert np.isfinite(size)
        close = {"rtol": 0, "atol": 1e-12 * size}
        np.testing.assert_allclose(data.average_params[row], trace.average, **close)
        np.testing.assert_allclose(data.final_params[row], trace.average[-1], **close)
        np.testing.assert_allclose(
            data.sync_error[row], trace.sync_error, rtol=0, atol=1e-12 * size**2
        )
