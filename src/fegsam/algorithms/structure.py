"""The structure of an algorithm: the equation that its steps solve, with the arrays in it.

Fixed points, exact moments, the theorems' constants, the planner, TOML studies and the shares of a
federation look at this value and never at an algorithm's class. So a new algorithm in its own file
gets everything from the package that its structure allows.

====================  ==============================================================================
structure             the increment of an agent's parameters
====================  ==============================================================================
`TemporalDifference`  n-step evaluation of a policy, tabular or with linear features, with or
                      without importance ratios (Algorithms 2, 3 and 5)
`Control`             ``R + gamma max_a Q(S', a) - Q(S, A)`` in cell (S, A) (Algorithm 4)
`LinearOperator`      ``A(y) theta + b(y)`` on Markov noise (Algorithm 1)
`Opaque`              known only through the rule (Algorithm 1 with a user's function)
====================  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.problem.federation import Problem


@dataclass(frozen=True, eq=False)
class TemporalDifference:
    """n-step temporal differences of the target policy, with the MDP's rewards and discount.

    An agent of kind k in state S_t with the window S_t, A_t, ..., S_{t+n} adds

        row_k(S_t) * sum_{l=0}^{n-1} gamma^l [prod_{j<=l} ratio_k(S_{t+j}, A_{t+j})] e_{t+l},
        e_l = R(S_l, A_l) + gamma v(S_{l+1}) - v(S_l),    v(s) = features[s] @ params.
    """

    horizon: int
    """n"""
    target_policy: np.ndarray
    """(S, A): the policy that is evaluated"""
    features: np.ndarray | None = None
    """(S, d); None for a table, whose features and rows are the unit vectors"""
    ratios: np.ndarray | None = None
    """(1 or M, S, A): importance ratios; None where the agents follow the target policy itself"""
    rows: np.ndarray | None = None
    """(1 or M, S, d): the direction of a step from each state, where it is not the features"""

    @property
    def is_tabular(self) -> bool:
        return self.features is None

    @property
    def is_on_policy(self) -> bool:
        return self.ratios is None

    @property
    def is_preconditioned(self) -> bool:
        """Whether each kind's rows are ``(Phi' D_k Phi)^-1 phi(s)``."""
        return self.rows is not None


@dataclass(frozen=True)
class Control:
    """Q-learning on the flat table of action values; (s, a) is cell ``s * num_actions + a``."""


@dataclass(frozen=True, eq=False)
class LinearOperator:
    """The increment in state y of the noise is ``matrices[k, y] @ params + offsets[k, y]``."""

    matrices: np.ndarray
    """(1 or M, Y, d, d)"""
    offsets: np.ndarray
    """(1 or M, Y, d)"""


@dataclass(frozen=True)
class Opaque:
    """Only the rule is known, and the constants that its author states."""

    assumptions: Mapping[str, float] = field(default_factory=dict)
    """constants of the theorem: some of gamma_c, A_1, A_2, B, m_1, m_2, m_3, m_4 and rho"""


Structure = TemporalDifference | Control | LinearOperator | Opaque


@runtime_checkable
class Structured(Algorithm, Protocol):
    """An algorithm with a known structure."""

    def structure(self, problem: Problem) -> Structure:
        """The structure on a `problem` that the algorithm has checked."""
        ...


def structure_of(algorithm: Algorithm, problem: Problem) -> Structure:
    """The structure of `algorithm` on a `problem` that it has checked; `Opaque` if it has none.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> structure_of(fg.QLearning(), fed)
    Control()
    """
    return algorithm.structure(problem) if isinstance(algorithm, Structured) else Opaque()
