"""Philox4x32-10 and the words of a purpose, written a second time from what is published and
documented: the counter is half the time, the agent and the purpose; the key is the seed."""

from __future__ import annotations

import numpy as np

PARTICIPATION, ROUNDING, SOME_CELLS = 3, 4, 5


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011) on Python's own integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        high_0, low_0 = divmod(0xD2511F53 * c[0], 2**32)
        high_1, low_1 = divmod(0xCD9E8D57 * c[2], 2**32)
        c = [high_1 ^ c[1] ^ k[0], low_1, high_0 ^ c[3] ^ k[1], low_0]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return tuple(c)


def words(seed: int, agent: int, t: int, purpose: int) -> tuple[int, int]:
    """The two words of time t; two times share a block of four."""
    pair, odd = divmod(t, 2)
    block = philox((pair % 2**32, pair >> 32, agent, purpose), (seed % 2**32, seed >> 32))
    return block[2 * odd], block[2 * odd + 1]


def drawn(seed: int, num_agents: int, m: int, r: int) -> list[int]:
    """The m of N agents that take part in round r: those with the smallest words."""
    order = sorted((*words(seed, i, r, PARTICIPATION), i) for i in range(num_agents))
    return sorted(i for _, _, i in order[:m])


def answering(seed: int, num_agents: int, p: float, r: int) -> list[int]:
    """The agents that take part in round r, each with probability p."""
    limit = int(p * 2**32)
    return [i for i in range(num_agents) if words(seed, i, r, PARTICIPATION)[0] < limit]


def uniforms(seed: int, agent: int, r: int, d: int) -> np.ndarray:
    """(d,): one number in (0, 1) for each cell that an agent rounds in round r."""
    first = [words(seed, agent, r * d + cell, ROUNDING)[0] for cell in range(d)]
    return (np.array(first, float) + 0.5) / 2.0**32


def cells(seed: int, agent: int, r: int, d: int, count: int) -> list[int]:
    """The `count` of d cells that an agent reports in round r."""
    order = sorted((*words(seed, agent, r * d + cell, SOME_CELLS), cell) for cell in range(d))
    return [cell for _, _, cell in order[:count]]
