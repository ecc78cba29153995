"""What the theorem starts from, made by hand: `Assumptions` without a problem behind them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fegsam.problem.mixing import MixingConstants
from fegsam.theory.assumptions.assumptions import Assumptions


def assumed(*, rho: float = 0.5, m: float = 1.0, **changes: Any) -> Assumptions:
    """A sup-norm problem of ten parameters, unless said otherwise."""
    settings: dict[str, Any] = {
        "algorithm": "StochasticApproximation",
        "num_agents": 10,
        "dimension": 10,
        "horizon": 1,
        "norm": "sup",
        "level": "given",
        "weight": None,
        "beta": 1.0,
        "contraction": 0.9,
        "A_1": 1.5,
        "A_2": 1.25,
        "B": 2.0,
        "A_cap": 3.0,
        "B_cap": 4.0,
        "is_sharp": True,
        "mixing": MixingConstants(m=m, rho=rho),
        "m_1": 5.0,
        "m_2": 0.0,
        "m_3": 0.0,
        "m_4": 0.0,
        "lag_sum": 0.0,
        "agent_heterogeneity": np.zeros(1),
        "heterogeneity": 0.0,
        "start_error": 3.0,
        "n_threshold": None,
    }
    return Assumptions(**(settings | changes))
