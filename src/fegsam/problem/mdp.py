"""The Markov decision process: transitions P, rewards R and discount gamma (preliminaries).

Only successors with a positive probability are stored, so 10^6 states with five successors per
action fit in memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from fegsam.errors import ProblemError
from fegsam.problem.checks import (
    FloatArray,
    finite_array,
    fraction,
    read_only,
    real_array,
    several,
    stochastic_rows,
)
from fegsam.problem.policies import check_policy


@dataclass(frozen=True, eq=False, init=False, repr=False)
class MDP:
    """A finite, discounted Markov decision process with S states and A actions.

    Parameters
    ----------
    transitions : (S, A, S) array, or (S*A, S) scipy sparse matrix with row s*A + a
        Probability of the next state. Rows sum to one within 1e-8, and are divided by their sum.
    rewards : (S, A) array
        Expected reward of an action.
    discount : float
        Strictly between 0 and 1.
    labels : sequence of length S, optional
        A name for each state; by default states only have numbers.

    Attributes
    ----------
    transitions : (S*A, S) csr_array
        Row s*A + a; sorted indices, no explicit zeros, read-only.
    rewards : (S, A) array, read-only
    discount : float
    labels : tuple of length S, or None

    Examples
    --------
    >>> mdp = MDP([[[0.5, 0.5], [0, 1]], [[1, 0], [0.25, 0.75]]], [[1, 0], [0, 2]], 0.9)
    >>> mdp
    MDP(states=2, actions=2, discount=0.9, successors=6)
    >>> mdp.policy_chain([[1, 0], [0, 1]]).toarray()
    array([[0.5 , 0.5 ],
           [0.25, 0.75]])
    """

    transitions: sparse.csr_array
    rewards: FloatArray
    discount: float
    labels: tuple[Hashable, ...] | None

    def __init__(
        self,
        transitions: ArrayLike | sparse.sparray | sparse.spmatrix,
        rewards: ArrayLike,
        discount: float,
        labels: Iterable[Hashable] | None = None,
    ) -> None:
        paid = _check_rewards(rewards)
        object.__setattr__(self, "transitions", _check_transitions(transitions, *paid.shape))
        object.__setattr__(self, "rewards", paid)
        object.__setattr__(self, "discount", fraction(discount, "discount"))
        object.__setattr__(self, "labels", _check_labels(labels, paid.shape[0]))

    def __repr__(self) -> str:
        return (
            f"MDP(states={self.num_states}, actions={self.num_actions}, discount={self.discount}, "
            f"successors={self.transitions.nnz})"
        )

    def _repr_html_(self) -> str:
        from fegsam.pictures import blocks, card, matrix

        place = blocks(self.num_states)
        moves = self.transitions.tocoo()
        shown = np.zeros((place[-1] + 1, place[-1] + 1))
        np.add.at(shown, (place[moves.row // self.num_actions], place[moves.col]), moves.data)
        rows = [
            ("states", f"{self.num_states}"),
            ("actions", f"{self.num_actions}"),
            ("discount", f"{self.discount:g}"),
            (
                "successors of an action",
                f"{np.diff(self.transitions.indptr).mean():.3g} on average",
            ),
            ("rewards", f"{self.rewards.min():.3g} to {self.rewards.max():.3g}"),
        ]
        return card(
            "MDP: from each state (row) to the next (column)", rows, matrix(shown, "transitions")
        )

    @property
    def num_states(self) -> int:
        """S.

        >>> MDP([[[1.0]]], [[0.0]], 0.5).num_states
        1
        """
        return self.rewards.shape[0]

    @property
    def num_actions(self) -> int:
        """A.

        >>> MDP([[[1.0], [1.0]]], [[0.0, 1.0]], 0.5).num_actions
        2
        """
        return self.rewards.shape[1]

    def policy_chain(self, policy: ArrayLike) -> sparse.csr_array:
        """The chain of states under a policy.

        Parameters
        ----------
        policy : (S, A) array
            Probability of each action in each state.

        Returns
        -------
        (S, S) csr_array
            Sorted indices, no explicit zeros.

        Examples
        --------
        >>> MDP([[[0.0, 1.0]], [[0.5, 0.5]]], [[0.0], [1.0]], 0.5).policy_chain(
        ...     [[1.0], [1.0]]
        ... ).toarray()
        array([[0. , 1. ],
               [0.5, 0.5]])
        """
        states, actions = self.rewards.shape
        weights = check_policy(policy, states, actions, "policy")
        # Drop unused actions first: an explicit zero would count as an edge of the chain's graph.
        row, action = np.nonzero(weights)
        choice = sparse.csr_array(
            (weights[row, action], (row, row * actions + action)), shape=(states, states * actions)
        )
        chain = sparse.csr_array(choice @ self.transitions)
        chain.eliminate_zeros()
        chain.sort_indices()
        return chain

    def policy_rewards(self, policy: ArrayLike) -> FloatArray:
        """Expected reward of one step under a policy.

        Parameters
        ----------
        policy : (S, A) array

        Returns
        -------
        (S,) array

        Examples
        --------
        >>> MDP([[[1.0], [1.0]]], [[0.0, 1.0]], 0.5).policy_rewards([[0.25, 0.75]])
        array([0.75])
        """
        weights = check_policy(policy, self.num_states, self.num_actions, "policy")
        return np.einsum("sa,sa->s", weights, self.rewards)


def _check_rewards(rewards: ArrayLike) -> FloatArray:
    paid = finite_array(rewards, "rewards", "(S, A)")
    if paid.ndim != 2 or 0 in paid.shape:
        raise ProblemError(
            f"rewards has shape {paid.shape}, but needs a row per state and a column per action, "
            "at least one of each: give shape (S, A)"
        )
    return read_only(paid)


def _check_transitions(
    transitions: ArrayLike | sparse.sparray | sparse.spmatrix, states: int, actions: int
) -> sparse.csr_array:
    rows: Any = transitions
    expected: tuple[int, ...] = (states * actions, states)
    if not sparse.issparse(transitions):
        rows = real_array(rows, "transitions", "(S, A, S)")
        expected = (states, actions, states)
    if rows.shape != expected:
        raise ProblemError(
            f"transitions has shape {rows.shape}, but rewards of shape {(states, actions)} call "
            f"for {expected}: give dense transitions as (S, A, S), or scipy sparse ones as "
            "(S*A, S) with row s*A + a"
        )
    if not sparse.issparse(rows):
        rows = rows.reshape(states * actions, states)
    return stochastic_rows(
        sparse.csr_array(rows),
        lambda row: f"the row of transitions for state {row // actions}, action {row % actions}",
    )


def _check_labels(labels: Iterable[Hashable] | None, states: int) -> tuple[Hashable, ...] | None:
    if labels is None:
        return None
    names = several(
        labels,
        "labels",
        f"but must name the states: give a sequence of {states} labels, one for each state",
    )
    if len(names) != states:
        raise ProblemError(
            f"labels has {len(names)} entries for {states} states: give one label per state"
        )
    return names
