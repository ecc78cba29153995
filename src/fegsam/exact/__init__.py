"""Exact answers, without sampling: fixed points, heterogeneity, and the moments of the error."""

from __future__ import annotations

from fegsam.exact.chains import kind_chains, kind_stationary_laws
from fegsam.exact.fixed_points import (
    agent_fixed_points,
    fixed_point,
    heterogeneity,
    policy_value,
    projected_average_point,
)
from fegsam.exact.moments import (
    mean_squared_error,
    moments,
    stationary_error,
    tail_error,
    weighted_error,
)
from fegsam.exact.results import Moments, TailMoments

__all__ = [
    "Moments",
    "TailMoments",
    "agent_fixed_points",
    "fixed_point",
    "heterogeneity",
    "kind_chains",
    "kind_stationary_laws",
    "mean_squared_error",
    "moments",
    "policy_value",
    "projected_average_point",
    "stationary_error",
    "tail_error",
    "weighted_error",
]


def __dir__() -> list[str]:
    return list(__all__)
