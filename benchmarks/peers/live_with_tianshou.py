"""Tianshou: its collector with random actions; it has no Q-learning on tables.

python benchmarks/peers/live_with_tianshou.py
"""

from __future__ import annotations

from importlib.metadata import version

import gymnasium
from live_task import ENVIRONMENT, STEPS, measure
from tianshou.algorithm.algorithm_base import Policy
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv


class AtRandom(Policy):
    """Actions at random; the collector is asked for them."""

    def forward(self, batch, state=None, **kwargs):
        return Batch(act=[self.action_space.sample() for _ in batch.obs], state=state)


def main() -> None:
    for copies in (1, 10):
        lakes = DummyVectorEnv([lambda: gymnasium.make(ENVIRONMENT)] * copies)
        policy = AtRandom(action_space=gymnasium.make(ENVIRONMENT).action_space)
        collector = Collector(policy, lakes, VectorReplayBuffer(STEPS, copies))
        collector.reset()

        def collect(collector: Collector = collector) -> None:
            collector.collect(n_step=STEPS, random=True)

        many = f", {copies} copies" if copies > 1 else ""
        measure(f"Tianshou {version('tianshou')}", f"`Collector.collect`, no update{many}", collect)


if __name__ == "__main__":
    main()
