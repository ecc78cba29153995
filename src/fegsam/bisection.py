"""Bisection for the last number that passes a test.

`scipy.optimize.bisect` may return a point on the failing side, and the standard library's `bisect`
is limited to `sys.maxsize`, while a number of steps may be 10^100.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def last_whole(passes: Callable[[int], bool], yes: int, no: int, near: float = 0.0) -> int:
    """The last whole number that passes between `yes`, which passes, and `no`, which does not.

    With `near`, the result passes and is within that fraction of the last one. Neither end is
    tested. `yes` may be the larger one.

    >>> last_whole(lambda x: x * x <= 50, 1, 50), last_whole(lambda x: x * x >= 50, 50, 1)
    (7, 8)
    """
    while abs(no - yes) > max(1, near * min(yes, no)):
        middle = (yes + no) // 2
        yes, no = (middle, no) if passes(middle) else (yes, middle)
    return yes


def last_real(
    passes: Callable[[float], bool], yes: float, no: float, within: float = 1 + 1e-15
) -> float:
    """A positive number that passes, `within` a factor of a larger one that does not.

    It lies between `yes`, which passes, and a larger `no`, which does not. Neither end is tested.

    >>> round(last_real(lambda x: x * x <= 2, 1e-300, 1e300), 12)
    1.414213562373
    """
    while no > within * yes:
        middle = math.sqrt(yes) * math.sqrt(no)
        if not yes < middle < no:
            break
        yes, no = (middle, no) if passes(middle) else (yes, middle)
    return yes
