"""Four agents learn to balance Gymnasium's CartPole by Q-learning with tile features.

No theorem covers Q-learning with features; the figures are the returns of the greedy policy.
"""

from __future__ import annotations

import fegsam as fg

STEPS = 20_000


def main() -> None:
    # The ranges are declared, since the environment's own are infinite.
    tiles = fg.features.tiles([-2.4, -3, -0.21, -3], [2.4, 3, 0.21, 3], tiles=6, tilings=8)
    data = fg.DataFederation(
        fg.LiveSource("CartPole-v1", [[0.5, 0.5]]),
        discount=0.97,
        num_agents=4,
        features=tiles,
        held_out=0.0,
        evaluation=fg.Evaluation(episodes=10, longest=500),
    )
    history = fg.run(
        data,
        fg.LinearQLearning(),
        step_size=0.05,
        sync_period=200,
        num_steps=STEPS,
        record=[0, STEPS],
    )
    before, after = history.data.greedy_return.values[0]
    print(f"the greedy policy balances for {before:.0f} steps before learning, {after:.0f} after")


if __name__ == "__main__":
    main()
