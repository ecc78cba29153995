"""The overestimation bias of Q-learning: the maximum over fluctuating values is too large.

Near Q* an agent's copy of Q is Gaussian with mean Q* and a covariance C of order alpha. On average
it overestimates the value of a next state s by

    E max(0, max_a D_a),        D_a = Q(s, a) - Q(s, g(s)),

where D_a is Gaussian with mean -gap_a and variance v_a. Where every gap is large against its
standard deviation this is negligible: ``E max(0, D) = sd phi(u) - gap Phi(-u)`` with u = gap / sd
falls like ``exp(-u^2 / 2)``. Where two actions nearly tie it is of the order of the standard
deviation, that is sqrt(alpha). The mean equation ``0 = A x + gamma mean_i flow_i E excess_i`` turns
it into a bias x of the average.

An agent's own copy fluctuates more than the average if K > 1: k steps after a synchronisation its
covariance is

    alpha/N F^k X F^k'  +  alpha^2 sum_{j<k} F^j Gamma F^j',        F = I + alpha A,

the remaining variance of the average that it received plus the variance of its own noise since. X
is the solution of the Lyapunov equation in `small_step`, and Gamma is the long-run covariance of
the agent's noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from fegsam.theory.small_step.cell_noise import CellNoise

PHASES = 8
"""The covariance is computed at no more than this many times between two synchronisations."""
POINTS = 2**14
"""Quasi-random points for states with three or more actions; the excess is right to about 0.1%."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """The effect of the maximum on the mean increment, and how close the nearest tie is.

    Attributes
    ----------
    pull : (d,) array
        ``gamma mean_i flow_i E excess_i``: what the maximum adds to the mean increment.
    gap_ratio : float
        The smallest ratio of an action gap to the standard deviation of that gap in one agent's
        copy.

    Examples
    --------
    >>> Curvature(np.zeros(2), 9.0).gap_ratio
    9.0
    """

    pull: np.ndarray
    gap_ratio: float


NO_CURVATURE = Curvature(np.zeros(1), math.inf)
"""The curvature of a linear rule."""


def curvature(
    kinds: Sequence[tuple[float, CellNoise]],
    long_run: list[np.ndarray],
    covariance: np.ndarray,
    values: np.ndarray,
    alpha: float,
    period: int,
) -> Curvature:
    """The curvature at Q* = `values` (d,), for kinds with their shares and their Gammas.

    `covariance` (d, d) is that of the agents' average.
    """
    pull, smallest = np.zeros(len(values)), math.inf
    for (share, noise), gamma in zip(kinds, long_run, strict=True):
        excess = np.zeros(len(noise.stationary))
        for weight, own in copy_covariances(noise.mean_matrix, gamma, covariance, alpha, period):
            gaps, spreads = gap_distribution(noise.greedy, values, own)
            excess += weight * expected_excess(gaps, spreads)
            smallest = min(smallest, float(gap_ratios(gaps, spreads)[1].min(initial=math.inf)))
        pull += share * (noise.discounted_flow @ excess)
    return Curvature(pull, smallest)


def copy_covariances(
    matrix: np.ndarray, gamma: np.ndarray, covariance: np.ndarray, alpha: float, period: int
) -> Iterator[tuple[float, np.ndarray]]:
    """The covariance (d, d) of an agent's copy of Q at up to `PHASES` times of a period.

    Each comes with a weight, the share of the period that it represents.
    """
    stride = -(-period // PHASES)
    first = (stride - 1) // 2
    step = np.eye(len(matrix)) + alpha * matrix
    jump, jump_noise = _powers(step, alpha**2 * gamma, stride)
    passed, noise = _powers(step, alpha**2 * gamma, first)
    taken = passed @ covariance @ passed.T
    for begin in range(0, period, stride):
        yield min(stride, period - begin) / period, taken + noise
        taken, noise = jump @ taken @ jump.T, jump_noise + jump @ noise @ jump.T


def _powers(step: np.ndarray, noise: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """``F^count`` and ``sum_{j<count} F^j noise F^j'``, by squaring."""
    power, total = np.eye(len(step)), np.zeros_like(step)
    for bit in f"{count:b}":
        power, total = power @ power, total + power @ total @ power.T
        if bit == "1":
            power, total = power @ step, noise + step @ total @ step.T
    return power, total


def gap_distribution(
    greedy: np.ndarray, values: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(S, A-1) gaps and (S, A-1, A-1) covariances of ``Q(s, a) - Q(s, g(s))``.

    They range over the actions a of each state other than its greedy action g(s).
    """
    states, actions = len(greedy), len(values) // len(greedy)
    cells = np.arange(len(values)).reshape(states, actions)
    others = cells[cells != greedy[:, None]].reshape(states, actions - 1)
    gaps = values[greedy][:, None] - values[others]
    with_greedy = covariance[others, greedy[:, None]]
    among = covariance[others[:, :, None], others[:, None, :]]
    spreads = (
        among
        - with_greedy[:, :, None]
        - with_greedy[:, None, :]
        + covariance[greedy, greedy][:, None, None]
    )
    return gaps, spreads


def gap_ratios(gaps: np.ndarray, spreads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(S, a) standard deviations, and the gaps divided by them: infinite where they are zero."""
    deviations = np.sqrt(np.maximum(np.einsum("saa->sa", spreads), 0.0))
    return deviations, np.divide(
        gaps, deviations, out=np.full_like(gaps, math.inf), where=deviations > 0
    )


def expected_excess(gaps: np.ndarray, spreads: np.ndarray) -> np.ndarray:
    """(S,): ``E max(0, max_a D_a)`` for Gaussian D.

    D has mean ``-gaps`` (S, a) and covariance `spreads` (S, a, a). The expectation for one action
    has a closed form. Where several actions may overtake the greedy one at once, quasi-random
    points estimate by how much the sum over the actions exceeds the maximum.

    Examples
    --------
    >>> float(expected_excess(np.zeros((1, 1)), np.ones((1, 1, 1)))[0])  # 1 / sqrt(2 pi)
    0.3989422804014327
    """
    deviations, ratio = gap_ratios(gaps, spreads)
    parts = deviations * np.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi) - gaps * ndtr(-ratio)
    total = np.maximum(parts, 0.0).sum(axis=1)
    if gaps.shape[1] > 1:
        # The sum exceeds the maximum only where two actions come near the greedy one.
        for s in np.flatnonzero((ratio < 8).sum(axis=1) > 1):
            total[s] -= _overlap(gaps[s], spreads[s])
    return total


def _overlap(gaps: np.ndarray, spread: np.ndarray) -> float:
    """``E[sum_a max(0, D_a) - max(0, max_a D_a)]``, estimated at quasi-random points.

    The points are an additive sequence, folded by the tent map.
    """
    dim = len(gaps)
    base = 2.0
    # The root of x^(dim + 1) = x + 1: its powers spread the points evenly in every dimension.
    for _ in range(64):
        base = (1 + base) ** (1 / (dim + 1))
    points = (0.5 + np.outer(np.arange(1, POINTS + 1), base ** -np.arange(1.0, dim + 1))) % 1.0
    normal = ndtri(np.clip(1 - np.abs(2 * points - 1), 1e-15, 1 - 1e-15))
    eigenvalues, vectors = np.linalg.eigh(spread)
    ahead = np.maximum(normal @ (vectors * np.sqrt(np.maximum(eigenvalues, 0.0))).T - gaps, 0.0)
    return float((ahead.sum(axis=1) - ahead.max(axis=1)).mean())
