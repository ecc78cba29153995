"""A problem on which some seeds diverge and others do not, at times that are known."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import fegsam as fg
import pseudocode
from cases import KINDS, Case, assignment

BURST = 1e100


def bursts(num_agents: int = 1, chance: float = 0.04) -> Case:
    """x halves at each step; in the noise's second state it is multiplied by 1e100 instead. Two
    bursts are too many."""
    kernel = np.tile([1 - chance, chance], (2, 1))
    noise = fg.MarkovNoise(
        np.stack([kernel] * KINDS), num_agents=num_agents, assignment=assignment(num_agents)
    )
    matrices = np.tile(np.array([-0.5, BURST])[:, None, None], (KINDS, 1, 1, 1))
    offsets = np.zeros((KINDS, 2, 1))

    def oracle(states, _, **settings):
        return pseudocode.algorithm_1_linear(states, matrices, offsets, **settings)

    return Case(noise, fg.LinearSA(matrices, offsets), 0, np.ones(1), oracle)


def quietly(call: Callable[[], Any]) -> Any:
    """What `call` returns, whether it diverges or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fg.DivergenceWarning)
        return call()
