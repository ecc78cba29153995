"""QuantEcon: `DiscreteDP` solves the MDP.

python benchmarks/peers/with_quantecon.py task.npz
"""

from __future__ import annotations

import quantecon
from task import DISCOUNT, load, report

transitions, rewards, q_star = load()
solved = quantecon.markov.DiscreteDP(rewards, transitions, DISCOUNT).solve(
    method="policy_iteration"
)
q = rewards + DISCOUNT * transitions @ solved.v
report("quantecon", q_star, q, None, "nothing; no sampling is involved")
