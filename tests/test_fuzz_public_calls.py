"""Public calls with good and bad arguments: nothing but the package's own errors, and no NaN or
infinity in silence.

Call number i depends on i alone. To see one again::

    python tests/test_fuzz_public_calls.py 1234

A call that is refused must be refused by a `ProblemError`; one that is answered must be answered in
finite numbers, or say in a warning that it was not.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import fegsam as fg
from fegsam.experiments import estimates
from fegsam.planning import plan

ORDINARY, ALL = 400, 5000
NAN, INF = math.nan, math.inf

BAD: tuple[Any, ...] = (
    None,
    NAN,
    INF,
    -INF,
    -1,
    0,
    2**62,
    2**63,
    10**30,
    10**400,
    10**5000,
    1e150,
    1e300,
    -1e300,
    1e-300,
    0.5,
    1.5,
    -0.5,
    True,
    1j,
    "x",
    "",
    b"x",
    (),
    [],
    [[]],
    {},
    set(),
    {"a": 1},
    [[1.0], [1.0, 2.0]],
    [0, 1.5],
    [None],
    [NAN],
    ["a", "b"],
    [10**400],
    [2**63],
    object(),
    object,
    len,
    np.zeros((2, 3)),
    np.zeros((0, 4)),
    np.ones((2, 2, 2, 2)),
    np.array(3),
    np.array(1e300),
    np.array([1j]),
    np.array(["a"]),
    np.array([object()]),
    np.full((3, 2), NAN),
    np.full((3, 2), 1e150),
    np.datetime64("2020"),
    np.float32(NAN),
    sparse.csr_array(np.eye(3)),
    range(0),
    range(3),
    slice(3),
    iter(()),
    Ellipsis,
    fg.QLearning,
    fg.QLearning(),
)


def pull(params, y, kind, out):
    out[0] = 0.5 * y - params[0]


def runaway(params, y, kind, out):
    out[0] = params[0] * params[0] + 1.0


# --- Valid values ---------------------------------------------------------------------------------


class Maker:
    """Valid values for one call, drawn from its own random numbers."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.states, self.actions = draw.choice((1, 2, 3)), draw.choice((1, 2))
        self.rng = np.random.default_rng(draw.randrange(2**32))

    def size(self) -> float:
        """Of rewards and the like: mostly ordinary, now and then at the edge of what is taken."""
        return self.draw.choice((1.0, 1.0, 1.0, 1.0, 0.0, 1e-200, 1e20, 1e50, 1e99))

    def transitions(self) -> Any:
        table = self.rng.dirichlet(np.ones(self.states), (self.states, self.actions))
        return (
            sparse.csr_array(table.reshape(-1, self.states)) if self.draw.random() < 0.2 else table
        )

    def rewards(self) -> np.ndarray:
        return self.size() * self.rng.normal(size=(self.states, self.actions))

    def discount(self) -> float:
        return self.draw.choice((0.5, 0.9, 0.99, 1e-300, 1 - 2**-53, 5e-324))

    def mdp(self) -> fg.MDP:
        return fg.MDP(self.transitions(), self.rewards(), self.discount())

    def policy(self) -> np.ndarray:
        return self.rng.dirichlet(np.ones(self.actions), self.states)

    def policies(self) -> np.ndarray:
        return self.rng.dirichlet(np.ones(self.actions), (self.draw.choice((1, 2)), self.states))

    def features(self) -> np.ndarray:
        return self.draw.choice((1.0, 1.0, 1e-40, 1e40, 1e90)) * self.rng.normal(
            size=(self.states, 1)
        )

    def agents(self) -> int:
        return self.draw.choice((1, 2, 3))

    def federation(self) -> fg.Federation:
        return fg.Federation(
            self.mdp(),
            self.policies(),
            num_agents=self.agents(),
            target_policy=self.policy(),
            features=self.features(),
        )

    def kernel(self) -> np.ndarray:
        return self.rng.dirichlet(np.ones(2), 2)

    def noise(self) -> fg.MarkovNoise:
        return fg.MarkovNoise(self.kernel(), num_agents=self.agents())

    def linear(self) -> fg.LinearSA:
        pulls = self.draw.choice((1.0, 1.0, 1e-90, 1e40)) * self.rng.uniform(-1.0, 0.1, (2, 1, 1))
        return fg.LinearSA(pulls, self.size() * self.rng.normal(size=(2, 1)))

    def horizon(self) -> int:
        return self.draw.choice((1, 2, 5))

    def rule(self) -> Callable[..., None]:
        return self.draw.choice((pull, pull, runaway))

    def stated(self) -> dict[str, float]:
        return {
            "gamma_c": 0.5,
            "A_1": 1.0,
            "A_2": 1.0,
            "B": 1.0,
            "m_1": 1.0,
            "m_2": 1.0,
            "m_3": 1.0,
            "m_4": 1.0,
            "rho": 0.5,
        }

    def own(self) -> fg.StochasticApproximation:
        return fg.StochasticApproximation(
            self.rule(), 1, assumptions=self.draw.choice((None, self.stated()))
        )

    def pair(self) -> tuple[Any, Any]:
        """A problem and an algorithm; sometimes two that do not go together."""
        tables = (fg.QLearning, fg.OnPolicyTD, fg.OffPolicyTabularTD, fg.OffPolicyLinearTD)
        which = self.draw.randrange(9)
        if which < 4:
            algorithm = tables[which]() if which == 0 else tables[which](self.horizon())
            return self.federation(), algorithm
        if which == 4:
            return self.federation(), fg.OffPolicyLinearTD(preconditioned=True)
        if which == 8:
            return self.federation(), fg.Sarsa(fg.policies.Softmax(self.draw.choice((1, 1e-3))))
        if which == 5:
            return self.federation(), fg.TDC(self.draw.choice((1, 0.01, 100.0)))
        return self.noise(), self.own() if self.draw.random() < 0.2 else self.linear()

    def step_size(self) -> float:
        return self.draw.choice((1e-5, 0.01, 0.1, 0.5, 3, 1e6, 10**30, 1e90, 1e-30, 1e-300))

    def steps(self) -> int:
        return self.draw.choice((1, 5, 40))

    def period(self) -> int:
        return self.draw.choice((1, 3, 10**9, 2**61))

    def record(self) -> Any:
        return self.draw.choice((None, 1, 7, 10**18, [0, 1], np.array([1])))

    def q(self) -> np.ndarray:
        return self.rewards()

    def history(self) -> fg.History:
        return small_history(self.draw.choice((0.1, 1e6)))

    def samples(self) -> np.ndarray:
        return self.size() * self.rng.normal(size=5)


@functools.cache
def small_history(step_size: float) -> fg.History:
    fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fg.run(
            fed, fg.QLearning(), step_size=step_size, sync_period=2, num_steps=40, seeds=range(3)
        )


# --- Calls ----------------------------------------------------------------------------------------


def with_pair(make: Maker, **others: Any) -> dict[str, Any]:
    problem, algorithm = make.pair()
    return {"problem": problem, "algorithm": algorithm, **others}


def params(make: Maker, given: dict[str, Any]) -> np.ndarray:
    return np.full(given["algorithm"].dimension(given["problem"]), make.size())


def run_arguments(make: Maker) -> dict[str, Any]:
    given = with_pair(
        make, step_size=make.step_size(), sync_period=make.period(), num_steps=make.steps()
    )
    more: dict[str, Callable[[], Any]] = {
        "seeds": lambda: make.draw.choice((range(2), [2**64 - 1])),
        "record": make.record,
        "record_params": lambda: True,
        "engine": lambda: make.draw.choice(("cpu", fg.engines.Cpu(threads=1))),
        "initial_params": lambda: params(make, given),
        "sampling": lambda: make.draw.choice(("markov", "iid")),
        "output_decay": lambda: make.draw.choice((0.5, 1 - 1e-15, 1e-300)),
        "stop_at_output": lambda: True,
        "fixed_point": lambda: params(make, given),
        "resume_from": make.history,
    }
    # Compiled code for rules of a user's own takes seconds; the plain engine answers the same at
    # once.
    own = isinstance(given["algorithm"], fg.StochasticApproximation)
    given["engine"] = "reference"
    return given | {
        name: value()
        for name, value in more.items()
        if make.draw.random() < (0.03 if name == "resume_from" else 0.3)
        and not (name == "engine" and own)
    }


def two(make: Maker) -> dict[str, Any]:
    return with_pair(make, step_size=make.step_size(), sync_period=make.period())


def sampled(make: Maker) -> dict[str, Any]:
    return with_pair(
        make, seed=1, agent=0, num_steps=make.steps(), sampling=make.draw.choice(("markov", "iid"))
    )


def horizons(make: Maker) -> dict[str, Any]:
    return {
        "problem": make.federation(),
        "algorithm": fg.OffPolicyLinearTD(),
        "horizons": [1, 2, 40],
    }


def distribution_call(name: str) -> Callable[..., Any]:
    def call(num_steps, decay, at):
        return getattr(fg.theory.output_time_distribution(num_steps, decay), name)(at)

    call.__name__ = name
    return call


CALLS: dict[str, tuple[Callable[..., Any], Callable[[Maker], dict[str, Any]]]] = {
    "MDP": (
        fg.MDP,
        lambda m: {
            "transitions": m.transitions(),
            "rewards": m.rewards(),
            "discount": m.discount(),
            "labels": range(m.states),
        },
    ),
    "Federation": (
        fg.Federation,
        lambda m: {
            "mdp": m.mdp(),
            "behavior_policies": m.policies(),
            "num_agents": 3,
            "assignment": [0, 0, 0],
            "target_policy": m.policy(),
            "features": m.features(),
            "initial_distribution": np.full(m.states, 1 / m.states),
        },
    ),
    "MarkovNoise": (
        fg.MarkovNoise,
        lambda m: {
            "kernels": m.kernel(),
            "num_agents": m.agents(),
            "assignment": None,
            "initial_distribution": [0.5, 0.5],
        },
    ),
    "LinearSA": (
        fg.LinearSA,
        lambda m: {"matrices": np.ones((2, 1, 1)), "offsets": m.size() * np.ones((2, 1))},
    ),
    "StochasticApproximation": (
        fg.StochasticApproximation,
        lambda m: {
            "rule": m.rule(),
            "dim": 1,
            "norm": m.draw.choice((2, INF)),
            "assumptions": m.stated(),
        },
    ),
    "OnPolicyTD": (fg.OnPolicyTD, lambda m: {"horizon": m.horizon()}),
    "OffPolicyTabularTD": (fg.OffPolicyTabularTD, lambda m: {"horizon": m.horizon()}),
    "OffPolicyLinearTD": (
        fg.OffPolicyLinearTD,
        lambda m: {"horizon": m.horizon(), "preconditioned": False},
    ),
    "Sarsa": (fg.Sarsa, lambda m: {"policy": fg.policies.EpsilonGreedy(0.5)}),
    "policies.Softmax": (fg.policies.Softmax, lambda m: {"temperature": 2}),
    "policies.EpsilonGreedy": (fg.policies.EpsilonGreedy, lambda m: {"epsilon": 0.5}),
    "TDC": (fg.TDC, lambda m: {"ratio": m.draw.choice((1, 0.5))}),
    "run": (fg.run, run_arguments),
    "run again": (fg.run, run_arguments),
    "run once more": (fg.run, run_arguments),
    "sample_path": (fg.sample_path, sampled),
    "fixed_point": (fg.fixed_point, with_pair),
    "agent_fixed_points": (fg.agent_fixed_points, with_pair),
    "heterogeneity": (fg.heterogeneity, with_pair),
    "policy_value": (fg.policy_value, lambda m: {"mdp": m.mdp(), "policy": m.policy()}),
    "policy_chain": (fg.MDP.policy_chain, lambda m: {"self": m.mdp(), "policy": m.policy()}),
    "policy_rewards": (fg.MDP.policy_rewards, lambda m: {"self": m.mdp(), "policy": m.policy()}),
    "load_history": (fg.load_history, lambda m: {"path": "no such file"}),
    "History.plot": (
        fg.History.plot,
        lambda m: {"self": m.history(), "error": "sync_error", "label": "label"},
    ),
    "Cpu": (fg.engines.Cpu, lambda m: {"threads": 2}),
    "Cuda": (fg.engines.Cuda, lambda m: {"precision": "float32", "layout": "table"}),
    "exact.kind_chains": (fg.exact.kind_chains, with_pair),
    "exact.kind_stationary_laws": (fg.exact.kind_stationary_laws, with_pair),
    "exact.projected_average_point": (
        fg.exact.projected_average_point,
        lambda m: {"problem": m.federation(), "algorithm": fg.OffPolicyLinearTD(m.horizon())},
    ),
    "exact.moments": (
        fg.exact.moments,
        lambda m: two(m) | {"times": [0, 1, 7], "order": m.draw.choice((None, 1, 2))},
    ),
    "exact.mean_squared_error": (
        fg.exact.mean_squared_error,
        lambda m: two(m) | {"num_steps": m.steps()},
    ),
    "exact.stationary_error": (
        fg.exact.stationary_error,
        lambda m: two(m) | {"patience": m.draw.choice((1, 0.01))},
    ),
    "exact.weighted_error": (
        fg.exact.weighted_error,
        lambda m: two(m) | {"num_steps": m.steps(), "decay": 0.5},
    ),
    "theory.assumptions": (fg.theory.assumptions, lambda m: with_pair(m, initial_params=None)),
    "theory.constants": (
        fg.theory.constants,
        lambda m: with_pair(m, step_size=m.step_size(), printed=m.draw.random() < 0.5),
    ),
    "theory.error_bound": (
        fg.theory.error_bound,
        lambda m: two(m) | {"num_steps": m.steps(), "tau_factor": m.draw.choice((2, 3.5))},
    ),
    "theory.sharper_error_bound": (
        fg.theory.sharper_error_bound,
        lambda m: two(m) | {"num_steps": m.steps()},
    ),
    "theory.largest_sharper_step": (
        fg.theory.largest_sharper_step,
        lambda m: with_pair(m, sync_period=m.period()),
    ),
    "theory.large_enough": (fg.theory.large_enough, lambda m: with_pair(m, heterogeneous=None)),
    "theory.largest_step": (fg.theory.largest_step, lambda m: with_pair(m, sync_period=m.period())),
    "theory.largest_sync_period": (
        fg.theory.largest_sync_period,
        lambda m: with_pair(m, step_size=m.step_size()),
    ),
    "theory.schedule": (
        fg.theory.schedule,
        lambda m: with_pair(m, num_steps=10**6, heterogeneous=None),
    ),
    "theory.complexity": (
        fg.theory.complexity,
        lambda m: with_pair(
            m, accuracy=m.draw.choice((1.0, 1e-3)), source=m.draw.choice(("small_step", "bound"))
        ),
    ),
    "theory.small_step_law": (fg.theory.small_step_law, two),
    "theory.scan_horizons": (fg.theory.scan_horizons, horizons),
    "theory.orders": (fg.theory.orders, lambda m: {"algorithm": m.pair()[1]}),
    "theory.default_output_decay": (
        fg.theory.default_output_decay,
        lambda m: with_pair(m, step_size=m.step_size(), num_steps=9),
    ),
    "theory.probabilities": (
        distribution_call("probabilities"),
        lambda m: {"num_steps": m.steps(), "decay": 0.9, "at": [0, 3]},
    ),
    "theory.cdf": (
        distribution_call("cdf"),
        lambda m: {"num_steps": m.steps(), "decay": 0.9, "at": [0, 3]},
    ),
    "theory.OutputTimeDistribution": (
        fg.theory.OutputTimeDistribution,
        lambda m: {"num_steps": m.steps(), "decay": 0.9},
    ),
    "theory.draw": (
        distribution_call("draw"),
        lambda m: {"num_steps": m.steps(), "decay": 0.9, "at": [0.1, 0.3]},
    ),
    "policies.uniform": (fg.policies.uniform, lambda m: {"states": 3, "actions": 2}),
    "policies.random": (
        fg.policies.random,
        lambda m: {"states": 3, "actions": 2, "count": 2, "seed": 0},
    ),
    "policies.greedy": (fg.policies.greedy, lambda m: {"q": m.q()}),
    "policies.epsilon_greedy": (fg.policies.epsilon_greedy, lambda m: {"q": m.q(), "epsilon": 0.1}),
    "examples.garnet": (
        fg.examples.garnet,
        lambda m: {
            "states": 5,
            "actions": 2,
            "branching": 2,
            "discount": m.discount(),
            "seed": 3,
            "connected": True,
        },
    ),
    "examples.random_walk": (
        fg.examples.random_walk,
        lambda m: {"states": 5, "discount": m.discount()},
    ),
    "examples.river_swim": (
        fg.examples.river_swim,
        lambda m: {"states": 5, "discount": m.discount()},
    ),
    "examples.grid_world": (
        fg.examples.grid_world,
        lambda m: {"rows": 2, "columns": 3, "discount": m.discount(), "slip": 0.1},
    ),
    "examples.two_state": (
        fg.examples.two_state,
        lambda m: {
            "to_second": [[0.1], [0.9]],
            "rewards": m.size() * np.ones((2, 1)),
            "discount": m.discount(),
        },
    ),
    "examples.bandit": (
        fg.examples.bandit,
        lambda m: {"rewards": [m.size()], "discount": m.discount()},
    ),
    "examples.from_gymnasium": (
        fg.examples.from_gymnasium,
        lambda m: {"env_id": "FrozenLake-v1", "discount": m.discount()},
    ),
    "planning.plan": (
        plan,
        lambda m: {
            "problem": m.noise(),
            "algorithm": fg.LinearSA([[[-1.0]], [[-1.0]]], [[0.0], [1.0]]),
            "accuracy": 0.1,
            "goal": m.draw.choice(("communications", "samples")),
            "budget": None,
            "verify_seeds": 3,
            "engine": "cpu",
        },
    ),
    "estimates.mean_estimate": (
        estimates.mean_estimate,
        lambda m: {"samples": m.samples(), "level": 0.9, "seed": 0},
    ),
    "estimates.ratio_estimate": (
        estimates.ratio_estimate,
        lambda m: {
            "numerator": np.abs(m.samples()) + 1,
            "denominator": np.arange(1.0, 6.0),
            "method": m.draw.choice(("t", "bootstrap")),
        },
    ),
    "estimates.slope_estimate": (
        estimates.slope_estimate,
        lambda m: {"x": [1, 2, 4], "y": [4.0, 2.0, 1.0], "level": 0.5},
    ),
    "estimates.curve_estimate": (
        estimates.curve_estimate,
        lambda m: {"curves": [[1.0, 2.0], [3.0, m.size()]], "method": "t"},
    ),
    "estimates.plateau": (
        estimates.plateau,
        lambda m: {"history": m.history(), "fraction": 0.5, "error": "squared_error"},
    ),
}
"""By name: what is called, and valid arguments for it."""


@dataclasses.dataclass(frozen=True)
class Trial:
    number: int
    name: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        given = ", ".join(
            f"{name}={fg.errors.shown(value)}" for name, value in self.arguments.items()
        )
        return f"call {self.number}: {self.name}({given})"


def trial(number: int) -> Trial:
    """Call number `number`: of each name the first and a third of the others valid; the rest has
    arguments replaced."""
    draw = random.Random(number)
    name = list(CALLS)[number % len(CALLS)]
    arguments: dict[str, Any] = {}
    while not arguments:
        try:
            arguments = CALLS[name][1](Maker(draw))
        except fg.ProblemError:  # what was drawn does not go together, as features of rank 0
            continue
    for _ in range(draw.choice((0, 0, 1, 1, 1, 2)) if number >= len(CALLS) else 0):
        replaced = draw.choice([name for name in arguments if name != "self"])
        # Any callable is an engine, and what it raises is its own.
        arguments[replaced] = draw.choice(
            [bad for bad in BAD if replaced != "engine" or not callable(bad)]
        )
    return Trial(number, name, arguments)


# --- Verdicts -------------------------------------------------------------------------------------


def numbers(result: Any, where: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Every array of real numbers in a result, and where it is."""
    if isinstance(result, fg.History):
        stopped = result.settings.stop_at_output
        for name, values in result.data.data_vars.items():
            # A seed that stops at its output time has nothing to record behind it.
            if not stopped or str(name).startswith("output"):
                yield from numbers(values.values, f"{where}.{name}")
    elif isinstance(result, fg.theory.Assumptions):
        # The report itself says where no norm is found, and its page which numbers are NaN; lag_sum
        # is where m_2 has to do.
        if result.holds:
            parts = {
                part.name: getattr(result, part.name)
                for part in dataclasses.fields(result)
                if part.name != "lag_sum"
            }
            yield from numbers(parts, where)
    elif isinstance(result, fg.theory.HorizonScan):
        # Its contraction is NaN where the level says that no norm was found.
        found = np.isin(result.levels, ("identity", "common"))
        yield from numbers([result.contractions[found], result.operator_norms], where)
    elif isinstance(result, fg.exact.Moments):
        # The truncation is NaN where the note says why nothing is known of it.
        parts = {part.name: getattr(result, part.name) for part in dataclasses.fields(result)}
        yield from numbers(
            {
                name: value
                for name, value in parts.items()
                if name != "truncation" or not result.note
            },
            where,
        )
    elif isinstance(result, fg.theory.SmallStepLaw | fg.theory.SharperBound):
        # Infinite by meaning: no gap between actions limits a law of values, and an inner-product
        # norm needs no smoothing.
        parts = {part.name: getattr(result, part.name) for part in dataclasses.fields(result)}
        yield from numbers(
            {name: parts[name] for name in parts if name not in ("gap_ratio", "smoothing")}, where
        )
    elif isinstance(result, fg.theory.LargeEnough):
        return  # infinity is its answer where no number of steps is large enough
    elif isinstance(result, fg.theory.Constants):
        # Without noise of G zeta_2 is infinite, as its formula says.
        yield from numbers(
            {name: value for name, value in result.items() if name != "zeta_2"}, where
        )
    elif isinstance(result, fg.MDP | fg.Federation | fg.MarkovNoise | fg.StochasticApproximation):
        return
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        for part in dataclasses.fields(result):
            yield from numbers(getattr(result, part.name), f"{where}.{part.name}")
    elif isinstance(result, dict):
        for name, value in result.items():
            yield from numbers(value, f"{where}[{name!r}]")
    elif isinstance(result, tuple | list):
        for i, value in enumerate(result):
            yield from numbers(value, f"{where}[{i}]")
    elif sparse.issparse(result):
        yield where, result.data
    elif isinstance(result, float | np.floating | np.ndarray) and np.issubdtype(
        np.asarray(result).dtype, np.floating
    ):
        yield where, np.asarray(result)


@functools.cache
def outcome(number: int) -> tuple[bool, str | None]:
    """Whether call `number` was answered, and what is wrong with how it was, or None."""
    one = trial(number)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = CALLS[one.name][0](**one.arguments)
        except fg.ProblemError:
            return False, None
        except Exception:
            return False, f"{one}\n{traceback.format_exc(limit=-4)}"
    if one.name.startswith("estimates") and any(
        not np.isfinite(values).all() for _, values in numbers(one.arguments)
    ):
        return True, None  # the mean of NaN is NaN: who made them has said so
    lost = [where for where, values in numbers(result) if not np.isfinite(values).all()]
    return True, f"{one}\nnot finite, without a warning: {lost}" if lost and not caught else None


def assert_sound(numbers: range) -> None:
    faults = [found for number in numbers if (found := outcome(number)[1])]
    assert not faults, "\n\n".join(faults)


def test_public_calls_answer_in_finite_numbers_or_in_errors_of_the_package() -> None:
    assert_sound(range(ORDINARY))


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(0, ALL, 500))
def test_many_public_calls_answer_in_finite_numbers_or_in_errors_of_the_package(begin) -> None:
    assert_sound(range(begin, begin + 500))


def test_about_half_of_the_calls_are_answered_and_nearly_every_one_once() -> None:
    """Or the test would show that bad calls are refused, and nothing else."""
    answered = dict.fromkeys(CALLS, 0)
    for number in range(ORDINARY):
        answered[trial(number).name] += outcome(number)[0]
    assert 0.3 * ORDINARY < sum(answered.values()) < 0.8 * ORDINARY
    assert sum(many == 0 for many in answered.values()) <= 4


if __name__ == "__main__":
    for text in sys.argv[1:]:
        print(trial(int(text)))
        print(outcome(int(text))[1] or "as it should be")
