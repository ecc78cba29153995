"""Agents whose actions follow from their own parameters, in plain Python.

The state of such an agent at time t is the pair (S_t, A_t), held as the cell ``S_t * num_actions +
A_t``. Step t draws S_{t+1} by the state word of t, and A_{t+1} by the action word of t + 1 from the
policy of the parameters before the step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.engines.job import Agents, Chain
from fegsam.engines.paths import SimulatedStream
from fegsam.problem.acting import Acting, choose_action
from fegsam.randomness import ONE, PATH, TWO, choose, words


class ActingStream(SimulatedStream):
    """The transitions of an agent that acts by its current `params`, which its owner sets."""

    def __init__(
        self,
        chain: Chain,
        agents: Agents,
        acting: Acting,
        window: int,
        seed: int,
        agent: int,
        params: np.ndarray,
    ) -> None:
        super().__init__(chain, agents, "markov", window, seed, agent)
        self._acting, self.params = acting, params
        state = np.uint64(self._state)
        self._state = int(state * chain.num_actions + self._action(state, 0))

    def read(self, rows: Path, count: int) -> int:
        assert count == 1, "the next action depends on the step"
        chain, cell = self._chain, np.uint64(self._state)
        _, word = words(self._seed, self._agent, np.uint64(self._time), PATH)
        row = TWO * (self._mdp * chain.num_states * chain.num_actions + cell)
        first, size = np.uint64(chain.row[row]), np.uint64(chain.row[row + ONE])
        following = np.uint64(choose(word, first, size, chain.entry))
        action = self._action(following, self._time + 1)
        rows.states[:2] = cell // chain.num_actions, following
        rows.actions[:2] = cell % chain.num_actions, action
        self._time, self._state = self._time + 1, int(following * chain.num_actions + action)
        return 1

    def _action(self, state: Any, time: int) -> Any:
        """A_time in `state`."""
        count, acting = self._chain.num_actions, self._acting
        word, _ = words(self._seed, self._agent, np.uint64(time), PATH)
        return choose_action(word, self.params, state * count, count, acting.code, acting.amount)
