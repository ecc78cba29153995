"""fegsam: one and ten live agents, and the same transitions as a log.

python benchmarks/peers/live_with_fegsam.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
from live_task import (
    ACTIONS,
    DISCOUNT,
    ENVIRONMENT,
    STATES,
    STEP_SIZE,
    STEPS,
    measure,
    recorded,
)

import fegsam as fg

PASSES = 50


def learning(
    source: fg.LiveSource | fg.LogSource, agents: int, steps: int
) -> Callable[[], np.ndarray]:
    data = fg.DataFederation(
        source,
        discount=DISCOUNT,
        num_agents=agents,
        num_states=STATES,
        num_actions=ACTIONS,
        held_out=0.0,
    )
    settings = {"step_size": STEP_SIZE, "sync_period": 1000, "record": [0]}
    fg.run(data, fg.QLearning(), num_steps=100, **settings)  # compiles
    return lambda: fg.run(data, fg.QLearning(), num_steps=steps, **settings).q_table()


def main() -> None:
    name, lake = f"fegsam {version('fegsam')}", fg.LiveSource(ENVIRONMENT, [[0.25] * 4] * STATES)
    for agents in (1, 10):
        steps = STEPS // agents
        did = f"{agents} live agent{'s' if agents > 1 else ''}, whole run"
        measure(name, did, learning(lake, agents, steps), agents * steps)
    with tempfile.TemporaryDirectory() as folder:
        log, lines = Path(folder) / "log.csv", []
        episode = 0
        for now, action, reward, then, terminated, truncated in recorded():
            lines.append(f"{episode},{now},{action},{reward},{terminated},{truncated},{then}")
            episode += terminated or truncated
        lines[-1] = lines[-1].replace("False,False", "False,True")
        head = "episode,observation,action,reward,terminated,truncated,next_observation"
        log.write_text("\n".join([head, *lines]).lower() + "\n")
        source = fg.LogSource(log, passes=PASSES)
        did = f"a log of the same, {PASSES} passes, whole run"
        measure(name, did, learning(source, 1, PASSES * STEPS), PASSES * STEPS)


if __name__ == "__main__":
    main()
