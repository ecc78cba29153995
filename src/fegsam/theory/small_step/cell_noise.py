"""The noise of Q-learning (Algorithm 4) near Q*, where the greedy policy is unique.

An agent at (s, a) that moves to s' adds ``alpha (R + gamma max Q(s', .) - Q(s, a))`` to one cell.
With theta = Q - Q* and the greedy action g(s') this is ``alpha e_(s,a) (delta + gamma theta(s',
g(s')) - theta(s, a) + gamma excess)``: delta is the temporal difference at Q*, and the excess, by
how much another action overtakes the greedy one, is zero near Q*. Without the excess the rule is
linear:

    M(y) = e_(s,a) (gamma e_(s',g(s')) - e_(s,a))',        b(y) = delta(y) e_(s,a).

The small-step law takes the noise of this linear rule from here, and the excess from `curvature`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from fegsam.algorithms.rule import Algorithm
from fegsam.errors import ProblemError
from fegsam.exact.chains import kind_chains, kind_stationary_laws
from fegsam.problem.federation import Federation
from fegsam.theory.small_step.lag_sums import lag_sums

TIE = 1e-9
"""Two actions tie if their values differ by less than this fraction of the largest value."""


@dataclass(frozen=True, eq=False)
class CellNoise:
    """One kind's transitions (s, a, s') and what they add to Q.

    The mode is the state: m = S.
    """

    chain: sparse.csr_array
    """(S, S)"""
    stationary: np.ndarray
    """(S,): the stationary distribution of the chain"""
    state: np.ndarray
    """(E,): the state that each transition leaves"""
    cell: np.ndarray
    """(E,): the entry of Q that it changes"""
    next: np.ndarray
    """(E,): the state that it reaches"""
    frequency: np.ndarray
    """(E,): its stationary probability"""
    errors: np.ndarray
    """(E,): its temporal difference at Q*"""
    greedy: np.ndarray
    """(S,): the best cell of each state"""
    discount: np.ndarray
    """(E,): its discount"""
    num_cells: int

    @property
    def visits(self) -> np.ndarray:
        """(d,): how often each cell is visited."""
        return np.bincount(self.cell, self.frequency, minlength=self.num_cells)

    @cached_property
    def discounted_flow(self) -> sparse.csr_array:
        """(d, S): how often the agent goes from a cell to a state, times the discount."""
        shape = self.num_cells, len(self.stationary)
        weights = self.discount * self.frequency
        return sparse.csr_array(sparse.coo_array((weights, (self.cell, self.next)), shape=shape))

    @property
    def mean_matrix(self) -> np.ndarray:
        """(d, d): E M."""
        matrix = -np.diag(self.visits)
        np.add.at(matrix, (self.cell, self.greedy[self.next]), self.discount * self.frequency)
        return matrix

    @property
    def mean_offset(self) -> np.ndarray:
        """(d,): E b."""
        return np.bincount(self.cell, self.frequency * self.errors, minlength=self.num_cells)

    @property
    def spread(self) -> np.ndarray:
        """(d, d): Cov(b, b) at one time."""
        squares = np.bincount(self.cell, self.frequency * self.errors**2, minlength=self.num_cells)
        return np.diag(squares) - np.outer(self.mean_offset, self.mean_offset)

    def after_effects(self, period: int) -> tuple[np.ndarray, np.ndarray]:
        """(m, d): ``sum_{j>=1} Q^{j-1} g``, plain and with weights ``max(0, 1 - j / period)``."""
        disturbance = -np.outer(self.stationary, self.mean_offset)
        np.add.at(disturbance, (self.next, self.cell), self.frequency * self.errors)
        total, triangle = lag_sums(self.chain, self.stationary, disturbance, period - 1)
        return total, triangle / period

    def offset_response(self, effects: np.ndarray) -> np.ndarray:
        """(d, d): ``sum_z E[b | z] effects(z)'``."""
        shape = self.num_cells, len(self.stationary)
        return (
            sparse.csr_array((self._chance * self.errors, (self.cell, self.state)), shape=shape)
            @ effects
        )

    def matrix_response(self, effects: np.ndarray) -> np.ndarray:
        """(d,): ``sum_z E[M | z] effects(z)``."""
        ahead = (
            self.discount * effects[self.state, self.greedy[self.next]]
            - effects[self.state, self.cell]
        )
        return np.bincount(self.cell, self._chance * ahead, minlength=self.num_cells)

    @property
    def _chance(self) -> np.ndarray:
        """(E,): the probability of each transition given its state."""
        return self.frequency / self.stationary[self.state]


def cell_noises(
    algorithm: Algorithm, problem: Federation, fixed_point: np.ndarray
) -> list[tuple[float, CellNoise]]:
    """The noise of each kind of agents of Q-learning, with the kind's share of the agents.

    Where all agents share the MDP and the policy they are one kind.
    """
    states, actions = problem.num_states, problem.num_actions
    greedy = greedy_cells(fixed_point.reshape(states, actions))
    policies = algorithm.policies(problem)
    chains = kind_chains(problem, algorithm)
    distributions = kind_stationary_laws(problem, algorithm)
    alike = max(len(problem.mdps), len(policies)) == 1
    found: list[tuple[float, CellNoise]] = []
    for kind in [0] if alike else np.flatnonzero(problem.kind_counts):
        mdp, policy = problem.mdps[kind % len(problem.mdps)], policies[kind % len(policies)]
        cell = np.repeat(np.arange(states * actions), np.diff(mdp.transitions.indptr))
        following = mdp.transitions.indices.astype(np.int64)
        frequency = (distributions[kind][:, None] * policy).ravel()[cell] * mdp.transitions.data
        best = fixed_point[greedy]
        discount = mdp.discounts_of(cell // actions, cell % actions, following)
        errors = mdp.rewards.ravel()[cell] + discount * best[following] - fixed_point[cell]
        noise = CellNoise(
            chains[kind],
            distributions[kind],
            cell // actions,
            cell,
            following,
            frequency,
            errors,
            greedy,
            discount,
            num_cells=len(fixed_point),
        )
        found.append(
            (1.0 if alike else float(problem.kind_counts[kind] / problem.num_agents), noise)
        )
    return found


def greedy_cells(values: np.ndarray) -> np.ndarray:
    """(S,): the cell of the best action of each state, for `values` (S, A).

    Raises a ProblemError where two actions tie.

    Examples
    --------
    >>> greedy_cells(np.array([[1.0, 2.0], [4.0, 3.0]]))
    array([1, 2])
    """
    states, actions = values.shape
    best = values.argmax(axis=1)
    if actions > 1:
        gaps = np.diff(np.partition(values, actions - 2, axis=1)[:, -2:], axis=1)[:, 0]
        state = int(gaps.argmin())
        if gaps[state] <= TIE * max(1.0, float(np.abs(values).max())):
            first, second = np.argsort(values[state])[::-1][:2]
            raise ProblemError(
                f"The greedy policy is not unique: in state {state} the actions "
                f"{min(first, second)} and {max(first, second)} "
                "are equally good, so Q-learning has no linear form near Q*; give the actions "
                "rewards that differ, or measure the error with run."
            )
    return np.arange(states) * actions + best
