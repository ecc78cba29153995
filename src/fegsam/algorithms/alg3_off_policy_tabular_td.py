"""Algorithm 3: federated n-step TD, off-policy, tabular (Section 6.1, Theorem 6.1).

Agent i follows its own private policy pi^i and corrects for it with the importance ratios rho(s, a)
= pi(a|s) / pi^i(a|s). At step t it sees S_t, A_t, ..., S_{t+n} and updates one cell,

    V(S_t) += alpha * sum_{l=t}^{t+n-1} gamma^{l-t} [prod_{j=t}^{l} rho(S_j, A_j)] e_l,
    e_l = R(S_l, A_l) + gamma V(S_{l+1}) - V(S_l),

where the product includes the ratio of step l itself. Summed from the window's end (Horner) this is
rho_t (e_t + gamma rho_{t+1} (e_{t+1} + ...)). If all agents share one MDP, the fixed point is V^pi
for every agent and every n. The theorem's norm is the sup norm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fegsam.algorithms.on_data import OnData, state_count
from fegsam.algorithms.reading import discount, is_gap, ratio, reward
from fegsam.algorithms.rule import Path
from fegsam.algorithms.structure import TemporalDifference
from fegsam.algorithms.td import (
    behavior_policies,
    check_off_policy,
    discount_table,
    importance_ratios,
    require_federation,
    stacked_rewards,
    target_policy,
)
from fegsam.data.federation import DataFederation
from fegsam.problem.checks import integer
from fegsam.problem.federation import Problem


class OffPolicyTables(NamedTuple):
    rewards: np.ndarray
    """(1 or M, S, A)"""
    ratios: np.ndarray
    """(1 or M, S, A)"""
    discount: np.float64 | np.ndarray
    """one for all transitions, or (1 or M, 1 or S, 1 or A, 1 or S)"""
    horizon: np.uint64
    last: np.uint64
    """horizon - 1"""


def off_policy_tabular_td_rule(
    params: np.ndarray, path: Path, t: Any, tables: OffPolicyTables
) -> tuple[Any, Any]:
    """The importance-weighted n-step temporal difference of the window's first state."""
    error = 0.0
    ahead = params[path.states[t + tables.horizon]]
    for k in range(tables.horizon):
        step = t + tables.last - k
        here, gamma = params[path.states[step]], discount(path, tables, step)
        td_error = reward(path, tables, step) + gamma * ahead - here
        error = ratio(path, tables, step) * (td_error + gamma * error)
        if is_gap(path, step):
            error = 0.0
        ahead = here
    return path.states[t], error


@dataclass(frozen=True)
class OffPolicyTabularTD:
    """Federated off-policy n-step TD on a table of state values.

    All agents evaluate one target policy, each from its own behaviour policy.

    Parameters
    ----------
    horizon : int
        The look-ahead n.

    Examples
    --------
    >>> import fegsam as fg
    >>> mdp = fg.examples.garnet(10, 3, 4, discount=0.8, seed=0)
    >>> private = fg.policies.random(10, 3, count=4, seed=1)
    >>> fed = fg.Federation(mdp, private, num_agents=8, target_policy=fg.policies.uniform(10, 3))
    >>> history = fg.run(
    ...     fed, fg.OffPolicyTabularTD(horizon=2), step_size=0.05, sync_period=10, num_steps=5000
    ... )
    >>> bool(history.data.squared_error[0, -1] < 0.1)
    True
    """

    horizon: int = 1

    form = "cell"
    norm = "sup"
    theorem = "fed_TD_off"
    reads_discounts = True

    def __post_init__(self) -> None:
        integer(self.horizon, "horizon")

    @property
    def rule(self) -> Callable[..., Any]:
        return off_policy_tabular_td_rule

    @property
    def window(self) -> int:
        return self.horizon

    def check(self, problem: Problem) -> None:
        check_off_policy(problem, self)

    def dimension(self, problem: Problem) -> int:
        return problem.num_states

    def policies(self, problem: Problem) -> np.ndarray:
        return behavior_policies(require_federation(problem, self))

    def tables(self, problem: Problem) -> OffPolicyTables:
        federation = require_federation(problem, self)
        return OffPolicyTables(
            stacked_rewards(federation),
            importance_ratios(federation, self),
            discount_table(federation),
            np.uint64(self.horizon),
            np.uint64(self.horizon - 1),
        )

    def on_data(self, data: DataFederation) -> OnData:
        """How the rule runs on recorded data."""
        nothing = np.zeros((1, 0, 0))
        horizon, last = np.uint64(self.horizon), np.uint64(self.horizon - 1)
        tables = OffPolicyTables(nothing, nothing, np.float64(data.discount), horizon, last)
        return OnData(state_count(self, data), lambda rows, actions: tables, weighted=True)

    def structure(self, problem: Problem) -> TemporalDifference:
        ratios = importance_ratios(require_federation(problem, self), self)
        return TemporalDifference(self.horizon, target_policy(problem, self), ratios=ratios)
