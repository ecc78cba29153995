"""Where a plan runs: `reference` (plain Python), `cpu` (compiled, all cores) and `cuda` (compiled, on a GPU)."""

from fegsam.engines.cpu import Cpu
from fegsam.engines.cuda import Cuda
from fegsam.engines.reference import Reference

__all__ = ["Cpu", "Cuda", "Reference"]
