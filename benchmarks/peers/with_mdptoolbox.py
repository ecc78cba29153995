"""mdptoolbox-hiive: its `QLearning`, one agent, at a constant step size.

python benchmarks/peers/with_mdptoolbox.py task.npz
"""

from __future__ import annotations

import time

import numpy as np
from hiive.mdptoolbox.mdp import QLearning
from task import DISCOUNT, load, report

STEPS = 200_000
transitions, rewards, q_star = load()
np.random.seed(0)  # noqa: NPY002 - the package draws from the global generator
learner = QLearning(
    transitions.transpose(1, 0, 2),
    rewards,
    DISCOUNT,
    n_iter=STEPS,
    alpha=0.1,
    alpha_min=0.1,
    epsilon=1.0,
    epsilon_min=1.0,
)
begun = time.perf_counter()
learner.run()
report(
    "mdptoolbox-hiive",
    q_star,
    np.asarray(learner.Q),
    STEPS / (time.perf_counter() - begun),
    "no averaging: one agent",
)
