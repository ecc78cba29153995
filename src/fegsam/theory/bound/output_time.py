"""The random time T-hat whose average the algorithms return (eq. q_dist).

Its distribution is ``q_T^c(t) = c^-t / sum_{t'<T} c^-t'``. It gives later times more weight: c lies
in (0, 1), as in the theorems. (The sentence below eq. q_dist and the proofs have c > 1, which would
give the start most weight.) The theorem takes ``c = 1 - alpha phi_2 / 2``.

Counted from the end, ``T - 1 - t`` has a geometric distribution of ratio c, truncated at T. With
``rate = -ln c`` everything is a difference of exponentials of nonpositive numbers, so nothing
overflows and nothing cancels, for T up to 10^12 and c within 10^-15 of one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fegsam.algorithms.rule import Algorithm, check_algorithm
from fegsam.errors import ProblemError
from fegsam.problem.checks import (
    LARGEST_LENGTH,
    array_shape,
    finite_array,
    fraction,
    integer,
    positive,
    real_array,
)
from fegsam.problem.federation import Problem
from fegsam.theory.assumptions.drift import drift


@dataclass(frozen=True)
class OutputTimeDistribution:
    """The distribution q_T^c of the output time on 0, ..., T-1; see `output_time_distribution`.

    Attributes
    ----------
    num_steps : int
        T.
    decay : float
        c, strictly between 0 and 1.

    Examples
    --------
    >>> OutputTimeDistribution(num_steps=4, decay=0.5).probabilities() * 15
    array([1., 2., 4., 8.])
    """

    num_steps: int
    decay: float

    def __post_init__(self) -> None:
        integer(self.num_steps, "num_steps", most=LARGEST_LENGTH)
        fraction(self.decay, "decay")

    @property
    def _rate(self) -> float:
        return -math.log(self.decay)

    def probabilities(self, times: ArrayLike | None = None) -> np.ndarray:
        """The probability of each of `times`, by default 0, ..., T-1; zero outside these.

        >>> OutputTimeDistribution(num_steps=2, decay=0.25).probabilities([1, 2])
        array([0.8, 0. ])
        """
        t = (
            np.arange(*array_shape(num_steps=self.num_steps))
            if times is None
            else finite_array(times, "times", "(t,)")
        )
        rate, last = self._rate, self.num_steps - 1
        back = np.clip(last - t, 0, None)
        mass = np.exp(-rate * back) * (math.expm1(-rate) / math.expm1(-rate * self.num_steps))
        return np.where((t >= 0) & (t <= last), mass, 0.0)

    def cdf(self, times: ArrayLike) -> np.ndarray:
        """The probability that the output time is at most each of `times`.

        >>> OutputTimeDistribution(num_steps=2, decay=0.25).cdf([-1, 0, 1])
        array([0. , 0.2, 1. ])
        """
        done = np.clip(np.floor(finite_array(times, "times", "(t,)")) + 1, 0, self.num_steps)
        rate = self._rate
        return (
            np.exp(-rate * (self.num_steps - done))
            * np.expm1(-rate * done)
            / math.expm1(-rate * self.num_steps)
        )

    @property
    def mean(self) -> float:
        """The expected output time.

        >>> OutputTimeDistribution(num_steps=2, decay=0.25).mean
        0.8
        """
        # The expected T - 1 - t is 1/expm1(rate) - T/expm1(rate T). Both terms contain 1/rate,
        # which is huge and cancels, so it is left out.
        rate = self._rate
        return (
            self.num_steps
            - 1
            - (_bounded_part(rate) - self.num_steps * _bounded_part(rate * self.num_steps))
        )

    def draw(self, uniforms: ArrayLike) -> np.ndarray:
        """The inverse of `cdf`: for each u of `uniforms`, the first time t with ``cdf(t) > u``.

        The u lie in [0, 1). The cost does not depend on T.

        >>> OutputTimeDistribution(num_steps=4, decay=0.5).draw([0.0, 0.06, 0.07, 0.5, 0.99])
        array([0, 0, 1, 3, 3])
        """
        u = real_array(uniforms, "uniforms", "(t,)")
        if not np.all((u >= 0) & (u < 1)):
            raise ProblemError(
                "A uniform number for the output time lies outside [0, 1); draw it from there."
            )
        # Checked, since the drawn times are 64-bit integers.
        steps, rate = integer(self.num_steps, "num_steps"), self._rate
        # The first n > 0 with cdf(n - 1) > u solves exp(-rate (T - n)) = u + (1 - u) exp(-rate T)
        # =: 1 + tail.
        tail = (1 - u) * math.expm1(-rate * steps)
        with np.errstate(divide="ignore"):
            log = np.where(
                tail > -0.5,
                np.log1p(np.maximum(tail, -0.5)),
                np.log(u + (1 - u) * math.exp(-rate * steps)),
            )
        t = np.clip(np.floor(steps + log / rate), 0, steps - 1)
        # Rounding may be off by one where u is close to a value of the cdf.
        t = np.where(self.cdf(t) <= u, t + 1, t)
        t = np.where(self.cdf(t - 1) > u, t - 1, t)
        return np.clip(t, 0, steps - 1).astype(np.int64)


def _bounded_part(x: float) -> float:
    """1/expm1(x) - 1/x for x > 0, between -1/2 and 0."""
    if x < 0.1:
        square = x * x
        return -0.5 + x * (1 / 12 + square * (-1 / 720 + square * (1 / 30240 - square / 1209600)))
    return (1 / math.expm1(x) if x < 700 else 0.0) - 1 / x


def output_time_distribution(num_steps: int, decay: float) -> OutputTimeDistribution:
    """The distribution of the time whose average the algorithms return (eq. q_dist).

    Parameters
    ----------
    num_steps : int
        T; the output time is one of 0, ..., T-1.
    decay : float
        c, strictly between 0 and 1: each time is 1/c times as likely as the one before.

    Examples
    --------
    >>> import fegsam as fg
    >>> output_time = fg.theory.output_time_distribution(num_steps=10**12, decay=1 - 1e-12)
    >>> round(output_time.mean / 10**12, 3)
    0.582
    """
    return OutputTimeDistribution(num_steps, decay)


def default_output_decay(
    problem: Problem, algorithm: Algorithm, step_size: float, num_steps: int
) -> float:
    """The theorem's ``c = 1 - alpha phi_2 / 2``, or ``1 - 1 / T`` where that is not available.

    In the linear algorithms alpha is the step size times beta. The norm is the one that
    `assumptions` reports. If it finds none in which the agents contract, or if c leaves (0, 1)
    because the step is too large or too small for double precision, c is ``1 - 1 / T``, or 1/2 for
    T = 1, where it does not matter.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.75), num_agents=2, target_policy=[[1.0]])
    >>> default_output_decay(fed, fg.OffPolicyTabularTD(), step_size=0.5, num_steps=100)
    0.9375
    """
    check_algorithm(algorithm, problem)
    step_size = positive(step_size, "step_size")
    num_steps = integer(num_steps, "num_steps", most=LARGEST_LENGTH)
    return decay_at(problem, algorithm, step_size, num_steps)


def decay_at(problem: Problem, algorithm: Algorithm, step_size: float, num_steps: int) -> float:
    """`default_output_decay` of arguments that have been checked already."""
    found = drift(problem, algorithm)
    decay = 1 - step_size * found.beta * found.drift / 2
    if 0 < decay < 1:
        return decay
    return min(1 - 1 / max(num_steps, 2), math.nextafter(1.0, 0.0))
