"""Time of a round of each method on a GPU, next to plain averaging.

    python benchmarks/gpu_methods.py --agents 4096 --rounds 4000

Q-learning on a Garnet problem with 100 states and 5 actions; a round has 10 steps. The time of a
round is the difference between runs of different lengths, so that starting one does not count.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import fegsam as fg

PERIOD, CELLS = 10, 500


def methods(agents: int) -> dict[str, dict[str, Any]]:
    """Arguments of a run, by name."""
    weights = np.arange(1.0, agents + 1)
    variates, some = fg.ControlVariates, fg.Participation
    chosen = {
        "server": fg.Method(server=fg.Server(0.9, 0.5)),
        "weights": fg.Method(fg.Mean(weights / weights.sum())),
        "half of the agents": fg.Method(participation=some(agents=max(1, agents // 2))),
        "99 %, others go on": fg.Method(
            participation=some(probability=0.99, others="go_on"),
        ),
        "by visits": fg.methods.importance_averaging(),
        "variates of kinds": fg.Method(correction=variates("kind")),
        "variates of agents": fg.methods.scafflsa(),
        "first step, agents": fg.methods.fedhsa(),
        "first step, kinds": fg.Method(correction=variates("kind", "first_step")),
        "rounding": fg.Method(rounding=fg.Rounding(0.01)),
        "dithered rounding": fg.Method(rounding=fg.Rounding(0.01, dither=True)),
        "some cells": fg.Method(rounding=fg.SomeCells(50)),
        "local steps": fg.methods.fednova((10, 8, 6, 4)),
    }
    found: dict[str, dict[str, Any]] = {name: {"method": each} for name, each in chosen.items()}
    schedule = {"schedule": fg.schedules.Polynomial(0.75)}
    return {"plain": {}, "schedule": schedule, **found, "tail": {"tail": 0.9}}


def seconds(problem: Any, engine: Any, rounds: int, changes: dict[str, Any]) -> float:
    """The shorter one of two runs."""
    steps, found = PERIOD * rounds, []
    for _ in range(2):
        begun = time.perf_counter()
        fg.run(
            problem,
            fg.QLearning(),
            engine=engine,
            step_size=0.1,
            sync_period=PERIOD,
            num_steps=steps,
            record=[0, steps],
            fixed_point=np.zeros(CELLS),
            output_decay=1e-9,
            **changes,
        )
        found.append(time.perf_counter() - begun)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a round of each method on a GPU.")
    parser.add_argument("--agents", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=4000)
    parser.add_argument("--precision", default="float64")
    parser.add_argument("--only", default="", help="part of the names")
    asked = parser.parse_args()
    mdp = fg.examples.garnet(100, 5, 5, 0.9, seed=0)
    policies = fg.policies.random(100, 5, count=4, seed=1)
    problem = fg.Federation(mdp, policies, num_agents=asked.agents)
    engine, plain = fg.engines.Cuda(asked.precision), 0.0
    for name, changes in methods(asked.agents).items():
        if asked.only not in name and name != "plain":
            continue
        short = seconds(problem, engine, asked.rounds, changes)
        long = seconds(problem, engine, 4 * asked.rounds, changes)
        each = (long - short) / (3 * asked.rounds)
        plain = plain or each
        print(f"{name:20s} {1e6 * each:10.1f} us a round {each / plain:8.2f} x plain", flush=True)


if __name__ == "__main__":
    main()
