"""MushroomRL: its Q-learning and its loop; this script wraps the environment.

python benchmarks/peers/live_with_mushroom.py
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np
from live_task import ACTIONS, DISCOUNT, ENVIRONMENT, STATES, STEP_SIZE, STEPS, measure
from mushroom_rl.algorithms.value import QLearning
from mushroom_rl.core import Core, Environment, MDPInfo
from mushroom_rl.policy import EpsGreedy
from mushroom_rl.utils.parameters import Parameter
from mushroom_rl.utils.spaces import Discrete


class Lake(Environment):
    """The lake with the package's interface; its own wrapper is for an older Gym."""

    def __init__(self) -> None:
        self._env = gymnasium.make(ENVIRONMENT)
        super().__init__(MDPInfo(Discrete(STATES), Discrete(ACTIONS), DISCOUNT, 10**9))

    def reset(self, state: Any = None) -> np.ndarray:
        return np.atleast_1d(self._env.reset()[0])

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        then, reward, terminated, truncated, _ = self._env.step(int(action[0]))
        if truncated and not terminated:  # it has no word for this
            then = self._env.reset()[0]
        return np.atleast_1d(then), float(reward), terminated, {}


def main() -> None:
    lake = Lake()
    agent = QLearning(lake.info, EpsGreedy(Parameter(1.0)), Parameter(STEP_SIZE))
    core = Core(agent, lake)

    def learn() -> np.ndarray:
        core.learn(n_steps=STEPS, n_steps_per_fit=1, quiet=True)
        return np.array(agent.Q.table)

    measure(f"MushroomRL {version('mushroom-rl')}", "`QLearning` in `Core.learn`", learn)


if __name__ == "__main__":
    main()
