"""Ten agents learn to cross Gymnasium's frozen lake, each in an environment of its own."""

from __future__ import annotations

import fegsam as fg


def main() -> None:
    lake = fg.LiveSource(
        "FrozenLake-v1", fg.policies.uniform(16, 4), options={"is_slippery": False}
    )
    data = fg.DataFederation(
        lake, discount=0.95, num_agents=10, evaluation=fg.Evaluation(episodes=20)
    )
    history = fg.run(
        data, fg.QLearning(), step_size=0.5, sync_period=50, num_steps=2000, record=[0, 2000]
    )
    before, after = history.data.greedy_return.values[0]
    print(f"the greedy policy crosses the lake in {before:.0%} of its episodes before learning")
    print(f"and in {after:.0%} after {history.settings.communications} communications")


if __name__ == "__main__":
    main()
