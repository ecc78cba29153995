"""What needs no sampling: fixed points, heterogeneity and the stationary laws behind them."""

from __future__ import annotations

from fegsam.exact.chains import kind_chains, kind_stationary_laws
from fegsam.exact.fixed_points import (
    agent_fixed_points,
    fixed_point,
    heterogeneity,
    policy_value,
    projected_average_point,
)

__all__ = [
    "agent_fixed_points",
    "fixed_point",
    "heterogeneity",
    "kind_chains",
    "kind_stationary_laws",
    "policy_value",
    "projected_average_point",
]
