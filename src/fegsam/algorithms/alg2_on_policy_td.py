"""Algorithm 2: federated n-step TD, on-policy, with linear features (Section 5, Theorem 5.1).

Every agent follows the target policy pi. At step t it sees S_t, A_t, ..., S_{t+n} and updates

    v += alpha * phi(S_t) * E,
    E = sum_{l=t}^{t+n-1} gamma^{l-t} (R(S_l, A_l) + gamma phi(S_{l+1})'v - phi(S_l)'v).

All terms use the same v, so the sum telescopes:

    E = sum_{k<n} gamma^k R(S_{t+k}, A_{t+k}) + gamma^n phi(S_{t+n})'v - phi(S_t)'v.

The fixed point solves Phi' D (r_n - (I - gamma^n P^n) Phi v) = 0 and depends on n. The theorem's
norm is the 2-norm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fegsam.algorithms.on_data import OnData, feature_map
from fegsam.algorithms.reading import discount, is_gap, reward
from fegsam.algorithms.rule import Path
from fegsam.algorithms.structure import TemporalDifference
from fegsam.algorithms.td import (
    discount_table,
    features,
    linear_value,
    require_federation,
    stacked_rewards,
    target_policy,
)
from fegsam.data.federation import DataFederation
from fegsam.problem.checks import integer
from fegsam.problem.federation import Problem


class OnPolicyTables(NamedTuple):
    rows: np.ndarray
    """(S, d), the features"""
    rewards: np.ndarray
    """(1 or M, S, A)"""
    discount: np.float64 | np.ndarray
    """one for all transitions, or (1 or M, 1 or S, 1 or A, 1 or S)"""
    horizon: np.uint64
    last: np.uint64
    """horizon - 1"""


def on_policy_td_rule(
    params: np.ndarray, path: Path, t: Any, tables: OnPolicyTables
) -> tuple[Any, Any]:
    """The n-step temporal difference of the window's first state, summed from its end (Horner)."""
    target = linear_value(params, tables.rows, path.states[t + tables.horizon])
    for k in range(tables.horizon):
        step = t + tables.last - k
        target = reward(path, tables, step) + discount(path, tables, step) * target
        if is_gap(path, step):
            target = linear_value(params, tables.rows, path.states[step])
    s = path.states[t]
    return s, target - linear_value(params, tables.rows, s)


@dataclass(frozen=True)
class OnPolicyTD:
    """Federated on-policy n-step TD with linear features.

    All agents evaluate the policy that they follow, the federation's `target_policy`. Its behaviour
    policies, if it has any, are for the off-policy algorithms.

    Parameters
    ----------
    horizon : int
        The look-ahead n.

    Examples
    --------
    >>> import fegsam as fg
    >>> mdp = fg.examples.garnet(10, 3, 4, discount=0.8, seed=0)
    >>> features = [[1.0, s / 10] for s in range(10)]
    >>> fed = fg.Federation(
    ...     mdp, num_agents=8, target_policy=fg.policies.uniform(10, 3), features=features
    ... )
    >>> history = fg.run(
    ...     fed, fg.OnPolicyTD(horizon=2), step_size=0.05, sync_period=10, num_steps=5000
    ... )
    >>> bool(history.data.squared_error[0, -1] < 0.1)
    True
    """

    horizon: int = 1

    form = "row"
    norm = "2"
    theorem = "fed_TD_on"
    reads_discounts = True

    def __post_init__(self) -> None:
        integer(self.horizon, "horizon")

    @property
    def rule(self) -> Callable[..., Any]:
        return on_policy_td_rule

    @property
    def window(self) -> int:
        return self.horizon

    def check(self, problem: Problem) -> None:
        target_policy(problem, self)
        features(problem, self)

    def dimension(self, problem: Problem) -> int:
        return features(problem, self).shape[1]

    def policies(self, problem: Problem) -> np.ndarray:
        return target_policy(problem, self)[None]

    def tables(self, problem: Problem) -> OnPolicyTables:
        federation = require_federation(problem, self)
        return OnPolicyTables(
            features(problem, self),
            stacked_rewards(federation),
            discount_table(federation),
            np.uint64(self.horizon),
            np.uint64(self.horizon - 1),
        )

    def on_data(self, data: DataFederation) -> OnData:
        """How the rule runs on recorded data."""
        made = feature_map(self, data)

        def tables(rows: np.ndarray, actions: np.ndarray) -> OnPolicyTables:
            horizon, last = np.uint64(self.horizon), np.uint64(self.horizon - 1)
            return OnPolicyTables(
                rows, np.zeros((1, 0, 0)), np.float64(data.discount), horizon, last
            )

        return OnData(made.dimension, tables, made)

    def structure(self, problem: Problem) -> TemporalDifference:
        return TemporalDifference(
            self.horizon, target_policy(problem, self), features(problem, self)
        )
