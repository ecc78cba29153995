"""One agent's path, drawn in plain Python: the stream of the `reference` engine, and `sample_path`.

The words of step t are a function of the seed, the agent and t. So a path can be drawn from any
time on, and the `reference` engine draws it in blocks before the updates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fegsam.algorithms.rule import Algorithm, Path, check_algorithm, require_fixed_policies
from fegsam.engines.agent import State
from fegsam.engines.job import (
    Agents,
    Chain,
    Sampling,
    check_sampling,
    check_seeds,
    lower_agents,
    lower_chain,
)
from fegsam.errors import ProblemError
from fegsam.problem.checks import integer
from fegsam.problem.federation import Problem
from fegsam.randomness import FIRST_STATE, IID, ONE, PATH, TWO, choose, choose_index, words

_AT_ONCE = 256
"""The fewest steps that are drawn together: one call makes the words of all of them."""


class SampledPath(NamedTuple):
    """What an agent sees. For i.i.d. sampling, row t of each array is the window of step t."""

    states: np.ndarray
    """int64 (T + n), or (T, n + 1)"""
    actions: np.ndarray
    """int64 (T + n - 1), or (T, n)"""


def sample_path(
    problem: Problem,
    algorithm: Algorithm,
    *,
    seed: int,
    agent: int,
    num_steps: int,
    sampling: Sampling = "markov",
) -> SampledPath:
    """The states and actions that an agent sees in `num_steps` steps, the same in every engine.

    Step t uses the window that begins at ``states[t]``. The path depends only on the seed, the
    agent and its kind, not on the number of agents, the synchronisation period, the step size or
    the look-ahead.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> path = fg.sample_path(fed, fg.QLearning(), seed=0, agent=3, num_steps=5)
    >>> len(path.states), len(path.actions)
    (6, 5)
    """
    check_algorithm(algorithm, problem)
    require_fixed_policies(algorithm, "a path is drawn without them")
    check_seeds((seed,))
    check_sampling(sampling)
    if integer(agent, "agent", least=-1) not in range(problem.num_agents):
        raise ProblemError(f"agent is {agent}; there are agents 0 to {problem.num_agents - 1}.")
    integer(num_steps, "num_steps")
    policies, n = algorithm.policies(problem), algorithm.window
    chain, agents = lower_chain(problem, policies, sampling), lower_agents(problem, policies)
    stream = SimulatedStream(chain, agents, sampling, n, seed, agent)
    rows = stream.rows(num_steps)
    stream.read(rows, num_steps)
    states, actions = rows.states.astype(np.int64), rows.actions.astype(np.int64)
    if sampling == "iid":
        windows = states[: num_steps * (n + 1)].reshape(num_steps, n + 1)
        return SampledPath(windows, actions[: windows.size].reshape(num_steps, n + 1)[:, :n])
    return SampledPath(states[: num_steps + n], actions[: max(num_steps + n - 1, 0)])


class SimulatedStream:
    """The transitions of agent `agent` under `seed`, for a rule that looks at `window` of them."""

    def __init__(
        self, chain: Chain, agents: Agents, sampling: Sampling, window: int, seed: int, agent: int
    ) -> None:
        kind = agents.kinds[agent]
        self._chain, self._iid, self._window = chain, sampling == "iid", window
        self._kind = np.uint64(kind)
        self._mdp, self._policy = np.uint64(agents.mdps[kind]), np.uint64(agents.policies[kind])
        self._seed, self._agent = np.uint64(seed), np.uint64(agent)
        self._time = 0
        word, _ = words(self._seed, self._agent, np.uint64(0), FIRST_STATE)
        self._state = int(choose_index(word, np.uint64(0), chain.num_states, chain.first))
        self._drawn, self._used = (np.zeros(0, np.uint32), np.zeros(0, np.uint32)), 0

    @property
    def time(self) -> int:
        return self._time

    @property
    def state(self) -> int:
        """S_t at the time t of the next step; 0 where windows are independent."""
        return 0 if self._iid else self._state

    @property
    def stride(self) -> int:
        return self._window + 1 if self._iid else 1

    def rows(self, steps: int) -> Path:
        states, actions = np.zeros((2, steps * self.stride + max(self._window, 1)), np.uint32)
        return Path(states, actions, self._kind, self._mdp, self._policy)

    def read(self, rows: Path, count: int) -> int:
        needed = count * self.stride + self._overlap
        if len(self._drawn[0]) - self._used < needed:
            self._drawn, self._used = self._draw(max(count, _AT_ONCE)), 0
        states, actions = (part[self._used : self._used + needed] for part in self._drawn)
        rows.states[:needed], rows.actions[:needed] = states, actions
        self._time, self._used = self._time + count, self._used + count * self.stride
        self._state = int(self._drawn[0][self._used]) if not self._iid else 0
        return count

    @property
    def _overlap(self) -> int:
        """The number of rows that a window reaches after its first one."""
        return 0 if self._iid else max(self._window, 1)

    def _draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the next `count` steps."""
        return self._independent(count) if self._iid else self._chained(count)

    def _chained(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        transitions = count + self._overlap - 1
        times = np.arange(self._time, self._time + transitions, dtype=np.uint64)
        action_words, state_words = words(self._seed, self._agent, times, PATH)
        states, actions = np.zeros((2, transitions + 1), np.uint32)
        states[0] = self._state
        for l in range(transitions):
            actions[l], states[l + 1] = self._transition(states[l], action_words[l], state_words[l])
        return states, actions

    def _independent(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """One window for each step, from the stationary distribution, one after the other."""
        chain, times = self._chain, np.arange(self._time, self._time + count, dtype=np.uint64)
        states, actions = np.zeros((2, count, self._window + 1), np.uint32)
        first_words, _ = words(self._seed, self._agent, times, IID)
        for k in range(count):
            first = self._kind * chain.num_states
            states[k, 0] = choose_index(first_words[k], first, chain.num_states, chain.law)
        for l in range(self._window):
            purpose = IID + np.uint64(l) + ONE
            action_words, state_words = words(self._seed, self._agent, times, purpose)
            for k in range(count):
                actions[k, l], states[k, l + 1] = self._transition(
                    states[k, l], action_words[k], state_words[k]
                )
        return states.reshape(-1), actions.reshape(-1)

    def _transition(self, s: Any, action_word: Any, state_word: Any) -> tuple[Any, Any]:
        chain, s = self._chain, np.uint64(s)
        start = (self._policy * chain.num_states + s) * chain.num_actions
        action = choose_index(action_word, start, chain.num_actions, chain.policy)
        row = TWO * ((self._mdp * chain.num_states + s) * chain.num_actions + action)
        first, size = np.uint64(chain.row[row]), np.uint64(chain.row[row + ONE])
        return action, choose(state_word, first, size, chain.entry)

    def save(self) -> dict[str, np.ndarray]:
        return {"time": np.array(self._time, np.int64), "state": np.array(self.state, np.uint32)}

    def restore(self, state: State) -> None:
        self._time, self._state = int(state["time"]), int(state["state"])
        self._drawn, self._used = (np.zeros(0, np.uint32), np.zeros(0, np.uint32)), 0
