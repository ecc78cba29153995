"""Federated SARSA: on-policy control with a table of action values.

Every agent acts by a policy of its own current table Q, softmax or epsilon-greedy. At step t, in
state S with action A, it moves to S', draws A' from the policy of its current Q, and updates

    Q(S, A) += alpha * (R(S, A) + gamma * Q(S', A') - Q(S, A)),

and every K steps all agents replace their table by the average. So an agent's path depends on its
parameters, on K and on the other agents. At a fixed point the policy is that of Q, and Q solves the
mean equation of that policy: with one MDP, Q is the value of its own policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fegsam.algorithms.alg4_q_learning import QTables
from fegsam.algorithms.reading import discount, reward
from fegsam.algorithms.rule import ONE, Path
from fegsam.algorithms.structure import OnPolicyControl
from fegsam.algorithms.td import discount_table, require_federation, stacked_rewards
from fegsam.errors import ProblemError, shown
from fegsam.problem.acting import Acting, EpsilonGreedy, Softmax
from fegsam.problem.federation import Problem


def sarsa_rule(params: np.ndarray, path: Path, t: Any, tables: QTables) -> tuple[Any, Any]:
    """The temporal difference of the visited cell, with the action that is taken next."""
    cell = path.states[t] * tables.num_actions + path.actions[t]
    ahead = path.states[t + ONE] * tables.num_actions + path.actions[t + ONE]
    target = reward(path, tables, t) + discount(path, tables, t) * params[ahead]
    return cell, target - params[cell]


@dataclass(frozen=True)
class Sarsa:
    """Federated SARSA: each agent acts by its own current action values and learns their worth.

    The parameters are the flat table, with (s, a) in cell ``s * num_actions + a``. Behaviour and
    target policies of the federation are not used.

    Parameters
    ----------
    policy : fegsam.policies.Softmax or fegsam.policies.EpsilonGreedy
        How an agent acts.

    Examples
    --------
    >>> import fegsam as fg
    >>> mdp = fg.examples.garnet(10, 3, 4, discount=0.8, seed=0)
    >>> fed = fg.Federation(mdp, num_agents=8)
    >>> algorithm = fg.Sarsa(policy=fg.policies.Softmax(temperature=1.0))
    >>> history = fg.run(fed, algorithm, step_size=0.1, sync_period=10, num_steps=10_000)
    >>> bool(history.data.squared_error[0, -1] < history.data.squared_error[0, 0] / 10)
    True
    """

    policy: Acting = field(default_factory=Softmax)

    form = "cell"
    norm = "sup"
    window = 1
    reads_discounts = True

    def __post_init__(self) -> None:
        if not isinstance(self.policy, Softmax | EpsilonGreedy):
            raise ProblemError(
                f"policy is {shown(self.policy)}; give fegsam.policies.Softmax(temperature) or "
                "fegsam.policies.EpsilonGreedy(epsilon)."
            )

    @property
    def acting(self) -> Acting:
        """How actions follow from the parameters."""
        return self.policy

    @property
    def rule(self) -> Callable[..., Any]:
        return sarsa_rule

    def check(self, problem: Problem) -> None:
        require_federation(problem, self)

    def dimension(self, problem: Problem) -> int:
        federation = require_federation(problem, self)
        return federation.num_states * federation.num_actions

    def policies(self, problem: Problem) -> np.ndarray:
        """(1, S, A): the uniform policy, which takes the actions that the agents may take: all."""
        federation = require_federation(problem, self)
        shape = 1, federation.num_states, federation.num_actions
        return np.full(shape, 1 / federation.num_actions)

    def tables(self, problem: Problem) -> QTables:
        federation = require_federation(problem, self)
        rewards = stacked_rewards(federation).reshape(len(federation.mdps), -1)
        num_actions = np.uint64(federation.num_actions)
        return QTables(rewards, discount_table(federation), num_actions)

    def structure(self, problem: Problem) -> OnPolicyControl:
        return OnPolicyControl(self.policy)
