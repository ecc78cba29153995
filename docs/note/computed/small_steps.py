"""Section 5: the small-step laws against exact values, and runs of Q-learning."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

import fegsam as fg
from computed.problems import FIRST, garnet, garnets, nearly_tied, pair, two_states

MANY = 10**9
TIE, FAR = 0.002, 0.05
STEPS_TO_TIE = (0.1, 0.05, 0.025)
SEEDS = 16


def numbers() -> dict[str, float]:
    """All numbers of the section by name."""
    found: dict[str, float] = {}
    for group in (variances, markov_biases, drifts, maxima):
        found |= group()
    return found


def mean_bias(problem: Any, algorithm: Any, step: float, period: int) -> np.ndarray:
    """(d,): the long-run mean of the average minus theta*, exactly."""
    star = fg.fixed_point(problem, algorithm)
    law = fg.theory.small_step_law(problem, algorithm, step_size=step, sync_period=period)
    rounds = max(math.ceil(40 / law.rate / period), 100)
    found = fg.exact.moments(
        problem,
        algorithm,
        step_size=step,
        sync_period=period,
        times=[rounds * period],
        initial_params=star,
        order=1,
    )
    return found.mean[0] - star


def variances() -> dict[str, float]:
    """How far the law's error is from the exact one on Problem C, in percent."""
    found: dict[str, float] = {"variance.period": 100}
    steps = {"first": 0.01, "second": 0.001}
    for name, step in steps.items():
        found[f"variance.step_{name}"] = step
        for agents, period in ((2, 1), (8, 1), (8, 100)):
            given = {"step_size": step, "sync_period": period}
            problem = garnet.problem(agents)
            exact = fg.exact.stationary_error(problem, garnet.algorithm, order=1, **given)
            law = fg.theory.small_step_law(problem, garnet.algorithm, **given).mse
            found[f"variance.{name}_{agents}_{period}"] = 100 * abs(law / exact - 1)
    return found


def markov_biases() -> dict[str, float]:
    """On-policy TD on Problem A: the bias against K, with one agent and with very many."""
    step, found = 0.01, {"markov.step": 0.01, "markov.agents": MANY}
    for name, agents, period in (("one", 1, 1), ("often", MANY, 2), ("rarely", MANY, 1000)):
        problem = two_states(agents, FIRST[None])
        exact = mean_bias(problem, fg.OnPolicyTD(), step, period)
        law = fg.theory.small_step_law(problem, fg.OnPolicyTD(), step_size=step, sync_period=period)
        found |= {
            f"markov.{name}": np.linalg.norm(exact),
            f"markov.{name}_off": 100 * abs(float((law.bias / exact)[0]) - 1),
        }
    every = mean_bias(two_states(MANY, FIRST[None]), fg.OnPolicyTD(), step, 1)
    return found | {
        "markov.every": np.linalg.norm(every),
        "markov.period": 1000,
        "markov.off": max(found["markov.often_off"], found["markov.rarely_off"]),
    }


def drifts() -> dict[str, float]:
    """The drift of the pair, law and exact, from rounds far below a time constant to far above."""
    step, found = 0.01, {"drift.step": 0.01, "drift.limit": 0.5 - fg.fixed_point(*pair(2))[0]}
    for name, period in (("short", 6), ("one", 101), ("long", 2001)):
        exact = mean_bias(*pair(2), step, period)[0]
        law = fg.theory.small_step_law(*pair(2), step_size=step, sync_period=period).drift[0]
        found |= {
            f"drift.length_{name}": step * (period - 1),
            f"drift.exact_{name}": exact,
            f"drift.law_{name}": law,
            f"drift.ratio_{name}": law / exact,
        }
    return found


def maxima() -> dict[str, float]:
    """Q-learning where two actions nearly tie: the law's bias and that of runs, along it."""
    found: dict[str, float] = {
        "maximum.gap": TIE,
        "maximum.seeds": SEEDS,
        "maximum.far": FAR,
        "maximum.step": STEPS_TO_TIE[0],
    }
    laws = [tied_law(step, TIE) for step in STEPS_TO_TIE]
    sizes = [np.linalg.norm(law.curvature_bias) for law in laws]
    found["maximum.exponent"] = math.log(sizes[0] / sizes[-1]) / math.log(
        STEPS_TO_TIE[0] / STEPS_TO_TIE[-1]
    )
    far = [np.linalg.norm(tied_law(step, FAR).curvature_bias) for step in STEPS_TO_TIE]
    found |= {"maximum.far_first": far[0], "maximum.far_last": far[-1]}
    value, error = tied_run(STEPS_TO_TIE[0], TIE)
    return found | {
        "maximum.last_step": STEPS_TO_TIE[-1],
        "maximum.law": np.linalg.norm(laws[0].bias),
        "maximum.curvature": sizes[0],
        "maximum.run": value,
        "maximum.error": error,
    }


def tied_law(step: float, gap: float) -> fg.theory.SmallStepLaw:
    return fg.theory.small_step_law(
        nearly_tied(gap, 1), fg.QLearning(), step_size=step, sync_period=1
    )


@functools.cache
def tied_run(step: float, gap: float) -> tuple[float, float]:
    """The bias of runs along that of the law, and its standard error over the seeds."""
    problem, law = nearly_tied(gap, 1), tied_law(step, gap)
    star = fg.fixed_point(problem, fg.QLearning())
    begin, end = int(8 / law.rate), int(68 / law.rate)
    history = fg.run(
        problem,
        fg.QLearning(),
        step_size=step,
        sync_period=1,
        num_steps=end,
        seeds=range(SEEDS),
        record=np.arange(begin, end, ((end - begin) // 1000) | 1),
        record_params=True,
        initial_params=star,
        output_decay=0.5,
    )
    errors = history.data["average_params"].values - star
    along = errors.mean(axis=1) @ law.bias / np.linalg.norm(law.bias)
    return float(along.mean()), float(along.std(ddof=1) / math.sqrt(SEEDS))


def variance_curves(steps: np.ndarray) -> dict[str, list[float]]:
    """For Figure 2: law and exact error on Problem C, for three numbers of agents."""
    found: dict[str, list[float]] = {}
    for agents in (2, 20, 200):
        problem = garnet.problem(agents)
        for step in steps:
            given: dict[str, Any] = {"step_size": float(step), "sync_period": 1}
            exact = fg.exact.stationary_error(problem, garnet.algorithm, order=1, **given)
            law = fg.theory.small_step_law(problem, garnet.algorithm, **given)
            found.setdefault(f"exact {agents}", []).append(float(exact))
            found.setdefault(f"law {agents}", []).append(law.mse)
    return found


def bias_curves(periods: list[int], step: float = 0.01) -> dict[str, list[float]]:
    """For Figure 2: the Markov bias on Problem A, and the bias on Problem D, with many agents."""
    found: dict[str, list[float]] = {}
    cases = {
        "alike": (two_states(MANY, FIRST[None]), fg.OnPolicyTD()),
        "different": (garnets.problem(MANY), garnets.algorithm),
    }
    for name, task in cases.items():
        for period in periods:
            law = fg.theory.small_step_law(*task, step_size=step, sync_period=period)
            found.setdefault(f"law {name}", []).append(float(np.linalg.norm(law.bias)))
            exact = mean_bias(*task, step, period)
            found.setdefault(f"exact {name}", []).append(float(np.linalg.norm(exact)))
    return found
