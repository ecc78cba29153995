"""How far an agent's parameters can move in a round at all: a larger change is a lie.

One step adds ``alpha_k G(theta_k, y)`` with ``||G(theta, y)|| <= slope ||theta|| + offset`` for all
y, in the sup norm of a table and the 2-norm of linear parameters.

- Temporal differences: each of the n terms is at most ``R + (1 + gamma) sup_s |v(s)|``, weighted by
  ``gamma^l rho^(l+1)`` with the largest ratio rho, and the step has the direction ``row``. With
  ``W = sum_l gamma^l rho^(l+1)``, ``F = max ||phi(s)||`` and ``D = max ||row(s)||`` (1 and 1 for a
  table): ``slope = D W (1 + gamma) F``, ``offset = D W R``.
- Q-learning: ``slope = 1 + gamma``, ``offset = R``.
- Operators: the largest norms of the matrices and of the offsets.

Let ``u_k = slope ||theta_k|| + offset``. Then ``u_{k+1} <= (1 + slope alpha_k) u_k``, and the
change of a round is at most ``sum_k alpha_k u_k <= u_0 (prod_k (1 + slope alpha_k) - 1) / slope``.

A table that is learnt on policy, or by Q-learning, with step sizes up to 1 replaces a value by a
mean of itself and a target of at most ``R (1 - gamma^n) / (1 - gamma) + gamma^n sup |v|``. So no
value ever exceeds ``M = max(||theta_0||, R / (1 - gamma))``, and the change is at most
``min(||theta_0|| + M, (slope M + offset) sum_k alpha_k)``: the bound does not grow with K.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.algorithms.structure import (
    Control,
    LinearOperator,
    TemporalDifference,
    structure_of,
)
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
    """R / (1 - gamma) where no value of a table can exceed it with step sizes up to 1"""

    def size(self, change: np.ndarray) -> np.ndarray:
        """(m): the norms of rows (m, d)."""
        if self.norm == "sup":
            return np.abs(change).max(axis=-1)
        with np.errstate(over="ignore"):
            return np.linalg.norm(change, axis=-1)

    def furthest(self, start: np.ndarray, step_sizes: np.ndarray) -> float:
        """The largest norm of the change in steps of these sizes from `start` (d)."""
        size, slope = float(self.size(start)), self.slope
        if self.ceiling is not None and step_sizes.max() <= 1:
            most = max(size, self.ceiling)
            change = min(size + most, (slope * most + self.offset) * step_sizes.sum())
        else:
            with np.errstate(over="ignore"):
                grown = np.expm1(np.log1p(slope * step_sizes).sum())
                total = grown / slope if slope > 0 else step_sizes.sum()
                change = (slope * size + self.offset) * total
        return float(change) * (1 + _SLACK) + _SLACK * (1 + size)

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


def reach_of(algorithm: Algorithm, problem: Problem) -> Reach | None:
    """What bounds a step of an algorithm on a problem; None if its structure does not say."""
    structure = structure_of(algorithm, problem)
    if isinstance(structure, LinearOperator):
        slope = np.linalg.norm(structure.matrices, 2, axis=(-2, -1)).max()
        return Reach(float(slope), float(np.linalg.norm(structure.offsets, axis=-1).max()), "2")
    if not isinstance(structure, Control | TemporalDifference):
        return None
    assert isinstance(problem, Federation)
    reward = max(float(np.abs(mdp.rewards).max()) for mdp in problem.mdps)
    discount = problem.discount
    ceiling = reward / (1 - discount) if discount < 1 else None
    if isinstance(structure, Control):
        return Reach(1 + discount, reward, "sup", ceiling)
    ratio = 1.0 if structure.ratios is None else float(structure.ratios.max())
    weight = sum(discount**l * ratio ** (l + 1) for l in range(structure.horizon))
    if structure.is_tabular:
        ceiling = ceiling if structure.is_on_policy else None
        return Reach(weight * (1 + discount), weight * reward, "sup", ceiling)
    longest = float(np.linalg.norm(structure.linear_features, axis=-1).max())
    weight *= float(np.linalg.norm(structure.directions, axis=-1).max())
    return Reach(weight * (1 + discount) * longest, weight * reward, "2")
