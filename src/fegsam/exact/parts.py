"""Connected parts of the second moments, and what a round and a reading know of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Parts = list[np.ndarray]
"""U of r agents: (G, ..., G, D, D) with r axes of modes, for r = 0, ..., R"""


@dataclass(frozen=True, eq=False)
class RoundMeans:
    """Expectations over a round, given the distribution of the modes at its start."""

    before: np.ndarray
    """(G,): p"""
    after: np.ndarray
    """(G,): p'"""


@dataclass(frozen=True, eq=False)
class AgentMeans(RoundMeans):
    """Expectations over one agent's round."""

    left: np.ndarray
    """(M, D, D): E T"""
    total_left: np.ndarray
    """(D, D): the sum of E T over all agents"""
    pair: np.ndarray
    """(M, D(D+1)/2, D(D+1)/2): ``X -> (E T) X (E T)'``, packed"""
    own: np.ndarray
    """(M, D(D+1)/2, D(D+1)/2): ``X -> E[T X T'] - (E T) X (E T)'``"""
    total_pair: np.ndarray
    total_own: np.ndarray
    """The sums of `pair` and `own` over all agents."""


@dataclass(frozen=True, eq=False)
class Reading:
    """E||avg - theta*||^2 as a linear functional of the parts."""

    parts: Parts
    own: Parts
    """the functional for the sum over the agents of E||theta^i - theta*||^2"""
