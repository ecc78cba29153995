"""What one kernel of the `cuda` engine is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fegsam.engines.cuda.memory import Where


@dataclass(frozen=True)
class Specialization:
    """The constants of a kernel; its factories choose device functions by them."""

    form: str
    """of the rule: "cell", "row" or "dense" """
    layout: str
    where: Where
    together: bool
    """several blocks share a seed"""
    real: Any
    """Numba's type of a parameter"""
    window: int
    iid: bool
    narrow: bool
    """see `paths.is_narrow`"""

    @property
    def ahead(self) -> int:
        """States of an agent's window."""
        return max(self.window, 1)
