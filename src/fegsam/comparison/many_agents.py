"""Q-learning with infinitely many agents: the average's fixed point, by enumeration of paths.

With infinitely many agents the average after a round is not random: it is the mean over the paths
of one agent, weighted by its visits for importance averaging. So its long-run error is a bias that
no number of agents removes, and on a tiny problem it is a sum over all paths of a round.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np

import fegsam as fg

_MOST_ROUNDS = 200_000


@dataclass(frozen=True, eq=False)
class CellWindows:
    """The windows (state, action, next state) that an agent can meet.

    Attributes
    ----------
    cells, nexts : (W,) arrays of int
        The cell that a window updates, and the state that it leads to.
    law : (W,) array
        The stationary probabilities.
    follow : (W, W) array
        The probabilities of the next window.
    """

    cells: np.ndarray
    nexts: np.ndarray
    law: np.ndarray
    follow: np.ndarray


def windows(mdp: fg.MDP, policy: np.ndarray) -> CellWindows:
    """The windows of one agent that follows `policy`."""
    states, actions = mdp.num_states, mdp.num_actions
    moves = mdp.transitions.toarray().reshape(states, actions, states)
    joint = policy[:, :, None] * moves
    chain = joint.sum(axis=1)
    system = np.vstack([chain.T - np.eye(states), np.ones(states)])
    law = np.linalg.lstsq(system, np.append(np.zeros(states), 1.0), rcond=None)[0]
    state, action, after = (
        each.ravel() for each in np.meshgrid(*map(np.arange, joint.shape), indexing="ij")
    )
    chances = joint[state, action, after]
    follow = np.where(after[:, None] == state, chances, 0.0)
    return CellWindows(state * actions + action, after, law[state] * chances, follow)


@dataclass(frozen=True, eq=False)
class Paths:
    """All paths of a round: their windows (P, K) and probabilities (P,)."""

    cells: np.ndarray
    nexts: np.ndarray
    chances: np.ndarray


def paths(found: CellWindows, length: int, sampling: Literal["markov", "iid"]) -> Paths:
    """Every path of `length` windows, from the stationary law."""
    count = len(found.law)
    each = np.array(list(itertools.product(range(count), repeat=length)))
    chances = found.law[each[:, 0]]
    for step in range(1, length):
        here = each[:, step]
        linked = found.follow[each[:, step - 1], here]
        chances = chances * (linked if sampling == "markov" else found.law[here])
    kept = chances > 0
    each = each[kept]
    return Paths(found.cells[each], found.nexts[each], chances[kept])


def after_round(
    params: np.ndarray, mdp: fg.MDP, found: Paths, step_size: float, *, by_visits: bool
) -> np.ndarray:
    """(S * A,): the average of infinitely many agents after a round from `params`."""
    count, rewards = len(found.chances), mdp.rewards.ravel()
    own, visits = np.tile(params, (count, 1)), np.zeros((count, len(params)))
    row = np.arange(count)
    for cells, nexts in zip(found.cells.T, found.nexts.T, strict=True):
        best = own.reshape(count, mdp.num_states, -1)[row, nexts].max(axis=1)
        target = rewards[cells] + mdp.discount * best
        own[row, cells] += step_size * (target - own[row, cells])
        visits[row, cells] += 1
    weights = found.chances[:, None] * (1 - step_size) ** -(visits if by_visits else 0 * visits)
    return (weights * own).sum(axis=0) / weights.sum(axis=0)


def limit_point(
    mdp: fg.MDP, found: Paths, step_size: float, start: np.ndarray, *, by_visits: bool
) -> np.ndarray:
    """(S * A,): where the average of infinitely many agents settles."""
    params = start
    for _ in range(_MOST_ROUNDS):
        fresh = after_round(params, mdp, found, step_size, by_visits=by_visits)
        if np.abs(fresh - params).max() < 1e-13 * max(1.0, np.abs(fresh).max()):
            return fresh
        params = fresh
    raise ArithmeticError("the average of infinitely many agents does not settle")
