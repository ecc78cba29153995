"""Whether the mean-square error of a linear algorithm converges, and a step size at which it does.

A round of K steps is a linear map of the moments. The error converges if the spectral radius of
that map is below one. We use the order at which the error itself is computed, since at a lower
order the radius may be on the other side of one.
"""

from __future__ import annotations

import math

import numpy as np

from fegsam.bisection import last_real
from fegsam.errors import ProblemError
from fegsam.exact.long_run import LOST_IN_ROUNDING, LongRun, UnsolvedMoments
from fegsam.exact.moment_system import MomentSystem

_QUICK = 1e-3
"""If a round takes at most this many seconds, the largest stable step is searched for at the order
in use; otherwise at order 1."""
_ACCURACY = 1e-8
"""The relative accuracy that a limit must keep despite rounding."""
_DIGITS = 3
_SMALLEST_STEP = 1e-15
"""The search for a stable step size ends below this one."""
_MARGIN = 0.9
"""A step size found at a lower order is multiplied by this factor until it converges at the order
in use."""


def limit(run: LongRun) -> float:
    """The squared error that a round does not change.

    NaN if no moments were found, or if they cannot be those of a random variable; usually the error
    then grows.
    """
    try:
        found = run.stationary
    except UnsolvedMoments:
        return math.nan
    if not run.is_positive(found):
        return math.nan
    own = slice(run.hierarchy.dimension)
    return float(run.unpacked(found)[0][own, own].trace())


def require_limit(system: MomentSystem, step_size: float, length: int, run: LongRun) -> None:
    """Raise `ProblemError` if the mean-square error does not converge, or its limit is unknown."""
    if run.spectral_radius >= 1.0:
        step = converging_step(system, step_size, length, run.hierarchy.order)
        cure = (
            f"it converges at step_size={step:.{_DIGITS}g}"
            if step
            else "no step size was found at which it converges"
        )
        raise ProblemError(
            f"At step_size={step_size:g} the mean-square error grows without bound (spectral "
            f"radius {run.spectral_radius:.6g} of one round); {cure}."
        )
    if not run.is_positive(run.stationary):
        order = run.hierarchy.order
        raise ProblemError(
            f"The stationary moments at order {order} are not those of a random "
            f"variable{why_not_positive(order, system)}"
        )
    if np.finfo(float).eps > _ACCURACY * (1.0 - run.spectral_radius):
        raise UnsolvedMoments(LOST_IN_ROUNDING)


def why_not_positive(order: int, system: MomentSystem) -> str:
    """The end of an error message about a negative square: its cause and cure."""
    if order < system.highest_order:
        return f", since too much is left out; use a smaller step, or pass order={order + 1}."
    return (
        ", since it is lost in rounding; use a larger step, or theory.small_step_law for small "
        "ones."
    )


def is_stable(system: MomentSystem, step_size: float, length: int, order: int) -> bool:
    return LongRun(system.hierarchy(system.steps(step_size), length, order)).spectral_radius < 1.0


def converging_step(system: MomentSystem, unstable: float, length: int, order: int) -> float:
    """About the largest step size at which the error converges, to three digits; zero if none.

    Convergence at the returned step size has been checked.
    """
    quick = system.round_seconds(order, length) <= _QUICK
    low = _bisected(system, unstable, length, order if quick else min(order, 1))
    while low >= _SMALLEST_STEP and not is_stable(system, low, length, order):
        low = _rounded_down(_MARGIN * low)
    return low if low >= _SMALLEST_STEP else 0.0


def _bisected(system: MomentSystem, unstable: float, length: int, order: int) -> float:
    low = unstable / 2
    while not is_stable(system, low, length, order):
        unstable, low = low, low / (2.0 if low < 100.0 else 100.0)
        if low < _SMALLEST_STEP:
            return 0.0
    found = last_real(lambda step: is_stable(system, step, length, order), low, unstable, 1.002)
    return _rounded_down(found)


def _rounded_down(step: float) -> float:
    """Round a step size down to three digits.

    >>> _rounded_down(0.98765)
    0.987
    """
    unit = 10.0 ** (math.floor(math.log10(step)) - _DIGITS + 1)
    return float(f"{math.floor(step / unit * (1 + 1e-12)) * unit:.{_DIGITS}g}")
