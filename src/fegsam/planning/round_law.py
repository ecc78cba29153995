"""The round law: the error of the average after R rounds of K steps, to first order in alpha.

The formula holds before stationarity and for any K. `theory.small_step_law` is its limit for many
rounds and small ``alpha K``. A planner needs few rounds, each so long that the agents come near
their own fixed points. With theta measured from theta*, agent i's mean moves by

    x <- x + alpha (A_i x + b_i + alpha m_i),

where b_i is its mean offset at theta* and m_i is the contribution of the memory of the Markov noise
(the Markov bias of `small_step_law`). Each step adds noise of covariance ``alpha^2 Gamma_i``, where
Gamma_i is the long-run covariance. So each step is an affine map with noise, and so are K steps,
their average over the agents and R rounds: each is an `AffineSteps`. Averaging divides the
covariance by N, since the agents' noises are independent. Repeated squaring finds K steps and R
rounds in log(K) and log(R) products. The formula leaves out the noise of the matrices while theta
is far from theta*.
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
class AffineSteps:
    """Several steps: they map x to ``matrix @ x + offset`` and add noise of covariance `noise`.

    Examples
    --------
    >>> half = AffineSteps(np.array([[0.5]]), np.array([1.0]), np.array([[1.0]]))
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

    def then(self, later: AffineSteps) -> AffineSteps:
        matrix = later.matrix
        return AffineSteps(
            matrix @ self.matrix,
            matrix @ self.offset + later.offset,
            matrix @ self.noise @ matrix.T + later.noise,
        )

    def times(self, count: int) -> AffineSteps:
        """These steps, `count` >= 1 times."""
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
        """E||x||^2 after the steps; infinite if it overflows."""
        mean = self.matrix @ start + self.offset
        found = float(mean @ mean + np.trace(self.noise))
        return found if math.isfinite(found) else math.inf

    def spread(self, start: np.ndarray) -> float:
        """The standard deviation of ||x||^2 divided by its mean, if x is normal."""
        mean = self.matrix @ start + self.offset
        variance = 2 * np.sum(self.noise**2) + 4 * mean @ self.noise @ mean
        return math.sqrt(variance) / self.error(start)


class RoundLaw:
    """The round law of one problem, with theta_0 = 0.

    Examples
    --------
    Agents that average a coin reach the variance ``alpha / (2 - alpha) / 4 / N``, to first order in
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
        """the ``alpha T`` in which the fastest component of the start decays"""

    def largest_step(self, period: int) -> float:
        """About the step size above which the noise of the matrices matters.

        Agents that synchronise often average this noise and tolerate larger steps.
        """
        return self._alone_step * (1 + min(3, self.num_agents - 1) / period)

    def error(self, step_size: float, period: int, rounds: int) -> float:
        """E||avg - theta*||_2^2 after `rounds` rounds."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._steps(step_size, period, rounds).error(self.start)

    def cautious_error(
        self, step_size: float, period: int, rounds: int, deviations: float
    ) -> float:
        """The error plus `deviations` standard deviations of ||avg - theta*||_2^2."""
        with np.errstate(over="ignore", invalid="ignore"):
            reached = self._steps(step_size, period, rounds)
            error = reached.error(self.start)
            return (
                error * (1 + deviations * reached.spread(self.start))
                if math.isfinite(error)
                else math.inf
            )

    def _steps(self, step_size: float, period: int, rounds: int) -> AffineSteps:
        unit = np.eye(len(self.start))
        matrix, offset, noise = 0.0 * unit, 0.0 * self.start, 0.0 * unit
        memories = self._memory(period)
        for (share, each), mean_matrix, (long_run, memory) in zip(
            self._kinds, self._matrices, memories, strict=True
        ):
            push = step_size * (each.mean_offset + step_size * memory)
            local = AffineSteps(
                unit + step_size * mean_matrix, push, step_size**2 * long_run
            ).times(period)
            matrix += share * local.matrix
            offset += share * local.offset
            noise += share / self.num_agents * local.noise
        return AffineSteps(matrix, offset, noise).times(rounds)

    def _memory(self, period: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Gamma_i (d, d) and m_i (d,) of each kind.

        m_i hardly depends on K, so we use the largest power of two that is at most K.
        """
        rounded = 1 << (period.bit_length() - 1)
        if rounded not in self._memories:
            self._memories[rounded] = [
                lagged_moments(noise, self.num_agents, rounded) for _, noise in self._kinds
            ]
        return self._memories[rounded]


def _num_windows(noise: StateNoise | WindowNoise) -> int:
    return noise.chain.nnz if isinstance(noise, StateNoise) else len(noise.windows.source)


def _num_modes(noise: StateNoise | WindowNoise) -> int:
    return len(noise.stationary) if isinstance(noise, StateNoise) else noise.windows.num_modes


def _step_scale(noise: StateNoise | WindowNoise) -> float:
    """``E||M||^2 / E||M||``, the typical size of the matrices that matter most.

    Its inverse is a large step.
    """
    if isinstance(noise, StateNoise):
        weights, sizes = noise.stationary, np.linalg.norm(noise.matrices, 2, axis=(1, 2))
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
