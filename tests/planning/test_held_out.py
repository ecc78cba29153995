"""A plan meets its accuracy on held-out problems, with at most twice the communications of the best
that brute force finds.

The rule, fixed before any held-out problem was drawn. Problem number n of a set is drawn from
``default_rng([set, n])``:

- its algorithm is 1 (linear), 2, 3, 4, 5 in turn, so twenty problems hold each four times;
- 2 to 256 agents (log-uniform; up to 32 for Q-learning, whose brute force must sample), all alike
  with probability 1/4, else of two kinds that differ in behaviour policy (3, 4, 5), environment (2)
  or matrices and offsets (1);
- a connected Garnet of 3 to 6 states, 2 or 3 actions, 2 or 3 successors, a discount from 0.3 to
  0.9, random policies and 1 to 3 random features; for Algorithm 1 a random chain of 2 to 4 states
  and 1 to 3 parameters; where the algorithm diverges, the problem is drawn again;
- the accuracy is ``10^-u`` times the squared error of the start, u uniform from 1 to 3;
- the budget of steps is ``b`` times the fewest steps that brute force needs for the accuracy with a
  synchronisation each step, b log-uniform from 1.5 to 16.

With a synchronisation each step there is no floor, so every accuracy can be reached. The brute
force shares no code with the planner. Set TUNING is for tuning the planner; of set HELD_OUT nothing
was looked at until the planner was done.

Four earlier held-out sets were drawn by the same rule, and the planner was mended after each that
showed a fault:

- 20261115, 10 problems: a plan of Algorithm 3 took 7.4 times the best communications, for exact
  moments were not asked about the many rounds that the law proposed, nor about a synchronisation
  each step at large steps; one problem went unjudged, by a fault of the brute force;
- 20261116, 10: a plan of Q-learning met its accuracy in its own verification but missed it by 9
  percent over fresh seeds, for pilots left too small a margin;
- 20261117, 20: Algorithm 3 missed by 3 percent over fresh seeds, for errors with heavy tails had
  the margin of normal ones; Q-learning took 2.5 and 7 times the best communications, for pilots did
  not spend whole budgets on few rounds and tried no step above one; Algorithms 2 and 5 took 3 and
  2.4 times, for only periods that spend the whole budget were tried;
- 20261118, 10: all within 1.4 times, but Algorithm 3 missed by 4 percent over fresh seeds, where
  the exact error is 17 percent below the accuracy: one in a hundred such means is too large.

All 20 problems of set HELD_OUT were met, and after it, with the planner as it was, all 20 of a set
20261120.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fegsam as fg
from fegsam.planning import plan

TUNING = 1
HELD_OUT = 20261119
_FRESH_SEEDS = range(7 * 10**8, 7 * 10**8 + 200)
_COMMUNICATIONS = 2
"""A plan may take this many times the communications of the best setting."""
LARGEST_STEP = 2.0
_SAMPLED_SEEDS = range(5 * 10**8, 5 * 10**8 + 100)
_MOST_STEPS = 10**6


@dataclass(frozen=True)
class Best:
    """What brute force found."""

    communications: int
    step_size: float
    sync_period: int


@dataclass(frozen=True)
class Task:
    """A problem and what is asked of it."""

    problem: Any
    algorithm: Any
    accuracy: float
    fewest_steps: Best
    """with a synchronisation each step"""
    budget: int


def draw(which: int, number: int) -> Task:
    """Problem `number` of a set, by the rule above."""
    rng = np.random.default_rng([which, number])
    problem, algorithm = _problem(rng, number % 5 + 1)
    start = fg.fixed_point(problem, algorithm)
    accuracy = 10 ** -rng.uniform(1, 3) * float(start @ start)
    fewest = fewest_steps(problem, algorithm, accuracy)
    return Task(
        problem,
        algorithm,
        accuracy,
        fewest,
        int(fewest.communications * 1.5 * (16 / 1.5) ** rng.uniform()),
    )


def _problem(rng: np.random.Generator, number: int) -> tuple[Any, Any]:
    most_agents = 32 if number == 4 else 256
    while True:
        agents = int(2 * (most_agents / 2) ** rng.uniform())
        kinds = 1 if rng.uniform() < 0.25 else 2
        problem, algorithm = (
            _linear(rng, agents, kinds) if number == 1 else _federation(rng, number, agents, kinds)
        )
        try:
            fg.fixed_point(problem, algorithm)
        except fg.ProblemError:
            continue
        return problem, algorithm


def _linear(rng: np.random.Generator, agents: int, kinds: int) -> tuple[Any, Any]:
    states, size = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    kernels = rng.dirichlet(np.ones(states), size=(kinds, states))
    matrices = -rng.uniform(0.2, 1.0, (kinds, states, 1, 1)) * np.eye(size) + 0.2 * rng.normal(
        size=(kinds, states, size, size)
    )
    offsets = rng.normal(size=size) + rng.normal(size=(kinds, states, size))
    return fg.MarkovNoise(kernels, num_agents=agents), fg.LinearSA(matrices, offsets)


def _federation(rng: np.random.Generator, number: int, agents: int, kinds: int) -> tuple[Any, Any]:
    states, actions, branching = (
        int(rng.integers(3, 7)),
        int(rng.integers(2, 4)),
        int(rng.integers(2, 4)),
    )
    discount, seeds = rng.uniform(0.3, 0.9), rng.integers(10**9, size=kinds + 2).tolist()
    mdps = [
        fg.examples.garnet(states, actions, branching, discount, seed, connected=True)
        for seed in seeds[:kinds]
    ]
    policies = fg.policies.random(states, actions, count=kinds, seed=seeds[-2])
    target = fg.policies.random(states, actions, count=1, seed=seeds[-1])[0]
    features = rng.normal(size=(states, int(rng.integers(1, 4)))) / 2
    if number == 2:
        return fg.Federation(
            mdps, num_agents=agents, target_policy=target, features=features
        ), fg.OnPolicyTD()
    algorithm = {3: fg.OffPolicyTabularTD, 4: fg.QLearning, 5: fg.OffPolicyLinearTD}[number]()
    federation = fg.Federation(
        mdps[0],
        policies,
        num_agents=agents,
        target_policy=target,
        features=features if number == 5 else None,
    )
    return federation, algorithm


def curve(problem: Any, algorithm: Any, step: float, period: int, times: np.ndarray) -> np.ndarray:
    """E||avg_t - theta*||_2^2: exact, but from runs for Q-learning; infinite where it diverges."""
    settings = {"step_size": step, "sync_period": period}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(algorithm, fg.QLearning):
            num_steps = int(times[-1])
            history = fg.run(
                problem,
                algorithm,
                num_steps=num_steps,
                record=times,
                seeds=_SAMPLED_SEEDS,
                **settings,
            )
            found = history.data["squared_error_2"].values.mean(axis=0)
        else:
            found = fg.exact.moments(problem, algorithm, times=times, order=1, **settings).mse
    return np.where(np.isfinite(found), found, np.inf)


def fewest_steps(problem: Any, algorithm: Any, accuracy: float) -> Best:
    """With a synchronisation each step, to 10 percent: the horizon is doubled until some step size
    of a grid gets there."""
    limit = 32
    while limit <= _MOST_STEPS:
        times = (
            np.unique(np.geomspace(limit / 2, limit, 8).astype(int))
            if limit > 32
            else _numbers(limit, 1.1)
        )
        found = []
        for step in _steps(2.0, 1.0 / limit).tolist():
            place = _first(curve(problem, algorithm, step, 1, times), accuracy)
            if place is not None:
                found.append(Best(int(times[place]), step, 1))
        if found:
            return min(found, key=lambda best: best.communications)
        limit *= 2
    raise AssertionError("no step size gets there")


def brute_force(task: Task) -> Best:
    """The fewest communications within the budget.

    First a grid of step sizes and periods with ratio 2 and of rounds with ratio 1.1; then, around
    the best of it, one of step sizes and periods with ratio 1.15 and of rounds with ratio 1.05, and
    all periods that spend the whole budget in up to ten rounds.
    """
    best = _scan(
        task, task.fewest_steps, _steps(2.0, 1.0 / task.budget), _numbers(task.budget, 2.0), 1.1
    )
    around = 1.15 ** np.arange(-5.0, 6.0)
    whole = [task.budget // rounds for rounds in range(1, min(best.communications, 11))]
    periods = np.append(best.sync_period * around, [best.sync_period, *whole])
    return _scan(
        task,
        best,
        best.step_size * around,
        np.unique(np.clip(periods, 1, task.budget).astype(int)),
        1.05,
    )


def _scan(task: Task, best: Best, steps: np.ndarray, periods: np.ndarray, ratio: float) -> Best:
    for period in periods[::-1].tolist():
        for step in steps.tolist():
            most = min(task.budget // period, best.communications - 1)
            if most < 1:
                continue
            rounds = _numbers(most, ratio)
            place = _first(
                curve(task.problem, task.algorithm, step, period, period * rounds), task.accuracy
            )
            if place is not None:
                best = Best(int(rounds[place]), step, period)
    return best


def _first(errors: np.ndarray, accuracy: float) -> int | None:
    low = np.flatnonzero(errors <= accuracy)
    return int(low[0]) if len(low) else None


def _numbers(most: int, ratio: float) -> np.ndarray:
    """Whole numbers from 1 to `most`, each up to `ratio` times the one before; the last is
    `most`."""
    many = math.ceil(math.log(max(most, 2)) / math.log(ratio)) + 1
    return np.unique(np.round(np.geomspace(1, most, many)).astype(np.int64))


def _steps(ratio: float, least: float) -> np.ndarray:
    many = math.ceil(math.log(LARGEST_STEP / least) / math.log(ratio)) + 1
    return LARGEST_STEP * ratio ** -np.arange(many, dtype=float)


def check(task: Task) -> str:
    """The plan by fresh seeds and against brute force; a line of the table that the slow test
    prints."""
    found = plan(
        task.problem, task.algorithm, accuracy=task.accuracy, budget=task.budget, verify_seeds=200
    )
    settings = {
        "step_size": found.step_size,
        "sync_period": found.sync_period,
        "num_steps": found.num_steps,
    }
    errors = (
        fg.run(task.problem, task.algorithm, seeds=_FRESH_SEEDS, **settings)
        .data["squared_error_2"]
        .values[:, -1]
    )
    mean, half = errors.mean(), 1.97 * errors.std(ddof=1) / math.sqrt(len(errors))
    best = brute_force(task)
    line = (
        f"{type(task.algorithm).__name__:<18} N={task.problem.num_agents:<4} target "
        f"{task.accuracy:.3e} "
        f"error {mean:.3e} +- {half:.1e} budget {task.budget} plan {found.communications} best "
        f"{best.communications} "
        f"ratio {found.communications / best.communications:.2f}"
    )
    assert found.met, line
    assert found.num_steps == found.communications * found.sync_period <= task.budget, line
    assert mean <= task.accuracy, line
    assert found.communications <= _COMMUNICATIONS * best.communications, line
    return line


@pytest.mark.parametrize("number", [1, 5])
def test_tuning_problems_are_met_with_few_communications(number: int) -> None:
    check(draw(TUNING, number))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_held_out_problems_are_met_with_few_communications(number: int) -> None:
    print(check(draw(HELD_OUT, number)))
