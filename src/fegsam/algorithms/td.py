"""What the reinforcement-learning algorithms (2 to 5) share: policies, tables and checks."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from fegsam.algorithms.rule import Algorithm
from fegsam.errors import ProblemError
from fegsam.problem.federation import Federation, Problem
from fegsam.problem.policies import check_coverage


def linear_value(params: Any, rows: Any, s: Any) -> Any:
    """phi(s)' v, where `rows` are features (S, d), or the indices (S, m) of the ones in them."""
    return (_sparse_value if rows.dtype.kind == "u" else _dense_value)(params, rows, s)


def _dense_value(params, rows, s):
    # Four running sums, so that each addition need not wait for the one before.
    size = params.shape[0]
    whole = size - size % 4
    sum_0 = sum_1 = sum_2 = sum_3 = 0.0
    for j in range(0, whole, 4):
        sum_0 += rows[s, j] * params[j]
        sum_1 += rows[s, j + 1] * params[j + 1]
        sum_2 += rows[s, j + 2] * params[j + 2]
        sum_3 += rows[s, j + 3] * params[j + 3]
    for j in range(whole, size):
        sum_0 += rows[s, j] * params[j]
    return (sum_0 + sum_1) + (sum_2 + sum_3)


def _sparse_value(params, rows, s):
    total = 0.0
    for k in range(rows.shape[1]):
        total += params[rows[s, k]]
    return total


@overload(linear_value)
def _linear_value(params, rows, s):
    return _sparse_value if isinstance(rows.dtype, types.Integer) else _dense_value


def add_row(params: Any, rows: Any, s: Any, factor: Any) -> None:
    """Add ``factor * phi(s)`` to `params`, with `rows` as in `linear_value`."""
    (_add_sparse if rows.dtype.kind == "u" else _add_dense)(params, rows, s, factor)


def _add_dense(params, rows, s, factor):
    for j in range(params.shape[0]):
        params[j] += factor * rows[s, j]


def _add_sparse(params, rows, s, factor):
    for k in range(rows.shape[1]):
        params[rows[s, k]] += factor


@overload(add_row, inline="always")
def _add_row(params, rows, s, factor):
    return _add_sparse if isinstance(rows.dtype, types.Integer) else _add_dense


def require_federation(problem: Problem, algorithm: Algorithm) -> Federation:
    if not isinstance(problem, Federation):
        raise ProblemError(
            f"{type(algorithm).__name__} runs on agents in an MDP and the problem is of type "
            f"{type(problem).__name__}; pass a fegsam.Federation, for example "
            "Federation(mdp, policies, num_agents=10)."
        )
    return problem


def target_policy(problem: Problem, algorithm: Algorithm) -> np.ndarray:
    """(S, A): the policy that is evaluated."""
    policy = require_federation(problem, algorithm).target_policy
    if policy is None:
        raise ProblemError(
            f"{type(algorithm).__name__} evaluates a policy and the federation has none; pass "
            "target_policy= to Federation."
        )
    return policy


def behavior_policies(problem: Federation) -> np.ndarray:
    """(1 or M, S, A): the agents' own policies, or the target policy where none are given."""
    if problem.behavior_policies is not None:
        return problem.behavior_policies
    if problem.target_policy is None:
        raise ProblemError(
            "The federation has no policy for its agents to follow; pass behavior_policies= (or "
            "target_policy=) to Federation."
        )
    return problem.target_policy[None]


def features(problem: Problem, algorithm: Algorithm) -> np.ndarray:
    """(S, d): the features of the value function."""
    matrix = require_federation(problem, algorithm).features
    if matrix is None:
        raise ProblemError(
            f"{type(algorithm).__name__} is linear and the federation has no features; pass "
            "features= (S, d) to Federation."
        )
    return matrix


def check_off_policy(problem: Problem, algorithm: Algorithm) -> None:
    """Raise unless each behaviour policy takes every action that the target policy takes."""
    behavior = behavior_policies(require_federation(problem, algorithm))
    check_coverage(target_policy(problem, algorithm), behavior, type(algorithm).__name__)


def importance_ratios(problem: Federation, algorithm: Algorithm) -> np.ndarray:
    """(1 or M, S, A): pi(a|s) / pi^k(a|s), and zero where kind k never takes the action."""
    behavior = behavior_policies(problem)
    ratios = np.zeros_like(behavior)
    np.divide(target_policy(problem, algorithm)[None], behavior, out=ratios, where=behavior > 0)
    return ratios


def stacked_rewards(problem: Federation) -> np.ndarray:
    """(1 or M, S, A): the rewards of all MDPs."""
    return np.ascontiguousarray(np.stack([mdp.rewards for mdp in problem.mdps]))


def discount_table(problem: Federation) -> np.float64 | np.ndarray:
    """The discount of all transitions, or (1 or M, 1 or S, 1 or A, 1 or S) where they differ."""
    each = problem.discounts
    return np.float64(problem.discount) if each is None else each
