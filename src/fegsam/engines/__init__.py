"""Where a plan runs: `reference` (plain Python), `cpu` (compiled, all cores) and `cuda` (compiled,
on a GPU)."""

from fegsam.engines.cpu.engine import Cpu
from fegsam.engines.cuda.engine import Cuda
from fegsam.engines.reference import Reference

__all__ = ["Cpu", "Cuda", "Reference"]
