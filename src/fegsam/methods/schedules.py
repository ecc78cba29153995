"""Schedules: step sizes that change over time, and rounds that grow.

A schedule of step sizes is a shape. Its factor at time t, the federation's time, multiplies
`step_size`.

>>> import numpy as np
>>> Polynomial(power=0.5).factors(np.array([0, 3]), None)
array([1. , 0.5])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fegsam.errors import ProblemError, shown
from fegsam.methods.rounds import Rounds
from fegsam.problem.checks import integer, positive, several

__all__ = ["Growing", "Polynomial", "Rescaled", "Steps"]


def __dir__() -> list[str]:
    return list(__all__)


_MOST_LENGTHS = 10**6
"""Rounds of different lengths, at most."""


class StepSchedule(Protocol):
    """A shape of step sizes."""

    def factors(self, times: np.ndarray, discount: float | None) -> np.ndarray:
        """What multiplies the step size at each of the times; `discount` is that of the problem."""
        ...


@dataclass(frozen=True)
class Polynomial:
    """``(t + offset)^-power``.

    Examples
    --------
    >>> import numpy as np
    >>> Polynomial(power=1).factors(np.arange(3), None)
    array([1.        , 0.5       , 0.33333333])
    """

    power: float
    offset: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "power", positive(self.power, "power"))
        object.__setattr__(self, "offset", positive(self.offset, "offset"))

    def factors(self, times: np.ndarray, discount: float | None) -> np.ndarray:
        """What multiplies the step size at each of the times."""
        # A factor beyond the largest number is refused where the run is checked.
        with np.errstate(over="ignore"):
            return (times + self.offset) ** -self.power


@dataclass(frozen=True)
class Rescaled:
    """``1 / (1 + (1 - gamma) (t + 1))`` with the problem's discount gamma: linear, but rescaled.

    Examples
    --------
    >>> import numpy as np
    >>> Rescaled().factors(np.array([0, 9]), 0.9)
    array([0.90909091, 0.5       ])
    """

    def factors(self, times: np.ndarray, discount: float | None) -> np.ndarray:
        """What multiplies the step size at each of the times."""
        if discount is None:
            raise ProblemError(
                "Rescaled() needs a discount, and this problem has none; give "
                "schedules.Polynomial(power=1)."
            )
        return 1.0 / (1.0 + (1.0 - discount) * (times + 1))


@dataclass(frozen=True)
class Steps:
    """1 until the first of `times`, then the factor that belongs to the last time reached.

    Examples
    --------
    >>> import numpy as np
    >>> Steps(times=(100, 1000), values=(0.1, 0.01)).factors(np.array([99, 100, 5000]), None)
    array([1.  , 0.1 , 0.01])
    """

    times: Sequence[int]
    values: Sequence[float]

    def __post_init__(self) -> None:
        times = several(self.times, "times", "but must be a list of times: give one")
        values = several(self.values, "values", "but must be a list of factors: give one")
        times = tuple(integer(time, f"times[{j}]") for j, time in enumerate(times))
        values = tuple(positive(value, f"values[{j}]") for j, value in enumerate(values))
        if len(times) != len(values) or any(np.diff(times) <= 0):
            raise ProblemError(
                f"Steps has the times {times} and the values {values}; give increasing times and "
                "one value for each."
            )
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "values", values)

    def factors(self, times: np.ndarray, discount: float | None) -> np.ndarray:
        """What multiplies the step size at each of the times."""
        return np.array([1.0, *self.values])[np.searchsorted(self.times, times, side="right")]


@dataclass(frozen=True)
class Growing:
    """Rounds that grow: `first` steps, then each `factor` times the one before, up to `most`.

    Examples
    --------
    >>> Growing(first=1, factor=2, most=6).rounds()
    Rounds(first=(1, 2, 4), period=6)
    """

    first: int
    factor: float
    most: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", integer(self.first, "first"))
        object.__setattr__(self, "factor", positive(self.factor, "factor"))
        object.__setattr__(self, "most", integer(self.most, "most", least=self.first))
        if not self.factor > 1:
            raise ProblemError(
                f"factor is {self.factor:g}, so the rounds do not grow; give more than 1, or a "
                "whole number as sync_period."
            )
        if math.log(self.most / self.first) / math.log(self.factor) > _MOST_LENGTHS:
            raise ProblemError(
                f"factor is {self.factor:g}, so more than {_MOST_LENGTHS} rounds have a length of "
                "their own; give a larger factor."
            )

    def rounds(self) -> Rounds:
        """The rounds themselves."""
        lengths, exact = [], float(self.first)
        while exact < self.most:
            lengths.append(int(exact))
            exact *= self.factor
        return Rounds.of_lengths([*lengths, self.most])


SyncPeriod = int | Sequence[int] | Growing


def rounds_of(sync_period: Any) -> Rounds:
    """The rounds that `sync_period` asks for: a number, a list whose last one repeats, or Growing.

    >>> rounds_of((1, 3))
    Rounds(first=(1,), period=3)
    """
    if isinstance(sync_period, Growing):
        return sync_period.rounds()
    is_array = isinstance(sync_period, np.ndarray) and sync_period.ndim == 1
    if is_array or isinstance(sync_period, tuple | list):
        if len(sync_period) == 0:
            raise ProblemError("sync_period is empty; give at least one period.")
        lengths = [integer(each, f"sync_period[{r}]") for r, each in enumerate(sync_period)]
        return Rounds.of_lengths(lengths)
    return Rounds((), integer(sync_period, "sync_period"))


def check_schedule(schedule: Any) -> None:
    is_value = callable(getattr(schedule, "factors", None)) and not isinstance(schedule, type)
    if schedule is not None and not is_value:
        raise ProblemError(
            f"schedule is {shown(schedule)}; give for example "
            "fegsam.schedules.Polynomial(power=0.75)."
        )
