"""Q-learning without its noise: every increment replaced by its mean.

Agent i moves ``q += alpha mu_i (R_i + gamma P_i max q - q)``, where mu_i is the frequency of each
state-action pair. If no two actions are equally good at the common fixed point, the increment is
linear near it, ``A_i (q - q*) + b_i``, and the drift of agents with different environments is that
of the linear algorithms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import fegsam as fg
from fegsam.exact.chains import kind_weights, visit_frequencies
from fegsam.problem import policies
from fegsam.problem.federation import Federation


@dataclass(frozen=True, eq=False)
class MeanQLearning:
    """The mean increments of the kinds of agents, divided by the step size.

    Attributes
    ----------
    weights : (M,) array
        Each kind's share of the agents.
    visits : (M, S*A) array
        The frequencies mu_i.
    moves : (M, S*A, S) array
        The transitions P_i.
    rewards : (M, S*A) array
    discount : float

    Examples
    --------
    One state that pays 1 with the first action, chosen half of the time:

    >>> from fegsam.problem import examples
    >>> problem = Federation(examples.bandit([1.0, 0.0], 0.5), [[0.5, 0.5]], num_agents=2)
    >>> MeanQLearning.of(problem).increments(np.zeros((1, 2)))
    array([[0.5, 0. ]])
    """

    weights: np.ndarray
    visits: np.ndarray
    moves: np.ndarray
    rewards: np.ndarray
    discount: float

    @classmethod
    def of(cls, problem: Federation) -> MeanQLearning:
        visits = visit_frequencies(problem, fg.QLearning())
        mdps = problem.mdps if len(visits) == len(problem.mdps) else problem.mdps * len(visits)
        moves = np.stack([mdp.transitions.toarray() for mdp in mdps])
        rewards = np.stack([mdp.rewards.ravel() for mdp in mdps])
        return cls(kind_weights(problem, len(visits)), visits, moves, rewards, problem.discount)

    def increments(self, tables: np.ndarray) -> np.ndarray:
        """(M, S*A): the increment of kind k at ``tables[k]``; a single table applies to all."""
        best = tables.reshape(len(tables), self.moves.shape[2], -1).max(axis=2)
        return self.visits * (
            self.rewards + self.discount * (self.moves @ best[:, :, None])[..., 0] - tables
        )

    def matrices(self, table: np.ndarray) -> np.ndarray:
        """(M, S*A, S*A): the derivatives of the increments at a table (S*A,)."""
        best = policies.greedy(table.reshape(self.moves.shape[2], -1))
        ahead = np.einsum("kis,sa->kisa", self.moves, best).reshape(
            len(self.weights), len(table), -1
        )
        return self.visits[:, :, None] * (self.discount * ahead - np.eye(len(table)))

    def drift(self, point: np.ndarray, step_size: float, period: int) -> np.ndarray:
        """(S*A,): the drift from the fixed point if agents average every `period` steps.

        It is exact to first order in the step size.
        """
        matrices = self.matrices(point)
        pull = np.einsum("k,kij,kj->i", self.weights, matrices, self.increments(point[None]))
        return (
            -step_size
            * (period - 1)
            / 2
            * np.linalg.solve(np.tensordot(self.weights, matrices, axes=1), pull)
        )

    def after(self, start: np.ndarray, step_size: float, period: int, rounds: int) -> np.ndarray:
        """(S*A,): the table after `rounds` rounds, each of `period` steps and an averaging."""
        table = start
        for _ in range(rounds):
            tables = np.tile(table, (len(self.weights), 1))
            for _ in range(period):
                tables = tables + step_size * self.increments(tables)
            table = self.weights @ tables
        return table
