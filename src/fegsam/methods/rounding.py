"""What agents report with fewer bits: changes rounded at random, or some of their cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.errors import ProblemError
from fegsam.problem.checks import LARGEST_ENTRY, flag, integer, positive

_LEAST_STEP = 1.0 / LARGEST_ENTRY
"""Changes divided by smaller steps would overflow."""


@dataclass(frozen=True)
class Rounding:
    """Each agent's change is rounded at random to multiples of `step`; its mean stays the same.

    Parameters
    ----------
    step : float
        The distance between two neighbouring values.
    dither : bool
        Subtract the random shift again at the server (subtractive dither). The rounding error is
        then uniform and independent of the change, of variance step^2 / 12.

    Examples
    --------
    >>> import numpy as np
    >>> Rounding(0.5).rounded(np.array([0.6, 0.6]), np.array([0.1, 0.9]))
    array([0.5, 1. ])
    """

    step: float
    dither: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", positive(self.step, "step"))
        if self.step < _LEAST_STEP:
            raise ProblemError(
                f"step is {self.step}, and changes divided by it would overflow; give at least "
                f"{_LEAST_STEP:g}, or leave out rounding."
            )
        object.__setattr__(self, "dither", flag(self.dither, "dither"))

    def rounded(self, change: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """`change` rounded, with one uniform number in (0, 1) for each entry."""
        if self.dither:
            shift = uniform - 0.5
            return self.step * (np.floor(change / self.step + shift + 0.5) - shift)
        return self.step * np.floor(change / self.step + uniform)


@dataclass(frozen=True)
class SomeCells:
    """Each agent reports `count` random cells of its change, times d / count; the others are zero.

    Examples
    --------
    >>> SomeCells(count=8).count
    8
    """

    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", integer(self.count, "count"))
