"""Agents with one parameter each, drawn towards points of their own by fair coins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import fegsam as fg


def pulled(
    slopes: Sequence[float], points: Sequence[float], noise: Sequence[float]
) -> tuple[Any, Any]:
    """Agent i makes the increments ``A_i (point_i - theta) + noise_i * (+1 or -1)``."""
    kinds = len(slopes)
    problem = fg.MarkovNoise(np.full((kinds, 2, 2), 0.5), num_agents=kinds)
    matrices = np.empty((kinds, 2, 1, 1))
    offsets = np.empty((kinds, 2, 1))
    for i, (slope, point, size) in enumerate(zip(slopes, points, noise, strict=True)):
        matrices[i] = -slope
        offsets[i, :, 0] = slope * point + size, slope * point - size
    return problem, fg.LinearSA(matrices, offsets)


def two_unequal() -> tuple[Any, Any]:
    """Two agents of slopes 1 and 1/4 whose drift is large; theta* = 0.8."""
    return pulled((1.0, 0.25), (1.0, 0.0), (1.0, 0.5))
