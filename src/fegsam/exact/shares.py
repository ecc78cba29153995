"""How much each agent counts in a round: first and second moments of the random shares.

A round maps the server's state z to ``sum_a nu_a A_a z + (1/N) sum_i sum_b sigma_bi B_bi z``. The
B_bi are the random matrices of agent i. The nu_a and sigma_bi depend on who takes part alone, which
is independent of all paths. So second moments of z need the means and second moments of these
shares, for two different agents and for one agent twice.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from fegsam.errors import ProblemError
from fegsam.methods.participation import Participation

_MOST_CASES = 1 << 19
"""At most this many numbers of participants by group are summed over."""
_TAILS = 40.0
"""Numbers of participants this many standard deviations from their mean never occur."""
_NEGLIGIBLE = 1e-15


@dataclass(frozen=True, eq=False)
class Groups:
    """Agents that are alike in all that matters to a round."""

    counts: np.ndarray
    """(M,): the number of agents of each group"""
    weights: np.ndarray
    """(M,): the weight of each agent of a group in the mean"""
    variate: np.ndarray
    """(M,): the number of the control variate that the group shares"""

    @property
    def num_agents(self) -> int:
        return int(self.counts.sum())

    @property
    def num_variates(self) -> int:
        return int(self.variate.max()) + 1

    def variate_weights(self) -> np.ndarray:
        """(variates,): the total weight of the agents that share each control variate."""
        return np.bincount(self.variate, weights=self.counts * self.weights)


@dataclass(frozen=True, eq=False)
class Attendance:
    """The distribution of the numbers of participants of each group."""

    probability: np.ndarray
    """(V,)"""
    present: np.ndarray
    """(V, M)"""


def attendance(groups: Groups, participation: Participation | None, by_group: bool) -> Attendance:
    """All cases of attendance.

    Without `by_group` only the total number of participants matters: each group then stands for all
    agents.
    """
    counts = groups.counts.astype(np.int64)
    if participation is None:
        return Attendance(np.ones(1), counts[None].astype(float))
    total = groups.num_agents
    if not by_group:
        single = _cases(np.array([total]), participation, total)
        return Attendance(single.probability, np.repeat(single.present, len(counts), axis=1))
    if float(np.prod(counts + 1.0)) > _MOST_CASES:
        raise ProblemError(
            f"Exact moments sum over the numbers of participants of each of {len(counts)} groups "
            "of agents, which are too many cases here; use equal weights without control "
            "variates, fewer agents, or sample with fegsam.run."
        )
    return _cases(counts, participation, total)


def _cases(counts: np.ndarray, participation: Participation, total: int) -> Attendance:
    asked, probability = participation.agents, participation.probability
    if asked is not None and len(counts) == 1:
        return Attendance(np.ones(1), np.full((1, 1), float(asked)))
    if asked is None:
        assert probability is not None
        laws = [_binomial(int(count), probability) for count in counts]
        present = np.stack(np.meshgrid(*(law[0] for law in laws), indexing="ij"), axis=-1)
        chance = functools.reduce(np.multiply.outer, (law[1] for law in laws))
        return Attendance(chance.ravel(), present.reshape(-1, len(counts)))
    present = np.indices(tuple(counts + 1)).reshape(len(counts), -1).T
    present = present[present.sum(axis=1) == asked]
    ways = gammaln(counts + 1) - gammaln(present + 1) - gammaln(counts - present + 1)
    chance = np.exp(ways.sum(axis=1) - ways.sum(axis=1).max())
    return Attendance(chance / chance.sum(), present.astype(float))


def _binomial(count: int, probability: float) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of participants that may be seen, and their chances."""
    spread = _TAILS * math.sqrt(count * probability * (1.0 - probability)) + _TAILS
    low = max(0, math.floor(count * probability - spread))
    number = np.arange(low, min(count, math.ceil(count * probability + spread)) + 1.0)
    # Ratios of neighbours, summed from the mode on: no large logarithms cancel.
    steps = np.log((count - number[:-1]) / number[1:] * (probability / (1.0 - probability)))
    mode = int(np.clip(int((count + 1) * probability) - low, 0, len(steps)))
    up, down = np.cumsum(steps[mode:]), np.cumsum(-steps[:mode][::-1])[::-1]
    chance = np.exp(np.concatenate([down, [0.0], up]))
    return number, chance / chance.sum()


@dataclass(frozen=True, eq=False)
class Shares:
    """Moments of the shares: of `fixed` parts nu, and of `families` parts sigma of each agent."""

    fixed: int
    families: int
    mean: np.ndarray
    """(fixed + families * M,): E nu_a, then E sigma_bi for an agent i of each group"""
    pair: np.ndarray
    """The second moments, with two different agents for two entries of sigma"""
    same: np.ndarray
    """(M, fixed + families, fixed + families): the second moments with one agent of each group"""

    def terms(self) -> list[tuple[float, np.ndarray]]:
        """Factors and vectors whose squares sum to `pair`."""
        rest = self.pair - np.outer(self.mean, self.mean)
        found = [(1.0, self.mean)]
        if np.abs(rest).max() > _NEGLIGIBLE:
            values, vectors = np.linalg.eigh(0.5 * (rest + rest.T))
            kept = np.abs(values) > _NEGLIGIBLE * max(1.0, float(np.abs(values).max()))
            found += [
                (float(value), vector)
                for value, vector in zip(values[kept], vectors.T[kept], strict=True)
            ]
        return found

    def by_group(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(fixed,), (families, M): the two parts of a vector of `terms`."""
        return vector[: self.fixed], vector[self.fixed :].reshape(self.families, -1)


def shares(
    groups: Groups, cases: Attendance, values: np.ndarray, fixed: np.ndarray, by_group: bool
) -> Shares:
    """The moments of shares that are `fixed` (V, a), or `values` (V, b, M) if an agent takes part.

    The other arguments are those of `attendance`.
    """
    chance, present = cases.probability, cases.present
    size = groups.counts if by_group else np.full(len(groups.counts), groups.num_agents)
    there = present / size
    families, kinds = values.shape[1:]
    seen = values * there[:, None, :]
    flat = np.concatenate([fixed, seen.reshape(len(chance), -1)], axis=1)
    mean = chance @ flat
    pair = np.einsum("v,vp,vq->pq", chance, flat, flat)
    low = fixed.shape[1]
    block = pair[low:, low:].reshape(families, kinds, families, kinds)
    for g in range(kinds):
        for h in range(kinds) if not by_group else (g,):
            # Two agents of one group: without replacement.
            if size[g] > 1:
                both = there[:, g] * (present[:, g] - 1) / (size[g] - 1)
                block[:, g, :, h] = np.einsum(
                    "v,vb,vc->bc", chance * both, values[:, :, g], values[:, :, h]
                )
    pair[low:, low:] = block.reshape(families * kinds, -1)
    same = np.empty((kinds, low + families, low + families))
    for g in range(kinds):
        own = np.concatenate([fixed, seen[:, :, g]], axis=1)
        same[g] = np.einsum("v,vp,vq->pq", chance, own, own)
        same[g][low:, low:] = np.einsum(
            "v,vb,vc->bc", chance * there[:, g], values[:, :, g], values[:, :, g]
        )
    return Shares(low, families, mean, pair, same)


def mean_shares(groups: Groups, cases: Attendance, divided: bool, by_group: bool) -> np.ndarray:
    """(V, M): N times the weight of a participant; `divided` by the weights of all participants."""
    weights = np.broadcast_to(groups.weights, cases.present.shape)
    scale = float(groups.num_agents)
    if not divided:
        return scale * weights
    # Without `by_group` every column holds the total number of participants.
    total = cases.present @ groups.weights if by_group else cases.present[:, 0] / scale
    return scale * np.divide(
        weights, total[:, None], out=np.zeros(weights.shape), where=total[:, None] > 0
    )


def variate_shares(groups: Groups, cases: Attendance) -> tuple[np.ndarray, np.ndarray]:
    """(V, M), (V, variates): N times a participant's share of its variate; whether nobody has one.

    Without participants a control variate stays as it is.
    """
    shared = np.equal.outer(groups.variate, np.arange(groups.num_variates)).astype(float)
    total = (cases.present * groups.weights) @ shared
    own = total[:, groups.variate]
    weights = np.broadcast_to(groups.weights, own.shape)
    share = np.divide(weights, own, out=np.zeros(own.shape), where=own > 0)
    return groups.num_agents * share, (total == 0).astype(float)


def is_uniform(groups: Groups) -> bool:
    """Whether all agents have the same weight."""
    return bool(np.all(np.abs(groups.weights * groups.num_agents - 1.0) <= 4 * math.ulp(1.0)))
