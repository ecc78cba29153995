"""Flower: its weighted average of arrays; this script implements the learner.

python benchmarks/peers/with_flower.py task.npz
"""

from __future__ import annotations

import time

import numpy as np
from flwr.server.strategy.aggregate import aggregate
from task import ACTIONS, AGENTS, DISCOUNT, STATES, STEP_SIZE, SYNC_PERIOD, load, report

ROUNDS = 2_000
transitions, rewards, q_star = load()
reached = transitions.cumsum(axis=2)


def local_steps(q: np.ndarray, s: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """K steps of one client from the average."""
    q = q.copy()
    actions, draws = rng.integers(0, ACTIONS, SYNC_PERIOD), rng.random(SYNC_PERIOD)
    for a, draw in zip(actions, draws, strict=True):
        s_next = min(int(np.searchsorted(reached[s, a], draw)), STATES - 1)
        q[s, a] += STEP_SIZE * (rewards[s, a] + DISCOUNT * q[s_next].max() - q[s, a])
        s = s_next
    return q, s


q, states = np.zeros((STATES, ACTIONS)), [0] * AGENTS
generators = [np.random.default_rng(agent) for agent in range(AGENTS)]
begun = time.perf_counter()
for _ in range(ROUNDS):
    done = [local_steps(q, s, rng) for s, rng in zip(states, generators, strict=True)]
    states = [s for _, s in done]
    (q,) = aggregate([([table], SYNC_PERIOD) for table, _ in done])
speed = AGENTS * SYNC_PERIOD * ROUNDS / (time.perf_counter() - begun)
report("flwr", q_star, q, speed, "sampling, the update, the local loop")
