"""Plans: the settings that reach an accuracy with the fewest communications or samples."""

from __future__ import annotations

from fegsam.planning.compare import MethodPlans, plan_methods
from fegsam.planning.plan import Plan, plan

__all__ = ["MethodPlans", "Plan", "plan", "plan_methods"]


def __dir__() -> list[str]:
    return list(__all__)
