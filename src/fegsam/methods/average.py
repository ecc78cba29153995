"""How the server forms one change from those of the agents: weights, or visits cell by cell."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import finite_array

_SUM_TOLERANCE = 1e-8
_SHOWN = 16
"""Weights that are written out, at most."""


@dataclass(frozen=True)
class Mean:
    """The weighted mean of the agents' changes; without weights the plain mean, as in the paper.

    The fixed point is then the root of the weighted sum of the agents' mean operators, and the sum
    of the squared weights takes the place of 1/N in the variance.

    Parameters
    ----------
    weights : sequence of float, optional
        Positive numbers that sum to one: one for each agent, or one for each kind, which the
        agents of the kind share equally.

    Examples
    --------
    >>> import numpy as np
    >>> Mean((0.25, 0.75)).of_agents(np.array([0, 1, 1]), 2)
    array([0.25 , 0.375, 0.375])
    """

    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.weights is None:
            return
        weights = finite_array(self.weights, "weights", "(N,) or (M,)")
        if weights.ndim != 1 or not weights.size:
            raise ProblemError(
                f"weights is {shown(self.weights)}, but must be a list of numbers; give one for "
                "each agent or each kind, or leave out weights to count all agents equally."
            )
        if not (weights > 0).all():
            first = int((weights <= 0).argmax())
            raise ProblemError(
                f"weights[{first}] is {weights[first]:g}, but must be positive; leave out the "
                "agents that should not count."
            )
        if abs(weights.sum() - 1.0) > _SUM_TOLERANCE:
            raise ProblemError(
                f"weights sum to {weights.sum():.12g}, but must sum to one; divide each by the sum."
            )
        object.__setattr__(self, "weights", tuple(weights.tolist()))

    def __repr__(self) -> str:
        if self.weights is None or len(self.weights) <= _SHOWN:
            return f"Mean(weights={self.weights})"
        digest = hashlib.sha256(np.array(self.weights).tobytes()).hexdigest()[:16]
        return f"Mean(weights={len(self.weights)} numbers, sha256 {digest})"

    def of_agents(self, kinds: np.ndarray, num_kinds: int) -> np.ndarray:
        """(N,): the weight of each agent, given the agents' kinds (N,)."""
        agents = len(kinds)
        if self.weights is None:
            return np.full(agents, 1.0 / agents)
        weights = np.array(self.weights)
        if len(weights) == agents:
            return weights / weights.sum()
        if len(weights) != num_kinds:
            raise ProblemError(
                f"There are {len(weights)} weights, but {agents} agents of {num_kinds} kinds; give "
                "one weight for each agent, or one for each kind."
            )
        counts = np.bincount(kinds, minlength=num_kinds)
        if (counts == 0).any():
            raise ProblemError(
                f"No agent is of kind {int(counts.argmin())}, so the weight of that kind cannot be "
                "given to anyone; give one weight for each agent."
            )
        return (weights / weights.sum() / counts)[kinds]


@dataclass(frozen=True)
class ByVisits:
    """Importance averaging (Woo, Joshi and Chi): an agent counts for a cell as often as it came.

    For cell rules. The weight of an agent at a cell that it visited at the times t_1, ..., t_n of
    the round is proportional to the product of ``1 / (1 - alpha_t)`` over these times, so a cell's
    new value is the weighted mean of its old value and of all targets. Every step size must be
    below one.

    Examples
    --------
    One of two agents visited the cell three times, with a step size of a half:

    >>> import numpy as np
    >>> logs = np.array([[3 * np.log(2.0)], [0.0]])
    >>> ByVisits.combined(np.array([[0.9], [0.0]]), logs)
    array([0.8])
    """

    @staticmethod
    def combined(changes: np.ndarray, log_weights: np.ndarray) -> np.ndarray:
        """(d,): the mean of `changes` (m, d) with weights proportional to exp(log_weights)."""
        # Relative to the largest weight of each cell: the weights themselves would overflow.
        weights = np.exp(log_weights - log_weights.max(axis=0))
        return (weights * changes).sum(axis=0) / weights.sum(axis=0)


Average = Mean | ByVisits


def check_average(average: Any) -> None:
    if not isinstance(average, Mean | ByVisits):
        raise ProblemError(
            f"average is {average!r}; give fegsam.Mean(weights) or fegsam.ByVisits()."
        )
