"""TDC: federated off-policy TD with linear features and a gradient correction.

The algorithm of Sutton et al. (2009), "Fast gradient-descent methods for temporal-difference
learning with linear function approximation", run by agents that average their parameters. An agent
holds the value's weights theta and an estimate w of the projected temporal difference. At step t it
sees S, A ~ pi^i(.|S), S', corrects for its policy with rho = pi(A|S) / pi^i(A|S), and updates

    theta += alpha * (rho e phi(S) - gamma rho phi(S') (phi(S)'w)),
    w     += ratio * alpha * (rho e - phi(S)'w) phi(S),
    e = R(S, A) + gamma phi(S')'theta - phi(S)'theta.

The parameters are (theta, w), flat. With A_i = E[rho phi (phi - gamma phi')'], b_i = E[rho R phi]
and C_i = E[phi phi'], all means over the agents, the mean increments are

    b - A theta - (C - A') w    and    ratio * (b - A theta - C w).

Their root is theta = A^-1 b, the fixed point of `OffPolicyLinearTD` with n = 1, and w = 0.
Off-policy TD diverges where A has an eigenvalue with a negative real part. TDC is stable for every
invertible A, provided that `ratio` is large enough: above the largest eigenvalue of
-C^-1 (A + A') / 2. It is often slow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fegsam.algorithms.on_data import OnData, feature_map
from fegsam.algorithms.reading import discount, ratio, reward
from fegsam.algorithms.rule import ONE, Path
from fegsam.algorithms.structure import TransitionOperator
from fegsam.algorithms.td import (
    behavior_policies,
    check_off_policy,
    discount_table,
    features,
    importance_ratios,
    require_federation,
    stacked_rewards,
    target_policy,
)
from fegsam.data.federation import DataFederation
from fegsam.problem.checks import positive
from fegsam.problem.federation import Problem


class TDCTables(NamedTuple):
    features: np.ndarray
    """(S, d)"""
    rewards: np.ndarray
    """(1 or M, S, A)"""
    ratios: np.ndarray
    """(1 or M, S, A)"""
    discount: np.float64 | np.ndarray
    """one for all transitions, or (1 or M, 1 or S, 1 or A, 1 or S)"""
    ratio: np.float64
    """the step size of w over that of theta"""


def tdc_rule(params: np.ndarray, path: Path, t: Any, tables: TDCTables, out: np.ndarray) -> None:
    """The increments of theta, then those of w."""
    s, s_next = path.states[t], path.states[t + ONE]
    half = tables.features.shape[1]
    here = ahead = estimate = 0.0
    for j in range(half):
        here += tables.features[s, j] * params[j]
        ahead += tables.features[s_next, j] * params[j]
        estimate += tables.features[s, j] * params[half + j]
    rho, gamma = ratio(path, tables, t), discount(path, tables, t)
    error = rho * (reward(path, tables, t) + gamma * ahead - here)
    correction = gamma * rho * estimate
    change = tables.ratio * (error - estimate)
    for j in range(half):
        out[j] = error * tables.features[s, j] - correction * tables.features[s_next, j]
        out[half + j] = change * tables.features[s, j]


@dataclass(frozen=True)
class TDC:
    """Federated off-policy TD with linear features and a gradient correction (TDC).

    It has the fixed point of `OffPolicyLinearTD` and is stable where that one diverges. The
    parameters are (theta, w), flat: the weights of the value, and an auxiliary vector of the same
    length, which is zero at the fixed point. Errors are those of both; `value_error` is that of the
    values ``features @ theta``.

    Parameters
    ----------
    ratio : float
        The step size of w over that of theta.

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
    >>> history = fg.run(fed, fg.TDC(), step_size=0.1, sync_period=10, num_steps=20_000)
    >>> bool(history.data.squared_error[0, -1] < history.data.squared_error[0, 0] / 10)
    True
    >>> theta, w = fg.fixed_point(fed, fg.TDC()).reshape(2, -1)
    >>> bool(abs(theta - fg.fixed_point(fed, fg.OffPolicyLinearTD())).max() < 1e-9)
    True
    """

    ratio: float = 1.0

    form = "dense"
    norm = "2"
    window = 1
    theorem = "main_body"
    reads_discounts = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "ratio", positive(self.ratio, "ratio"))

    @property
    def rule(self) -> Callable[..., Any]:
        return tdc_rule

    def check(self, problem: Problem) -> None:
        features(problem, self)
        check_off_policy(problem, self)

    def dimension(self, problem: Problem) -> int:
        return 2 * features(problem, self).shape[1]

    def policies(self, problem: Problem) -> np.ndarray:
        return behavior_policies(require_federation(problem, self))

    def tables(self, problem: Problem) -> TDCTables:
        federation = require_federation(problem, self)
        return TDCTables(
            features(problem, self),
            stacked_rewards(federation),
            importance_ratios(federation, self),
            discount_table(federation),
            np.float64(self.ratio),
        )

    def on_data(self, data: DataFederation) -> OnData:
        """How the rule runs on recorded data."""
        made, nothing = feature_map(self, data), np.zeros((1, 0, 0))

        def tables(rows: np.ndarray, actions: np.ndarray) -> TDCTables:
            return TDCTables(
                rows, nothing, nothing, np.float64(data.discount), np.float64(self.ratio)
            )

        return OnData(2 * made.dimension, tables, made, dense=True, weighted=True, corrected=True)

    def structure(self, problem: Problem) -> TransitionOperator:
        tables, mdps = self.tables(problem), require_federation(problem, self).mdps
        phi, eta = tables.features, tables.ratio

        def terms(
            kind: int, state: np.ndarray, action: np.ndarray, following: np.ndarray
        ) -> tuple[np.ndarray, np.ndarray]:
            discount = mdps[kind % len(mdps)].discounts_of(state, action, following)[:, None]
            here, ahead = phi[state], discount * phi[following]
            rho = tables.ratios[kind % len(tables.ratios), state, action][:, None]
            rewards = tables.rewards[kind % len(tables.rewards), state, action][:, None]
            error = np.hstack([rho * (ahead - here), np.zeros_like(here)])
            estimate = np.hstack([np.zeros_like(here), here])
            of_theta = _outer(here, error) - _outer(rho * ahead, estimate)
            of_w = eta * _outer(here, error - estimate)
            pull = rho * rewards * here
            return np.hstack([of_theta, of_w]), np.hstack([pull, eta * pull])

        values = np.hstack([phi, np.zeros_like(phi)])
        return TransitionOperator(terms, target_policy(problem, self), values)


def _outer(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(E, d, k): the outer product of each row of (E, d) with that of (E, k)."""
    return left[:, :, None] * right[:, None, :]
