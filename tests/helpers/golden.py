"""The two-state problem whose expectations are known exactly, by hand or by summing over every
path.

Two states, two actions, gamma = 1/2, every probability a multiple of 1/4; S_0 = 0 and zero
parameters at the start.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TRANSITIONS = np.array([[[3, 1], [1, 3]], [[2, 2], [1, 3]]]) / 4
REWARDS = np.array([[1.0, 0.0], [-1.0, 0.5]])
DISCOUNT = 0.5
TARGET = np.array([[2, 2], [1, 3]]) / 4
B1 = np.array([[1, 3], [2, 2]]) / 4
B2 = np.array([[3, 1], [2, 2]]) / 4
FEATURES = np.array([[1.0], [0.5]])
FIRST_STATE = np.array([1.0, 0.0])

STATIONARY_B1 = np.array([3 / 8, 5 / 8])
STATIONARY_B2 = np.array([1 / 2, 1 / 2])
STATIONARY_TARGET = np.array([5 / 13, 8 / 13])
VALUE = np.array([23 / 29, 11 / 29])
OPTIMAL_Q = np.array([11 / 6, 2 / 3, -1 / 4, 7 / 6])

# What the enumeration of every path gives at step size 1/2 and sync period 2; row t of a list is
# time t+1.
ALG5_N1_MEAN = [0.25, 0.329345703125, 0.400999270380, 0.455509209743]
ALG5_N1_SQUARE = [0.114583333333, 0.178176353375, 0.240489493488, 0.293247621476]
ALG5_N1_SYNC_ERROR = [0.052083333333, 0.0, 0.029818802412, 0.0]
ALG5_N2_MEAN = [0.328125, 0.401910146077, 0.483165969275]
ALG5_N2_SQUARE = [0.195109049479, 0.267096416312, 0.354973679552]
ONE_AGENT_SQUARE = [0.25, 0.304450988770, 0.357312688914, 0.407852601172]
TWO_LIKE_AGENTS_SQUARE = [0.15625, 0.197828084230, 0.250851168930, 0.295454061241]
TABULAR_N1_T3 = ([0.3582620620727539, 0.07194387912750244], 0.403564767396, 0.309565701508)
TABULAR_N2_T2 = ([0.371012369792, 0.066787719727], 0.407564388211, 0.299767483388)
Q_T3_MEAN = [0.446907222271, 0.010655105114, -0.228578329086, 0.131954789162]
Q_T3_ERRORS = (3.525364631913, 2.012017982640)  # E||Qbar - Q*||^2 at time 3: 2-norm, sup norm
Q_T2_ERRORS = (3.928900480270, 2.241976049211)


def federation(policies: Any = (B1, B2), num_agents: int | None = None, **changes: Any) -> Any:
    """The golden problem as a `Federation`: one agent per behaviour policy, unless said
    otherwise."""
    import fegsam as fg

    settings: dict[str, Any] = {
        "behavior_policies": np.array(policies),
        "num_agents": num_agents or len(policies),
        "target_policy": TARGET,
        "features": FEATURES,
        "initial_distribution": FIRST_STATE,
    }
    return fg.Federation(fg.MDP(TRANSITIONS, REWARDS, DISCOUNT), **(settings | changes))
