"""Where a plan runs: `reference` (plain Python) and `cpu` (compiled, all cores)."""

from fegsam.engines.cpu import Cpu
from fegsam.engines.reference import Reference

__all__ = ["Cpu", "Reference"]
