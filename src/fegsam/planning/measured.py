"""The actual error of a setting, from exact moments if these are fast, or from runs."""

from __future__ import annotations

import math
import warnings

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.errors import DivergenceWarning, ProblemError
from fegsam.exact.moments import moments
from fegsam.exact.rounds import Costs
from fegsam.experiments.estimates import Estimate, mean_estimate
from fegsam.methods.method import Method
from fegsam.planning.round_law import RoundLaw
from fegsam.planning.settings import Setting
from fegsam.problem.federation import Problem
from fegsam.run import Engine, run

_PATIENCE = 1.0
"""The most seconds that exact moments may take."""


def run_errors(
    problem: Problem,
    algorithm: Algorithm,
    step_size: float,
    sync_period: int,
    times: np.ndarray,
    seeds: range,
    engine: str | Engine,
    method: Method | None = None,
) -> np.ndarray:
    """(seeds, times): the squared 2-norm error of runs, NaN where a run diverged.

    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=4)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> run_errors(coin, average, 0.1, 5, np.array([0, 10]), range(3), "cpu").shape
    (3, 2)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        # A single round is measured before its synchronisation: the average is the same.
        warnings.filterwarnings("ignore", ".*never synchronise", UserWarning)
        history = run(
            problem,
            algorithm,
            step_size=step_size,
            sync_period=sync_period,
            num_steps=int(times[-1]),
            seeds=seeds,
            record=times,
            engine=engine,
            method=method,
        )
    return history.data["squared_error_2"].values


def verified(
    problem: Problem,
    algorithm: Algorithm,
    setting: Setting,
    seeds: range,
    engine: str | Engine,
    method: Method | None = None,
) -> Estimate:
    """The last iterate's mean squared error over the seeds, with its 95 percent interval.

    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=4)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> verified(coin, average, Setting(0.1, 50, 2, 0.01), range(20), "cpu").high < 0.01
    True
    """
    times = np.array([setting.num_steps])
    step, period = setting.step_size, setting.sync_period
    errors = run_errors(problem, algorithm, step, period, times, seeds, engine, method)
    return mean_estimate(errors[:, -1])


def exact_error(
    problem: Problem, algorithm: Algorithm, law: RoundLaw, setting: Setting
) -> float | None:
    """The expected error E||avg_T - theta*||_2^2, or None if it would take too long.

    The moments keep the modes of one agent at a time (order 1), which gives far more correct digits
    than a plan needs.

    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> exact_error(coin, average, RoundLaw(coin, average), Setting(0.5, 1, 2, 0.1))
    0.0546875
    """
    if seconds(law, setting) > _PATIENCE:
        return None
    steps = setting.num_steps
    period = setting.sync_period
    if setting.communications == 1 and not _by_powers(law, setting):
        # One round is then cheaper as steps before a synchronisation that never happens. The
        # average is the same.
        period = steps + 1
    settings = {"step_size": setting.step_size, "sync_period": period, "times": [steps], "order": 1}
    try:
        return float(moments(problem, algorithm, **settings).mse[0])
    except ProblemError:
        return None


def _costs(law: RoundLaw, sync_period: int) -> Costs:
    """The costs of a round, with as many modes for every kind as the largest kind has."""
    return Costs(
        (law.num_modes,) * law.num_kinds, law.num_windows, len(law.start) + 1, sync_period, 1.0
    )


def _by_powers(law: RoundLaw, setting: Setting) -> bool:
    """Whether a round is computed as a power of one matrix."""
    costs = _costs(law, setting.sync_period)
    return costs.is_dense(costs.entries)


def seconds(law: RoundLaw, setting: Setting) -> float:
    """About how many seconds the moments take.

    A step of a round acts on one functional for each pair of parameters. A single round needs only
    two functionals.
    """
    costs = _costs(law, setting.sync_period)
    functionals = costs.entries if setting.communications > 1 else 2
    step = 3e-4 + 3.5e-9 * law.num_windows * costs.size**2 * functionals
    within = setting.sync_period * step
    if _by_powers(law, setting):
        packed = float(law.num_modes * costs.entries)
        within = law.num_kinds * (1e-3 + 3e-10 * math.log2(setting.sync_period + 1) * packed**3)
    rounds = 5e-4 + costs.seconds(costs.entries) + costs.seconds(costs.size) + costs.seconds(1)
    return within + min(setting.communications, 10**4) * rounds
