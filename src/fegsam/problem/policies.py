"""Policies: the probability of each action in each state, as an (S, A) array.

These are the paper's pi, the policy that is evaluated, and pi^i, the policy that agent i follows
while it learns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from fegsam.errors import ProblemError
from fegsam.problem.acting import EpsilonGreedy, Softmax
from fegsam.problem.checks import (
    FloatArray,
    array_shape,
    finite_array,
    fraction,
    integer,
    read_only,
    real_array,
    stochastic_rows,
)

__all__ = ["EpsilonGreedy", "Softmax", "epsilon_greedy", "greedy", "random", "uniform"]


def __dir__() -> list[str]:
    return list(__all__)


def uniform(states: int, actions: int) -> FloatArray:
    """The policy that takes every action with the same probability.

    Returns
    -------
    (S, A) array

    Examples
    --------
    >>> uniform(2, 4)
    array([[0.25, 0.25, 0.25, 0.25],
           [0.25, 0.25, 0.25, 0.25]])
    """
    shape = array_shape(states=states, actions=actions)
    return np.full(shape, 1.0 / shape[1])


def random(states: int, actions: int, count: int, seed: int) -> FloatArray:
    """Policies drawn uniformly from all policies; every action has a positive probability.

    Returns
    -------
    (count, S, A) array

    Examples
    --------
    >>> random(3, 2, count=5, seed=0).shape
    (5, 3, 2)
    """
    shape = array_shape(count=count, states=states, actions=actions)
    # Exponentials divided by their sum are uniform on the simplex.
    weights = np.random.default_rng(integer(seed, "seed", least=0, most=None)).standard_exponential(
        shape
    )
    return weights / weights.sum(axis=2, keepdims=True)


def greedy(q: ArrayLike) -> FloatArray:
    """The policy that takes the best action of each state; ties go to the lowest index.

    Parameters
    ----------
    q : (S, A) array
        The value of each action, for instance a learned Q table.

    Returns
    -------
    (S, A) array

    Examples
    --------
    >>> greedy([[1.0, 2.0], [3.0, 3.0]])
    array([[0., 1.],
           [1., 0.]])
    """
    worth = finite_array(q, "q", "(S, A)")
    if worth.ndim != 2 or 0 in worth.shape:
        raise ProblemError(
            f"q has shape {worth.shape}, but needs a row per state: give shape (S, A)"
        )
    policy = np.zeros(worth.shape)
    policy[np.arange(len(worth)), worth.argmax(axis=1)] = 1.0
    return policy


def epsilon_greedy(q: ArrayLike, epsilon: float) -> FloatArray:
    """The policy that takes a uniform action with probability `epsilon`, else the greedy one.

    Parameters
    ----------
    q : (S, A) array
    epsilon : float
        Between 0 and 1.

    Returns
    -------
    (S, A) array

    Examples
    --------
    >>> epsilon_greedy([[1.0, 2.0]], 0.5)
    array([[0.25, 0.75]])
    """
    share = fraction(epsilon, "epsilon", closed=True)
    best = greedy(q)
    return (1.0 - share) * best + share / best.shape[1]


def check_policy(policy: ArrayLike, states: int, actions: int, name: str) -> FloatArray:
    """A read-only copy of `policy`, or an error that calls it `name` and says where it is wrong.

    Parameters
    ----------
    policy : (S, A) array
        Rows must sum to one within 1e-8. They are divided by their sum.
    states, actions : int
        S and A.
    name : str

    Returns
    -------
    (S, A) array, read-only

    Examples
    --------
    >>> check_policy([[0.5, 0.5]], 1, 2, "target_policy")
    array([[0.5, 0.5]])
    """
    table = real_array(policy, name, "(S, A)")
    if table.shape != (states, actions):
        raise ProblemError(
            f"{name} has shape {table.shape}, but the MDP has {states} states and {actions} "
            f"actions: give shape {(states, actions)}"
        )
    rows = stochastic_rows(sparse.csr_array(table), lambda state: f"{name} in state {state}")
    return read_only(rows.toarray())


def check_coverage(target: FloatArray, behaviors: FloatArray, who: str) -> None:
    """Raise where a behaviour policy never takes an action that the target policy takes.

    Parameters
    ----------
    target : (S, A) array
    behaviors : (1 or M, S, A) array
    who : str
        The algorithm that needs the coverage, for the error.

    Examples
    --------
    >>> import numpy as np
    >>> check_coverage(np.array([[1.0, 0.0]]), np.array([[[0.5, 0.5]]]), "OffPolicyTabularTD")
    """
    missing = np.argwhere((target > 0.0) & (behaviors <= 0.0))
    if missing.size:
        kind, state, action = (int(i) for i in missing[0])
        raise ProblemError(
            f"{who}: agent kind {kind} never takes action {action} in state {state}, but "
            f"target_policy does with probability {target[state, action]:g}, and with its own "
            f"importance ratios the agents would learn the value of another policy: make "
            f"behavior_policies[{kind}, {state}, {action}] positive"
        )
