"""The held-out rows of all agents as one sample, with the weight and the cluster of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fegsam.data.choosing import target_chances
from fegsam.data.clusters import clusters_of, number_of_clusters
from fegsam.data.estimates import episodes_of, policy_of, ratios_of
from fegsam.data.rows import Rows, joined
from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import FloatArray, IntArray, finite_array

if TYPE_CHECKING:
    from fegsam.data.federation import TargetPolicy


class Sample(NamedTuple):
    """Held-out rows of all agents, one behind the other, each ending in a gap."""

    rows: Rows
    ratios: FloatArray
    """(L): importance ratios; 1 where the rule has none, 0 in gaps"""
    weights: FloatArray
    """(L): the share of each row in the mean of all; 0 in gaps"""
    starts: IntArray
    """(E): the first row of each episode"""
    start_weights: FloatArray
    """(E)"""
    clusters: IntArray
    """(L)"""
    num_clusters: int
    """G"""
    horizon: int
    """n"""


def sample_of(
    rows: Sequence[Rows],
    weights: ArrayLike | None,
    target: tuple[bool, TargetPolicy | None],
    horizon: int,
    num_actions: int | None = None,
) -> Sample:
    """The sample of the agents' rows; `target` says whether there are ratios, and of what."""
    shares = _agent_weights(weights, len(rows))
    used = [i for i, own in enumerate(rows) if not own.gap.all() and shares[i] > 0.0]
    if not used:
        raise ProblemError("the held-out rows have no transition: hold out more episodes")
    agents = [_closed(rows[i]) for i in used]
    shares = shares[used] / shares[used].sum()
    count = number_of_clusters([int(own.gap.sum()) for own in agents])
    every = joined(agents)
    if target[0]:
        every = _with_target(every, target[1], num_actions)
    owner = np.repeat(np.arange(len(agents)), [len(own.gap) for own in agents])
    episodes = episodes_of(every)
    starts = episodes.starts[episodes.lengths > 0]
    begun = np.bincount(owner[starts], minlength=len(agents))
    return Sample(
        every,
        np.where(every.gap, 0.0, ratios_of(every, None) if target[0] else 1.0),
        np.where(every.gap, 0.0, (shares / np.bincount(owner, ~every.gap))[owner]),
        starts,
        (shares / begun)[owner[starts]],
        np.concatenate([clusters_of(own.gap, count) for own in agents]),
        count,
        horizon,
    )


def n_step(sample: Sample, errors: FloatArray) -> FloatArray:
    """(L, T): the n-step errors, with the one-step errors (L, T) summed from a window's end.

    A gap has the ratio 0, so that no window crosses it.
    """
    first = sample.ratios[:, None] * errors
    later = (sample.ratios * sample.rows.discount)[:, None]
    found = first
    for _ in range(sample.horizon - 1):
        ahead = np.zeros_like(first)
        ahead[:-1] = found[1:]
        found = first + later * ahead
    return found


def _closed(rows: Rows) -> Rows:
    """The rows with a gap at the end: an episode that was still open counts as truncated there.

    What stands in a gap besides its observation is replaced, since nothing may depend on it.
    """
    gap = rows.gap.copy()
    gap[-1] = True
    return rows._replace(
        gap=gap,
        action=np.where(gap, 0, rows.action),
        reward=np.where(gap, 0.0, rows.reward),
        discount=np.where(gap, 0.0, rows.discount),
    )


def _with_target(rows: Rows, policy: TargetPolicy | None, num_actions: int | None) -> Rows:
    """The rows with the target policy's probabilities of their actions."""
    if policy is None:
        return rows
    if not callable(policy):
        return rows._replace(target=policy_of(rows, policy)[rows.observation, rows.action])
    chances = target_chances(policy, rows.observation, rows.action, num_actions)
    return rows._replace(target=chances)


def _agent_weights(weights: ArrayLike | None, agents: int) -> FloatArray:
    if weights is None:
        return np.ones(agents)
    found = finite_array(weights, "weights", "(N,)")
    if found.shape != (agents,) or (found < 0.0).any() or not found.sum() > 0.0:
        raise ProblemError(
            f"weights is {shown(weights)} for {agents} agents: give a number of at least 0 for "
            "each, not all 0"
        )
    return found
