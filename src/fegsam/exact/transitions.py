"""The transitions of each kind of agent, for an algorithm that is linear on each transition.

A step at time t reads the transition y_t = (S_t, A_t, S_{t+1}). The modes of the agent's chain are
its states, and each transition is an edge of it, with a matrix and an offset; see
`TransitionOperator`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from fegsam.algorithms.rule import Algorithm
from fegsam.algorithms.structure import TransitionOperator
from fegsam.algorithms.td import require_federation
from fegsam.errors import ProblemError
from fegsam.exact.linear_field import LinearField
from fegsam.exact.windows import MOST_BYTES
from fegsam.problem.chains import distinct_stationary_laws
from fegsam.problem.federation import Problem

_AT_ONCE = 1 << 22
"""The most entries of matrices that are made at a time for a mean."""


@dataclass(frozen=True, eq=False)
class Transitions:
    """The E transitions of one kind of agent, sorted by their state."""

    kind: int
    operator: TransitionOperator
    dimension: int
    state: np.ndarray
    """(E,), as are `action`, `next` and `probability`"""
    action: np.ndarray
    next: np.ndarray
    probability: np.ndarray
    """of each transition, given its state"""
    initial: np.ndarray
    """(S,): the distribution of S_0"""
    stationary: np.ndarray
    """(S,)"""

    @property
    def frequency(self) -> np.ndarray:
        """(E,): the stationary probability of each transition."""
        return self.stationary[self.state] * self.probability

    @cached_property
    def chain(self) -> sparse.csr_array:
        """(S, S): the transition kernel of the states."""
        size = len(self.stationary)
        entries = self.probability, (self.state, self.next)
        return sparse.csr_array(sparse.coo_array(entries, shape=(size, size)))

    @property
    def edge_chain(self) -> sparse.csr_array:
        """(E, E): the transition kernel of the transitions themselves."""
        edges = np.arange(len(self.state))
        shape = len(self.stationary), len(edges)
        leaving = sparse.csr_array((self.probability, (self.state, edges)), shape=shape)
        return sparse.csr_array(leaving[self.next])

    @cached_property
    def terms(self) -> tuple[np.ndarray, np.ndarray]:
        """(E, d, d) and (E, d): the matrix and the offset of each transition."""
        needed = 8.0 * len(self.state) * self.dimension**2
        if needed > MOST_BYTES:
            raise ProblemError(
                f"The matrices of {len(self.state)} transitions with {self.dimension} parameters "
                f"need {needed / 1e9:.3g} GB, but {MOST_BYTES / 1e9:.3g} GB are allowed; use fewer "
                "states or features, or sample with fegsam.run."
            )
        return self.operator.terms(self.kind, self.state, self.action, self.next)

    def pieces(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """The terms of some transitions at a time, so that not all need memory at once."""
        step = max(1, _AT_ONCE // self.dimension**2)
        for first in range(0, len(self.state), step):
            some = slice(first, first + step)
            yield (
                some,
                *self.operator.terms(
                    self.kind, self.state[some], self.action[some], self.next[some]
                ),
            )


def kind_transitions(
    problem: Problem, algorithm: Algorithm, operator: TransitionOperator
) -> list[Transitions]:
    """The transitions of each kind, or a single entry where all kinds share them."""
    federation, policies = require_federation(problem, algorithm), algorithm.policies(problem)
    stationary = distinct_stationary_laws(problem, policies)
    found = []
    for kind, visits in enumerate(stationary):
        rows = federation.mdps[kind % len(federation.mdps)].transitions
        cell = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
        probability = policies[kind % len(policies)].ravel()[cell] * rows.data
        possible = probability > 0
        cell = cell[possible]
        found.append(
            Transitions(
                kind,
                operator,
                algorithm.dimension(problem),
                state=cell // federation.num_actions,
                action=cell % federation.num_actions,
                next=rows.indices[possible].astype(np.int64),
                probability=probability[possible],
                initial=federation.initial_distribution,
                stationary=visits,
            )
        )
    return found


def transition_field(kinds: list[Transitions]) -> LinearField:
    """The mean field: minus the mean matrix, and the mean offset, of each kind."""
    matrices = np.zeros((len(kinds), kinds[0].dimension, kinds[0].dimension))
    offsets = np.zeros((len(kinds), kinds[0].dimension))
    for k, transitions in enumerate(kinds):
        frequency = transitions.frequency
        for some, own_matrices, own_offsets in transitions.pieces():
            matrices[k] -= np.tensordot(frequency[some], own_matrices, axes=1)
            offsets[k] += frequency[some] @ own_offsets
    return LinearField(matrices, offsets)
