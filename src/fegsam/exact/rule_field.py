"""Mean field of an algorithm of which only the rule is known: the rule is run on every window that
an agent can meet, and the parameters are iterated, since all that is known is that they contract.

Algorithm 1 with a function of the user's is the case where a window is one state of the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

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
"""The certificate is relative to max(1, ||theta||), and no smaller than what a mean increment of
this size gives."""
MAX_ITERATIONS = 100_000
COMPILE_FROM = 1000
"""With fewer windows over all kinds, plain Python has the answer before Numba has compiled the
rule."""
OBSERVED_RATIOS = 10
"""How many of the last ratios of successive residuals the contraction is estimated from, where it
is not given."""


def given_contraction(known: Opaque) -> float | None:
    """The stated gamma_c, None if there is none."""
    contraction = known.assumptions.get("gamma_c")
    if contraction is not None and not 0.0 <= contraction < 1.0:
        raise ProblemError(
            f'assumptions["gamma_c"] is {contraction!r}, but a contraction lies in [0, 1); give '
            "such a number."
        )
    return contraction


def rule_field(algorithm: Algorithm, problem: Problem, known: Opaque) -> RuleField:
    """The mean field of `algorithm` on a `problem` that it has checked."""
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
    """Kind k has ``Gbar_k(theta) - theta + bbar_k``, the mean of the rule over the kind's windows.

    Adding it to theta is one step of Banach's iteration for Gbar + bbar, the paper's Assumption
    3.2. A rule that moves one cell hardly moves one that is visited rarely, so there the sum over
    the windows of a cell is divided by their probability: the root is the same.
    """

    mean: Callable[..., None]
    """``mean(params, visits, out, total, seen)``, see `_mean_of`"""
    windows: RuleWindows
    dim: int
    norm_order: float
    """2 or inf"""
    contraction: float | None
    """gamma_c, if it was stated"""
    by_visits: bool
    """Whether the mean increment of a cell is divided by how often the cell is visited"""

    def __len__(self) -> int:
        return len(self.windows.begin) - 1

    def root(self, weights: np.ndarray) -> np.ndarray:
        """(d,): the root of the sum of the fields, weighted by `weights` (M,)."""
        visits = np.repeat(weights, np.diff(self.windows.begin)) * self.windows.probability
        params, increment, out = np.zeros(self.dim), np.empty(self.dim), np.empty(self.dim)
        seen = np.empty(self.dim)
        residuals: list[float] = []
        with np.errstate(over="ignore", invalid="ignore"):
            while len(residuals) < MAX_ITERATIONS:
                self.mean(params, visits, out, increment, seen)
                if self.by_visits:
                    np.divide(increment, seen, out=increment, where=seen > 0)
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
        """The given gamma_c, else the largest of the last ratios of residuals (1 as long as there
        are too few)."""
        if self.contraction is not None:
            return self.contraction
        if len(residuals) <= OBSERVED_RATIOS:
            return 1.0
        last = residuals[-OBSERVED_RATIOS - 1 :]
        return min(1.0, max(after / before for before, after in pairwise(last)))


def _mean_of(
    form: str, rule: Callable[..., Any], windows: RuleWindows, tables: Any, dim: int
) -> Callable[..., None]:
    """``mean(params, visits, out, total, seen)`` adds up `rule` over all windows, weighted by
    `visits` (E,), and the visits of each cell; compiled if the windows are many."""
    where = windows.states, windows.actions, windows.begin, windows.mdps, windows.policies

    def bound(loop: Callable[..., None]) -> Callable[..., None]:
        def mean(params, visits, out, total, seen):
            loop(params, tables, visits, out, total, seen, windows.length, *where)

        return mean

    interpreted = bound(_loop(form, rule, lambda function: function))
    if len(windows) < COMPILE_FROM:
        return interpreted
    try:
        compiled = bound(_loop(form, renewed(rule), njit))
        compiled(np.zeros(dim), np.zeros(len(windows)), *np.empty((3, dim)))
    except NumbaError:
        return interpreted
    return compiled


def _loop(form: str, rule: Callable[..., Any], jit: Callable[..., Any]) -> Callable[..., None]:
    add = jit(_FORMS[form](jit(rule)))

    def mean(
        params, tables, visits, out, total, seen, length, states, actions, begin, mdps, policies
    ):
        total[:] = 0.0
        seen[:] = 0.0
        for kind in range(len(mdps)):
            path = Path(states, actions, np.uint64(kind), mdps[kind], policies[kind])
            for e in range(begin[kind], begin[kind + 1]):
                if visits[e] > 0.0:
                    add(params, path, np.uint64(e * length), tables, visits[e], out, total, seen)

    return jit(mean)


def _cell(rule: Callable[..., Any]) -> Callable[..., None]:
    def add(params, path, t, tables, weight, out, total, seen):
        index, scale = rule(params, path, t, tables)
        total[index] += weight * scale
        seen[index] += weight

    return add


def _row(rule: Callable[..., Any]) -> Callable[..., None]:
    def add(params, path, t, tables, weight, out, total, seen):
        index, scale = rule(params, path, t, tables)
        for i in range(len(total)):
            total[i] += weight * scale * tables.rows[index, i]

    return add


def _dense(rule: Callable[..., Any]) -> Callable[..., None]:
    def add(params, path, t, tables, weight, out, total, seen):
        rule(params, path, t, tables, out)
        for i in range(len(total)):
            total[i] += weight * out[i]

    return add


_FORMS = {"cell": _cell, "row": _row, "dense": _dense}
