"""The sums of a round: a block's list of touched cells, and the totals over blocks."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from fegsam.compilation import compiled
from fegsam.engines.cpu.methods.finish import (
    DENOMINATOR,
    LARGEST_LOG,
    NUMERATOR,
    VISITORS,
    merge_visits,
)


@compiled(inline="always")
def is_used(part, sums, slot):
    """Whether a round has sums in a slot.

    Of the four slots of an average by visits, two serve only weights that may overflow.
    """
    by_visits = sums.shape[0] > VISITORS
    return not (by_visits and part.safe and LARGEST_LOG <= slot <= VISITORS)


@compiled(inline="always")
def clear(part, sums):
    """Empty a block's sums."""
    for j in range(sums.shape[0]):
        if is_used(part, sums, j):
            sums[j, :] = 0.0


@compiled
def list_touched(lists, own, b):
    """Move the block's sums to its list; they are zero afterwards."""
    sums, length = own.sums, 0
    for e in range(own.num_touched[0]):
        c = own.touched[e]
        found = False
        for j in range(sums.shape[0]):
            found |= sums[j, c] != 0.0
        if found:
            lists.cells[b, length] = c
            for j in range(sums.shape[0]):
                lists.values[b, j, length] = sums[j, c]
                sums[j, c] = 0.0
            length += 1
    lists.lengths[b] = length
    own.num_touched[0] = 0


@compiled
def reduce_wave(constants, shared, part, first, blocks, cells):
    """Add the wave's sums to the totals of this thread's cells, in the order of the blocks."""
    totals, sums = shared.totals, shared.sums
    # An average by visits whose weights would overflow has sums relative to each cell's largest.
    plain = part.safe or totals.shape[1] <= VISITORS
    for b in range(blocks):
        total = totals[shared.members.kinds[first + b]]
        if constants.listed:
            for e in range(sums.lengths[b]):
                c = sums.cells[b, e]
                if not cells.low <= c < cells.high:
                    continue
                if plain:
                    for j in range(total.shape[0]):
                        total[j, c] += sums.values[b, j, e]
                else:
                    merge_list(total, sums.values[b], c, e)
        elif plain:
            for j in range(total.shape[0]):
                if is_used(part, total, j):
                    for c in range(cells.low, cells.high):
                        total[j, c] += sums.dense[b, j, c]
        else:
            for c in range(cells.low, cells.high):
                if sums.dense[b, VISITORS, c] > 0.0:
                    merge_list(total, sums.dense[b], c, c)


@compiled
def merge_list(total, values, c, e):
    """Add entry `e` of a block's sums by visits to the totals of cell `c`."""
    merge_visits(
        total,
        c,
        values[NUMERATOR, e],
        values[DENOMINATOR, e],
        values[LARGEST_LOG, e],
        values[VISITORS, e],
    )
    for j in range(VISITORS + 1, total.shape[0]):
        total[j, c] += values[j, e]
