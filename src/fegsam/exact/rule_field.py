"""Mean field of an algorithm of which only the rule is known.

The rule is run on every window that an agent can encounter, and the parameters are iterated, since
contraction is the only property assumed. In Algorithm 1 with a user's function, a window is one
state of the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.core.errors import NumbaError

from fegsam.algorithms.rule import Algorithm, Path
from fegsam.algorithms.structure import Opaque
from fegsam.compilation import renewed
from fegsam.errors import ProblemError
from fegsam.exact.rule_windows import RuleWindows, rule_windows
from fegsam.problem.federation import Problem

CERTIFIED_ERROR = 1e-10
ROUNDING = 8 * float(np.finfo(float).eps)
"""A mean increment this small, relative to max(1, ||theta||), is accepted in any case."""
MAX_ITERATIONS = 100_000
COMPILE_FROM = 1000
"""With fewer windows over all kinds, plain Python finishes before Numba has compiled the rule."""
OBSERVED_RATIOS = 10
"""The contraction, if not given, is estimated from this many last ratios of successive
residuals."""


def given_contraction(known: Opaque) -> float | None:
    """The stated gamma_c, or None if there is none."""
    contraction = known.assumptions.get("gamma_c")
    if contraction is not None and not 0.0 <= contraction < 1.0:
        raise ProblemError(
            f'assumptions["gamma_c"] is {contraction!r}, but a contraction lies in [0, 1); give '
            "such a number."
        )
    return contraction


def rule_field(algorithm: Algorithm, problem: Problem, known: Opaque) -> RuleField:
    """The mean field of `algorithm` on a `problem` that has passed its check."""
    windows, tables = rule_windows(problem, algorithm), algorithm.tables(problem)
    contraction = given_contraction(known)
    return RuleField(
        mean=_mean_of(
            algorithm.form, algorithm.rule, windows, tables, algorithm.dimension(problem)
        ),
        windows=windows,
        dim=algorithm.dimension(problem),
        norm_order=2 if algorithm.norm == "2" else np.inf,
        contraction=contraction,
        by_visits=algorithm.form == "cell" and contraction is None,
    )


@dataclass(frozen=True, eq=False)
class RuleField:
    """The field of kind k is ``Gbar_k(theta) - theta + bbar_k``, the rule's mean over its windows.

    Adding it to theta is one step of Banach's iteration for Gbar + bbar (the paper's Assumption
    3.2). A rule of the cell form hardly moves a cell that is visited rarely, so the sum over the
    windows of a cell is divided by their probability. The root stays the same.
    """

    mean: Callable[..., None]
    """``mean(params, visits, sums)``, see `_mean_of`"""
    windows: RuleWindows
    dim: int
    norm_order: float
    """2 or inf"""
    contraction: float | None
    """gamma_c, if stated"""
    by_visits: bool
    """Whether to divide the mean increment of a cell by how often the cell is visited"""

    def __len__(self) -> int:
        return len(self.windows.begin) - 1

    def root(self, weights: np.ndarray) -> np.ndarray:
        """(d,): the root of the sum of the fields, weighted by `weights` (M,)."""
        visits = np.repeat(weights, np.diff(self.windows.begin)) * self.windows.probability
        params, sums = np.zeros(self.dim), _RuleSums.empty(self.dim)
        increment = sums.total
        residuals: list[float] = []
        with np.errstate(over="ignore", invalid="ignore"):
            while len(residuals) < MAX_ITERATIONS:
                self.mean(params, visits, sums)
                if self.by_visits:
                    np.divide(increment, sums.visits, out=increment, where=sums.visits > 0)
                residuals.append(float(np.linalg.norm(increment, self.norm_order)))
                if not np.isfinite(residuals[-1]):
                    break
                params += increment
                scale = max(1.0, float(np.linalg.norm(params, self.norm_order)))
                if not np.isfinite(scale):
                    break
                if residuals[-1] <= scale * max(
                    CERTIFIED_ERROR * (1 - self._contraction(residuals)), ROUNDING
                ):
                    return params
        raise ProblemError(
            f"The fixed point of your rule was not found: after {len(residuals)} iterations the "
            f"mean increment still has norm {residuals[-1]:.3g}; check that the rule contracts, or "
            "pass run(..., fixed_point=...)."
        )

    def _contraction(self, residuals: list[float]) -> float:
        """The given gamma_c, else the largest of the last ratios of residuals; 1 if too few."""
        if self.contraction is not None:
            return self.contraction
        if len(residuals) <= OBSERVED_RATIOS:
            return 1.0
        last = residuals[-OBSERVED_RATIOS - 1 :]
        return min(1.0, max(after / before for before, after in pairwise(last)))


class _WindowArrays(NamedTuple):
    """The part of `RuleWindows` that the compiled loop reads."""

    states: np.ndarray
    actions: np.ndarray
    length: int
    begin: np.ndarray
    mdps: np.ndarray
    policies: np.ndarray


class _RuleSums(NamedTuple):
    """What a pass over the windows writes, (d,) each."""

    increment: np.ndarray
    """of one window, for rules of the dense form"""
    total: np.ndarray
    """the weighted sum of the increments"""
    visits: np.ndarray
    """the weighted visits of each cell, for rules of the cell form"""

    @classmethod
    def empty(cls, dim: int) -> _RuleSums:
        return cls(*(np.empty(dim) for _ in range(3)))


def _mean_of(
    form: str, rule: Callable[..., Any], windows: RuleWindows, tables: Any, dim: int
) -> Callable[..., None]:
    """``mean(params, visits, sums)``, compiled if there are many windows.

    It sets `sums` to the increments of `rule` over all windows, weighted by `visits` (E,).
    """
    arrays = _WindowArrays(
        windows.states,
        windows.actions,
        windows.length,
        windows.begin,
        windows.mdps,
        windows.policies,
    )

    def bound(loop: Callable[..., None]) -> Callable[..., None]:
        def mean(params, visits, sums):
            loop(params, tables, arrays, visits, sums)

        return mean

    interpreted = bound(_loop(form, rule, lambda function: function))
    if len(windows) < COMPILE_FROM:
        return interpreted
    try:
        compiled = bound(_loop(form, renewed(rule), njit))
        compiled(np.zeros(dim), np.zeros(len(windows)), _RuleSums.empty(dim))
    except NumbaError:
        return interpreted
    return compiled


def _loop(form: str, rule: Callable[..., Any], jit: Callable[..., Any]) -> Callable[..., None]:
    add = jit(_FORMS[form](jit(rule)))

    def mean(params, tables, windows, visits, sums):
        sums.total[:] = 0.0
        sums.visits[:] = 0.0
        for kind in range(len(windows.mdps)):
            mdp, policy = windows.mdps[kind], windows.policies[kind]
            path = Path(windows.states, windows.actions, np.uint64(kind), mdp, policy)
            for e in range(windows.begin[kind], windows.begin[kind + 1]):
                if visits[e] > 0.0:
                    add(params, path, np.uint64(e * windows.length), tables, visits[e], sums)

    return jit(mean)


def _cell(rule: Callable[..., Any]) -> Callable[..., None]:
    def add(params, path, t, tables, weight, sums):
        index, scale = rule(params, path, t, tables)
        sums.total[index] += weight * scale
        sums.visits[index] += weight

    return add


def _row(rule: Callable[..., Any]) -> Callable[..., None]:
    def add(params, path, t, tables, weight, sums):
        index, scale = rule(params, path, t, tables)
        for i in range(len(sums.total)):
            sums.total[i] += weight * scale * tables.rows[index, i]

    return add


def _dense(rule: Callable[..., Any]) -> Callable[..., None]:
    def add(params, path, t, tables, weight, sums):
        rule(params, path, t, tables, sums.increment)
        for i in range(len(sums.total)):
            sums.total[i] += weight * sums.increment[i]

    return add


_FORMS = {"cell": _cell, "row": _row, "dense": _dense}
