"""The noise of an algorithm that is linear on each transition; see `agent_noise`.

The mode is the state, and the noise of a step depends on the transition that leaves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from fegsam.algorithms.rule import Algorithm
from fegsam.algorithms.structure import TransitionOperator
from fegsam.exact.transitions import Transitions, kind_transitions
from fegsam.problem.federation import Problem
from fegsam.theory.small_step.lag_sums import lag_sums


@dataclass(frozen=True, eq=False)
class TransitionNoise:
    """The noise of one kind of agents, whose matrix and offset depend on the transition: m = S."""

    transitions: Transitions
    fixed_point: np.ndarray
    """(d,)"""

    @cached_property
    def _offsets(self) -> np.ndarray:
        """(E, d): b at the fixed point."""
        matrices, offsets = self.transitions.terms
        return matrices @ self.fixed_point + offsets

    @cached_property
    def _from_states(self) -> sparse.csr_array:
        """(S, E): the probability of each transition, in the row of its state."""
        found = self.transitions
        edges = np.arange(len(found.state))
        shape = len(found.stationary), len(edges)
        return sparse.csr_array((found.probability, (found.state, edges)), shape=shape)

    @property
    def mean_matrix(self) -> np.ndarray:
        """(d, d): E M."""
        return np.tensordot(self.transitions.frequency, self.transitions.terms[0], axes=1)

    @property
    def mean_offset(self) -> np.ndarray:
        """(d,): E b."""
        return self.transitions.frequency @ self._offsets

    @cached_property
    def _deviations(self) -> np.ndarray:
        return self.transitions.frequency[:, None] * (self._offsets - self.mean_offset)

    @property
    def spread(self) -> np.ndarray:
        """(d, d): Cov(b, b) at one time."""
        return self._deviations.T @ (self._offsets - self.mean_offset)

    def after_effects(self, period: int) -> tuple[np.ndarray, np.ndarray]:
        """(m, d): ``sum_{j>=1} Q^{j-1} g``, plain and with weights ``max(0, 1 - j / period)``."""
        found = self.transitions
        edges = np.arange(len(found.next))
        shape = len(found.stationary), len(edges)
        arrivals = sparse.csr_array((np.ones(len(edges)), (found.next, edges)), shape=shape)
        total, triangle = lag_sums(
            found.chain, found.stationary, arrivals @ self._deviations, period - 1
        )
        return total, triangle / period

    def offset_response(self, effects: np.ndarray) -> np.ndarray:
        """(d, d): ``sum_z E[b | z] effects(z)'``."""
        return (self._from_states @ self._offsets).T @ effects

    def matrix_response(self, effects: np.ndarray) -> np.ndarray:
        """(d,): ``sum_z E[M | z] effects(z)``."""
        found = self.transitions
        weighted = found.probability[:, None] * effects[found.state]
        return np.einsum("eij,ej->i", found.terms[0], weighted)


def transition_noises(
    problem: Problem, algorithm: Algorithm, operator: TransitionOperator, fixed_point: np.ndarray
) -> list[tuple[float, TransitionNoise]]:
    """The noise of each kind of agents that occurs, with the kind's share of the agents.

    Kinds that share all their transitions are one kind here.
    """
    kinds = kind_transitions(problem, algorithm, operator)
    counts = problem.kind_counts if len(kinds) > 1 else np.array([problem.num_agents])
    return [
        (float(counts[kind] / problem.num_agents), TransitionNoise(kinds[kind], fixed_point))
        for kind in np.flatnonzero(counts)
    ]
