"""Plans: the settings that reach an accuracy with the fewest communications or samples."""

from __future__ import annotations

from fegsam.planning.plan import Plan, plan

__all__ = ["Plan", "plan"]
