"""The error of the average after R rounds of K steps, to first order in the step size: before
stationarity, and for any K.

`theory.small_step_law` is the limit of many rounds where ``alpha K`` is small. A planner asks about
few rounds, each so long that the agents come near their own fixed points. With theta measured from
theta*, agent i's mean moves by

    x <- x + alpha (A_i x + b_i + alpha m_i),

b_i its mean offset at theta* and m_i what the memory of the Markov noise adds (`small_step_law`'s
Markov bias), and gains noise of covariance ``alpha^2 Gamma_i`` a step, the long-run covariance.
Each step is thus affine with noise, and so are K of them, their average over the agents (whose
noises are independent, so the N-th part is left) and R rounds: a `Stretch` each, found by repeated
squaring in the logarithm of R and K. What is left out is the noise of the matrices while theta is
far from theta*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.exact.fixed_points import fixed_point
from fegsam.problem.federation import Problem
from fegsam.theory.small_step.agent_noise import StateNoise, WindowNoise
from fegsam.theory.small_step.noises import agent_noises
from fegsam.theory.small_step.small_step import lagged_moments


@dataclass(frozen=True, eq=False)
class Stretch:
    """Some steps: x goes to ``matrix @ x + offset`` and gains noise of covariance `noise`.

    Examples
    --------
    >>> half = Stretch(np.array([[0.5]]), np.array([1.0]), np.array([[1.0]]))
    >>> both = half.then(half)
    >>> both.matrix.item(), both.offset.item(), both.noise.item()
    (0.25, 1.5, 1.25)
    >>> round(half.times(40).error(np.array([8.0])), 9) == round(4 + 1 / (1 - 0.25), 9)
    True
    """

    matrix: np.ndarray
    """(d, d)"""
    offset: np.ndarray
    """(d,)"""
    noise: np.ndarray
    """(d, d)"""

    def then(self, later: Stretch) -> Stretch:
        matrix = later.matrix
        return Stretch(
            matrix @ self.matrix,
            matrix @ self.offset + later.offset,
            matrix @ self.noise @ matrix.T + later.noise,
        )

    def times(self, count: int) -> Stretch:
        """The same `count` >= 1 times over."""
        power, total = self, None
        while True:
            if count & 1:
                total = power if total is None else total.then(power)
            count >>= 1
            if not count:
                assert total is not None
                return total
            power = power.then(power)

    def error(self, start: np.ndarray) -> float:
        """E||x||^2 at the end; infinite beyond all numbers."""
        mean = self.matrix @ start + self.offset
        found = float(mean @ mean + np.trace(self.noise))
        return found if math.isfinite(found) else math.inf

    def spread(self, start: np.ndarray) -> float:
        """The standard deviation of ||x||^2 over its mean, were x normal."""
        mean = self.matrix @ start + self.offset
        variance = 2 * np.sum(self.noise**2) + 4 * mean @ self.noise @ mean
        return math.sqrt(variance) / self.error(start)


class RoundLaw:
    """The law for one problem, with theta_0 = 0.

    Examples
    --------
    Agents that average a coin reach the variance ``alpha / (2 - alpha) / 4 / N``, up to order
    alpha:

    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=4)
    >>> law = RoundLaw(coin, fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]]))
    >>> round(law.error(0.02, 50, 100) * 4 * 4 * (2 - 0.02) / 0.02, 9)
    1.0
    """

    def __init__(self, problem: Problem, algorithm: Algorithm) -> None:
        point = fixed_point(problem, algorithm)
        self.start = -point
        self.num_agents = int(problem.num_agents)
        noises = agent_noises(algorithm, problem, point)
        self._kinds = [
            (share, noise) for share, noise in noises if isinstance(noise, StateNoise | WindowNoise)
        ]
        self.num_kinds = len(self._kinds)
        self.num_windows = sum(_num_windows(noise) for _, noise in self._kinds)
        self.num_modes = max(_num_modes(noise) for _, noise in self._kinds)
        self._matrices = [noise.mean_matrix for _, noise in self._kinds]
        self._memories: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        self._alone_step = 1 / max(_step_scale(noise) for _, noise in self._kinds)
        self.time_scale = 1 / max(float(np.linalg.norm(matrix, 2)) for matrix in self._matrices)
        """The ``alpha T`` in which the fastest part of the start fades."""

    def largest_step(self, period: int) -> float:
        """About where the noise of the matrices begins to tell. Agents that often meet share it,
        and bear more."""
        return self._alone_step * (1 + min(3, self.num_agents - 1) / period)

    def error(self, step_size: float, period: int, rounds: int) -> float:
        """E||avg - theta*||_2^2 after so many rounds."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.stretch(step_size, period, rounds).error(self.start)

    def cautious_error(
        self, step_size: float, period: int, rounds: int, deviations: float
    ) -> float:
        """The error and so many standard deviations of its square."""
        with np.errstate(over="ignore", invalid="ignore"):
            reached = self.stretch(step_size, period, rounds)
            error = reached.error(self.start)
            return (
                error * (1 + deviations * reached.spread(self.start))
                if math.isfinite(error)
                else math.inf
            )

    def stretch(self, step_size: float, period: int, rounds: int) -> Stretch:
        unit = np.eye(len(self.start))
        matrix, offset, noise = 0.0 * unit, 0.0 * self.start, 0.0 * unit
        memories = self._memory(period)
        for (share, each), mean_matrix, (long_run, memory) in zip(
            self._kinds, self._matrices, memories, strict=True
        ):
            push = step_size * (each.mean_offset + step_size * memory)
            local = Stretch(unit + step_size * mean_matrix, push, step_size**2 * long_run).times(
                period
            )
            matrix += share * local.matrix
            offset += share * local.offset
            noise += share / self.num_agents * local.noise
        return Stretch(matrix, offset, noise).times(rounds)

    def _memory(self, period: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Gamma_i (d, d) and m_i (d,) of each kind; m_i at the next power of two below, for it
        hardly hangs on K."""
        rounded = 1 << (period.bit_length() - 1)
        if rounded not in self._memories:
            self._memories[rounded] = [
                lagged_moments(noise, self.num_agents, rounded) for _, noise in self._kinds
            ]
        return self._memories[rounded]


def _num_windows(noise: StateNoise | WindowNoise) -> int:
    return noise.chain.nnz if isinstance(noise, StateNoise) else len(noise.windows.source)


def _num_modes(noise: StateNoise | WindowNoise) -> int:
    return len(noise.law) if isinstance(noise, StateNoise) else noise.windows.num_modes


def _step_scale(noise: StateNoise | WindowNoise) -> float:
    """``E||M||^2 / E||M||``: how large the matrices are that do most of the moving; their inverse
    is a large step."""
    if isinstance(noise, StateNoise):
        weights, sizes = noise.law, np.linalg.norm(noise.matrices, 2, axis=(1, 2))
    else:
        windows = noise.windows
        weights = windows.stationary[windows.source] * windows.probability
        sizes = np.linalg.norm(windows.coefficients, axis=1)
        if windows.features is not None and windows.rows is not None:
            values = sum(
                windows.coefficients[:, [l]] * windows.features[s]
                for l, s in enumerate(windows.states.T)
            )
            first = windows.rows[windows.first_state[windows.source]]
            sizes = np.linalg.norm(values, axis=1) * np.linalg.norm(first, axis=1)
    return float(weights @ sizes**2 / (weights @ sizes))
