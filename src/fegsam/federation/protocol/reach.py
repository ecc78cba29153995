"""How far an agent's parameters can move in a round at all: a larger change is a lie.

One step adds ``alpha_k G(theta_k, y)`` with ``||G(theta, y)|| <= slope ||theta|| + offset`` for all
y, in the sup norm of a table and the 2-norm of linear parameters.

- Temporal differences: the rewards of a window weigh at most ``W = sum_{l<n} gamma^l rho^(l+1)``
  with the largest ratio rho, so ``offset = D W R`` with ``D = max ||row(s)||`` and the largest
  reward R. The value of ``S_{t+l}`` has the factor ``-rho_0`` for l = 0, ``gamma^n rho_0 ...
  rho_{n-1}`` for l = n, and else ``gamma^l rho_0 ... rho_{l-1} (1 - rho_l)``. With the largest
  ``m = |1 - rho|`` and ``F = max ||phi(s)||`` (D and F are 1 for a table),
  ``slope = D F (rho + gamma^n rho^n + m sum_{0<l<n} gamma^l rho^l)``.
- Q-learning: ``slope = 1 + gamma``, ``offset = R``.
- Operators: the largest norms of the matrices and of the offsets (of TDC: on any transition).

Let ``u_k = slope ||theta_k|| + offset``. Then ``u_{k+1} <= (1 + slope alpha_k) u_k``, and the
change of a round is at most ``sum_k alpha_k u_k <= u_0 (prod_k (1 + slope alpha_k) - 1) / slope``.
This grows exponentially with K. Where ``||theta_k|| <= M`` in the whole round, the change is also
at most ``min(||theta_0|| + M, (slope M + offset) sum_k alpha_k)``. Such an M is known in two cases.

**Tables.** A step with ``alpha rho <= 1`` replaces a value by a mean of itself and a target, which
is at most ``R sum_{l<n} gamma^l rho^l + kappa sup |v|``, where ``kappa = gamma^n rho^(n-1) + m
sum_{0<l<n} gamma^l rho^(l-1)`` (Q-learning: n = 1, rho = 1). If kappa < 1, then ``M =
max(||theta_0||, R sum_{l<n} gamma^l rho^l / (1 - kappa))``; on policy this is ``R / (1 - gamma)``.

**Linear parameters, on policy, on a path.** The error of step k is ``e_k = g_k + b_k y_k - x_k``
with ``x_k = phi(S_k)' theta_k``, ``y_k = phi(S_{k+n})' theta_k``, ``|b_k| <= beta = gamma^n`` and
``|g_k| <= G = R sum_{l<n} gamma^l``, and

    ||theta_{k+1}||^2 - ||theta_k||^2 = alpha_k ((g_k + b_k y_k)^2 - x_k^2)
                                        - alpha_k (1 - alpha_k ||phi(S_k)||^2) e_k^2.

Let ``a = F^2 max alpha``. Since ``y_k = x_{k+n} - z_k`` with ``z_k^2 <= n F^4 sum alpha_i^2 e_i^2``
over the n steps from k on, ``(g_k + b_k y_k)^2 <= g_k^2 / w + x_{k+n}^2 + beta^2 z_k^2 / w'`` for
all positive ``w + w' = 1 - beta^2``. With ``w' = (n beta a)^2 / (1 - a)``, the terms of z cancel
against those of e, and the x telescope but for n of them, each at most F M: with
``v = n max alpha + sum_k max(0, alpha_{k-n} - alpha_k)``,

    M^2 (1 - F^2 v) <= ||theta_0||^2 + G^2 sum_k alpha_k / w,    if a < 1, w > 0 and F^2 v < 1.

So the change grows with the square root of K at most. Off policy there is no such M: linear
temporal differences can diverge there, and so can independent draws of windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.algorithms.structure import (
    Control,
    LinearOperator,
    TemporalDifference,
    TransitionOperator,
    structure_of,
)
from fegsam.engines.job import Sampling
from fegsam.exact.transitions import kind_transitions
from fegsam.methods.method import Method
from fegsam.methods.rounding import Rounding
from fegsam.problem.federation import Federation, Problem

_SLACK = 1e-9
"""What rounding errors may add, relative to the change and to the parameters."""


@dataclass(frozen=True)
class Reach:
    """What bounds one step of an agent.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> reach = reach_of(fg.QLearning(), fed)
    >>> bool(reach.furthest(np.zeros(4), np.full(5000, 0.1)) <= reach.ceiling * (1 + 1e-6))
    True
    """

    slope: float
    offset: float
    norm: str
    """ "sup" or "2" """
    ceiling: float | None = None
    """what values of a table below it cannot exceed with step sizes up to `largest_step`"""
    largest_step: float = 1.0
    path: tuple[int, float, float] | None = None
    """n, beta and F of linear parameters that are learnt on policy, on a path"""

    def size(self, change: np.ndarray) -> np.ndarray:
        """(m): the norms of rows (m, d)."""
        if self.norm == "sup":
            return np.abs(change).max(axis=-1)
        with np.errstate(over="ignore"):
            return np.linalg.norm(change, axis=-1)

    def furthest(self, start: np.ndarray, step_sizes: np.ndarray) -> float:
        """The largest norm of the change in steps of these sizes from `start` (d)."""
        size, slope, total = float(self.size(start)), self.slope, float(step_sizes.sum())
        with np.errstate(over="ignore"):
            grown = np.expm1(np.log1p(slope * step_sizes).sum())
            change = (slope * size + self.offset) * (grown / slope if slope > 0 else total)
        most = self._most(size, step_sizes)
        change = min(change, size + most, (slope * most + self.offset) * total)
        return float(change) * (1 + _SLACK) + _SLACK * (1 + size)

    def _most(self, size: float, step_sizes: np.ndarray) -> float:
        """The largest norm of the parameters in steps from those of norm `size`, where known."""
        largest = float(step_sizes.max())
        if self.ceiling is not None and largest <= self.largest_step:
            return max(size, self.ceiling)
        if self.path is None:
            return np.inf
        n, beta, longest = self.path
        a = largest * longest**2
        falls = np.maximum(step_sizes[:-n] - step_sizes[n:], 0.0).sum()
        room = 1 - longest**2 * (n * largest + falls)
        if a >= 1 or room <= 0:
            return np.inf
        weight = 1 - beta**2 - (n * beta * a) ** 2 / (1 - a)
        if weight <= 0:
            return np.inf
        reward = self.offset / longest if longest > 0 else 0.0
        return float(np.sqrt((size**2 + reward**2 * step_sizes.sum() / weight) / room))

    def reported(self, change: float, method: Method, factor: float, dimension: int) -> float:
        """The largest norm of what is reported of a change; no bound with control variates."""
        if method.correction is not None:
            return np.inf
        change, rounding = factor * change, method.rounding
        if rounding is None:
            return change
        if isinstance(rounding, Rounding):
            return change + rounding.step * (1.0 if self.norm == "sup" else np.sqrt(dimension))
        return change * dimension / rounding.count


def reach_of(algorithm: Algorithm, problem: Problem, sampling: Sampling = "markov") -> Reach | None:
    """What bounds a step of an algorithm on a problem; None if its structure does not say."""
    structure = structure_of(algorithm, problem)
    if isinstance(structure, LinearOperator):
        slope = np.linalg.norm(structure.matrices, 2, axis=(-2, -1)).max()
        return Reach(float(slope), float(np.linalg.norm(structure.offsets, axis=-1).max()), "2")
    if isinstance(structure, TransitionOperator):
        return _on_transitions(algorithm, problem, structure)
    if not isinstance(structure, Control | TemporalDifference):
        return None
    assert isinstance(problem, Federation)
    reward = max(float(np.abs(mdp.rewards).max()) for mdp in problem.mdps)
    gamma = problem.discount
    if isinstance(structure, Control):
        return Reach(1 + gamma, reward, "sup", reward / (1 - gamma) if gamma < 1 else None)
    return _of_differences(structure, reward, gamma, sampling)


def _of_differences(
    structure: TemporalDifference, reward: float, gamma: float, sampling: Sampling
) -> Reach:
    n, ratios = structure.horizon, structure.ratios
    rho = 1.0 if ratios is None else float(ratios.max())
    other = 0.0 if ratios is None else float(np.abs(1 - ratios).max())
    target = sum((gamma * rho) ** l for l in range(n))
    later = other * sum(gamma**l * rho ** (l - 1) for l in range(1, n))
    kappa = gamma**n * rho ** (n - 1) + later
    slope, offset = rho * (1 + kappa), rho * target * reward
    if structure.is_tabular:
        ceiling = reward * target / (1 - kappa) if kappa < 1 else None
        return Reach(slope, offset, "sup", ceiling, 1 / rho)
    longest = float(np.linalg.norm(structure.linear_features, axis=-1).max())
    across = float(np.linalg.norm(structure.directions, axis=-1).max())
    on_path = structure.is_on_policy and structure.rows is None and sampling == "markov"
    path = (n, gamma**n, longest) if on_path else None
    return Reach(slope * across * longest, offset * across, "2", path=path)


def _on_transitions(algorithm: Algorithm, problem: Problem, structure: TransitionOperator) -> Reach:
    slope = offset = 0.0
    for kind in kind_transitions(problem, algorithm, structure):
        for _, matrices, offsets in kind.pieces():
            # The Frobenius norm is not below the 2-norm, and takes no decomposition.
            slope = max(slope, float(np.linalg.norm(matrices, axis=(-2, -1)).max(initial=0.0)))
            offset = max(offset, float(np.linalg.norm(offsets, axis=-1).max(initial=0.0)))
    return Reach(slope, offset, "2")
