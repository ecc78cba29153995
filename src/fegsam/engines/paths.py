"""One agent's path, drawn in plain Python: what the `reference` engine runs on and `sample_path`
shows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fegsam.algorithms.rule import Algorithm, Path, check_algorithm
from fegsam.engines.plan import (
    Agents,
    Chain,
    Plan,
    Sampling,
    check_sampling,
    check_seeds,
    lower_agents,
    lower_chain,
)
from fegsam.engines.randomness import FIRST_STATE, IID, ONE, PATH, TWO, choose, choose_index, words
from fegsam.errors import ProblemError
from fegsam.problem.checks import integer
from fegsam.problem.federation import Federation, MarkovNoise


class SampledPath(NamedTuple):
    """What an agent sees. For i.i.d. sampling both arrays have one row per step, its window."""

    states: np.ndarray
    """int64 (T + n), or (T, n + 1)"""
    actions: np.ndarray
    """int64 (T + n - 1), or (T, n)"""


def sample_path(
    problem: Federation | MarkovNoise,
    algorithm: Algorithm,
    *,
    seed: int,
    agent: int,
    num_steps: int,
    sampling: Sampling = "markov",
) -> SampledPath:
    """The states and actions that an agent sees in `num_steps` steps, the same in every engine.

    Step t uses the window that begins at ``states[t]``. The path depends on the seed, the agent and
    its kind alone: not on the number of agents, the synchronisation period, the step size or the
    look-ahead.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> path = fg.sample_path(fed, fg.QLearning(), seed=0, agent=3, num_steps=5)
    >>> len(path.states), len(path.actions)
    (6, 5)
    """
    check_algorithm(algorithm, problem)
    check_seeds((seed,))
    check_sampling(sampling)
    if integer(agent, "agent", least=-1) not in range(problem.num_agents):
        raise ProblemError(f"agent is {agent}; there are agents 0 to {problem.num_agents - 1}.")
    integer(num_steps, "num_steps")
    chain = lower_chain(problem, algorithm, sampling)
    agents = lower_agents(problem, algorithm)
    n = algorithm.window
    states, actions = _draw(chain, agents, n, sampling, seed, agent, 0, num_steps, None)
    if sampling == "iid":
        return SampledPath(
            states.reshape(num_steps, n + 1), actions.reshape(num_steps, n + 1)[:, :n]
        )
    return SampledPath(states[: num_steps + n], actions[: max(num_steps + n - 1, 0)])


def agent_path(
    plan: Plan,
    sampling: Sampling,
    seed: int,
    agent: int,
    start: int,
    num_steps: int,
    first_states: np.ndarray | None,
) -> Path:
    """The path that a rule reads, from time `start` on."""
    states, actions = _draw(
        plan.chain, plan.agents, plan.window, sampling, seed, agent, start, num_steps, first_states
    )
    kind = plan.agents.kinds[agent]
    return Path(
        states.astype(np.uint32),
        actions.astype(np.uint32),
        np.uint64(kind),
        np.uint64(plan.agents.mdps[kind]),
        np.uint64(plan.agents.policies[kind]),
    )


def _draw(
    chain: Chain,
    agents: Agents,
    window: int,
    sampling: Sampling,
    seed: int,
    agent: int,
    start: int,
    num_steps: int,
    first_states: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    key, who = np.uint64(seed), np.uint64(agent)
    kind = agents.kinds[agent]
    mdp, policy = np.uint64(agents.mdps[kind]), np.uint64(agents.policies[kind])
    if sampling == "iid":
        return _draw_windows(
            chain, mdp, policy, np.uint64(kind), key, who, start, num_steps, window
        )
    if first_states is None:
        word, _ = words(key, who, np.uint64(0), FIRST_STATE)
        s = choose_index(word, np.uint64(0), chain.num_states, chain.first)
    else:
        s = first_states[agent]
    transitions = num_steps + max(window, 1) - 1
    steps = np.arange(start, start + transitions, dtype=np.uint64)
    action_words, state_words = words(key, who, steps, PATH)
    states, actions = np.empty(transitions + 1, np.int64), np.empty(transitions, np.int64)
    states[0] = s
    for l in range(transitions):
        actions[l], states[l + 1] = _transition(
            chain, mdp, policy, states[l], action_words[l], state_words[l]
        )
    return states, actions


def _draw_windows(
    chain: Chain,
    mdp: Any,
    policy: Any,
    kind: Any,
    key: Any,
    who: Any,
    start: int,
    num_steps: int,
    window: int,
) -> tuple[np.ndarray, np.ndarray]:
    steps = np.arange(start, start + num_steps, dtype=np.uint64)
    states, actions = np.zeros((2, num_steps, window + 1), np.int64)
    first_words, _ = words(key, who, steps, IID)
    for k in range(num_steps):
        states[k, 0] = choose_index(
            first_words[k], kind * chain.num_states, chain.num_states, chain.law
        )
    for l in range(window):
        action_words, state_words = words(key, who, steps, IID + np.uint64(l) + ONE)
        for k in range(num_steps):
            actions[k, l], states[k, l + 1] = _transition(
                chain, mdp, policy, states[k, l], action_words[k], state_words[k]
            )
    return states.reshape(-1), actions.reshape(-1)


def _transition(
    chain: Chain, mdp: Any, policy: Any, s: Any, action_word: Any, state_word: Any
) -> tuple[Any, Any]:
    s = np.uint64(s)
    start = (policy * chain.num_states + s) * chain.num_actions
    action = choose_index(action_word, start, chain.num_actions, chain.policy)
    row = TWO * ((mdp * chain.num_states + s) * chain.num_actions + action)
    return action, choose(
        state_word, np.uint64(chain.row[row]), np.uint64(chain.row[row + ONE]), chain.entry
    )
