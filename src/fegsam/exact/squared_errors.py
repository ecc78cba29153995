"""Squared errors from exact moments: read at given times, and freed from rounding."""

from __future__ import annotations

import numpy as np

from fegsam.errors import ProblemError
from fegsam.exact import stability
from fegsam.exact.course import Course
from fegsam.exact.moment_system import MomentSystem
from fegsam.exact.orders import Computed
from fegsam.exact.run_system import PlainCourse

_ROUNDING = 1e-9
_STATE_ROUNDING = 1e-5
"""Times `_ROUNDING`: the rounding of a squared error, relative to the square of the server's whole
state."""


def along(course: Course | PlainCourse, times: np.ndarray) -> Computed:
    """The moments at sorted times; infinite once they overflow."""
    found, scale = [], 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for time in times.tolist():
            found.append(course.at(time))
            scale = max(scale, course.state_scale())
    mse, mean, apart = (np.array(each) for each in zip(*found, strict=True))
    mse = squares(mse, apart[np.isfinite(apart)].max(initial=0.0) + _STATE_ROUNDING * scale)
    mean, apart = (np.where(np.isfinite(each), each, np.inf) for each in (mean, apart))
    return Computed(mse, course.all_taken(), mean, apart)


def squares(mse: np.ndarray, spread: float = 0.0) -> np.ndarray:
    """Clean squared errors: infinite where they overflow, all NaN if one is truly negative.

    A squared error is negative if the truncation leaves out too much. Rounding may make it
    negative too, by a small fraction of itself and of the agents' `spread`; such values become
    zero.
    """
    finite = np.isfinite(mse)
    least = -_ROUNDING * (np.abs(mse[finite]).max(initial=0.0) + spread)
    if np.any(mse[finite] < least):
        return np.full(mse.shape, np.nan)
    return np.where(finite, np.maximum(mse, 0.0), np.inf)


def require_squares(mse: np.ndarray, order: int, system: MomentSystem) -> None:
    """Raise `ProblemError` where `squares` found a negative squared error."""
    if np.any(np.isnan(mse)):
        raise ProblemError(
            f"At order {order} the squared error becomes "
            f"negative{stability.why_not_positive(order, system)}"
        )
