"""Mean field of Algorithm 1 with the user's own rule: iterated, since all that is known of it is
that it contracts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numba import njit
from numba.core.errors import NumbaError

from fegsam.algorithms.alg1_stochastic_approximation import StochasticApproximation
from fegsam.errors import ProblemError

CERTIFIED_ERROR = 1e-10
ROUNDING = 8 * float(np.finfo(float).eps)
"""The certificate is relative to max(1, ||theta||), and no smaller than what a mean increment of
this size gives."""
MAX_ITERATIONS = 100_000
COMPILE_FROM = 1000
"""With fewer states over all kinds, plain Python has the answer before Numba has compiled the
rule."""
OBSERVED_RATIOS = 10
"""How many of the last ratios of successive residuals the contraction is estimated from, where it
is not given."""


def given_contraction(algorithm: StochasticApproximation) -> float | None:
    """The user's gamma_c, None if it was not given."""
    contraction = (algorithm.assumptions or {}).get("gamma_c")
    if contraction is not None and not 0.0 <= contraction < 1.0:
        raise ProblemError(
            f'assumptions["gamma_c"] is {contraction!r}, but a contraction lies in [0, 1); give '
            "such a number."
        )
    return contraction


@dataclass(frozen=True, eq=False)
class RuleField:
    """Kind k has ``Gbar_k(theta) - theta + bbar_k``, the mean of the user's rule under the kind's
    stationary law.

    Adding it to theta is one step of Banach's iteration for Gbar + bbar, the paper's Assumption
    3.2.
    """

    mean: Callable[..., None]
    """``mean(params, visits, out, total)`` adds up the rule over kinds and states, see `mean_of`"""
    laws: np.ndarray
    """(M, Y)"""
    dim: int
    norm_order: float
    """2 or inf"""
    contraction: float | None
    """gamma_c, if the user gave it"""

    def __len__(self) -> int:
        return len(self.laws)

    def root(self, weights: np.ndarray) -> np.ndarray:
        """(d,): where the fields, weighted by `weights` (M,), add up to zero."""
        visits = weights[:, None] * self.laws
        params, increment, out = np.zeros(self.dim), np.empty(self.dim), np.empty(self.dim)
        residuals: list[float] = []
        with np.errstate(over="ignore", invalid="ignore"):
            while len(residuals) < MAX_ITERATIONS:
                self.mean(params, visits, out, increment)
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
            "mean increment still "
            f"has norm {residuals[-1]:.3g}; check that the rule contracts, or pass run(..., "
            "fixed_point=...)."
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


def mean_of(rule: Callable[..., None], dim: int, visits: np.ndarray) -> Callable[..., None]:
    """The loop that adds up `rule` over kinds and states, weighted by `visits` (M, Y); compiled if
    it is long."""
    if visits.size < COMPILE_FROM:
        return _loop(rule)
    compiled = njit(_loop(njit(rule)))
    try:
        compiled(np.zeros(dim), visits, np.empty(dim), np.empty(dim))
    except NumbaError:
        return _loop(rule)
    return compiled


def _loop(rule: Callable[..., None]) -> Callable[..., None]:
    def mean(params: np.ndarray, visits: np.ndarray, out: np.ndarray, total: np.ndarray) -> None:
        total[:] = 0.0
        for kind in range(visits.shape[0]):
            for y in range(visits.shape[1]):
                if visits[kind, y] > 0.0:
                    rule(params, y, kind, out)
                    for i in range(total.shape[0]):
                        total[i] += visits[kind, y] * out[i]

    return mean
