"""Agents with one parameter each, for which the laws of a method are known in closed form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fegsam.algorithms.alg1_stochastic_approximation import LinearSA
from fegsam.problem.federation import MarkovNoise


def pulled(
    slopes: Sequence[float], points: Sequence[float], noise: Sequence[float], agents: int
) -> tuple[MarkovNoise, LinearSA]:
    """Agents of kind k make the increments ``A_k (point_k - theta) + noise_k * (+1 or -1)``.

    The signs are independent fair coins, and the kinds have equally many agents.

    >>> import fegsam as fg
    >>> problem, algorithm = pulled((1.0, 0.25), (1.0, 0.0), (1.0, 0.5), 2)
    >>> fg.fixed_point(problem, algorithm)
    array([0.8])
    """
    kinds = len(slopes)
    problem = MarkovNoise(np.full((kinds, 2, 2), 0.5), num_agents=agents)
    matrices, offsets = np.empty((kinds, 2, 1, 1)), np.empty((kinds, 2, 1))
    for k, (slope, point, size) in enumerate(zip(slopes, points, noise, strict=True)):
        matrices[k] = -slope
        offsets[k, :, 0] = slope * point + size, slope * point - size
    return problem, LinearSA(matrices, offsets)


def unequal(agents: int) -> tuple[MarkovNoise, LinearSA]:
    """Two kinds of slopes 1 and 1/4 that drift far from theta* = 0.8.

    >>> unequal(4)[0].num_agents
    4
    """
    return pulled((1.0, 0.25), (1.0, 0.0), (1.0, 0.5), agents)


def alike(agents: int) -> tuple[MarkovNoise, LinearSA]:
    """Two kinds of equal slope and noise whose own points are 1 and -1; theta* = 0.

    >>> alike(4)[0].num_kinds
    2
    """
    return pulled((1.0, 1.0), (1.0, -1.0), (1.0, 1.0), agents)
