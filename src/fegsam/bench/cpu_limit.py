"""The limit of a CPU: the dependent loads of an agent's path.

A step of a path reads the policy's alias entry at the state, the row of the transition table at
state and action, and an entry of that row, which is the next state. These are three loads from
three tables, and each must finish before the next can start. A single agent therefore moves no
faster than the sum of the three latencies, whatever the code. Agents in lockstep overlap their
loads, as far as the core can keep loads in flight. One pointer chase measures both cases: as many
chains as there are agents in lockstep walk a random cycle in a table of each size. Random words,
updates, recording and averaging cost extra time, so a run comes close to this bound only where it
waits for loads. In tables that fit the first-level cache, the instructions of the chase itself
count as well.
"""

from __future__ import annotations

import functools
import time

import numba
import numpy as np

from fegsam.engines.cpu.sampling import TILE
from fegsam.engines.job import Chain

_LARGEST = 1 << 28
"""Largest table in bytes; beyond all caches the size no longer matters."""
_SECONDS = 0.02
_REPEATS = 3


def path_limit(chain: Chain, num_agents: int) -> tuple[int, float]:
    """The number of agents that overlap their loads, and seconds per step of one thread."""
    chains = min(TILE, num_agents)
    return chains, sum(
        load_seconds(table.nbytes, chains) for table in (chain.policy, chain.row, chain.entry)
    )


@functools.cache
def load_seconds(num_bytes: int, chains: int) -> float:
    """Seconds per load of `chains` parallel chains of dependent loads."""
    table = random_cycle(max(16, min(num_bytes, _LARGEST) // 4))
    at = (np.arange(chains) * (len(table) // chains)).astype(np.uint32)
    steps, taken = 64, 0.0
    _chase(table, at, 1)
    while taken < _SECONDS:
        steps *= 2
        taken = _seconds(table, at, steps)
    return min(_seconds(table, at, steps) for _ in range(_REPEATS)) / (steps * chains)


def _seconds(table: np.ndarray, at: np.ndarray, steps: int) -> float:
    began = time.process_time()
    _chase(table, at, steps)
    return time.process_time() - began


def random_cycle(size: int) -> np.ndarray:
    """uint32 (size,): the successor of each index on one random cycle through all of them."""
    order = np.random.default_rng(0).permutation(size).astype(np.uint32)
    table = np.empty_like(order)
    table[order] = np.roll(order, -1)
    return table


@numba.njit
def _chase(table, at, steps):
    if len(at) == 1:
        here = at[0]
        for _ in range(steps):
            here = table[here]
        at[0] = here
        return
    for _ in range(steps):
        for j in range(np.uint64(len(at))):
            at[j] = table[at[j]]
