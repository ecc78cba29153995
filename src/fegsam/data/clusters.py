"""Standard errors from clusters of episodes, and squares of means that noise does not enlarge.

Held-out rows are divided into G clusters of whole episodes. Cluster c has the c-th part of every
agent's episodes, so that all clusters have the same mean, also where the agents differ. An agent
with few episodes is divided into stretches of rows.

The square of a mean of noisy numbers is too large by their variance. The mean product of two
clusters is not: it is zero in mean where the mean is zero. It is also the mean over all ways to cut
the clusters into halves of the product of the two halves' means.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fegsam.problem.checks import FloatArray, IntArray

MOST = 32
"""The largest number of clusters."""
FEWEST = 10
"""With fewer episodes than this, an agent's rows are divided into stretches of rows."""


def number_of_clusters(episodes: Sequence[int]) -> int:
    """G for agents with these numbers of episodes.

    >>> number_of_clusters([100, 40]), number_of_clusters([100, 20]), number_of_clusters([1])
    (32, 20, 32)
    """
    return min([count for count in episodes if count >= FEWEST] + [MOST])


def clusters_of(gap: np.ndarray, count: int) -> IntArray:
    """(L): the cluster of each row of one agent.

    >>> import numpy as np
    >>> clusters_of(np.tile([False, True], 4), 2)
    array([0, 0, 0, 0, 1, 1, 1, 1])
    """
    episodes = int(gap.sum())
    if episodes >= count:
        return (np.cumsum(gap) - gap) * count // episodes
    return np.arange(len(gap)) * count // max(len(gap), 1)


def mean_and_error(
    values: FloatArray, weights: FloatArray, clusters: IntArray, count: int
) -> tuple[FloatArray, FloatArray]:
    """(T) and (T): the weighted mean of values (I, T) and its standard error over clusters.

    The error is NaN where fewer than two clusters have weight.
    """
    total = weights.sum()
    if not total > 0.0:
        nothing = np.full(values.shape[1], np.nan)
        return nothing, nothing.copy()
    mean = weights @ values / total
    off = (values - mean) * weights[:, None]
    sums = np.stack([np.bincount(clusters, off[:, t], minlength=count) for t in range(len(mean))])
    filled = int((np.bincount(clusters, weights, minlength=count) > 0.0).sum())
    if filled < 2:
        return mean, np.full(len(mean), np.nan)
    return mean, np.sqrt(filled / (filled - 1) * (sums**2).sum(axis=1)) / total


def squared_length(parts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(T) and (T): the squared 2-norm of the mean of parts (T, G, r), and its standard error.

    It is the mean of the products of two different parts.
    """
    count = parts.shape[1]
    mean = parts.mean(axis=1)
    squares = np.einsum("tgr,tgr->t", parts, parts)
    value = (count**2 * np.einsum("tr,tr->t", mean, mean) - squares) / (count * (count - 1))
    along = np.einsum("tgr,tr->tg", parts, mean).var(axis=1, ddof=1)
    off = parts - mean[:, None]
    products = np.einsum("tgr,thr->tgh", off, off)
    products[:, np.arange(count), np.arange(count)] = 0.0
    # The products of two parts have this variance where the mean is zero.
    noise = 2.0 * (products**2).sum(axis=(1, 2)) / (count * (count - 1)) ** 2
    # `along` counts the noise of the mean itself twice.
    variance = np.maximum(4.0 * along / count - noise, noise)
    return value, np.sqrt(variance)


def squared_maximum(parts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(T) and (T): the squared sup norm of the mean of parts (T, G, r), and its standard error.

    For each part the others choose the entry, so that the product of theirs and its own is zero in
    mean where the mean is zero.
    """
    times, count, size = parts.shape
    if not size:
        return np.full(times, np.nan), np.full(times, np.nan)
    total, squares = parts.sum(axis=1), (parts**2).sum(axis=1)
    mean = total / count
    noise = (squares / count - mean**2) / (count - 1)
    # The variance of the squared mean of each entry.
    variance = 4.0 * mean**2 * noise + 2.0 * noise**2
    at, terms, variances = np.arange(times), np.empty((count, times)), np.empty((count, times))
    for k in range(count):
        own = parts[:, k]
        others = (total - own) / (count - 1)
        spread = (squares - own**2) / (count - 1) - others**2
        chosen = (others**2 - spread / (count - 2)).argmax(axis=1)
        terms[k], variances[k] = others[at, chosen] * own[at, chosen], variance[at, chosen]
    return terms.mean(axis=0), np.sqrt(np.maximum(variances.mean(axis=0), 0.0))
