"""Time of a round of each method, next to plain averaging.

    python benchmarks/methods.py --engine cpu --agents 4096 --rounds 40 --turns 9
    python benchmarks/methods.py --engine cuda --agents 4096 --rounds 800 --turns 2

Q-learning on a Garnet problem with 100 states and 5 actions; a round has 10 steps. The time of a
round is the difference between a long run and a short one, so that starting one does not count.
All methods take turns, and each turn is divided by plain averaging in the same turn. On the
processor, one thread runs and its processor time counts; on a GPU, time passes on the clock.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fegsam as fg

PERIOD, CELLS = 10, 500
LONGER = 10
"""Rounds of a long run for one of a short run."""


def methods(agents: int) -> dict[str, dict[str, Any]]:
    """Arguments of a run, by name."""
    weights = np.arange(1.0, agents + 1)
    variates, some = fg.ControlVariates, fg.Participation
    chosen = {
        "server": fg.Method(server=fg.Server(0.9, 0.5)),
        "weights": fg.Method(fg.Mean(weights / weights.sum())),
        "half of the agents": fg.Method(participation=some(agents=max(1, agents // 2))),
        "99 %, others wait": fg.Method(participation=some(probability=0.99)),
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
    return {"plain": {}, "plain again": {}, "schedule": schedule, **found, "tail": {"tail": 0.9}}


def seconds(
    problem: Any, engine: Any, rounds: int, changes: dict[str, Any], clock: Callable[[], float]
) -> float:
    """How long a run takes."""
    steps, begun = PERIOD * rounds, clock()
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
    return clock() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a round of each method.")
    parser.add_argument("--engine", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--agents", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=40, help="of a short run")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--precision", default="float64", help="of a GPU")
    parser.add_argument("--only", default="", help="part of the names")
    asked = parser.parse_args()
    mdp = fg.examples.garnet(100, 5, 5, 0.9, seed=0)
    policies = fg.policies.random(100, 5, count=4, seed=1)
    problem = fg.Federation(mdp, policies, num_agents=asked.agents)
    gpu = asked.engine == "cuda"
    engine = fg.engines.Cuda(asked.precision) if gpu else fg.engines.Cpu(threads=1)
    clock = time.perf_counter if gpu else time.process_time
    chosen = {
        name: changes
        for name, changes in methods(asked.agents).items()
        if name == "plain" or asked.only in name
    }
    found: dict[str, list[float]] = {name: [] for name in chosen}
    for changes in chosen.values():
        seconds(problem, engine, 2, changes, clock)
    for _ in range(asked.turns):
        for name, changes in chosen.items():
            short = seconds(problem, engine, asked.rounds, changes, clock)
            long = seconds(problem, engine, LONGER * asked.rounds, changes, clock)
            found[name].append((long - short) / ((LONGER - 1) * asked.rounds))
    print(f"{'method':20s} {'us a round':>10s} {'median':>8s} {'x plain':>8s} {'median':>8s}")
    for name, each in found.items():
        ratios = [mine / plain for mine, plain in zip(each, found["plain"], strict=True)]
        print(
            f"{name:20s} {1e6 * min(each):10.1f} {1e6 * statistics.median(each):8.1f}"
            f" {min(each) / min(found['plain']):8.2f} {statistics.median(ratios):8.2f}"
        )


if __name__ == "__main__":
    main()
