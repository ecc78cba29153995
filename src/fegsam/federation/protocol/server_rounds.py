"""The server's side of a method: who is asked, what is sent, and what the replies of a round do.

Beside the average, a method may keep these arrays in the `memory` of a federation's state:

    velocity      (d): of a server with momentum
    variate_mean  (d): gbar, where each agent keeps its own control variate g_i
    variates      (M, d): the control variate of each kind

An agent adds c_i = gbar - g_i to its steps, whose sizes sum to A in the round, and its new variate
is g_i' = Delta_i / A - c_i. Therefore g_i' - g_i = Delta_i / A - gbar, and the server moves gbar
by the weighted sum of these without ever knowing a g_i.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from fegsam.engines.round_draws import participants
from fegsam.federation.protocol.ledger import FederationState
from fegsam.federation.protocol.terms import Terms
from fegsam.methods.aggregate import Aggregator, Replies, ServerState
from fegsam.methods.variates import Variates


class ServerRounds:
    """The method of an experiment, as its server follows it."""

    def __init__(self, terms: Terms) -> None:
        self.plan, self._seed, self._kinds = terms.plan, terms.seed, terms.kinds
        self._method, self._reach = terms.method, terms.reach
        steps = terms.method.local_steps
        self._largest_factor = 1.0 if steps is None else float(steps.factors(terms.kinds).max())
        self._aggregator = Aggregator(terms.method, terms.kinds, terms.num_kinds)
        self._variates: Variates | None = None
        correction = terms.method.correction
        if correction is not None and correction.of == "kind":
            weights, dimension = self._aggregator.weights, len(terms.initial_params)
            self._variates = Variates.start(
                correction, terms.kinds, weights, terms.num_kinds, dimension
            )

    @property
    def agents_keep_variates(self) -> bool:
        correction = self._method.correction
        return correction is not None and correction.of == "agent"

    def drawn(self, number: int) -> np.ndarray | None:
        """int64 (m): the agents that take part in a round; None: all."""
        if self._method.participation is None:
            return None
        return participants(self._method.participation, len(self._kinds), self._seed, number)

    def local_steps(self) -> dict[int, int]:
        """The number of local steps of each agent in a round, where they differ."""
        if self._method.local_steps is None:
            return {}
        return dict(enumerate(self._method.local_steps.of_agents(self._kinds).tolist()))

    def sent(self, state: FederationState) -> np.ndarray:
        """(d): where the agents start the next round."""
        return self._aggregator.sent(self._server_state(state))

    def start(self, state: FederationState) -> np.ndarray:
        """(1 or 2, d): where the next round starts, and gbar where agents keep their variates."""
        rows = self.sent(state)[None]
        return (
            np.concatenate((rows, self._mean_variate(state)[None]))
            if self.agents_keep_variates
            else rows
        )

    def corrections(self, state: FederationState, agents: Sequence[int]) -> np.ndarray | None:
        """(m, d): what each agent adds to its steps, where the server keeps the variates."""
        if self._variates is None:
            return None
        return self._kind_variates(state).corrections(np.array(agents))

    def too_large(
        self, number: int, start: np.ndarray, norm_bound: float
    ) -> Callable[[np.ndarray], bool]:
        """Whether changes (stops, d) of a round are larger than it can make them, or may be."""
        bound, reach = np.inf, self._reach
        if reach is not None:
            length = self.plan.begin(number + 1) - self.plan.begin(number)
            furthest = reach.furthest(start, self.plan.step_sizes(number, length))
            bound = reach.reported(furthest, self._method, self._largest_factor, len(start))

        def judge(changes: np.ndarray) -> bool:
            if reach is not None and not reach.size(changes).max() <= bound:
                return True
            with np.errstate(over="ignore"):
                return not np.linalg.norm(changes, axis=1).max() <= norm_bound

        return judge

    def measured(
        self, state: FederationState, agents: np.ndarray, params: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """(d): the mean of the agents' parameters (m, d) inside a round, and their spread."""
        if len(agents) == 0:
            return self.sent(state), 0.0
        mean = self._aggregator.mean(params, agents)
        return mean, self._aggregator.spread(params, agents, mean)

    def synchronise(self, state: FederationState, agents: np.ndarray, reported: np.ndarray) -> None:
        """Move the state by what agents reported (m, d) at the end of its current round."""
        before = self._server_state(state)
        if self._method.is_plain:  # which needs no changes: they are as many numbers again
            state.average = self._aggregator.mean(reported, agents)
            return
        changes = reported - self._aggregator.sent(before)
        if self._method.correction is not None:
            self._move_variates(state, agents, changes)
        after = self._aggregator.update(before, Replies(agents, reported, changes))
        state.average = after.params
        if self._method.server.momentum:
            state.memory["velocity"] = after.velocity

    def _move_variates(
        self, state: FederationState, agents: np.ndarray, changes: np.ndarray
    ) -> None:
        """Move the control variates, or their mean, by the changes (m, d) of a round."""
        number = state.round
        length = self.plan.begin(number + 1) - self.plan.begin(number)
        means = changes / self.plan.step_sizes(number, length).sum()
        if self.agents_keep_variates:
            mean = self._mean_variate(state)
            moved = self._aggregator.weights[agents] @ (means - mean)
            state.memory["variate_mean"] = mean + moved
        else:
            variates = self._kind_variates(state)
            fresh = means - variates.corrections(agents)
            state.memory["variates"] = variates.after(agents, fresh).values

    def _server_state(self, state: FederationState) -> ServerState:
        velocity = state.memory.get("velocity")
        return ServerState(
            state.average, np.zeros_like(state.average) if velocity is None else velocity
        )

    def _mean_variate(self, state: FederationState) -> np.ndarray:
        return state.memory.get("variate_mean", np.zeros_like(state.average))

    def _kind_variates(self, state: FederationState) -> Variates:
        assert self._variates is not None
        values = state.memory.get("variates", self._variates.values)
        return dataclasses.replace(self._variates, values=values)
