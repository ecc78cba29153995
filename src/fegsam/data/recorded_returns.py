"""Returns that held-out episodes recorded, and what they say of a target or a greedy policy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fegsam.data.estimates import (
    ReturnEstimate,
    doubly_robust,
    episodes_of,
    ratios_of,
    weighted_importance_sampling,
)
from fegsam.data.rows import Rows
from fegsam.data.sample import Sample
from fegsam.problem.checks import FloatArray, IntArray

UNKNOWN = ReturnEstimate(np.nan, np.nan, np.nan)


class Returns(NamedTuple):
    """The discounted returns from the rows of terminated episodes on."""

    at: IntArray
    """(J): the rows"""
    returns: FloatArray
    """(J)"""
    weights: FloatArray
    """(J): a row's share, times the ratios from the row to the end"""


def returns_of(sample: Sample) -> Returns:
    """The returns of all rows of terminated episodes."""
    rows, episodes = sample.rows, episodes_of(sample.rows)
    ends = episodes.starts + episodes.lengths
    done = (episodes.lengths > 0) & (rows.discount[ends - 1] == 0.0)
    ends, lengths = ends[done], episodes.lengths[done]
    returns, weights = np.zeros(len(rows.gap)), np.zeros(len(rows.gap))
    total, product = np.zeros(len(ends)), np.ones(len(ends))
    for back in range(1, int(lengths.max(initial=0)) + 1):
        going = np.flatnonzero(lengths >= back)
        at = ends[going] - back
        total[going] = rows.reward[at] + rows.discount[at] * total[going]
        product[going] *= sample.ratios[at]
        returns[at], weights[at] = total[going], product[going] * sample.weights[at]
    at = np.flatnonzero(weights > 0.0)
    return Returns(at, returns[at], weights[at])


def target_return(sample: Sample) -> ReturnEstimate:
    """The target policy's return, by weighted importance sampling with the sample's ratios."""
    rows = sample.rows._replace(target=sample.ratios, behavior=np.ones(len(sample.ratios)))
    return weighted_importance_sampling(rows) if _has_weight(rows, None) else UNKNOWN


def greedy_returns(
    sample: Sample, tables: FloatArray
) -> list[tuple[ReturnEstimate, ReturnEstimate]]:
    """For each table of action values (T, S, A): two estimates of its greedy policy's return.

    The first is by weighted importance sampling, the second the doubly robust one with the table
    as the guess. Both are unknown where the behaviour's probabilities are, and where no episode has
    only greedy actions.
    """
    rows = sample.rows
    if np.isnan(rows.behavior[~rows.gap]).any():
        return [(UNKNOWN, UNKNOWN)] * len(tables)
    known: dict[bytes, ReturnEstimate] = {}
    found = []
    for table in tables:
        best = table.argmax(axis=1)
        policy, key = np.eye(table.shape[1])[best], best.tobytes()
        if key not in known:
            possible = _has_weight(rows, policy)
            known[key] = weighted_importance_sampling(rows, policy) if possible else UNKNOWN
        robust = UNKNOWN if known[key] is UNKNOWN else doubly_robust(rows, table, policy)
        found.append((known[key], robust))
    return found


def _has_weight(rows: Rows, policy: FloatArray | None) -> bool:
    """Whether some episode could have come from the policy."""
    return bool((np.multiply.reduceat(ratios_of(rows, policy), episodes_of(rows).starts) > 0).any())
