"""`plan_methods`: the method that reaches an accuracy with the fewest communications or samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.errors import ProblemError, shown
from fegsam.exact.fixed_points import fixed_point
from fegsam.methods.average import Mean
from fegsam.methods.method import Method
from fegsam.methods.named import fedavgm, fedhsa, importance_averaging, scafflsa
from fegsam.methods.server import Server
from fegsam.planning.plan import OutOfReachError, Plan, plan
from fegsam.problem.federation import Problem
from fegsam.run import Engine
from fegsam.text import html_table, text_table

_SAME = 1e-9
"""Fixed points that differ by less are the same, relative to the larger of 1 and their size."""
_HEADER = ["method", "step size", "K", "communications", "samples per agent", "error in a run"]


@dataclass(frozen=True, eq=False)
class MethodPlans:
    """The plans of several methods for one accuracy; see `plan_methods`.

    Attributes
    ----------
    plans : dict of Plan
        By the names of the methods, the best first. Plans that met the accuracy in their run come
        before those that did not.
    out_of_reach : dict of str
        The methods that no setting within the limits brings to the accuracy, each with a sentence.
    own_points : tuple of str
        The methods whose fixed point is not that of plain averaging: their errors are from a point
        of their own.

    Examples
    --------
    >>> MethodPlans({}, {"plain": "No setting reaches it."}).out_of_reach["plain"]
    'No setting reaches it.'
    """

    plans: Mapping[str, Plan]
    out_of_reach: Mapping[str, str]
    own_points: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """The name of the best method."""
        return next(iter(self.plans))

    @property
    def _title(self) -> str:
        plan = self.plans[self.best]
        return f"Squared error (2-norm) {plan.accuracy:.4g} with the fewest {plan.goal}"

    def _rows(self) -> list[list[str]]:
        found = [
            [
                name,
                f"{plan.step_size:.4g}",
                str(plan.sync_period),
                str(plan.communications),
                str(plan.num_steps),
                f"{plan.verified}{'' if plan.met else ', not met'}",
            ]
            for name, plan in self.plans.items()
        ]
        return found + [[name, *["-"] * 4, "out of reach"] for name in self.out_of_reach]

    @property
    def _note(self) -> str:
        """What the table does not show of the methods with other fixed points; mostly empty."""
        if not self.own_points:
            return ""
        return (
            f"Measured from a fixed point that is not that of plain averaging: "
            f"{', '.join(self.own_points)}"
        )

    def __str__(self) -> str:
        note = f"\n{self._note}" if self._note else ""
        return f"{self._title}\n{text_table(_HEADER, self._rows())}{note}"

    def _repr_html_(self) -> str:
        note = f"<p>{escape(self._note)}</p>" if self._note else ""
        return html_table(self._title, _HEADER, self._rows()) + note


def candidates(algorithm: Algorithm) -> dict[str, Method]:
    """The methods that `plan_methods` compares unless it is given others, by their names.

    >>> import fegsam as fg
    >>> list(candidates(fg.QLearning()))
    ['plain', 'scafflsa', 'fedhsa', 'fedavgm', 'server step 2', 'importance_averaging']
    """
    visits = {"importance_averaging": importance_averaging()} if algorithm.form == "cell" else {}
    return {
        "plain": Method(),
        "scafflsa": scafflsa(),
        "fedhsa": fedhsa(),
        "fedavgm": fedavgm(),
        "server step 2": Method(server=Server(step=2.0)),
        **visits,
    }


def plan_methods(
    problem: Problem,
    algorithm: Algorithm,
    *,
    accuracy: float,
    methods: Mapping[str, Method] | None = None,
    goal: str = "communications",
    budget: int | None = None,
    verify_seeds: int = 200,
    engine: str | Engine = "cpu",
) -> MethodPlans:
    """Plan for each of several methods, and put the plans in order.

    Each plan has a step size, a sync period and a number of steps of its own. Plans are searched
    for as `plan` does: plain averaging of linear algorithms by exact moments, all other methods by
    pilot runs, each within the same limits. The error of a method is from its own fixed point,
    which unequal weights move: the table names the methods where it is not that of plain averaging.

    Parameters
    ----------
    methods : mapping of Method, optional
        The methods by their names; by default those of `candidates`: plain averaging, control
        variates of the last round and of the first step, momentum 0.9 and a step size of 2 at the
        server and, for algorithms that update single cells, importance averaging.
    accuracy, goal, budget, verify_seeds, engine
        As in `plan`. A method that communicates twice a round is counted so.

    Raises
    ------
    ProblemError
        If no method reaches the accuracy within the budget.

    Examples
    --------
    Two kinds of agents drift to points of their own; without `methods`, all candidates are planned:

    >>> import fegsam as fg
    >>> from fegsam.planning import plan_methods
    >>> coins = fg.MarkovNoise([[[0.5, 0.5]] * 2] * 2, num_agents=20)
    >>> drifting = fg.LinearSA([[[[-1.0]]] * 2, [[[-0.25]]] * 2], [[[0.0], [2.0]], [[-0.5], [0.5]]])
    >>> found = plan_methods(
    ...     coins,
    ...     drifting,
    ...     accuracy=1e-2,
    ...     methods={"plain": fg.Method()},
    ...     budget=400,
    ...     verify_seeds=50,
    ... )
    >>> found.best, found.plans["plain"].met
    ('plain', True)
    """
    plans: dict[str, Plan] = {}
    missed: dict[str, str] = {}
    named = _named(methods, algorithm)
    for name, method in named.items():
        try:
            plans[name] = plan(
                problem,
                algorithm,
                accuracy=accuracy,
                goal=goal,
                budget=budget,
                verify_seeds=verify_seeds,
                engine=engine,
                method=method,
            )
        except OutOfReachError as error:
            missed[name] = str(error)
    if not plans:
        raise OutOfReachError(f"No method reaches it: {next(iter(missed.values()))}")
    order = sorted(plans, key=lambda name: _rank(plans[name]))
    own_points = with_own_points(problem, algorithm, named)
    return MethodPlans({name: plans[name] for name in order}, missed, own_points)


def _rank(plan: Plan) -> tuple[Any, ...]:
    costs = plan.communications, plan.num_steps
    return not plan.met, *(costs if plan.goal == "communications" else costs[::-1])


def with_own_points(
    problem: Problem, algorithm: Algorithm, methods: Mapping[str, Method]
) -> tuple[str, ...]:
    """The names of the methods whose fixed point is not that of plain averaging.

    >>> import fegsam as fg
    >>> coins = fg.MarkovNoise([[[0.5, 0.5]] * 2] * 2, num_agents=2)
    >>> drifting = fg.LinearSA([[[[-1.0]]] * 2, [[[-0.25]]] * 2], [[[0.0], [2.0]], [[-0.5], [0.5]]])
    >>> with_own_points(coins, drifting, {"heavy": Method(Mean((0.9, 0.1))), "fedhsa": fedhsa()})
    ('heavy',)
    """
    weighted = {
        name: method
        for name, method in methods.items()
        if isinstance(method.average, Mean) and method.average.weights is not None
    }
    if not weighted:
        return ()
    try:
        plain = fixed_point(problem, algorithm)
    except ProblemError:  # plain averaging diverges, and has no fixed point
        return tuple(weighted)
    apart = _SAME * max(1.0, float(np.abs(plain).max()))
    return tuple(
        name
        for name, method in weighted.items()
        if np.abs(fixed_point(problem, algorithm, method=method) - plain).max() > apart
    )


def _named(methods: Mapping[str, Method] | None, algorithm: Algorithm) -> Mapping[str, Method]:
    if methods is None:
        return candidates(algorithm)
    if not isinstance(methods, Mapping) or not methods:
        raise ProblemError(
            f"methods is {shown(methods)}; give a dict of methods by their names, for example "
            '{"scafflsa": fegsam.methods.scafflsa()}.'
        )
    return methods
