"""Off-policy estimates: the return of a policy that did not write the log, with standard errors.

All estimate the mean discounted return of an episode that begins as the log's episodes do. The
standard errors treat episodes as independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import SuperLU, splu

from fegsam.data.rows import Rows
from fegsam.errors import ProblemError
from fegsam.problem.checks import FloatArray, finite_array, real_array
from fegsam.problem.policies import check_policy

MOST_STEPS = 1e12
"""Values of episodes that would go on for longer than this are lost in rounding."""


class ReturnEstimate(NamedTuple):
    """An estimate of a return.

    Examples
    --------
    >>> ReturnEstimate(1.0, 0.1, 20.0).value
    1.0
    """

    value: float
    standard_error: float
    effective_episodes: float
    """(sum of weights)^2 / (sum of their squares), with the product of an episode's ratios as its
    weight; the number of episodes where no ratios are used"""


@dataclass(frozen=True, eq=False)
class FittedQ:
    """What fitted Q evaluation finds.

    Examples
    --------
    >>> import numpy as np
    >>> FittedQ(np.zeros((2, 1)), ReturnEstimate(0.0, 0.0, 1.0)).q.shape
    (2, 1)
    """

    q: FloatArray
    """(S, A): the value of each pair of state and action; NaN where the log never shows it"""
    estimate: ReturnEstimate


class _Episodes(NamedTuple):
    """Where the episodes of some rows begin, and how many transitions each has."""

    starts: np.ndarray
    lengths: np.ndarray

    def steps(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each time: the episodes that have a transition then, and the rows of those."""
        for time in range(int(self.lengths.max(initial=0))):
            going = np.flatnonzero(self.lengths > time)
            yield going, self.starts[going] + time


def weighted_importance_sampling(
    rows: Rows, target_policy: ArrayLike | None = None
) -> ReturnEstimate:
    """The mean of the episodes' returns, each weighted by the product of its importance ratios.

    A truncated episode counts with the return of the steps that were recorded. The standard error
    is that of a ratio of means, to first order.

    Parameters
    ----------
    rows : Rows
        What ``LogSource(...).read(discount=...)`` returns.
    target_policy : (S, A) array, optional
        By default the log's `target_probability`.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(
    ...         f"{folder}/log.parquet", walk, go, episodes=50, length=5, seed=0
    ...     )
    ...     rows = fg.LogSource(path).read(discount=0.9)
    >>> found = fg.data.weighted_importance_sampling(rows, [[0.6, 0.4], [0.5, 0.5]])
    >>> bool(found.standard_error > 0), bool(found.effective_episodes < 50)
    (True, True)
    """
    episodes, ratios = episodes_of(rows), ratios_of(rows, target_policy)
    weights, returns = np.ones(len(episodes.starts)), np.zeros(len(episodes.starts))
    discounts = np.ones(len(episodes.starts))
    for going, at in episodes.steps():
        returns[going] += discounts[going] * rows.reward[at]
        weights[going] *= ratios[at]
        discounts[going] *= rows.discount[at]
    _require_weight(weights)
    value = float(weights @ returns / weights.sum())
    error = np.sqrt(((weights * (returns - value)) ** 2).sum()) / weights.sum()
    return ReturnEstimate(value, float(error), _effective(weights))


def doubly_robust(rows: Rows, q: ArrayLike, target_policy: ArrayLike) -> ReturnEstimate:
    """A given guess of the values, corrected by the importance-weighted errors of the guess.

    It is right in mean if the ratios are right, and has little variance if the guess is good. A
    truncated episode ends in the guess of its last observation's value.

    Parameters
    ----------
    rows : Rows
        Observations must be states.
    q : (S, A) array
        A guess of the target policy's action values, for instance of `fitted_q_evaluation` on
        other episodes.
    target_policy : (S, A) array

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(
    ...         f"{folder}/log.parquet", walk, go, episodes=50, length=5, seed=0
    ...     )
    ...     rows = fg.LogSource(path).read(discount=0.9)
    >>> found = fg.data.doubly_robust(rows, [[0, 0], [0, 0]], go)
    >>> bool(found.standard_error > 0)
    True
    """
    guess = finite_array(q, "q", "(S, A)")
    target = policy_of(rows, target_policy)
    if guess.shape != target.shape:
        raise ProblemError(
            f"q has shape {guess.shape} and target_policy {target.shape}: give both (S, A)"
        )
    episodes, ratios = episodes_of(rows), ratios_of(rows, target)
    values = (target * guess).sum(axis=1)
    found = values[rows.observation[episodes.starts]]
    weights, discounts = np.ones(len(found)), np.ones(len(found))
    for going, at in episodes.steps():
        weights[going] *= ratios[at]
        error = (
            rows.reward[at]
            + rows.discount[at] * values[rows.observation[at + 1]]
            - guess[rows.observation[at], rows.action[at]]
        )
        found[going] += discounts[going] * weights[going] * error
        discounts[going] *= rows.discount[at]
    _require_weight(weights)
    error = found.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.nan
    return ReturnEstimate(float(found.mean()), float(error), _effective(weights))


def fitted_q_evaluation(rows: Rows, target_policy: ArrayLike) -> FittedQ:
    """The target policy's values in the MDP that the log counts: no ratios are needed.

    The action values solve Q = r + discount P pi Q with the mean rewards and the frequencies of
    next states of each pair of state and action. The standard error follows from the derivative of
    the value by every observed transition.

    Parameters
    ----------
    rows : Rows
        Observations must be states.
    target_policy : (S, A) array

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(
    ...         f"{folder}/log.parquet", walk, go, episodes=500, length=5, seed=0
    ...     )
    ...     rows = fg.LogSource(path).read(discount=walk.discount)
    >>> found = fg.data.fitted_q_evaluation(rows, go).estimate
    >>> bool(abs(found.value - fg.policy_value(walk, go)[0]) < 4 * found.standard_error)
    True
    """
    target = policy_of(rows, target_policy)
    states, actions = target.shape
    episodes = episodes_of(rows)
    at = np.flatnonzero(~rows.gap)
    cells = rows.observation[at] * actions + rows.action[at]
    counts = np.bincount(cells, minlength=states * actions)
    after, begins = rows.observation[at + 1], rows.observation[episodes.starts]
    needed = np.unique(np.append(after[rows.discount[at] > 0.0], begins))
    _require_pairs(needed, target, counts.reshape(states, actions))
    shares = 1.0 / np.maximum(counts, 1)
    # Row: a pair; column: a state that follows it, times the target's actions there.
    moves = sparse.csr_array(
        (rows.discount[at] * shares[cells], (cells, after)), shape=(states * actions, states)
    )
    columns = np.arange(states * actions).reshape(states, actions)
    choose = sparse.csr_array(
        (target.ravel(), (np.repeat(np.arange(states), actions), columns.ravel())),
        shape=(states, states * actions),
    )
    system = sparse.csc_array(sparse.eye_array(states * actions) - moves @ choose)
    solver = _solver_of(system, states * actions)
    mean_rewards = np.bincount(cells, rows.reward[at], minlength=states * actions) * shares
    q = solver.solve(mean_rewards)
    values = choose @ q
    estimate = _first_order(rows, episodes, (at, cells), (q, values, shares), (solver, choose))
    q = np.where(counts > 0, q, np.nan).reshape(states, actions)
    return FittedQ(q, estimate)


def _solver_of(matrix: sparse.csc_array, count: int) -> SuperLU:
    """What solves the equation of `count` values, or an error if they are not finite."""
    try:
        solver = splu(matrix)
    except RuntimeError:  # singular
        solver = None
    if solver is None or goes_on(solver.solve(np.ones(count))):
        raise ProblemError(
            "by what the rows show, the target policy earns undiscounted rewards without end, so "
            "that its return is not finite: read them with a smaller discount"
        )
    return solver


def goes_on(steps: np.ndarray) -> bool:
    """Whether numbers of discounted steps, from an equation of values, are without end.

    >>> goes_on(np.array([10.0, 1e15])), goes_on(np.array([np.nan])), goes_on(np.ones(2))
    (True, True, False)
    """
    return not abs(steps).max(initial=0.0) < MOST_STEPS


def _first_order(
    rows: Rows,
    episodes: _Episodes,
    moves: tuple[np.ndarray, np.ndarray],
    solution: tuple[np.ndarray, np.ndarray, np.ndarray],
    system: tuple[object, sparse.csr_array],
) -> ReturnEstimate:
    """The value of the first states, and what each episode adds to its error."""
    (at, cells), (q, values, shares), (solver, choose) = moves, solution, system
    begins, count = rows.observation[episodes.starts], len(episodes.starts)
    value = float(values[begins].mean())
    first = np.bincount(begins, minlength=len(values)) / count
    visits = solver.solve(choose.T @ first, trans="T")  # pyright: ignore[reportAttributeAccessIssue]
    errors = rows.reward[at] + rows.discount[at] * values[rows.observation[at + 1]] - q[cells]
    owner = np.cumsum(rows.gap)[at]
    added = np.bincount(owner, visits[cells] * shares[cells] * errors, minlength=count)
    influence = values[begins] - value + count * added
    error = float(np.sqrt((influence**2).sum()) / count)
    return ReturnEstimate(value, error, float(count))


def episodes_of(rows: Rows) -> _Episodes:
    ends = np.flatnonzero(rows.gap)
    if not len(ends) or not rows.gap[-1]:
        raise ProblemError(
            "the rows do not end with an episode: read a whole log with LogSource.read"
        )
    starts = np.append(0, ends[:-1] + 1)
    return _Episodes(starts, ends - starts)


def policy_of(rows: Rows, policy: ArrayLike) -> FloatArray:
    """The target policy, with at least the states and actions that occur."""
    table = real_array(policy, "target_policy", "(S, A)")
    if rows.observation.ndim != 1:
        raise ProblemError(
            "the observations are not states, so that no table of a policy fits them: log "
            "target_probability and use weighted_importance_sampling"
        )
    least = int(rows.observation.max(initial=-1)) + 1, int(rows.action.max(initial=-1)) + 1
    if table.ndim != 2 or table.shape[0] < least[0] or table.shape[1] < least[1]:
        raise ProblemError(
            f"target_policy has shape {table.shape}, but the log has states 0 to {least[0] - 1} "
            f"and actions 0 to {least[1] - 1}: give a probability for each"
        )
    return check_policy(table, table.shape[0], table.shape[1], "target_policy")


def ratios_of(rows: Rows, policy: ArrayLike | None) -> FloatArray:
    """(L): the importance ratios; 1 in gaps."""
    aims = rows.target
    if policy is not None:
        aims = policy_of(rows, policy)[rows.observation, rows.action]
    ratios = np.where(rows.gap, 1.0, aims / rows.behavior)
    if np.isnan(ratios).any():
        missing = "behavior_probability" if np.isnan(rows.behavior[~rows.gap]).any() else "a target"
        raise ProblemError(
            f"importance ratios need {missing}: log it, or give policy= and target_policy="
        )
    return ratios


def _require_weight(weights: FloatArray) -> None:
    if not weights.sum() > 0.0:
        raise ProblemError(
            "every episode has an action that the target never takes, so that all weights are 0: "
            "change the target or the data"
        )


def _require_pairs(needed: np.ndarray, target: FloatArray, counts: np.ndarray) -> None:
    missing = np.argwhere((target[needed] > 0.0) & (counts[needed] == 0))
    if missing.size:
        raise ProblemError(
            f"the target takes action {missing[0][1]} in state {needed[missing[0][0]]}, which this "
            "log never shows: widen the behaviour or change the target"
        )


def _effective(weights: FloatArray) -> float:
    return float(weights.sum() ** 2 / (weights**2).sum())
