"""Time of one round on this GPU.

    python benchmarks/gpu_rounds.py

The problem is Q-learning on a Garnet with 100 states, 5 actions and full branching, with all agents
of one kind, in float32. The time of a round is the time that further rounds add to a run; the last
column is the fixed cost of a run.
"""

from __future__ import annotations

import time

import numpy as np

import fegsam as fg

SIZES = (
    (256, 10),
    (1024, 10),
    (4096, 10),
    (4096, 100),
    (65_536, 10),
    (65_536, 100),
    (1 << 20, 10),
    (1 << 20, 100),
)
_REPEATS = 3


def measure(num_agents: int, period: int) -> tuple[float, float]:
    """Seconds per round, and the fixed cost of a run in seconds."""
    mdp = fg.examples.garnet(100, 5, 100, discount=0.9, seed=0)
    fed = fg.Federation(mdp, fg.policies.uniform(100, 5), num_agents=num_agents)
    rounds = 1000 if num_agents * period < 10**5 else 200 if num_agents < 10**5 else 20

    def taken(count: int) -> float:
        begun = time.perf_counter()
        fg.run(
            fed, fg.QLearning(), step_size=0.1, sync_period=period, num_steps=count * period,
            record=np.array([0, count * period]), engine=fg.engines.Cuda("float32"),
        )  # fmt: skip
        return time.perf_counter() - begun

    taken(1)
    short, long = (min(taken(count) for _ in range(_REPEATS)) for count in (rounds, 5 * rounds))
    each = (long - short) / (4 * rounds)
    return each, short - rounds * each


def main() -> None:
    print(f"{'agents':>9} {'K':>5} {'µs per round':>13} {'agent-steps/s':>14} {'ms per run':>11}")
    for num_agents, period in SIZES:
        each, fixed = measure(num_agents, period)
        print(
            f"{num_agents:9} {period:5} {1e6 * each:13.1f} {num_agents * period / each:14.2e} "
            f"{1e3 * fixed:11.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
