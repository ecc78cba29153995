"""The state of the server under a method, and the plan of one round.

The state is ``z = (x - theta*, v, g_1, ..., g_m, S, 1)``: the velocity v if there is momentum, the
control variates g if there are any, and the sum S of averages for a tail average.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RoundSteps:
    """The steps of one round, and which of its averages enter a tail average."""

    step_sizes: tuple[float, ...]
    counted: tuple[bool, ...]
    """for each step, whether the agents' parameters after it count"""
    is_whole: bool = True
    """whether the round ends with a synchronisation"""
    counts_end: bool = False
    """whether the parameters at the synchronisation count"""

    @staticmethod
    def plain(step_sizes: tuple[float, ...]) -> RoundSteps:
        return RoundSteps(step_sizes, (False,) * len(step_sizes))

    @property
    def length(self) -> int:
        return len(self.step_sizes)

    def within(self, begin: int = 0) -> int:
        """How many averages count after step `begin` and before the synchronisation, if any."""
        return sum(self.counted[begin : self.length - self.is_whole])


@dataclass(frozen=True)
class StateLayout:
    """Where the parts of z are; each property reads one, as a matrix of Dz columns."""

    dimension: int
    has_velocity: bool
    variates: int
    has_sum: bool

    @property
    def size(self) -> int:
        return self.dimension * (1 + self.has_velocity + self.variates + self.has_sum) + 1

    def _read(self, place: int) -> np.ndarray:
        return np.eye(self.dimension, self.size, place * self.dimension)

    @property
    def params(self) -> np.ndarray:
        return self._read(0)

    @property
    def velocity(self) -> np.ndarray:
        return self._read(1) if self.has_velocity else np.zeros((self.dimension, self.size))

    def variate(self, number: int) -> np.ndarray:
        return self._read(1 + self.has_velocity + number)

    @property
    def total(self) -> np.ndarray:
        place = 1 + self.has_velocity + self.variates
        return self._read(place) if self.has_sum else np.zeros((self.dimension, self.size))

    @property
    def one(self) -> np.ndarray:
        """(1, Dz): the constant coordinate."""
        return np.eye(1, self.size, self.size - 1)
