"""Environments to begin with: random ones, textbook ones and Gymnasium's toy-text collection.

All are continuing: where an episode would end, the next one begins, since the paper's agents
follow one path without resets. `from_gymnasium` can let values stop there, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from fegsam.errors import ProblemError
from fegsam.problem.checks import IntArray, array_shape, finite_array, flag, fraction, integer
from fegsam.problem.mdp import MDP
from fegsam.problem.toy_text import from_gymnasium

__all__ = [
    "bandit",
    "from_gymnasium",
    "garnet",
    "grid_world",
    "random_walk",
    "river_swim",
    "two_state",
]


def __dir__() -> list[str]:
    return list(__all__)


_LARGEST_LINE = 100_000
"""The most states of an environment on a line, whose transitions begin as a dense array."""


def garnet(
    states: int,
    actions: int,
    branching: int,
    discount: float,
    seed: int,
    *,
    connected: bool = False,
) -> MDP:
    """A random MDP in which every action leads to `branching` states.

    The successors of an action are `branching` distinct states drawn uniformly, their probabilities
    are the gaps between sorted uniform numbers, and the rewards are uniform in [0, 1] (Archibald,
    McKinnon and Thomas, 1995).

    Parameters
    ----------
    states, actions : int
    branching : int
        At most `states`.
    discount : float
    seed : int
    connected : bool
        If true, one successor of each state is replaced where necessary, so that the states lie on
        a random cycle and every policy that takes all actions reaches all of them. If false, a
        state has no predecessor with probability about ``exp(-actions * branching)``, and then no
        chain on the MDP is ergodic.

    Examples
    --------
    >>> garnet(states=100, actions=5, branching=3, discount=0.9, seed=0)
    MDP(states=100, actions=5, discount=0.9, successors=1500)
    """
    states, actions, branching = array_shape(states=states, actions=actions, branching=branching)
    if branching > states:
        raise ProblemError(
            f"branching is {branching}, but successors are distinct and there are {states} "
            f"states: give at most {states}"
        )
    rng = np.random.default_rng(integer(seed, "seed", least=0, most=None))
    rows = states * actions
    successors = _subsets(rng, rows, states, branching)
    cuts = np.zeros((rows, branching + 1))
    cuts[:, 1:-1] = np.sort(rng.random((rows, branching - 1)), axis=1)
    cuts[:, -1] = 1.0
    rewards = rng.random((states, actions))
    if flag(connected, "connected"):
        _lay_cycle(rng, successors, states, actions)
    starts = np.arange(rows + 1) * branching
    transitions = sparse.csr_array(
        (np.diff(cuts).ravel(), successors.ravel(), starts), shape=(rows, states)
    )
    return MDP(transitions, rewards, discount)


def _subsets(rng: np.random.Generator, rows: int, states: int, size: int) -> IntArray:
    """(rows, size): in each row a uniformly drawn subset of the states, in ascending order.

    This is Floyd's algorithm on all rows at once: a number drawn from 0..j that the row already
    holds is replaced by j. It needs no more memory than its result, however many states there are.
    """
    chosen = np.empty((rows, size), dtype=np.int64)
    for column, largest in enumerate(range(states - size, states)):
        drawn = rng.integers(0, largest + 1, rows)
        taken = (chosen[:, :column] == drawn[:, None]).any(axis=1)
        chosen[:, column] = np.where(taken, largest, drawn)
    chosen.sort(axis=1)
    return chosen


def _lay_cycle(rng: np.random.Generator, successors: IntArray, states: int, actions: int) -> None:
    """Make each state's next state on a random cycle a successor of one of its actions."""
    cycle = rng.permutation(states)
    rows = cycle * actions + rng.integers(0, actions, states)
    following = np.roll(cycle, -1)
    missing = ~(successors[rows] == following[:, None]).any(axis=1)
    columns = rng.integers(0, successors.shape[1], states)
    successors[rows[missing], columns[missing]] = following[missing]
    successors.sort(axis=1)


def random_walk(states: int, discount: float) -> MDP:
    """Sutton's random walk on a line, as a continuing task.

    Action 0 steps left and action 1 right, so the uniform policy is the walk of the textbook. A
    step off the right end pays 1, a step off the left end pays 0, and both lead back to the middle
    (state ``states // 2``) with probability 1/2 or to either of its neighbours with 1/4. If they
    always led to the middle, walks of some lengths would be periodic.

    Parameters
    ----------
    states : int
        At least 3.
    discount : float

    Examples
    --------
    >>> random_walk(5, discount=0.9).rewards[:, 1]
    array([0., 0., 0., 0., 1.])
    """
    states = integer(states, "states", least=3, most=_LARGEST_LINE)
    middle, line = states // 2, np.arange(states)
    transitions = np.zeros((states, 2, states))
    transitions[line[1:], 0, line[:-1]] = 1.0
    transitions[line[:-1], 1, line[1:]] = 1.0
    for end, action in ((0, 0), (states - 1, 1)):
        transitions[end, action, middle - 1 : middle + 2] = 0.25, 0.5, 0.25
    rewards = np.zeros((states, 2))
    rewards[-1, 1] = 1.0
    return MDP(transitions, rewards, discount)


def river_swim(states: int = 6, discount: float = 0.95) -> MDP:
    """Swim upstream for a large reward or drift down for a small one (Strehl and Littman, 2008).

    Action 0 drifts one state to the left and pays 0.005 in state 0. Action 1 swims: from the left
    end it advances with probability 0.6; inside it advances with 0.35, stays with 0.6 and slips
    back with 0.05; at the right end it pays 1 and stays with 0.6.

    Parameters
    ----------
    states : int
        At least 2.
    discount : float

    Examples
    --------
    >>> river_swim(6, discount=0.95).rewards[0, 0]
    np.float64(0.005)
    """
    states = integer(states, "states", least=2, most=_LARGEST_LINE)
    line = np.arange(states)
    transitions = np.zeros((states, 2, states))
    transitions[line, 0, np.maximum(line - 1, 0)] = 1.0
    inner = line[1:-1]
    transitions[inner, 1, inner - 1] = 0.05
    transitions[inner, 1, inner] = 0.6
    transitions[inner, 1, inner + 1] = 0.35
    transitions[0, 1, :2] = 0.4, 0.6
    transitions[-1, 1, -2:] = 0.4, 0.6
    rewards = np.zeros((states, 2))
    rewards[0, 0], rewards[-1, 1] = 0.005, 1.0
    return MDP(transitions, rewards, discount)


def grid_world(rows: int, columns: int, discount: float, slip: float = 0.1) -> MDP:
    """Find the way from the first cell of a grid to the last.

    Actions 0 to 3 move up, right, down and left; with probability `slip` the move goes sideways
    instead, to either side with equal probability, and a move into a wall leads nowhere. In the
    last cell every action pays 1 and leads back to the first.

    Parameters
    ----------
    rows, columns : int
    discount : float
    slip : float
        Between 0 and 1.

    Returns
    -------
    MDP
        State ``row * columns + column``, labelled (row, column).

    Examples
    --------
    >>> world = grid_world(3, 4, discount=0.9)
    >>> world.num_states, world.labels[5]
    (12, (1, 1))
    """
    rows, columns = array_shape(rows=rows, columns=columns)
    slip = fraction(slip, "slip", closed=True)
    states = rows * columns
    row, column = np.divmod(np.arange(states), columns)
    moves = [(-1, 0), (0, 1), (1, 0), (0, -1)]
    reached = [
        np.clip(row + down, 0, rows - 1) * columns + np.clip(column + right, 0, columns - 1)
        for down, right in moves
    ]
    origin, target, weight = [], [], []
    inside = np.arange(states - 1)
    for action in range(4):
        for direction, chance in (
            (action, 1.0 - slip),
            (action + 1, slip / 2),
            (action - 1, slip / 2),
        ):
            origin.append(inside * 4 + action)
            target.append(reached[direction % 4][:-1])
            weight.append(np.full(states - 1, chance))
    origin.append((states - 1) * 4 + np.arange(4))
    target.append(np.zeros(4, dtype=np.int64))
    weight.append(np.ones(4))
    entries = np.concatenate(weight), (np.concatenate(origin), np.concatenate(target))
    rewards = np.zeros((states, 4))
    rewards[-1] = 1.0
    labels = zip(row.tolist(), column.tolist(), strict=True)
    return MDP(sparse.csr_array(entries, shape=(states * 4, states)), rewards, discount, labels)


def two_state(
    to_second: ArrayLike = ((1 / 4, 3 / 4), (1 / 2, 3 / 4)),
    rewards: ArrayLike = ((1.0, 0.0), (-1.0, 1 / 2)),
    discount: float = 1 / 2,
) -> MDP:
    """An MDP with two states; the default one has small fractions as its answers.

    Parameters
    ----------
    to_second : (2, A) array
        Probability that an action leads to state 1.
    rewards : (2, A) array
    discount : float

    Examples
    --------
    >>> two_state().policy_chain([[1 / 4, 3 / 4], [1 / 2, 1 / 2]]).toarray()
    array([[0.375, 0.625],
           [0.375, 0.625]])
    """
    chance = finite_array(to_second, "to_second", "(2, A)")
    if chance.ndim != 2 or chance.shape[0] != 2:
        raise ProblemError(
            f"to_second has shape {chance.shape}, but needs a row for each of two states: give "
            "shape (2, A)"
        )
    return MDP(np.stack([1.0 - chance, chance], axis=2), rewards, discount)


def bandit(rewards: Sequence[float] | ArrayLike, discount: float) -> MDP:
    """A single state, in which action a pays ``rewards[a]``.

    Parameters
    ----------
    rewards : (A,) array
    discount : float

    Examples
    --------
    >>> bandit([0.0, 1.0], discount=0.5)
    MDP(states=1, actions=2, discount=0.5, successors=2)
    """
    paid = finite_array(rewards, "rewards", "(A,)")
    if paid.ndim != 1 or paid.size == 0:
        raise ProblemError(
            f"rewards has shape {paid.shape}, but a bandit has one reward per action: give shape "
            "(A,)"
        )
    return MDP(np.ones((1, paid.size, 1)), paid[None, :], discount)
