"""(n) How the theorems' constants, and the true error, grow with mu_min, |S| and 1 / (1 - gamma).

The claim is about Theorems 6.1 and 6.2 and their corollary. One number varies in each of three
families of problems. The next state is drawn from mu, whatever the state and action are, except for
a probability of staying in the same state:

* mu_min: few states, one of which becomes rarer and rarer;
* |S|: more and more states, with the same frequency of the rarest;
* 1 - gamma: few states, each of which is left rarely, so that values differ by 1 / (1 - gamma), as
  the orders assume.

Everything is computed: S_2 (the variance's constant) at the largest step that the theorem admits,
the number of steps that its bound requires, and the number of steps that the small-step law
requires. Orders are upper bounds. The exponent is that between the two most extreme problems of a
family.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import fegsam as fg
from fegsam.algorithms.rule import Algorithm
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.thresholds import ClaimSpec, certain
from fegsam.theory.bound.orders import spelled


class Examined(NamedTuple):
    """An algorithm of a corollary, with the number of actions of the problems that it runs on."""

    name: str
    algorithm: Algorithm
    actions: int


EXAMINED = (
    Examined("Off-policy tabular TD", fg.OffPolicyTabularTD(), 1),
    Examined("Q-learning", fg.QLearning(), 2),
)
NAMES = {"mu_min": "1/μ_min", "1-gamma": "1/(1 − γ)", "|S|": "|S|"}


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """The orders, printed and corrected, against the constants and the truth.

    Nothing is run, so `engine` is not used.
    """
    verdicts: list[Verdict] = []
    figures: list[FigureData] = []
    for parameter in NAMES:
        curves: list[Growth] = []
        for examined in EXAMINED:
            curves += growths(spec, examined, parameter)
        verdicts += [verdict for curve in curves for verdict in growth_verdicts(spec, curve)]
        figures.append(_figure(parameter, curves))
    return Section(
        spec.letter,
        spec.title,
        "The corollaries say how many samples a problem requires, as powers of 1/μ_min, of the "
        "number of states and of 1/(1 − γ). The theorem's own constants grow faster than the "
        "printed orders of the variance, and no faster than the corrected ones. The true number of "
        "samples grows far more slowly than either in 1/μ_min and in 1/(1 − γ).",
        tuple(verdicts),
        tuple(figures),
        (
            "An order is an upper bound, so a smaller exponent is no contradiction. The variance's "
            "constant attains its order in μ_min and in 1 − γ: there the corrected order is "
            "sharp.",
            "In every state one action is better than the others by far more than the noise, so "
            "the small-step law holds for Q-learning too.",
        ),
    )


class Growth(NamedTuple):
    """The growth of one quantity of one algorithm along a family."""

    algorithm: str
    quantity: str
    key: str
    """the key in `fegsam.theory.orders`; empty for the truth"""
    parameter: str
    x: np.ndarray
    y: np.ndarray
    printed: float
    corrected: float

    @property
    def exponent(self) -> float:
        """The exponent between the two most extreme problems, with the sign of the orders."""
        return float(np.log(self.y[-1] / self.y[-2]) / np.log(self.x[-1] / self.x[-2]))


def family(parameter: str, actions: int, sizes: Any) -> tuple[np.ndarray, list[fg.Federation]]:
    """The values of the parameter, towards larger problems, and the problems.

    >>> from fegsam.reproduction.thresholds import claim_spec
    >>> x, problems = family("mu_min", 1, claim_spec("problem_size", True).sizes)
    >>> (
    ...     round(
    ...         float(np.min(fg.exact.kind_stationary_laws(problems[0], fg.OffPolicyTabularTD()))),
    ...         9,
    ...     ),
    ...     float(x[0]),
    ... )
    (0.1, 0.1)
    """
    if parameter == "mu_min":
        chosen = [_rare(sizes.few_states, rarest) for rarest in sizes.rarest]
        return np.array(sizes.rarest), [
            _problem(mu, sizes.discount, actions, sizes) for mu in chosen
        ]
    if parameter == "1-gamma":
        mu = np.full(sizes.few_states, 1 / sizes.few_states)
        return np.array(sizes.gaps), [
            _problem(mu, 1 - gap, actions, sizes, sizes.stay) for gap in sizes.gaps
        ]
    many = [
        _problem(_rare(states, sizes.rarest_of_many), sizes.discount, actions, sizes)
        for states in sizes.states
    ]
    return np.array(sizes.states, float), many


def _rare(states: int, rarest: float) -> np.ndarray:
    mu = np.full(states, (1 - rarest) / (states - 1))
    mu[0] = rarest
    return mu


def _problem(
    mu: np.ndarray, discount: float, actions: int, sizes: Any, stay: float = 0.0
) -> fg.Federation:
    states = len(mu)
    chain = stay * np.eye(states) + (1 - stay) * mu
    rewards = np.zeros((states, actions))
    # The first action pays in every other state, so values differ; a second one pays half as much
    # in the remaining states. Moves do not depend on the action, so the rewards alone make one
    # action the best, and no two tie.
    rewards[::2, 0] = 1.0
    rewards[1::2, 1:] = 0.5
    uniform = fg.policies.uniform(states, actions)
    mdp = fg.MDP(np.repeat(chain[:, None, :], actions, axis=1), rewards, discount)
    return fg.Federation(mdp, uniform[None], num_agents=sizes.agents, target_policy=uniform)


def growths(spec: ClaimSpec, examined: Examined, parameter: str) -> list[Growth]:
    """The variance's constant, the bound's number of steps, and the true number of steps."""
    name, algorithm, actions = examined
    x, problems = family(parameter, actions, spec.sizes)
    orders = fg.theory.orders(algorithm)
    logs = np.array([2 * math.log(math.log(problem.num_states * actions)) for problem in problems])

    def growth(quantity: str, key: str, values: Sequence[float]) -> Growth:
        order = orders[key or "sample complexity"]
        # Orders in |S| have an additional factor log^2 d.
        scaled = np.log(np.array(values, float)) - (logs if parameter == "|S|" and key else 0.0)
        given = (order.printed.get(parameter, 0.0), order.corrected.get(parameter, 0.0))
        return Growth(name, quantity, key, parameter, x, np.exp(scaled), *given)

    constants = [
        fg.theory.constants(p, algorithm, step_size=fg.theory.largest_step(p, algorithm))["S_2"]
        for p in problems
    ]
    accuracy = spec.sizes.accuracy
    bound = [
        fg.theory.complexity(p, algorithm, accuracy=accuracy, source="bound").num_steps
        for p in problems
    ]
    truth = [fg.theory.complexity(p, algorithm, accuracy=accuracy).num_steps for p in problems]
    return [
        growth("The variance's constant S_2", "variance", constants),
        growth("The bound's T", "sample complexity", bound),
        growth("The true T", "", truth),
    ]


def growth_verdicts(spec: ClaimSpec, growth: Growth) -> list[Verdict]:
    """The verdicts on one exponent, against the printed and the corrected order."""
    quantity = f"{growth.quantity[0].lower()}{growth.quantity[1:]}"
    where = f"{growth.algorithm}, {quantity}, {NAMES[growth.parameter]}"
    detail = f"Exponent {growth.exponent:.2f} from {growth.x[-2]:.3g} to {growth.x[-1]:.3g}; order"
    sign = 1.0 if growth.parameter == "|S|" else -1.0
    orders = {"printed": growth.printed, "corrected": growth.corrected}
    if not growth.key:
        orders = {"truth": sign * min(sign * growth.printed, sign * growth.corrected)}
    return [
        spec.verdict(
            check,
            where,
            certain(sign * (growth.exponent - order)),
            f"{detail} {spelled({growth.parameter: order})}.",
            quantity=growth.quantity,
        )
        for check, order in orders.items()
    ]


def _figure(parameter: str, curves: Sequence[Growth]) -> FigureData:
    first = curves[0]
    x = first.x if parameter == "|S|" else 1 / first.x
    chosen = [curve for curve in curves if curve.algorithm == first.algorithm]
    series = [Series(curve.quantity, x, curve.y / curve.y[0], style="exact") for curve in chosen]
    for key, order in (("printed", first.printed), ("corrected", first.corrected)):
        series.append(
            Series(f"{key} order of S_2", x, (first.x / first.x[0]) ** order, style="reference")
        )
    return FigureData(
        key=f"problem-size-{parameter.replace('|', '').replace('_', '-').lower()}",
        title=f"{first.algorithm}: growth with the size of the problem",
        panel=NAMES[parameter],
        caption="A constant of the theorem, the number of steps that its bound requires, and the "
        "true number of steps.",
        x_label=NAMES[parameter],
        y_label="relative to the smallest" + (", without log² d" if parameter == "|S|" else ""),
        series=tuple(series),
    )
