"""Algorithm 4: federated Q-learning (Section 6.2, Theorem 6.2).

At step t agent i, in state S with action A ~ pi^i(.|S) and next state S', updates one cell of its
own table,

    Q(S, A) += alpha * (R(S, A) + gamma * max_a Q(S', a) - Q(S, A)),

and every K steps all agents replace their table by the average. Q* is a rest point of every agent.
The average converges to it if every action is tried in every state by some agent: with the mean
over the agents m(s, a) of how often they visit a cell, the mean step of the average contracts in
the sup norm by 1 - alpha (1 - gamma) min m. The theorem asks for more, that each agent alone tries
every action. Its norm is the sup norm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fegsam.algorithms.on_data import OnData, action_count, state_count
from fegsam.algorithms.reading import cell_reward, discount
from fegsam.algorithms.rule import ONE, Path
from fegsam.algorithms.structure import Control
from fegsam.algorithms.td import (
    behavior_policies,
    discount_table,
    require_federation,
    stacked_rewards,
)
from fegsam.data.federation import DataFederation
from fegsam.errors import ProblemError
from fegsam.problem.federation import Problem


class QTables(NamedTuple):
    rewards: np.ndarray
    """(1 or M, S * A)"""
    discount: np.float64 | np.ndarray
    """one for all transitions, or (1 or M, 1 or S, 1 or A, 1 or S)"""
    num_actions: np.uint64


def q_learning_rule(params: np.ndarray, path: Path, t: Any, tables: QTables) -> tuple[Any, Any]:
    """The temporal difference of the visited cell, with the best action of the next state."""
    s, a, s_next = path.states[t], path.actions[t], path.states[t + ONE]
    row = s_next * tables.num_actions
    best = params[row]
    for other in range(ONE, tables.num_actions):
        value = params[row + other]
        best = value if value > best else best
    cell = s * tables.num_actions + a
    gain = cell_reward(path, tables, t, cell) + discount(path, tables, t) * best
    return cell, gain - params[cell]


@dataclass(frozen=True)
class QLearning:
    """Federated Q-learning: all agents learn Q* of the shared MDP, each from its own policy.

    Every action must be tried in every state by some agent, not by each of them.

    The parameters are the flat table, with (s, a) in cell ``s * num_actions + a``.

    Examples
    --------
    >>> import fegsam as fg
    >>> mdp = fg.examples.garnet(10, 3, 4, discount=0.8, seed=0)
    >>> fed = fg.Federation(mdp, fg.policies.uniform(10, 3), num_agents=8)
    >>> history = fg.run(fed, fg.QLearning(), step_size=0.1, sync_period=10, num_steps=10_000)
    >>> bool(history.data.squared_error[0, -1] < history.data.squared_error[0, 0] / 10)
    True
    """

    form = "cell"
    norm = "sup"
    window = 1
    theorem = "fed_Q"
    reads_discounts = True

    @property
    def rule(self) -> Callable[..., Any]:
        return q_learning_rule

    def check(self, problem: Problem) -> None:
        self.policies(problem)

    def check_together(self, problem: Problem) -> None:
        """Refuse a state and an action that no agent tries."""
        policies = self.policies(problem)
        if len(policies) > 1:
            policies = policies[problem.kind_counts > 0]
        missing = np.argwhere(policies.max(axis=0) <= 0)
        if len(missing):
            state, action = missing[0]
            raise ProblemError(
                f"Q-learning needs every action tried in every state, but no agent ever takes "
                f"action {action} in state {state}; give it a positive probability in one of the "
                "behaviour policies."
            )

    def dimension(self, problem: Problem) -> int:
        federation = require_federation(problem, self)
        return federation.num_states * federation.num_actions

    def policies(self, problem: Problem) -> np.ndarray:
        return behavior_policies(require_federation(problem, self))

    def tables(self, problem: Problem) -> QTables:
        federation = require_federation(problem, self)
        rewards = stacked_rewards(federation).reshape(len(federation.mdps), -1)
        num_actions = np.uint64(federation.num_actions)
        return QTables(rewards, discount_table(federation), num_actions)

    def on_data(self, data: DataFederation) -> OnData:
        """How the rule runs on recorded data."""
        states, actions = state_count(self, data), action_count(self, data)
        tables = QTables(np.zeros((1, 0)), np.float64(data.discount), np.uint64(actions))
        return OnData(states * actions, lambda rows, actions: tables, control=True)

    def structure(self, problem: Problem) -> Control:
        return Control()
