"""The random numbers of all data: counter-based words, and draws from finite distributions.

The words for step t of agent i under a seed are Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011)
of (seed, i, t, purpose) and depend on nothing else. So agents, seeds, threads and machines can be
laid out in any way, a run resumes anywhere, and an agent's path is the same whatever N, K, the step
size or the engine.

Everything here works on NumPy unsigned integers (scalars or arrays) and compiles with Numba. Words
of 32 bits are held in uint64, so that a product of two never overflows. No float touches a path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from fegsam.compilation import compiled

MASK = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
ONE = np.uint64(1)
TWO = np.uint64(2)
THREE = np.uint64(3)

# The purpose of a word. It is part of the counter, so streams of different purposes never overlap.
PATH = np.uint64(0)
FIRST_STATE = np.uint64(1)
OUTPUT_TIME = np.uint64(2)
# The agents that are asked in a round of a federation; t is the round.
PARTICIPATION = np.uint64(3)
# The rounding of an agent's change, and the cells that it reports; t is round * d + cell.
ROUNDING = np.uint64(4)
SOME_CELLS = np.uint64(5)
# The seed of an episode of a live environment; t is the episode.
EPISODE = np.uint64(6)
# The i.i.d. mode draws the first state of each window with purpose IID, and its l-th transition
# with purpose IID + l, l = 1, 2, ...
IID = np.uint64(1 << 16)

_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)

# A loop over many counters vectorises only if LLVM inlines these, without reference counts.
_INLINE = {"forceinline": True, "_nrt": False}


@register_jitable(**_INLINE)
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10: four words from a counter of four words and a key of two."""
    for _ in range(10):
        product_0 = _MULTIPLIER_0 * c0
        product_1 = _MULTIPLIER_1 * c2
        c0 = (product_1 >> HALF) ^ c1 ^ k0
        c1 = product_1 & MASK
        c2 = (product_0 >> HALF) ^ c3 ^ k1
        c3 = product_0 & MASK
        k0 = (k0 + _WEYL_0) & MASK
        k1 = (k1 + _WEYL_1) & MASK
    return c0, c1, c2, c3


@register_jitable(_nrt=False)
def words(seed, agent, t, purpose):
    """The two words of transition `t`: one for the action, one for the next state.

    Two transitions share a block of four words.
    """
    pair = t >> ONE
    w0, w1, w2, w3 = philox(pair & MASK, pair >> HALF, agent, purpose, seed & MASK, seed >> HALF)
    odd = t & ONE
    return w0 ^ odd * (w0 ^ w2), w1 ^ odd * (w1 ^ w3)


@register_jitable(**_INLINE)
def choose(word, start, size, table):
    """Draw from the alias row of `size` entries that begins at entry `start` of `table`.

    An entry is (threshold, outcome, other outcome).
    """
    product = word * size
    at = THREE * (start + (product >> HALF))
    # All three are read before the choice: a branch here would be mispredicted half of the time.
    threshold, outcome, other = table[at], table[at + ONE], table[at + TWO]
    return outcome if (product & MASK) < threshold else other


@register_jitable(**_INLINE)
def choose_index(word, start, size, table):
    """Draw from an alias row whose j-th entry (threshold, alias) has the outcome j."""
    product = word * size
    index = product >> HALF
    at = TWO * (start + index)
    threshold, other = table[at], np.uint64(table[at + ONE])
    return index if (product & MASK) < threshold else other


@compiled(_nrt=True)
def build_alias(start, probabilities, outcomes, table):
    """Fill alias rows, by Vose's method, for distributions over `outcomes`.

    Row r is for the distribution ``probabilities[start[r]:start[r+1]]``. Entry j of a row,
    (threshold, outcome, other), yields its outcome with probability ``threshold / 2**32`` and the
    other one otherwise. An entry with a certain outcome has that outcome twice, since a threshold
    of 2**32 does not fit. An outcome of probability zero is never drawn.
    """
    widest = 0
    for r in range(len(start) - 1):
        widest = max(widest, start[r + 1] - start[r])
    small = np.empty(widest, np.int64)
    large = np.empty(widest, np.int64)
    share = np.empty(widest, np.float64)
    for r in range(len(start) - 1):
        begin, size = start[r], start[r + 1] - start[r]
        num_small = num_large = 0
        for j in range(size):
            share[j] = probabilities[begin + j] * size
            table[begin + j, 0] = np.uint32(0xFFFFFFFF)
            table[begin + j, 1] = outcomes[begin + j]
            table[begin + j, 2] = outcomes[begin + j]
            if share[j] < 1.0:
                small[num_small] = j
                num_small += 1
            else:
                large[num_large] = j
                num_large += 1
        while num_small > 0 and num_large > 0:
            num_small -= 1
            less, more = small[num_small], large[num_large - 1]
            table[begin + less, 0] = np.uint32(min(share[less] * 4294967296.0, 4294967295.0))
            table[begin + less, 2] = outcomes[begin + more]
            share[more] -= 1.0 - share[less]
            if share[more] < 1.0:
                num_large -= 1
                small[num_small] = more
                num_small += 1


def index_rows(distributions: np.ndarray) -> np.ndarray:
    """uint32: alias rows over the outcomes 0, 1, ... of distributions (rows, size), flat."""
    rows, size = distributions.shape
    outcomes = np.tile(np.arange(size, dtype=np.uint32), rows)
    return alias_rows(np.arange(rows + 1) * size, distributions.ravel(), outcomes)[
        :, (0, 2)
    ].ravel()


def alias_rows(start: Any, probabilities: Any, outcomes: Any) -> np.ndarray:
    """uint32 (entries, 3): threshold, outcome and other outcome of each entry."""
    table = np.empty((len(probabilities), 3), np.uint32)
    build_alias(
        start,
        np.ascontiguousarray(probabilities, np.float64),
        np.asarray(outcomes, np.uint32),
        table,
    )
    return table
