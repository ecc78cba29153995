"""The task on data for every package: Q-learning on Gymnasium's frozen lake, acting at random.

    python benchmarks/peers/live_task.py

prints what the bare loop over `env.step` costs, and the usual loop with a table of NumPy. The other
scripts need this file, NumPy, Gymnasium and their package; `live_table.py` runs all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import gymnasium
import numpy as np

ENVIRONMENT, STATES, ACTIONS = "FrozenLake-v1", 16, 4
DISCOUNT, STEP_SIZE, STEPS = 0.95, 0.1, 20_000


def best() -> np.ndarray:
    """Q* (S, A), by value iteration on the lake's own table; 0 after an end."""
    lake, q = gymnasium.make(ENVIRONMENT).unwrapped, np.zeros((STATES, ACTIONS))
    for _ in range(1000):
        q = np.array(
            [
                [
                    sum(
                        p * (r + DISCOUNT * (not end) * q[then].max())
                        for p, then, r, end in lake.P[s][a]
                    )
                    for a in range(ACTIONS)
                ]
                for s in range(STATES)
            ]
        )
    return q


def recorded() -> list[tuple[int, int, float, int, bool, bool]]:
    """(state, action, reward, next state, terminated, truncated) of STEPS random steps."""
    env, actions = gymnasium.make(ENVIRONMENT), np.random.default_rng(0).integers(0, ACTIONS, STEPS)
    found, (now, _) = [], env.reset(seed=0)
    for action in actions.tolist():
        then, reward, terminated, truncated, _ = env.step(action)
        found.append((now, action, float(reward), then, terminated, truncated))
        now = env.reset()[0] if terminated or truncated else then
    return found


def measure(
    package: str, did: str, work: Callable[[], np.ndarray | None], steps: int = STEPS
) -> None:
    """Print one line of JSON: the processor time for each step, and the error of Q if there is one.

    `work` returns a table (S, A), or None. States in which an episode ends do not count.
    """
    begun = time.process_time()
    q = work()
    spent = time.process_time() - begun
    exact = best()
    ends = exact.any(axis=1)
    error = None if q is None else float(np.abs(q - exact)[ends].max())
    row = {"package": package, "did": did, "microseconds": 1e6 * spent / steps, "error": error}
    print(json.dumps(row), flush=True)


def bare() -> None:
    env, actions = gymnasium.make(ENVIRONMENT), np.random.default_rng(0).integers(0, ACTIONS, STEPS)
    chosen = actions.tolist()

    def loop() -> None:
        env.reset(seed=0)
        for action in chosen:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    measure("env.step alone", "random actions made before, nothing kept", loop)


def usual() -> None:
    env, random = gymnasium.make(ENVIRONMENT), np.random.default_rng(0)

    def loop() -> np.ndarray:
        q, (now, _) = np.zeros((STATES, ACTIONS)), env.reset(seed=0)
        for _ in range(STEPS):
            action = int(random.integers(ACTIONS))
            then, reward, terminated, truncated, _ = env.step(action)
            goal = reward + (0.0 if terminated else DISCOUNT * q[then].max())
            q[now, action] += STEP_SIZE * (goal - q[now, action])
            now = env.reset()[0] if terminated or truncated else then
        return q

    measure("a loop by hand", "env.step and the update of a NumPy table", loop)


if __name__ == "__main__":
    bare()
    usual()
