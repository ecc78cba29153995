"""Every method on one suite of problems, tuned alike, and a verdict on each published claim."""

from __future__ import annotations

from fegsam.comparison.compare import compare

__all__ = ["compare"]
