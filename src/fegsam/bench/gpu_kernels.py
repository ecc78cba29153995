"""Micro-benchmarks of a GPU: random sectors, a sequential copy, dependent loads.

This module is imported only where there is a GPU.
"""

# pyright: reportCallIssue=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import numpy as np
from numba import cuda

SECTOR = 8
"""32-bit words in a sector."""
LOADS = 4
"""Independent loads in one iteration of the gathering loop."""
TURNS = 512

_HALF = np.uint64(32)
_WORDS = np.uint64(SECTOR)
_MULTIPLIER = np.uint64(6364136223846793005)
_OFFSET = np.uint64(1442695040888963407)
_APART = np.uint64(0x9E3779B97F4A7C15)


@cuda.jit
def gather(table, num_sectors, out):
    """Each thread sums words of random sectors, chosen by its own linear congruential generator."""
    i = cuda.grid(1)
    x = np.uint64(i) * _APART
    total = np.uint32(0)
    for _ in range(TURNS):
        for _ in range(LOADS):
            x = x * _MULTIPLIER + _OFFSET
            total += table[(((x >> _HALF) * num_sectors) >> _HALF) * _WORDS]
    out[i] = total


@cuda.jit
def chase(table, steps, out):
    """One thread follows a chain of dependent loads."""
    at = np.uint64(0)
    for _ in range(steps):
        at = np.uint64(table[at])
    out[0] = at


@cuda.jit
def copy(source, target):
    for i in range(cuda.grid(1), source.size, cuda.gridsize(1)):
        target[i] = source[i]
