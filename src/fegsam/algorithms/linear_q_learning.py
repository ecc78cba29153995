"""Federated Q-learning with linear features: no theorem covers it, and it may diverge.

The action values are Q(s, a) = phi(s)'w_a. At step t agent i, in state S with action A and next
state S', updates the weights of the action that it took,

    w_A += alpha * (R(S, A) + gamma * max_a phi(S')'w_a - phi(S)'w_A) * phi(S).

With one-hot features this is Algorithm 4. With others the map behind it need not contract: a fixed
point may not exist, there may be several, and the weights can grow without bound. Watch the
measures of held-out data, and take small steps.
"""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from fegsam.algorithms.on_data import OnData, action_count, feature_map
from fegsam.algorithms.reading import discount, reward
from fegsam.algorithms.rule import ONE, Path, RecordedPath
from fegsam.algorithms.structure import Opaque
from fegsam.algorithms.td import (
    behavior_policies,
    discount_table,
    features,
    require_federation,
    stacked_rewards,
)
from fegsam.data.federation import DataFederation
from fegsam.problem.federation import Problem


class LinearQTables(NamedTuple):
    rows: np.ndarray
    """the direction of a step: phi(s) in the places of action a's weights, zero elsewhere"""
    features: np.ndarray
    """(S, d)"""
    rewards: np.ndarray
    """(1 or M, S, A)"""
    discount: np.float64 | np.ndarray
    """of all transitions, or an array over them"""
    num_actions: np.uint64
    rows_of_state: np.uint64
    """A where there is a row for each state and action, 1 where each row has its own action"""
    rows_of_action: np.uint64
    """1 where there is a row for each state and action, else 0"""


def linear_q_rule(
    params: np.ndarray, path: Path | RecordedPath, t: Any, tables: LinearQTables
) -> tuple[Any, Any]:
    """The temporal difference of the taken action, with the best action of the next state."""
    s, a, s_next = path.states[t], path.actions[t], path.states[t + ONE]
    count = tables.num_actions
    best = action_value(params, tables.features, s_next, np.uint64(0), count)
    for other in range(ONE, count):
        value = action_value(params, tables.features, s_next, other, count)
        best = value if value > best else best
    here = action_value(params, tables.features, s, a, count)
    row = s * tables.rows_of_state + a * tables.rows_of_action
    return row, reward(path, tables, t) + discount(path, tables, t) * best - here


def action_value(params: Any, rows: Any, s: Any, a: Any, count: Any) -> Any:
    """phi(s)'w_a, with the weight of feature i and action a in cell ``i * count + a``."""
    return (_sparse_value if rows.dtype.kind == "u" else _dense_value)(params, rows, s, a, count)


def _dense_value(params, rows, s, a, count):
    total, cell = 0.0, np.uint64(a)
    for j in range(rows.shape[1]):
        total += rows[s, j] * params[cell]
        cell += count
    return total


def _sparse_value(params, rows, s, a, count):
    total = 0.0
    for k in range(rows.shape[1]):
        total += params[np.uint64(rows[s, k]) * count + np.uint64(a)]
    return total


@overload(action_value)
def _action_value(params, rows, s, a, count):
    return _sparse_value if isinstance(rows.dtype, types.Integer) else _dense_value


def _in_place_of(phi: np.ndarray, actions: np.ndarray, count: int) -> np.ndarray:
    """The rows `phi` (L, d), or indices (L, m), moved to the weights of their `actions` (L)."""
    if phi.dtype.kind == "u":
        return (phi.astype(np.uint64) * count + actions[:, None]).astype(np.uint32)
    rows = np.zeros((*phi.shape, count))
    rows[np.arange(len(phi)), :, actions.astype(np.int64)] = phi
    return rows.reshape(len(phi), -1)


@dataclass(frozen=True)
class LinearQLearning:
    """Federated Q-learning with linear features. No theorem covers it: it may diverge.

    The parameters are the weights, flat, with feature i and action a in cell
    ``i * num_actions + a``.

    Examples
    --------
    >>> import fegsam as fg
    >>> mdp = fg.examples.garnet(10, 3, 4, discount=0.8, seed=0)
    >>> fed = fg.Federation(
    ...     mdp,
    ...     fg.policies.uniform(10, 3),
    ...     num_agents=8,
    ...     features=[[float(s == j) for j in range(10)] for s in range(10)],
    ... )
    >>> run = dict(step_size=0.1, sync_period=10, num_steps=500)
    >>> known = fg.fixed_point(fed, fg.QLearning())
    >>> linear = fg.run(fed, fg.LinearQLearning(), fixed_point=known, **run)
    >>> table = fg.run(fed, fg.QLearning(), **run)
    >>> bool(abs(linear.data.final_params - table.data.final_params).max() < 1e-12)
    True
    """

    form = "row"
    norm = "2"
    window = 1

    @property
    def rule(self) -> Callable[..., Any]:
        return linear_q_rule

    def check(self, problem: Problem) -> None:
        self.policies(problem)
        features(problem, self)

    def dimension(self, problem: Problem) -> int:
        return features(problem, self).shape[1] * require_federation(problem, self).num_actions

    def policies(self, problem: Problem) -> np.ndarray:
        return behavior_policies(require_federation(problem, self))

    def tables(self, problem: Problem) -> LinearQTables:
        federation, phi = require_federation(problem, self), features(problem, self)
        count = federation.num_actions
        taken = np.tile(np.arange(count), len(phi))
        return LinearQTables(
            _in_place_of(np.repeat(phi, count, axis=0), taken, count),
            phi,
            stacked_rewards(federation),
            discount_table(federation),
            np.uint64(count),
            np.uint64(count),
            np.uint64(1),
        )

    def on_data(self, data: DataFederation) -> OnData:
        """How the rule runs on recorded data."""
        made, count = feature_map(self, data), action_count(self, data)

        def tables(rows: np.ndarray, actions: np.ndarray) -> LinearQTables:
            return LinearQTables(
                _in_place_of(rows, actions, count),
                rows,
                np.zeros((1, 0, 0)),
                np.float64(data.discount),
                np.uint64(count),
                np.uint64(1),
                np.uint64(0),
            )

        return OnData(made.dimension * count, tables, made, control=True)

    def structure(self, problem: Problem) -> Opaque:
        return Opaque(
            uncovered="No theorem covers Q-learning with linear features, and it may diverge; "
            "measure it with fegsam.run."
        )
