"""Ten agents with different policies explore Gymnasium's frozen lake and learn the best policy."""

from __future__ import annotations

import fegsam as fg

ARROWS = "<v>^"
LAKE = ("SFFF", "FHFH", "FFFH", "HFFG")
"""Gymnasium's map: start, frozen, hole, goal"""


def main() -> None:
    lake = fg.examples.from_gymnasium("FrozenLake-v1", discount=0.9, is_slippery=False)
    federation = fg.Federation(
        lake, fg.policies.random(lake.num_states, lake.num_actions, count=10, seed=0), num_agents=10
    )
    history = fg.run(federation, fg.QLearning(), step_size=0.2, sync_period=50, num_steps=40_000)
    q = history.q_table().values
    best = {
        label: ARROWS[action]
        for label, action in zip(lake.labels or (), q.argmax(axis=1), strict=True)
    }
    print(history)
    for row, places in enumerate(LAKE):
        print(
            "  "
            + "".join(
                best[4 * row + column] if place in "SF" else place
                for column, place in enumerate(places)
            )
        )


if __name__ == "__main__":
    main()
