"""The engines that run a job: `reference`, `cpu` and `cuda`.

`reference` is plain Python; `cpu` is compiled and uses all cores; `cuda` is compiled for a GPU.
"""

from fegsam.engines.cpu.engine import Cpu
from fegsam.engines.cuda.engine import Cuda
from fegsam.engines.reference import Reference

__all__ = ["Cpu", "Cuda", "Reference"]


def __dir__() -> list[str]:
    return list(__all__)
