"""The server's side of a round: from the agents' parameters to those of the next round.

`reference` and the deployed federation use an `Aggregator`; `cpu` and `cuda` do the same in their
own compiled code, and `tests/agreement` checks that the results agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.methods.average import ByVisits, Mean
from fegsam.methods.method import Method


@dataclass(frozen=True)
class ServerState:
    """What the server keeps from round to round."""

    params: np.ndarray
    """x (d)"""
    velocity: np.ndarray
    """v (d): zero without momentum"""


@dataclass(frozen=True)
class Replies:
    """What the agents that take part in a round report."""

    agents: np.ndarray
    """int64 (m): which agents, in order"""
    params: np.ndarray
    """(m, d): their parameters after the local steps"""
    changes: np.ndarray
    """(m, d): their changes as reported, after scaling and rounding"""
    log_weights: np.ndarray | None = None
    """(m, d): for an average by visits, minus the sum of log(1 - alpha_t) over an agent's visits"""


class Aggregator:
    """A method's server for N agents of the given kinds. It keeps no state of its own.

    Examples
    --------
    >>> import numpy as np
    >>> from fegsam.methods.method import Method
    >>> aggregator = Aggregator(Method(), np.zeros(2, np.int64), 1)
    >>> state = aggregator.start(np.zeros(1))
    >>> ended = np.array([[1.0], [3.0]])
    >>> aggregator.update(state, Replies(np.arange(2), ended, ended)).params
    array([2.])
    """

    def __init__(self, method: Method, kinds: np.ndarray, num_kinds: int) -> None:
        self.method, self._agents = method, len(kinds)
        self._plain = method.is_plain
        average = method.average if isinstance(method.average, Mean) else Mean()
        self.weights = average.of_agents(kinds, num_kinds)
        participation = method.participation
        self._over_all = participation is not None and participation.divide_by == "all"

    def start(self, params: np.ndarray) -> ServerState:
        return ServerState(params, np.zeros_like(params))

    def sent(self, state: ServerState) -> np.ndarray:
        """(d): where the agents start the next round."""
        return self.method.server.sent(state.params, state.velocity)

    def mean(self, params: np.ndarray, agents: np.ndarray) -> np.ndarray:
        """(..., d): the weighted mean of the parameters (m, ..., d) of some agents."""
        if self._plain:
            return params.mean(axis=0)
        weights = self.weights[agents]
        return np.tensordot(weights / weights.sum(), params, 1)

    def spread(self, params: np.ndarray, agents: np.ndarray, mean: np.ndarray) -> float:
        """The weighted mean squared distance of parameters (m, d) from their mean."""
        with np.errstate(over="ignore"):
            squares = np.square(params - mean).sum(axis=1)
        if self._plain:
            return float(np.mean(squares))
        weights = self.weights[agents]
        return float(weights @ squares / weights.sum())

    def update(self, state: ServerState, replies: Replies) -> ServerState:
        """The state after the round."""
        if self._plain:
            return ServerState(replies.params.mean(axis=0), state.velocity)
        change = self._change(replies, len(state.params))
        return ServerState(*self.method.server.update(state.params, state.velocity, change))

    def _change(self, replies: Replies, dimension: int) -> np.ndarray:
        """(d): the round's change D."""
        if len(replies.agents) == 0:
            return np.zeros(dimension)
        if isinstance(self.method.average, ByVisits):
            return self._by_visits(replies)
        weights = self.weights[replies.agents]
        return weights @ replies.changes / (1.0 if self._over_all else weights.sum())

    def _by_visits(self, replies: Replies) -> np.ndarray:
        changes, log_weights = replies.changes, replies.log_weights
        assert log_weights is not None
        if self._over_all:
            silent = np.zeros((self._agents - len(changes), changes.shape[1]))
            changes, log_weights = (
                np.concatenate((each, silent)) for each in (changes, log_weights)
            )
        return ByVisits.combined(changes, log_weights)
