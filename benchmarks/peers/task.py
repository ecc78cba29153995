"""The task for every package: find Q* of one random MDP, stored as arrays in a file.

    python benchmarks/peers/task.py task.npz

This script needs fegsam; the others need only NumPy and their package.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version

import numpy as np

STATES, ACTIONS, DISCOUNT = 20, 3, 0.8
AGENTS, SYNC_PERIOD, STEP_SIZE = 16, 20, 0.1


def make(path: str) -> None:
    """Store the MDP and its Q*, and report fegsam's own result for the task."""
    import fegsam as fg

    mdp = fg.examples.garnet(STATES, ACTIONS, 4, discount=DISCOUNT, seed=0)
    fed = fg.Federation(mdp, fg.policies.uniform(STATES, ACTIONS), num_agents=AGENTS)
    q_star = fg.fixed_point(fed, fg.QLearning()).reshape(STATES, ACTIONS)
    transitions = mdp.transitions.toarray().reshape(STATES, ACTIONS, STATES)
    np.savez(path, transitions=transitions, rewards=mdp.rewards, q_star=q_star)
    settings = {"step_size": STEP_SIZE, "sync_period": SYNC_PERIOD, "fixed_point": q_star.ravel()}
    fg.run(fed, fg.QLearning(), num_steps=100, **settings)  # compiles
    steps = 200_000
    begun = time.perf_counter()
    history = fg.run(fed, fg.QLearning(), num_steps=steps, record=steps, **settings)
    seconds = time.perf_counter() - begun
    report(
        "fegsam",
        q_star,
        history.data.final_params[0].values.reshape(STATES, ACTIONS),
        AGENTS * steps / seconds,
        "nothing",
    )


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Transitions (S, A, S), rewards (S, A) and Q* (S, A), from the file on the command line."""
    stored = np.load(sys.argv[1])
    return stored["transitions"], stored["rewards"], stored["q_star"]


def report(package: str, q_star: np.ndarray, q: np.ndarray, speed: float | None, own: str) -> None:
    """Print one line of JSON: the largest error of `q`, the speed, and what was written by hand."""
    found = {
        "package": package,
        "version": version(package),
        "error": float(np.abs(q - q_star).max()),
        "agent_steps_per_second": speed,
        "written_by_hand": own,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    make(sys.argv[1])
