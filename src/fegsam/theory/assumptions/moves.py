"""The transitions that agents can make, and the worst case over windows of n transitions.

The worst case is found by dynamic programming. Kinds of agents in the same environment whose
policies take the same actions make the same moves, and differ in their importance ratios only. They
are handled together, since a federation may have a policy for each of its agents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fegsam.algorithms.td import stacked_rewards
from fegsam.exact.windows import continuations, count_paths
from fegsam.problem.federation import Federation

RATIOS_AT_ONCE = 2**20


@dataclass(frozen=True, eq=False)
class Moves:
    """Every transition (s, a, s') that some kinds of agents can make, sorted by s.

    Each state has at least one.
    """

    kinds: np.ndarray
    """(k,): which kinds"""
    state: np.ndarray
    """(E,), as are `action`, `next`, `reward` and `discount`"""
    action: np.ndarray
    next: np.ndarray
    ratio: np.ndarray
    """(k, E); one where there are no importance ratios"""
    reward: np.ndarray
    discount: np.ndarray

    def largest_errors(self, values: np.ndarray, horizon: int) -> np.ndarray:
        """(n, k, S): the largest |E| at `values` (S,) over the windows from each state.

        The windows have 1, ..., n transitions.
        """
        discount = self.discount
        error = self.reward + discount * values[self.next] - values[self.state]
        shape = len(self.kinds), len(values)
        high, low = np.zeros(shape), np.zeros(shape)
        largest = np.empty((horizon, *shape))
        for length in range(horizon):
            high = self.largest_from_each(self.ratio * (error + discount * high[:, self.next]))
            low = -self.largest_from_each(-self.ratio * (error + discount * low[:, self.next]))
            largest[length] = np.maximum(high, -low)
        return largest

    def largest_weights(self, sizes: np.ndarray, horizon: int, first: float) -> np.ndarray:
        """(k, S): the largest weighted sum of `sizes` over the windows from each state.

        The sum is ``|first - rho_t| sizes(S_t) + sum_{0<l<=n} |c_l| sizes(S_l)``.
        """
        weights = np.broadcast_to(sizes, (len(self.kinds), len(sizes)))
        for length in range(1, horizon + 1):
            own = np.abs((first if length == horizon else 1.0) - self.ratio) * sizes[self.state]
            ahead = self.discount * self.ratio * weights[:, self.next]
            weights = self.largest_from_each(own + ahead)
        return weights

    def count(self, horizon: int) -> float:
        """The number of windows of `horizon` transitions, over all kinds together."""
        return len(self.kinds) * count_paths(self.state, self.next, len(self._start) - 1, horizon)

    def windows(self, horizon: int) -> np.ndarray:
        """(W, n): every window of `horizon` transitions, as indices of moves."""
        found = np.arange(len(self.state))[:, None]
        for _ in range(1, horizon):
            _, parent, step = continuations(self._start, self.next[found[:, -1]])
            found = np.column_stack([found[parent], step])
        return found

    def weights(self, windows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Batches of kinds (k,), each with the weights c_l (k, W, n+1) of its temporal differences.

        c_l multiplies the value of the window's l-th state.
        """
        horizon = windows.shape[1]
        at_once = max(1, RATIOS_AT_ONCE // windows.size)
        for first in range(0, len(self.kinds), at_once):
            some = slice(first, first + at_once)
            ratio, discount = self.ratio[some][:, windows], self.discount[windows]
            found = np.empty((*ratio.shape[:2], horizon + 1))
            found[:, :, 0] = 1.0
            found[:, :, 1:] = np.cumprod(discount * ratio, axis=2)
            own = found[:, :, :-1] * ratio
            found[:, :, 0] = 0.0
            found[:, :, :-1] -= own
            yield self.kinds[some], found

    def largest_from_each(self, amounts: np.ndarray) -> np.ndarray:
        """(k, S): the largest of `amounts` (k, E) from each state."""
        return np.maximum.reduceat(amounts, self._start[:-1], axis=1)

    @cached_property
    def _start(self) -> np.ndarray:
        """(S + 1,): the moves from state s are start[s], ..., start[s + 1] - 1."""
        return np.r_[np.flatnonzero(np.r_[True, np.diff(self.state) > 0]), len(self.state)]


def kind_moves(
    problem: Federation, policies: np.ndarray, ratios: np.ndarray | None = None
) -> Iterator[Moves]:
    """The moves of the kinds of agents that follow `policies` (1 or M, S, A).

    Kinds that can make the same moves share one `Moves`.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(
    ...     fg.MDP([[[0.5, 0.5]], [[1.0, 0.0]]], [[0.0], [1.0]], 0.5), [[1.0], [1.0]], num_agents=3
    ... )
    >>> [moves] = kind_moves(fed, fg.QLearning().policies(fed))
    >>> moves.state, moves.next
    (array([0, 0, 1]), array([0, 1, 0]))
    """
    rewards = stacked_rewards(problem)
    ratios = np.ones_like(policies) if ratios is None else ratios
    for kinds in _alike(problem, policies):
        kind = int(kinds[0])
        mdp = problem.mdps[kind % len(problem.mdps)]
        transitions = mdp.transitions
        cell = np.repeat(
            np.arange(problem.num_states * problem.num_actions), np.diff(transitions.indptr)
        )
        possible = policies[kind % len(policies)].ravel()[cell] > 0
        cell, following = cell[possible], transitions.indices[possible].astype(np.int64)
        state, action = np.divmod(cell, problem.num_actions)
        at_once = max(1, RATIOS_AT_ONCE // len(cell))
        for some in np.split(kinds, range(at_once, len(kinds), at_once)):
            yield Moves(
                kinds=some,
                state=state,
                action=action,
                next=following,
                ratio=ratios[some % len(ratios)].reshape(len(some), -1)[:, cell],
                reward=rewards[kind % len(rewards)].ravel()[cell],
                discount=mdp.discounts_of(state, action, following),
            )


def _alike(problem: Federation, policies: np.ndarray) -> Iterator[np.ndarray]:
    """Groups of kinds that share an environment and take the same actions."""
    if len(problem.mdps) > 1:
        yield from np.arange(len(problem.mdps))[:, None]
        return
    taken = np.packbits((policies > 0).reshape(len(policies), -1), axis=1)
    group_of = np.unique(taken, axis=0, return_inverse=True)[1].ravel()
    order = np.argsort(group_of, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(group_of[order])) + 1)
