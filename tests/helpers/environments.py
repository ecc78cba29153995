"""Environments for tests, with Gymnasium's interface."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from fegsam.engines.job import lower_chain
from fegsam.randomness import FIRST_STATE, PATH, choose, choose_index, words


class MdpEnvironment(gymnasium.Env):
    """A federation's only MDP, which draws its states as a simulated agent under `seed` does."""

    def __init__(self, federation: Any, seed: int, agent: int) -> None:
        mdp = federation.mdps[0]
        self.observation_space = spaces.Discrete(mdp.num_states)
        self.action_space = spaces.Discrete(mdp.num_actions)
        self._mdp, self._of = mdp, (np.uint64(seed), np.uint64(agent))
        self._chain = lower_chain(federation, federation.behavior_policies, "markov")
        self._time = 0

    def reset(self, *, seed=None, options=None):
        word, _ = words(*self._of, np.uint64(0), FIRST_STATE)
        chain = self._chain
        self._state = int(choose_index(word, np.uint64(0), chain.num_states, chain.first))
        self._time = 0
        return self._state, {}

    def step(self, action):
        _, word = words(*self._of, np.uint64(self._time), PATH)
        cell = self._state * self._mdp.num_actions + action
        reward = float(self._mdp.rewards[self._state, action])
        first, size = self._chain.row[2 * cell : 2 * cell + 2].astype(np.uint64)
        self._state = int(choose(word, first, size, self._chain.entry))
        self._time += 1
        return self._state, reward, False, False, {}


class Walker(gymnasium.Env):
    """A random walk whose noise follows from the seed of reset, with every kind of end.

    With a chance of .1 each, a step terminates, truncates or does both. Observations are states 0
    to 4, or three numbers in their place. One that is not honest depends on its past, too.
    """

    def __init__(
        self,
        *,
        vectors: bool = False,
        dtype: str = "float32",
        start: int = 0,
        honest: bool = True,
    ) -> None:
        self._vectors, self._start, self._honest = vectors, start, honest
        self.action_space = spaces.Discrete(3, start=start)
        self.observation_space = (
            spaces.Box(0, 9, (3,), np.dtype(dtype).type)
            if vectors
            else spaces.Discrete(5, start=start)
        )
        self.told: list[tuple[Any, ...]] = []
        """(seed, first observation) of each reset and what each step was told and gave"""
        self._buffer = np.zeros(3, dtype)

    def _show(self) -> Any:
        if not self._vectors:
            return self._state + self._start
        # One array for all observations, as some environments have it.
        self._buffer[:] = self._state / 3, 9 * self._rng.random(), 0.1
        return self._buffer

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._rng = np.random.default_rng([seed] if self._honest else [seed, len(self.told)])
        self._state = int(self._rng.integers(5))
        shown = self._show()
        self.told.append(("reset", seed, np.copy(shown)))
        return shown, {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._state = int((self._state + action - self._start + self._rng.integers(2)) % 5)
        chance = self._rng.random()
        terminated, truncated = 0.1 <= chance < 0.3, chance < 0.2
        shown, reward = self._show(), float(self._rng.normal())
        self.told.append((action, reward, terminated, truncated, np.copy(shown)))
        return shown, reward, terminated, truncated, {}


def rows_of(told: list[tuple[Any, ...]], *, start: int, discount: float) -> list[tuple]:
    """(observation, action, reward, discount, gap) of each row, from what a `Walker` was told."""

    def plain(shown: np.ndarray) -> Any:
        return int(shown) - start if shown.ndim == 0 else shown.astype(np.float64).tolist()

    rows, now = [], None
    for event in told:
        if event[0] == "reset" and len(event) == 3:
            now = plain(event[2])
            continue
        action, reward, terminated, truncated, shown = event
        rows.append((now, action - start, reward, 0.0 if terminated else discount, False))
        now = plain(shown)
        if terminated or truncated:
            rows.append((now, 0, 0.0, 0.0, True))
    return rows
