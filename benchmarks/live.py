"""Live environments: what a reader adds to the environment's own step.

    python benchmarks/live.py [--steps 20000] [--turns 9]

The bare loop makes the same actions and the same resets in the same environment and keeps nothing.
Both are timed in turn, in seconds of this thread's processor; the table has the fastest turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

import fegsam as fg

TAXI = max(env_id for env_id in gymnasium.registry if env_id.startswith("Taxi-v"))
ENVIRONMENTS = ("FrozenLake-v1", "CartPole-v1", TAXI)
PIECES = (50, 1000, 10_000)


class Noting(gymnasium.Wrapper):
    """Notes the seeds of resets and the actions."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.seeds: list[int] = []
        self.actions: list[int] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        assert seed is not None
        self.seeds.append(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: int) -> Any:
        self.actions.append(action)
        return self.env.step(action)


def bare(env: Any, actions: list[int], seeds: list[int]) -> None:
    """The bare loop."""
    resets = iter(seeds)
    env.reset(seed=next(resets))
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset(seed=next(resets))


def seconds(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began


def measure(env_id: str, policy: Any, steps: int, turns: int) -> dict[str, float]:
    """Microseconds per step of the bare loop, and of the reader by rows per read."""
    noting = Noting(gymnasium.make(env_id))
    fg.LiveSource(lambda: noting, policy).open(discount=0.9, seed=0, agent=0).read(2 * steps)
    actions, seeds = noting.actions[:steps], noting.seeds
    env = gymnasium.make(env_id)
    reader = fg.LiveSource(lambda: env, policy).open(discount=0.9, seed=0, agent=0)
    start, best = reader.save(), dict.fromkeys(["bare", *map(str, PIECES)], np.inf)
    for _ in range(turns):
        best["bare"] = min(best["bare"], seconds(lambda: bare(env, actions, seeds)) / steps)
        for piece in PIECES:
            reader.restore(start)
            made = 0
            began = time.thread_time()
            while made < steps:
                made += piece - int(np.count_nonzero(reader.read(piece).gap))
            best[str(piece)] = min(best[str(piece)], (time.thread_time() - began) / made)
    return {name: 1e6 * value for name, value in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=9)
    given = parser.parse_args()
    print("Microseconds per step, and the ratio to the bare loop, by rows per read")
    print(f"{'':16}{'bare':>8}" + "".join(f"{f'read({piece})':>18}" for piece in PIECES))
    for env_id in ENVIRONMENTS:
        env = gymnasium.make(env_id)
        spaces: Any = env.observation_space, env.action_space
        states = int(getattr(spaces[0], "n", 1))
        policy = fg.policies.uniform(states, int(spaces[1].n))
        found = measure(env_id, policy, given.steps, given.turns)
        cells = [f"{found[str(p)]:.2f} ({found[str(p)] / found['bare']:.2f})" for p in PIECES]
        print(f"{env_id:16}{found['bare']:8.2f}" + "".join(f"{cell:>18}" for cell in cells))


if __name__ == "__main__":
    main()
