"""Live environments: what a reader adds to the environment's own step.

    python benchmarks/live.py [--steps 20000] [--turns 9]

The bare loop makes the same actions and the same resets in the same environment and keeps nothing.
Both are timed in turn, in seconds of this thread's processor; the table has the fastest turns. The
second table is for a vector environment: Gymnasium's native CartPole, with starts that follow from
the seed of each copy, as `fegsam.VectorSource` needs them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

import fegsam as fg
from fegsam.engines.cpu.recorded import compiled_agent
from fegsam.prepare import prepare

TAXI = max(env_id for env_id in gymnasium.registry if env_id.startswith("Taxi-v"))
ENVIRONMENTS = ("FrozenLake-v1", "CartPole-v1", TAXI)
PIECES = (50, 1000, 10_000)
COPIES, ROWS = 1000, 512
"""The copies of the vector environment, and the rows that each of them reads at once."""
PHI = fg.features.columns(4)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


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


class CartPoles(CartPoleVectorEnv):
    """Gymnasium's native CartPole, whose copies begin from the seeds that they are given."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        mask = options["reset_mask"]
        if self.state is None:
            super().reset(seed=0)
        assert self.state is not None
        # Four numbers from each seed, by the finaliser of SplitMix64.
        words = np.array(seed, np.uint64)[mask] + np.arange(1, 5, dtype=np.uint64)[:, None] * GOLDEN
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
        words ^= words >> np.uint64(31)
        self.state[:, mask] = (words >> np.uint64(11)) * 2.0**-53 * 0.1 - 0.05
        self.steps[mask], self.prev_done[mask] = 0, False
        return self.state.T.astype(np.float32), {}


def bare_copies(env: Any, ticks: int) -> None:
    """The bare loop over all copies."""
    actions = np.random.default_rng(0).integers(0, 2, (ticks, COPIES))
    seeds, everything = [0] * COPIES, {"reset_mask": np.ones(COPIES, bool)}
    env.reset(seed=seeds, options=everything)
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        over = terminated | truncated
        if over.any():
            env.reset(seed=seeds, options={"reset_mask": over})


def measure_copies(ticks: int, turns: int) -> dict[str, float]:
    """Microseconds per step of one copy: the bare loop, the readers, and TD with features."""
    best = dict.fromkeys(("bare", "rows", "rows and TD"), np.inf)
    source = fg.VectorSource(CartPoles, [[0.5, 0.5]])
    readers = [source.open(discount=0.9, seed=0, agent=agent) for agent in range(COPIES)]
    data = fg.DataFederation(source, discount=0.9, num_agents=COPIES, features=PHI, held_out=0)
    job = prepare(data, fg.OnPolicyTD(), step_size=0.1, sync_period=ROWS, num_steps=ROWS)
    agents = [compiled_agent(job, 0, agent) for agent in range(COPIES)]
    made, env, params = COPIES * ticks, CartPoles(COPIES), np.zeros(4)

    def read() -> None:
        for _ in range(ticks // ROWS):
            for reader in readers:
                reader.read(ROWS)

    def learn() -> None:
        for _ in range(ticks // ROWS):
            for agent in agents:
                agent.local_steps(params, ROWS)

    for call in (read, learn):
        call()
    for _ in range(turns):
        for name, call in (("bare", lambda: bare_copies(env, ticks)), ("rows", read)):
            best[name] = min(best[name], seconds(call) / made)
        best["rows and TD"] = min(best["rows and TD"], seconds(learn) / made)
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
    print(f"\n{COPIES} copies of the native CartPole: microseconds and millions of steps a second")
    for name, found in measure_copies(2 * ROWS, given.turns).items():
        print(f"{name:16}{found:8.3f}{1 / found:18.2f} M")


if __name__ == "__main__":
    main()
