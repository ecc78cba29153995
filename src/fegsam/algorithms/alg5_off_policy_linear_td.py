"""Algorithm 5: federated n-step TD, off-policy, with linear features (Section 7, Theorem 7.1).

Agent i follows its own private policy pi^i and corrects for it with the importance ratios rho(s, a)
= pi(a|s) / pi^i(a|s). At step t it updates

    v += alpha * phi(S_t) * E,    E = rho_t (e_t + gamma rho_{t+1} (e_{t+1} + ... )),
    e_l = R(S_l, A_l) + gamma phi(S_{l+1})'v - phi(S_l)'v.

The agents' own fixed points differ: this is the heterogeneous algorithm. The average converges to
the solution of the projected n-step equation under the *mixture* of the agents' stationary
distributions, sum_i Phi' D_i (T^n Phi v - Phi v) = 0. The paper states another equation, the
average of the agents' projections. The preconditioned variant solves that one: agent i multiplies
its increment by its own matrix (Phi' D_i Phi)^-1, which never leaves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fegsam.algorithms.on_data import OnData, feature_map
from fegsam.algorithms.reading import discount, is_gap, ratio, reward
from fegsam.algorithms.rule import Path
from fegsam.algorithms.structure import TemporalDifference
from fegsam.algorithms.td import (
    behavior_policies,
    check_off_policy,
    discount_table,
    features,
    importance_ratios,
    linear_value,
    require_federation,
    stacked_rewards,
    target_policy,
)
from fegsam.data.federation import DataFederation
from fegsam.errors import ProblemError
from fegsam.problem.chains import stationary_laws
from fegsam.problem.checks import flag, integer, solve
from fegsam.problem.federation import Federation, Problem


class OffPolicyLinearTables(NamedTuple):
    rows: np.ndarray
    """(S, d) features, or (M * S, d): each kind's features times its preconditioner"""
    rows_per_kind: np.uint64
    """S where each kind has its own rows, else 0"""
    features: np.ndarray
    """(S, d)"""
    rewards: np.ndarray
    """(1 or M, S, A)"""
    ratios: np.ndarray
    """(1 or M, S, A)"""
    discount: np.float64 | np.ndarray
    """one for all transitions, or (1 or M, 1 or S, 1 or A, 1 or S)"""
    horizon: np.uint64
    last: np.uint64
    """horizon - 1"""


def off_policy_linear_td_rule(
    params: np.ndarray, path: Path, t: Any, tables: OffPolicyLinearTables
) -> tuple[Any, Any]:
    """The importance-weighted n-step temporal difference of the window's first state."""
    error = 0.0
    ahead = linear_value(params, tables.features, path.states[t + tables.horizon])
    for k in range(tables.horizon):
        step = t + tables.last - k
        here = linear_value(params, tables.features, path.states[step])
        gamma = discount(path, tables, step)
        td_error = reward(path, tables, step) + gamma * ahead - here
        error = ratio(path, tables, step) * (td_error + gamma * error)
        if is_gap(path, step):
            error = 0.0
        ahead = here
    return path.kind * tables.rows_per_kind + path.states[t], error


@dataclass(frozen=True)
class OffPolicyLinearTD:
    """Federated off-policy n-step TD with linear features.

    Parameters
    ----------
    horizon : int
        The look-ahead n.
    preconditioned : bool
        Multiply agent i's increment by (Phi' D_i Phi)^-1, so that the fixed point is the paper's:
        the solution of the average of the agents' projected equations.

    Examples
    --------
    >>> import fegsam as fg
    >>> mdp = fg.examples.garnet(10, 3, 4, discount=0.8, seed=0)
    >>> fed = fg.Federation(
    ...     mdp,
    ...     fg.policies.random(10, 3, count=4, seed=1),
    ...     num_agents=8,
    ...     target_policy=fg.policies.uniform(10, 3),
    ...     features=[[1.0, s / 10] for s in range(10)],
    ... )
    >>> history = fg.run(
    ...     fed, fg.OffPolicyLinearTD(horizon=2), step_size=0.05, sync_period=10, num_steps=5000
    ... )
    >>> bool(history.data.squared_error[0, -1] < 0.1)
    True
    """

    horizon: int = 1
    preconditioned: bool = False

    form = "row"
    norm = "2"
    theorem = "fed_TD_off_lin"
    reads_discounts = True

    def __post_init__(self) -> None:
        integer(self.horizon, "horizon")
        flag(self.preconditioned, "preconditioned")

    @property
    def rule(self) -> Callable[..., Any]:
        return off_policy_linear_td_rule

    @property
    def window(self) -> int:
        return self.horizon

    def check(self, problem: Problem) -> None:
        features(problem, self)
        check_off_policy(problem, self)

    def dimension(self, problem: Problem) -> int:
        return features(problem, self).shape[1]

    def policies(self, problem: Problem) -> np.ndarray:
        return behavior_policies(require_federation(problem, self))

    def tables(self, problem: Problem) -> OffPolicyLinearTables:
        federation, phi = require_federation(problem, self), features(problem, self)
        own = self._own_rows(federation)
        rows = phi if own is None else own.reshape(-1, phi.shape[1])
        return OffPolicyLinearTables(
            np.ascontiguousarray(rows),
            np.uint64(0 if own is None else len(phi)),
            phi,
            stacked_rewards(federation),
            importance_ratios(federation, self),
            discount_table(federation),
            np.uint64(self.horizon),
            np.uint64(self.horizon - 1),
        )

    def on_data(self, data: DataFederation) -> OnData:
        """How the rule runs on recorded data."""
        made, nothing = feature_map(self, data), np.zeros((1, 0, 0))
        if self.preconditioned:
            raise ProblemError(
                "The preconditioner needs the agents' stationary distributions, which recorded "
                "data does not have; use OffPolicyLinearTD() without it."
            )

        def tables(rows: np.ndarray, actions: np.ndarray) -> OffPolicyLinearTables:
            return OffPolicyLinearTables(
                rows,
                np.uint64(0),
                rows,
                nothing,
                nothing,
                np.float64(data.discount),
                np.uint64(self.horizon),
                np.uint64(self.horizon - 1),
            )

        return OnData(made.dimension, tables, made, weighted=True)

    def structure(self, problem: Problem) -> TemporalDifference:
        federation = require_federation(problem, self)
        return TemporalDifference(
            self.horizon,
            target_policy(problem, self),
            features(problem, self),
            importance_ratios(federation, self),
            self._own_rows(federation),
            is_preconditioned=self.preconditioned,
        )

    def _own_rows(self, problem: Federation) -> np.ndarray | None:
        """(M, S, d): each kind's features times its preconditioner."""
        if not self.preconditioned:
            return None
        phi = features(problem, self)
        return np.stack(
            [
                solve(phi.T @ (stationary[:, None] * phi), phi.T, "the weighted features").T
                for stationary in stationary_laws(problem, self.policies(problem))
            ]
        )
