"""How many steps and how much communication an accuracy requires (Corollary sample_complexity).

The corollary (`corollary`) gives the error after T steps. Here the accuracy is given, and T follows
from one of two sources:

* "small_step", the true error to first order in the step size: at stationarity the last iterate has
  the error ``variance + |bias|^2`` of `small_step_law`, and before that its mean error is
  ``exp(-alpha t A) (theta_0 - theta*)``;
* "bound", the five terms of the theorem under its conditions: a guarantee for the output at the
  random time, with a T that is larger by many orders of magnitude.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from fegsam.algorithms.rule import Algorithm, check_algorithm
from fegsam.bisection import last_real, last_whole
from fegsam.errors import ProblemError, shown
from fegsam.exact.fixed_points import fixed_point
from fegsam.problem.checks import positive
from fegsam.problem.federation import Problem
from fegsam.text import html_table, number, text_table
from fegsam.theory.assumptions.assumptions import Assumptions, assumptions
from fegsam.theory.bound.bound import bound_from
from fegsam.theory.bound.conditions import largest_alpha, largest_period, step_conditions
from fegsam.theory.bound.constants import constants_from
from fegsam.theory.bound.corollary import Schedule, schedule
from fegsam.theory.small_step.noises import agent_noises
from fegsam.theory.small_step.small_step import SmallStepLaw, small_step_law

__all__ = ["Complexity", "Schedule", "complexity", "complexity_from_bound", "schedule"]

FIRST_ORDER = 0.1
"""alpha ||A|| stays below this, so that the small-step law is accurate."""
ROUNDING = 1e-9
"""The relative error allowed in the solution of an equation."""
NEAR_ENOUGH = 1.01
"""Step sizes are found to within this factor if each trial solves a Lyapunov equation."""


@dataclass(frozen=True, eq=False)
class Complexity:
    """The steps and the communication that an accuracy requires; see `complexity`.

    Attributes
    ----------
    num_steps, communications : int
        T and T // K.
    step_size : float
    sync_period : int
    accuracy : float
        The requested accuracy.
    source : str
        "small_step" or "bound".
    parts : dict
        The parts of the final error: the terms of the bound, or the variance, the squared bias and
        the share of the start (including its cross term with the bias). They add up to at most
        `accuracy`.

    Examples
    --------
    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=4)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> found = fg.theory.complexity(coin, average, accuracy=1e-4)
    >>> (
    ...     found.communications == found.num_steps // found.sync_period,
    ...     sum(found.parts.values()) <= found.accuracy,
    ... )
    (True, True)
    """

    num_steps: int
    communications: int
    step_size: float
    sync_period: int
    accuracy: float
    source: str
    parts: dict[str, float]

    def _rows(self) -> list[list[str]]:
        rows = [
            ["steps", self.num_steps],
            ["communications", self.communications],
            ["step size", self.step_size],
        ]
        rows += [
            ["sync period", self.sync_period],
            *([f"error: {name}", value] for name, value in self.parts.items()),
        ]
        return [[str(name), number(float(value))] for name, value in rows]

    @property
    def _title(self) -> str:
        source = "small-step law" if self.source == "small_step" else "bound"
        return f"Squared error {self.accuracy:.4g}, from the {source}"

    def __str__(self) -> str:
        return text_table([self._title, ""], self._rows())

    def _repr_html_(self) -> str:
        return html_table(self._title, ["", ""], self._rows())


def complexity(
    problem: Problem,
    algorithm: Algorithm,
    *,
    accuracy: float,
    source: str = "small_step",
) -> Complexity:
    """The steps and the communication that reduce the expected squared error to `accuracy`.

    The parameters start at zero.

    Parameters
    ----------
    accuracy : float
        The squared error of the last iterate in the 2-norm ("small_step"), or of the output in the
        theorem's norm ("bound").
    source : str
        "small_step": the variance and bias at K = 1 may use a quarter of the accuracy, which gives
        the step size, and local steps another quarter, which gives K. A `RuntimeWarning` says if
        the law is only a guide at that choice. "bound": the same, with the terms of the theorem.

    Examples
    --------
    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=4)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> plan = complexity(coin, average, accuracy=1e-4)
    >>> plan.num_steps < complexity(coin, average, accuracy=1e-4, source="bound").num_steps
    True
    """
    goal = positive(accuracy, "accuracy")
    if not isinstance(source, str) or source not in ("small_step", "bound"):
        raise ProblemError(f'source is {shown(source)}; give "small_step" or "bound".')
    if source == "small_step":
        return _from_small_step_law(problem, algorithm, goal)
    return complexity_from_bound(assumptions(problem, algorithm), goal)


def _from_small_step_law(problem: Problem, algorithm: Algorithm, accuracy: float) -> Complexity:
    check_algorithm(algorithm, problem)
    point = fixed_point(problem, algorithm)
    matrix = np.sum(
        [share * noise.mean_matrix for share, noise in agent_noises(algorithm, problem, point)],
        axis=0,
    )
    unit = FIRST_ORDER / float(np.linalg.norm(matrix, 2))
    at_unit = small_step_law(problem, algorithm, step_size=unit, sync_period=1)
    # For a linear rule the variance is proportional to alpha and the squared bias to alpha^2:
    # V x + W x^2 = accuracy / 4 at x = alpha / unit.
    V, W = at_unit.variance, float(at_unit.bias @ at_unit.bias)
    linear = unit * min(
        1.0, accuracy / 2 / (V + math.sqrt(V * V + W * accuracy)) if V + W > 0 else 1.0
    )

    def law(period: int, step: float) -> SmallStepLaw:
        return small_step_law(problem, algorithm, step_size=step, sync_period=period)

    # In Q-learning near a tie the bias is of order sqrt(alpha), so the step must be smaller.
    step = _last_step(lambda x: law(1, x).mse <= accuracy / 4 * (1 + ROUNDING), linear, NEAR_ENOUGH)
    decay = linalg.expm(unit * matrix)

    def steps(bias: np.ndarray) -> int:
        # |x + bias|^2 <= accuracy / 2 + |bias|^2 for every x up to this size.
        size = float(np.linalg.norm(bias))
        left = accuracy / 2 / (size + math.sqrt(size * size + accuracy / 2))
        return math.ceil(_times_to_shrink(decay, point, left) * (unit / step))

    period = _last_period(lambda K: law(K, step).mse <= accuracy / 2, steps(law(1, step).bias))
    final = law(period, step)
    if not final.holds:
        warnings.warn(
            f"The small-step law is only a guide to this plan, since {final.limits[0]}; ask for a "
            "smaller accuracy, or check the plan with run.",
            RuntimeWarning,
            stacklevel=3,
        )
    total = max(steps(final.bias), period)
    return Complexity(
        num_steps=total,
        communications=total // period,
        step_size=step,
        sync_period=period,
        accuracy=accuracy,
        source="small_step",
        parts={
            "variance": final.variance,
            "bias": float(final.bias @ final.bias),
            "start": accuracy / 2,
        },
    )


def _times_to_shrink(operator: np.ndarray, vector: np.ndarray, target: float) -> int:
    """The least n >= 1 with ``|operator^n vector| <= target``, by repeated squaring."""
    powers = [operator]
    while float(np.linalg.norm(powers[-1] @ vector)) > target:
        powers.append(powers[-1] @ powers[-1])
    times = 0
    for exponent in reversed(range(len(powers))):
        ahead = powers[exponent] @ vector
        if float(np.linalg.norm(ahead)) > target:
            vector, times = ahead, times + 2**exponent
    return times + 1


def complexity_from_bound(assumptions: Assumptions, accuracy: float) -> Complexity:
    """`complexity` from the theorem's five terms."""
    top = largest_alpha(assumptions, 1) / assumptions.beta

    def lasting(step: float, period: int) -> float:
        """The bound as T goes to infinity; infinite if the theorem does not admit the choice."""
        terms = bound_from(assumptions, step_size=step, sync_period=period, num_steps=1).terms
        admitted = all(c.holds for c in step_conditions(constants_from(assumptions, step), period))
        return (
            math.fsum(value for name, value in terms.items() if name != "initial")
            if admitted
            else math.inf
        )

    step = _last_step(lambda x: lasting(x, 1) <= accuracy / 4, top)
    agents = assumptions.num_agents
    longest = largest_period(assumptions, step) if agents > 1 else 1
    period = _last_period(lambda K: lasting(step, K) <= accuracy / 2, longest)
    c = constants_from(assumptions, step)
    left = accuracy - lasting(step, period)
    wait = (
        math.log(c.S_1 / c.alpha / left) / -math.log1p(-c.alpha * c.phi_2 / 2)
        if c.alpha * left < c.S_1
        else 0.0
    )
    if not math.isfinite(wait):
        raise ProblemError(
            f"The bound's first term, {c.S_1:.3g} / {c.alpha:.3g}, is too large to count steps; "
            "give features or rewards in a larger unit."
        )
    tau = int(c.tau)
    steps = max(2 * tau + math.ceil(wait * (1 + 1e-12)) + 1, period + tau + 2)
    bound = bound_from(assumptions, step_size=step, sync_period=period, num_steps=steps)
    return Complexity(steps, steps // period, step, period, accuracy, "bound", bound.terms)


def _last_step(passes: Callable[[float], bool], top: float, within: float = 1 + 1e-12) -> float:
    """`top` if it passes, else a smaller step that passes, `within` a factor of one that fails."""
    good = top
    while not passes(good):
        good /= 2
        if good == 0.0:
            raise ProblemError(
                "No positive step size makes the error this small; ask for a larger accuracy."
            )
    return last_real(passes, good, min(top, 2 * good), within)


def _last_period(passes: Callable[[int], bool], longest: int) -> int:
    """The largest of 1, ..., longest that passes; 1 passes, and after one fails so do the rest."""
    return longest if passes(longest) else last_whole(passes, 1, longest)
