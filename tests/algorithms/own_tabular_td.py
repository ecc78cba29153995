"""An algorithm that the package does not have: n-step TD on a table, whose agents follow the policy
that they evaluate,

    V(S_t) += alpha * (sum_{k<n} gamma^k R(S_{t+k}, A_{t+k}) + gamma^n V(S_{t+n}) - V(S_t)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.algorithms.structure import TemporalDifference
from fegsam.algorithms.td import require_federation, stacked_rewards, target_policy
from fegsam.problem.checks import integer
from fegsam.problem.federation import Problem


class TabularTables(NamedTuple):
    rewards: np.ndarray
    discount: np.float64
    horizon: np.uint64
    last: np.uint64


def tabular_td_rule(
    params: np.ndarray, path: Path, t: Any, tables: TabularTables
) -> tuple[Any, Any]:
    target = params[path.states[t + tables.horizon]]
    for k in range(tables.horizon):
        step = t + tables.last - k
        reward = tables.rewards[path.mdp, path.states[step], path.actions[step]]
        target = reward + tables.discount * target
    s = path.states[t]
    return s, target - params[s]


@dataclass(frozen=True)
class TabularTD:
    horizon: int = 1

    form = "cell"
    norm = "sup"

    def __post_init__(self) -> None:
        integer(self.horizon, "horizon")

    @property
    def rule(self) -> Any:
        return tabular_td_rule

    @property
    def window(self) -> int:
        return self.horizon

    def check(self, problem: Problem) -> None:
        target_policy(problem, self)

    def dimension(self, problem: Problem) -> int:
        return problem.num_states

    def policies(self, problem: Problem) -> np.ndarray:
        return target_policy(problem, self)[None]

    def tables(self, problem: Problem) -> TabularTables:
        federation = require_federation(problem, self)
        return TabularTables(
            stacked_rewards(federation),
            np.float64(federation.discount),
            np.uint64(self.horizon),
            np.uint64(self.horizon - 1),
        )

    def structure(self, problem: Problem) -> TemporalDifference:
        return TemporalDifference(self.horizon, target_policy(problem, self))
