"""The oracle of the methods against exact expectations, the library against the oracle on the same
problems, and known wrong versions, which the same assertions must refuse.

The expectations are sums over every joint path of the golden problem, and closed forms for two
agents on a line. The sums use no code of the library.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import fegsam as fg
import pseudocode_methods as oracle
from helpers import golden, increments
from helpers.known_methods import (
    EQUAL,
    GOLDEN,
    ROOT,
    T,
    every_path,
    golden_arguments,
    golden_rules,
    golden_trace,
    line_means,
    line_problem,
    line_rate,
    line_variance,
)

ROWS = pytest.mark.parametrize("name", GOLDEN)
ALPHA, K = 0.1, 10
# Two agents on a line: the bias of the limit, and the stationary variance at the synchronisations.
LINE = {
    "plain": (-0.055625645407, 2.426526253350e-2),
    "variates of the last round": (0.0, 2.554395905505e-2),
    "variates of the first step": (0.0, 3.051185320633e-2),
}
LINES = pytest.mark.parametrize("name", LINE)


@functools.cache
def paths() -> tuple[increments.Field, np.ndarray]:
    return every_path()


# --- The assertions -------------------------------------------------------------------------------


def assert_golden(name: str, rules: oracle.Rules | None = None) -> None:
    """The first two moments of the average at time 4, over every joint path, to 1e-11."""
    field, probabilities = paths()
    average = golden_trace(name, field, len(probabilities), rules).average[T]
    moments = probabilities @ average, probabilities @ average**2
    np.testing.assert_allclose(moments, GOLDEN[name], rtol=0, atol=1e-11)


def assert_line(name: str, make_rules: Callable[[], oracle.Rules]) -> None:
    """The bias and the variance of a method for two agents on a line, to 1e-11."""
    bias, variance = LINE[name]
    limit = line_means(make_rules(), ALPHA, K)[-1]
    np.testing.assert_allclose(limit - ROOT, bias, rtol=0, atol=1e-11)
    np.testing.assert_allclose(line_variance(make_rules, ALPHA, K), variance, rtol=0, atol=1e-11)


Combined = Callable[[list[float], list[int], float], float]
"""The new value of a cell, from the agents' own values of it, the numbers of their visits and the
step size"""


def assert_weighs_long_rounds(combined: Combined) -> None:
    """The new value of a cell after many visits, against rational arithmetic."""
    alpha = 0.9
    for visits in ([400, 399, 0], [0, 0, 0], [800, 1, 2], [50] + [0] * 19):
        values = [float(j) for j in range(len(visits))]
        weights = [1 / (1 - Fraction(alpha)) ** n for n in visits]
        truth = sum(w * Fraction(v) for w, v in zip(weights, values, strict=True)) / sum(weights)
        new = combined(values, visits, alpha)
        np.testing.assert_allclose(new, float(truth), rtol=1e-12)


# --- The oracle -----------------------------------------------------------------------------------


@ROWS
def test_oracle_has_the_exact_moments_of_the_golden_problem(name) -> None:
    assert_golden(name)


def test_option_ii_of_scaffold_has_the_moments_of_scafflsa() -> None:
    d = len(paths()[1])
    rules = replace(golden_rules("plain", d), variates=oracle.Scaffold(EQUAL, d))
    assert_golden("variates of the last round", rules)


def line_rules(name: str) -> Callable[[], oracle.Rules]:
    return lambda: golden_rules(name, 1)


@LINES
def test_oracle_has_the_exact_bias_and_variance_on_a_line(name) -> None:
    assert_line(name, line_rules(name))


def test_oracle_has_the_rate_of_control_variates_on_a_line() -> None:
    means = line_means(golden_rules("variates of the last round", 1), ALPHA, K)
    np.testing.assert_allclose(line_rate(means), 0.440824, rtol=0, atol=5e-7)


def test_one_visitor_of_twenty_moves_the_cell_by_visits_and_hardly_by_the_mean() -> None:
    done = visited_once(visits=50, num_agents=20, alpha=0.2)
    equal = 1 + oracle.mean(np.full(20, 1 / 20))(done)[0]
    np.testing.assert_allclose(equal, 0.950000713624, rtol=0, atol=1e-12)
    for combine in (
        oracle.importance_averaging(),
        oracle.mean_of_targets,
        oracle.exact_importance_averaging,
    ):
        np.testing.assert_allclose(1 + combine(done)[0], 0.000285372152, rtol=0, atol=1e-12)
    changes = np.array([done.changes[i] for i in range(20)])
    logs = np.zeros((20, 1))
    logs[0] = -50 * np.log(0.8)
    left = 1 + fg.ByVisits.combined(changes, logs)[0]
    np.testing.assert_allclose(left, 0.000285372152, rtol=0, atol=1e-12)


def visited_once(visits: int, num_agents: int, alpha: float) -> oracle.Round:
    """A round in which agent 0 alone visits the one cell, each time with target zero."""
    thetas = {i: np.array([(1 - alpha) ** visits if i == 0 else 1.0]) for i in range(num_agents)}
    changes = {i: theta - 1 for i, theta in thetas.items()}
    seen = {i: [(0, alpha, 0.0)] * (visits if i == 0 else 0) for i in range(num_agents)}
    return oracle.Round(np.ones(1), thetas, changes, seen, num_agents)


# --- The library on the same problems -------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2, 2**64 - 1])
@ROWS
def test_library_has_the_oracles_path_on_the_golden_problem(name, seed) -> None:
    problem, algorithm = golden.federation(), fg.OffPolicyLinearTD(1)
    drawn = [fg.sample_path(problem, algorithm, seed=seed, agent=i, num_steps=T) for i in range(2)]
    field = increments.n_step_td(
        [path.states for path in drawn],
        [path.actions for path in drawn],
        rewards=[golden.REWARDS] * 2,
        gamma=golden.DISCOUNT,
        kinds=[0, 1],
        n=1,
        features=golden.FEATURES,
        target=golden.TARGET,
        behavior=[golden.B1, golden.B2],
    )
    trace = golden_trace(name, field, 1)
    settings = {"num_steps": T, "seeds": [seed], "record": 1, "record_params": True}
    data = fg.run(problem, algorithm, engine="reference", **settings, **golden_arguments(name)).data
    close = {"rtol": 0, "atol": 1e-12}
    np.testing.assert_allclose(data.average_params[0], trace.average, **close)
    np.testing.assert_allclose(data.sync_error[0], trace.sync_error, **close)


@LINES
def test_library_has_the_oracles_path_on_a_line(name) -> None:
    problem, algorithm = line_problem()
    steps, seed = 73, 5
    states = [
        fg.sample_path(problem, algorithm, seed=seed, agent=i, num_steps=steps).states
        for i in range(2)
    ]
    field = increments.linear(
        states, None, matrices=algorithm.matrices, offsets=algorithm.offsets, kinds=[0, 1]
    )
    trace = oracle.federate(
        field, np.zeros(1), golden_rules(name, 1), periods=[K], alphas=[ALPHA] * steps
    )
    asked = {key: v for key, v in golden_arguments(name).items() if key == "method"}
    data = fg.run(
        problem,
        algorithm,
        step_size=ALPHA,
        sync_period=K,
        num_steps=steps,
        seeds=[seed],
        record=1,
        record_params=True,
        engine="reference",
        **asked,
    ).data
    np.testing.assert_allclose(data.average_params[0], trace.average, rtol=0, atol=1e-12)


def by_ratios(values: list[float], visits: Sequence[int], alpha: float) -> float:
    logs = -np.array(visits)[:, None] * np.log1p(-alpha)
    return float(fg.ByVisits.combined(np.array(values)[:, None], logs)[0])


def test_library_weighs_long_rounds_without_overflow() -> None:
    assert_weighs_long_rounds(by_ratios)


# --- Known wrong versions -------------------------------------------------------------------------


class StartsElsewhere(oracle.Scafflsa):
    """Variates that do not start at zero."""

    def __init__(self, weights: np.ndarray, d: int) -> None:
        super().__init__(weights, d)
        self.xi[0] = 0.1


class SendsTheVariate(oracle.Scaffold):
    """The server adds the mean of c_i+ to c, not that of c_i+ - c_i."""

    def end(self, sent, thetas, alphas) -> None:
        old = self.c
        super().end(sent, thetas, alphas)
        self.c = old + sum(self.weights[i] * self.c_i[g] for i, g in enumerate(self.groups))


class KeepsTheOldVariate(oracle.Scafflsa):
    """The variate is replaced by the round's gap, not moved by it."""

    def end(self, sent, thetas, alphas) -> None:
        self.xi[:] = 0
        super().end(sent, thetas, alphas)


class UsesASampleTwice(oracle.Fedhsa):
    """The variate uses the last observation of the round before."""

    def begin(self, F, sent, clocks) -> None:
        super().begin(F, sent, {i: max(k - 1, 0) for i, k in clocks.items()})


class SkipsTheFirstStep(oracle.Fedhsa):
    """The variate uses the second observation of the round instead of the first."""

    def begin(self, F, sent, clocks) -> None:
        super().begin(F, sent, {i: k + 1 for i, k in clocks.items()})


def with_variates(
    make: Callable[[int], oracle.NoVariates], **places
) -> Callable[[int], oracle.Rules]:
    def rules(d: int) -> oracle.Rules:
        return replace(golden_rules("plain", d), variates=make(d), **places)

    return rules


def moved_to_half(done: oracle.Round) -> np.ndarray:
    return 0.5 * (done.sent + oracle.mean(EQUAL)(done)) - done.sent


LAST, FIRST = "variates of the last round", "variates of the first step"
MUTANTS: dict[str, Callable[[], None]] = {
    "variates start elsewhere": lambda: assert_golden(
        LAST, with_variates(lambda d: StartsElsewhere(EQUAL, d))(len(paths()[1]))
    ),
    # With two rounds the variate is its own change; the bias of many rounds tells them apart.
    "the variate is sent, not its change": lambda: assert_line(
        LAST, lambda: with_variates(lambda d: SendsTheVariate(EQUAL, d))(1)
    ),
    "the variate is replaced by the gap": lambda: assert_line(
        LAST, lambda: with_variates(lambda d: KeepsTheOldVariate(EQUAL, d))(1)
    ),
    "unequal local steps with variates": lambda: assert_golden(
        LAST,
        with_variates(lambda d: oracle.Scafflsa(EQUAL, d), local_steps=(1, 2))(len(paths()[1])),
    ),
    "unequal local steps with variates, on a line": lambda: assert_line(
        LAST, lambda: with_variates(lambda d: oracle.Scafflsa(EQUAL, d), local_steps=(5, 10))(1)
    ),
    "a sample is used twice": lambda: assert_golden(
        FIRST, with_variates(lambda d: UsesASampleTwice(EQUAL))(len(paths()[1]))
    ),
    "the first sample is not that of the first step": lambda: assert_line(
        FIRST, lambda: with_variates(lambda d: SkipsTheFirstStep(EQUAL))(1)
    ),
    "no variates": lambda: assert_golden(LAST, golden_rules("plain", 1)),
    "variates of the wrong source": lambda: assert_golden(
        FIRST, golden_rules(LAST, len(paths()[1]))
    ),
    "the server step multiplies the average": lambda: assert_golden(
        "server step 1/2",
        replace(golden_rules("plain", 1), combine=moved_to_half),
    ),
    "momentum is a mean of changes": lambda: assert_golden(
        "momentum 1/2", replace(golden_rules("plain", 1), server=(0.5, 0.5, False))
    ),
    "momentum looks ahead": lambda: assert_golden(
        "momentum 1/2", replace(golden_rules("plain", 1), server=(1.0, 0.5, True))
    ),
}


@pytest.mark.parametrize("fault", MUTANTS)
def test_a_known_wrong_version_has_other_moments(fault) -> None:
    with pytest.raises(AssertionError):
        MUTANTS[fault]()


def by_powers(values: list[float], visits: Sequence[int], alpha: float) -> float:
    """Weights (1 - alpha)^-n, which overflow."""
    weights = np.power(1 - alpha, -np.array(visits, float))
    return float(weights @ values / weights.sum())


def by_remaining_steps(values: list[float], visits: Sequence[int], alpha: float) -> float:
    """Weights (1 - alpha)^(K - n) for rounds of K = 1000 steps, which underflow."""
    weights = np.power(1 - alpha, 1000.0 - np.array(visits))
    return float(weights @ values / weights.sum())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("wrong", [by_powers, by_remaining_steps])
def test_weights_that_overflow_or_underflow_fail_on_long_rounds(wrong) -> None:
    with pytest.raises(AssertionError):
        assert_weighs_long_rounds(wrong)
