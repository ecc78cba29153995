"""An algorithm that the package does not have: off-policy n-step TD with linear features, whose
steps are divided by the squared length of the features,

    v += alpha * phi(S_t) / (offset + |phi(S_t)|^2) * E,

E the n-step temporal difference with importance ratios, as in the package's Algorithm 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.algorithms.structure import TemporalDifference
from fegsam.algorithms.td import (
    behavior_policies,
    check_off_policy,
    features,
    importance_ratios,
    linear_value,
    require_federation,
    stacked_rewards,
    target_policy,
)
from fegsam.problem.checks import integer, positive
from fegsam.problem.federation import Problem


class NormalizedTables(NamedTuple):
    rows: np.ndarray
    features: np.ndarray
    rewards: np.ndarray
    ratios: np.ndarray
    discount: np.float64
    horizon: np.uint64
    last: np.uint64


def normalized_td_rule(
    params: np.ndarray, path: Path, t: Any, tables: NormalizedTables
) -> tuple[Any, Any]:
    error = 0.0
    ahead = linear_value(params, tables.features, path.states[t + tables.horizon])
    for k in range(tables.horizon):
        step = t + tables.last - k
        s, a = path.states[step], path.actions[step]
        here = linear_value(params, tables.features, s)
        td_error = tables.rewards[path.mdp, s, a] + tables.discount * ahead - here
        error = tables.ratios[path.policy, s, a] * (td_error + tables.discount * error)
        ahead = here
    return path.states[t], error


@dataclass(frozen=True)
class NormalizedTD:
    horizon: int = 1
    offset: float = 0.1

    form = "row"
    norm = "2"

    def __post_init__(self) -> None:
        integer(self.horizon, "horizon")
        positive(self.offset, "offset")

    @property
    def rule(self) -> Any:
        return normalized_td_rule

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

    def rows(self, problem: Problem) -> np.ndarray:
        phi = features(problem, self)
        return phi / (self.offset + (phi**2).sum(axis=1, keepdims=True))

    def tables(self, problem: Problem) -> NormalizedTables:
        federation = require_federation(problem, self)
        return NormalizedTables(
            self.rows(problem),
            features(problem, self),
            stacked_rewards(federation),
            importance_ratios(federation, self),
            np.float64(federation.discount),
            np.uint64(self.horizon),
            np.uint64(self.horizon - 1),
        )

    def structure(self, problem: Problem) -> TemporalDifference:
        return TemporalDifference(
            self.horizon,
            target_policy(problem, self),
            features=features(problem, self),
            ratios=importance_ratios(require_federation(problem, self), self),
            rows=self.rows(problem)[None],
        )
