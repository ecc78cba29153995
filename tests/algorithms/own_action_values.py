"""An algorithm that the package does not have and whose structure is not said: n-step evaluation of
the action values of the policy that the agents follow,

    Q(S_t, A_t) += alpha * (sum_{k<n} gamma^k R_{t+k} + gamma^n sum_a pi(a|S_{t+n}) Q(S_{t+n}, a)
                            - Q(S_t, A_t)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.algorithms.td import require_federation, stacked_rewards, target_policy
from fegsam.errors import ProblemError
from fegsam.problem.checks import integer
from fegsam.problem.federation import Problem


class ActionTables(NamedTuple):
    rewards: np.ndarray
    policy: np.ndarray
    discount: np.float64
    horizon: np.uint64
    last: np.uint64
    num_actions: np.uint64


def action_values_rule(
    params: np.ndarray, path: Path, t: Any, tables: ActionTables
) -> tuple[Any, Any]:
    end, target = path.states[t + tables.horizon], 0.0
    for a in range(tables.num_actions):
        target += tables.policy[end, a] * params[end * tables.num_actions + a]
    for k in range(tables.horizon):
        step = t + tables.last - k
        reward = tables.rewards[path.mdp, path.states[step], path.actions[step]]
        target = reward + tables.discount * target
    cell = path.states[t] * tables.num_actions + path.actions[t]
    return cell, target - params[cell]


@dataclass(frozen=True)
class ActionValues:
    horizon: int = 1

    form = "cell"
    norm = "sup"

    def __post_init__(self) -> None:
        integer(self.horizon, "horizon")

    @property
    def rule(self) -> Any:
        return action_values_rule

    @property
    def window(self) -> int:
        return self.horizon

    def check(self, problem: Problem) -> None:
        if not (target_policy(problem, self) > 0).all():
            raise ProblemError(
                "ActionValues needs a target policy that takes every action; give such a one."
            )

    def dimension(self, problem: Problem) -> int:
        return target_policy(problem, self).size

    def policies(self, problem: Problem) -> np.ndarray:
        return target_policy(problem, self)[None]

    def tables(self, problem: Problem) -> ActionTables:
        federation = require_federation(problem, self)
        return ActionTables(
            stacked_rewards(federation),
            target_policy(problem, self),
            np.float64(federation.discount),
            np.uint64(self.horizon),
            np.uint64(self.horizon - 1),
            np.uint64(federation.num_actions),
        )
