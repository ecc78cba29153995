"""The Markov decision process: transitions P, rewards R and discount gamma (preliminaries).

Only successors with a positive probability are stored, so 10^6 states with five successors per
action fit in memory.

An MDP with episodes has a discount for each transition: 0 where an episode ends, so that nothing
that follows counts, although the agent walks on. Its Bellman operator has ``gamma P_c`` where that
of a continuing MDP has ``gamma P``. Here gamma is the largest discount, and the matrix P_c, whose
rows may sum to less than one, is P times each transition's share of gamma.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from fegsam.errors import ProblemError
from fegsam.problem.checks import (
    FloatArray,
    IntArray,
    finite_array,
    read_only,
    read_only_csr,
    real_array,
    several,
    stochastic_rows,
)
from fegsam.problem.discounts import check_discount, discounts_at, possible
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
    discount : float, or array that broadcasts to (S, A, S)
        A number strictly between 0 and 1, or the discount of each transition, at least 0 and less
        than 1. A vector (S,) gives the discount by the state that is entered. Where it is 0 an
        episode ends: nothing that follows counts.
    labels : sequence of length S, optional
        A name for each state; by default states only have numbers.

    Attributes
    ----------
    transitions : (S*A, S) csr_array
        Row s*A + a; sorted indices, no explicit zeros, read-only.
    rewards : (S, A) array, read-only
    discount : float
        The largest discount of a possible transition.
    discounts : (1 or S, 1 or A, 1 or S) array, read-only, or None
        The discount of each transition; an axis along which it does not vary has length one. None
        if all have the same.
    labels : tuple of length S, or None

    Examples
    --------
    >>> mdp = MDP([[[0.5, 0.5], [0, 1]], [[1, 0], [0.25, 0.75]]], [[1, 0], [0, 2]], 0.9)
    >>> mdp
    MDP(states=2, actions=2, discount=0.9, successors=6)
    >>> mdp.policy_chain([[1, 0], [0, 1]]).toarray()
    array([[0.5 , 0.5 ],
           [0.25, 0.75]])

    Steps that pay 1 until the episode ends in state 1, from which the next one starts:

    >>> episodes = MDP([[[0.5, 0.5]], [[1, 0]]], [[1], [0]], [[[0.9, 0]], [[0, 0]]])
    >>> episodes
    MDP(states=2, actions=1, discount=0 to 0.9, successors=3)
    """

    transitions: sparse.csr_array
    rewards: FloatArray
    discount: float
    discounts: FloatArray | None
    labels: tuple[Hashable, ...] | None

    def __init__(
        self,
        transitions: ArrayLike | sparse.sparray | sparse.spmatrix,
        rewards: ArrayLike,
        discount: float | ArrayLike,
        labels: Iterable[Hashable] | None = None,
    ) -> None:
        paid = _check_rewards(rewards)
        moves = _check_transitions(transitions, *paid.shape)
        largest, each = check_discount(discount, moves, paid.shape[1])
        object.__setattr__(self, "transitions", moves)
        object.__setattr__(self, "rewards", paid)
        object.__setattr__(self, "discount", largest)
        object.__setattr__(self, "discounts", each)
        object.__setattr__(self, "labels", _check_labels(labels, paid.shape[0]))

    def __repr__(self) -> str:
        return (
            f"MDP(states={self.num_states}, actions={self.num_actions}, "
            f"discount={self.discount_range}, successors={self.transitions.nnz})"
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
            ("discount", self.discount_range),
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

    @property
    def discount_range(self) -> str:
        """The discount in words: one number, or the smallest and the largest.

        >>> MDP([[[1.0]]], [[0.0]], 0.5).discount_range
        '0.5'
        """
        if self.discounts is None:
            return f"{self.discount}"
        return f"{float(self.discounts.min()):g} to {self.discount}"

    @property
    def given_discount(self) -> float | FloatArray:
        """`discounts`, or `discount` if all are the same: what makes an MDP with the same ones.

        >>> MDP([[[1.0]]], [[0.0]], 0.5).given_discount
        0.5
        """
        return self.discount if self.discounts is None else self.discounts

    @cached_property
    def continuing(self) -> sparse.csr_array:
        """(S*A, S): P_c, the transitions times their share of the largest discount.

        These are `transitions` itself if all transitions have the same discount.

        >>> MDP([[[0.5, 0.5]], [[1, 0]]], [[1], [0]], [[[0.9, 0]], [[0, 0]]]).continuing.toarray()
        array([[0.5, 0. ],
               [0. , 0. ]])
        """
        if self.discounts is None:
            return self.transitions
        moves = self.transitions
        each = self.discounts_of(*possible(moves, self.num_actions))
        weighted = sparse.csr_array(
            (moves.data * (each / self.discount), moves.indices.copy(), moves.indptr.copy()),
            shape=moves.shape,
        )
        weighted.eliminate_zeros()
        return read_only_csr(weighted)

    def discounts_of(self, states: IntArray, actions: IntArray, following: IntArray) -> FloatArray:
        """The discounts of transitions (s, a, s'), all of shape (E,).

        >>> zero = np.array([0])
        >>> MDP([[[0.5, 0.5]], [[1, 0]]], [[1], [0]], [0.9, 0]).discounts_of(zero, zero, zero)
        array([0.9])
        """
        if self.discounts is None:
            return np.full(len(states), self.discount)
        return discounts_at(self.discounts, states, actions, following)

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
        return self._under(policy, self.transitions)

    def continuing_chain(self, policy: ArrayLike) -> sparse.csr_array:
        """(S, S): P_c under a policy; it is `policy_chain` if all discounts are the same.

        The policy's values solve ``V = r + discount * continuing_chain @ V``.

        >>> episodes = MDP([[[0.5, 0.5]], [[1, 0]]], [[1], [0]], [[[0.9, 0]], [[0, 0]]])
        >>> episodes.continuing_chain([[1], [1]]).toarray()
        array([[0.5, 0. ],
               [0. , 0. ]])
        """
        return self._under(policy, self.continuing)

    def _under(self, policy: ArrayLike, moves: sparse.csr_array) -> sparse.csr_array:
        """(S, S): `moves` (S*A, S) with actions drawn from a policy."""
        states, actions = self.rewards.shape
        weights = check_policy(policy, states, actions, "policy")
        # Drop unused actions first: an explicit zero would count as an edge of the chain's graph.
        row, action = np.nonzero(weights)
        choice = sparse.csr_array(
            (weights[row, action], (row, row * actions + action)), shape=(states, states * actions)
        )
        chain = sparse.csr_array(choice @ moves)
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
