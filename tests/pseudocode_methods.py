"""Methods beside plain averaging, each after the paper that proposes it: the oracle that every
engine is held to.

Plain Python and NumPy, sharing no code with the library. Nothing is drawn here: an agent's paths
are replayed (`helpers.increments`), and who takes part, what is rounded and which cells are sent
are arguments. `federate` is the loop that the papers share; everything else is one place of it:

- control variates: `Scafflsa` (Mangold et al., 2024), `Scaffold` (Karimireddy et al., 2020, option
  II), `Fedhsa` (variates of the round's first step);
- averages: `mean` with weights, `importance_averaging` (Woo, Joshi and Chi, 2023) and its identity
  `mean_of_targets`;
- server: heavy-ball momentum (FedAvgM: Hsu, Qi and Brown, 2019) or Nesterov's (Sutskever's form);
- unequal local steps, normalised (FedNova: Wang et al., 2020) or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, repeat
from typing import Any

import numpy as np

from helpers.increments import Field

Thetas = dict[int, np.ndarray]
"""The parameters of those who take part in a round, by agent."""


@dataclass
class Trace:
    """What a run records at every time 0..T, after the synchronisation of that time."""

    averages: list[np.ndarray] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    syncs: list[int] = field(default_factory=list)
    largest: float = 1.0

    def add(self, thetas: Sequence[np.ndarray], weights: Sequence[float]) -> None:
        """The weighted mean of the parameters, and their weighted mean squared distance from it."""
        total = sum(weights)
        mean = sum(w * theta for w, theta in zip(weights, thetas, strict=True)) / total
        gaps = [((theta - mean) ** 2).sum() for theta in thetas]
        self.averages.append(np.asarray(mean))
        self.errors.append(float(np.dot(weights, gaps) / total))
        self.largest = max(self.largest, *(np.abs(theta).max() for theta in thetas))

    @property
    def average(self) -> np.ndarray:
        """(T+1, d)"""
        return np.array(self.averages)

    @property
    def sync_error(self) -> np.ndarray:
        """(T+1,)"""
        return np.array(self.errors)

    def tail(self, fraction: float, over: str = "steps") -> np.ndarray:
        """The mean of the averages over the last `fraction` of the run: over all times, or over the
        synchronisations."""
        T = len(self.averages) - 1
        start = T - round(fraction * T)
        times = range(1, T + 1) if over == "steps" else self.syncs
        return np.mean([self.averages[t] for t in times if t > start], axis=0)


# --- Control variates -----------------------------------------------------------------------------


class NoVariates:
    """Plain local steps: theta_i <- theta_i + alpha F_i."""

    def begin(self, F: Callable, sent: np.ndarray, clocks: dict[int, int]) -> None:
        """The round begins at `sent`; those who take part are at the times `clocks` of their
        paths."""

    def of(self, i: int) -> np.ndarray | float:
        return 0.0

    def end(self, sent: np.ndarray, thetas: Thetas, alphas: Sequence[float]) -> None:
        """The round ends; everyone who took part is at its `thetas`."""


class Scafflsa(NoVariates):
    """theta_i += alpha (F_i + xi_i); after the average xi_i += (theta' - theta_i) / (alpha K), with
    all agents."""

    def __init__(self, weights: np.ndarray, d: int) -> None:
        self.weights = weights
        self.xi = np.zeros((len(weights), d))

    def of(self, i: int) -> np.ndarray:
        return self.xi[i]

    def end(self, sent: np.ndarray, thetas: Thetas, alphas: Sequence[float]) -> None:
        after = np.array([thetas[i] for i in range(len(self.weights))])
        self.xi += (self.weights @ after - after) / sum(alphas)


class Scaffold(NoVariates):
    """Option II, in the signs of the paper, whose gradient is -F.

    y_i <- y_i - eta (grad_i - c_i + c), then c_i+ = c_i - c + (x - y_i) / (K eta) for those who
    took part, and c <- c + (1/N) sum of c_i+ - c_i. With `groups` the agents of a group share one
    c_i, the mean of what those of them who took part found.
    """

    def __init__(self, weights: np.ndarray, d: int, groups: Sequence[int] | None = None) -> None:
        self.weights = weights
        self.groups = list(range(len(weights))) if groups is None else list(groups)
        self.c_i = {g: np.zeros(d) for g in self.groups}
        self.c = np.zeros(d)

    def of(self, i: int) -> np.ndarray:
        return self.c_i[self.groups[i]] - self.c

    def end(self, sent: np.ndarray, thetas: Thetas, alphas: Sequence[float]) -> None:
        found: dict[int, list[tuple[float, np.ndarray]]] = {}
        for i, y_i in thetas.items():
            plus = self.c_i[self.groups[i]] - self.c + (sent - y_i) / sum(alphas)
            found.setdefault(self.groups[i], []).append((self.weights[i], plus))
        moved = np.zeros_like(self.c)
        for g, news in found.items():
            plus = sum(w * new for w, new in news) / sum(w for w, _ in news)
            share = sum(w for w, group in zip(self.weights, self.groups, strict=True) if group == g)
            moved += share * (plus - self.c_i[g])
            self.c_i[g] = np.asarray(plus)
        self.c = self.c + moved


class Fedhsa(NoVariates):
    """theta_i += alpha (F_i(theta_i, o) - F_i(x, o_0) + mean of F_j(x, o_0)), o_0 the first
    observation of the round, which also serves the first step."""

    def __init__(self, weights: np.ndarray, groups: Sequence[int] | None = None) -> None:
        self.weights = weights
        self.groups = list(range(len(weights))) if groups is None else list(groups)
        self.own: dict[int, np.ndarray] = {}
        self.mean: Any = 0.0

    def begin(self, F: Callable, sent: np.ndarray, clocks: dict[int, int]) -> None:
        first = {i: F(i, k, sent) for i, k in clocks.items()}
        self.mean = self._mean(first, list(first)) if first else 0.0
        self.own = {
            i: self._mean(first, [j for j in first if self.groups[j] == self.groups[i]])
            for i in first
        }

    def _mean(self, first: Thetas, agents: list[int]) -> np.ndarray:
        total = sum(self.weights[j] * first[j] for j in agents)
        return np.asarray(total / sum(self.weights[j] for j in agents))

    def of(self, i: int) -> np.ndarray:
        return self.mean - self.own[i]


# --- Averages -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    """What the server knows at the end of a round."""

    sent: np.ndarray
    thetas: Thetas
    changes: Thetas
    """theta_i - sent, as reported"""
    visits: dict[int, list[tuple[int, float, float]]]
    """For algorithms that change one cell a step: the cell, the step size and the target of each
    step, by agent."""
    num_agents: int


Combine = Callable[[Round], np.ndarray]


def mean(weights: np.ndarray, divide_by: str = "answered") -> Combine:
    """sum w_i Delta_i over those who answered, divided by the sum of their weights, or by that of
    all."""

    def combine(done: Round) -> np.ndarray:
        total = np.zeros_like(done.sent)
        for i, change in done.changes.items():
            total = total + weights[i] * change
        if not done.changes or divide_by == "all":
            return total
        return total / sum(weights[i] for i in done.changes)

    return combine


def importance_averaging(divide_by: str = "answered") -> Combine:
    """Q(c) = sum_i w_i Q_i(c) with w_i proportional to (1 - alpha)^(-N_i(c)), cell by cell."""

    def combine(done: Round) -> np.ndarray:
        silent = done.num_agents - len(done.thetas) if divide_by == "all" else 0
        weighted, total = silent * done.sent, np.full(len(done.sent), float(silent))
        for i, theta in done.thetas.items():
            weight = np.ones(len(done.sent))
            for cell, alpha, _ in done.visits[i]:
                weight[cell] /= 1 - alpha
            weighted, total = weighted + weight * theta, total + weight
        return weighted / total - done.sent if total.all() else np.zeros_like(done.sent)

    return combine


def exact_importance_averaging(done: Round) -> np.ndarray:
    """The same for all agents in exact rational arithmetic, where floating point would overflow."""
    new = []
    for cell, old in enumerate(done.sent):
        weighted = total = Fraction(0)
        for i, theta in done.thetas.items():
            weight = Fraction(1)
            for visited, alpha, _ in done.visits[i]:
                weight /= 1 - Fraction(alpha) if visited == cell else 1
            weighted, total = weighted + weight * Fraction(theta[cell]), total + weight
        new.append(float(weighted / total - Fraction(old)))
    return np.array(new)


def mean_of_targets(done: Round) -> np.ndarray:
    """The same for all agents, as an identity: a cell's new value is the mean of its old one, with
    weight N, and of all targets, that of the j-th visit with weight alpha (1 - alpha)^-j."""
    weighted, total = done.num_agents * done.sent, np.full(len(done.sent), float(done.num_agents))
    for visits in done.visits.values():
        power = np.ones(len(done.sent))
        for cell, alpha, target in visits:
            power[cell] /= 1 - alpha
            weighted[cell] += alpha * power[cell] * target
            total[cell] += alpha * power[cell]
    return weighted / total - done.sent


# --- What an agent reports ------------------------------------------------------------------------


def rounded(change: np.ndarray, step: float, uniform: np.ndarray) -> np.ndarray:
    """The multiple of `step` above the change with a probability of its distance from the one
    below, else the one below."""
    below = np.floor(change / step)
    return step * np.where(uniform >= 1 - (change / step - below), below + 1, below)


def dithered(change: np.ndarray, step: float, uniform: np.ndarray) -> np.ndarray:
    """Shift by a random part of a step, round to the nearest multiple, shift back."""
    shift = step * (uniform - 0.5)
    return step * np.floor((change + shift) / step + 0.5) - shift


def some_cells(change: np.ndarray, kept: Sequence[int]) -> np.ndarray:
    """The kept cells, scaled so that the mean over all choices is the change itself."""
    sent = np.zeros_like(change)
    sent[list(kept)] = change[list(kept)] * len(change) / len(kept)
    return sent


def normalised(change: np.ndarray, own_steps: int, all_steps: Sequence[int]) -> np.ndarray:
    """FedNova: the change of one step, times the mean number of steps."""
    return float(np.mean(all_steps)) * (change / own_steps)


# --- The loop -------------------------------------------------------------------------------------


@dataclass
class Rules:
    """One choice in each place of a round; made anew for every run, since variates have a state."""

    combine: Combine
    weights: np.ndarray
    """(N,): of the mean that is recorded within a round"""
    variates: NoVariates = field(default_factory=NoVariates)
    server: tuple[float, float, bool] = (1.0, 0.0, False)
    """step, momentum, and whether agents start at the look-ahead point"""
    taking_part: Callable[[int], Sequence[int]] | None = None
    """those of a round; everyone if None"""
    others_wait: bool = True
    report: Callable[[int, int, np.ndarray], np.ndarray] = lambda i, r, change: change
    """what agent i reports of its change in round r"""
    local_steps: Sequence[int] | None = None
    """of each agent; the whole round if None"""


def federate(
    field: Field,
    start: np.ndarray,
    rules: Rules,
    *,
    periods: Sequence[int],
    alphas: Sequence[float],
) -> Trace:
    """Rounds of the given lengths, the last of which repeats, with one step size for each time."""
    N, x, t = len(rules.weights), np.array(start, dtype=float), 0
    step, momentum, look_ahead = rules.server
    velocity = np.zeros_like(x)  # in units of x
    clocks = [0] * N
    trace = Trace()
    trace.add([x], [1.0])
    for r, K in enumerate(chain(periods, repeat(periods[-1]))):
        if t == len(alphas):
            return trace
        sent = x + momentum * velocity if look_ahead else x
        own = [K] * N if rules.local_steps is None else list(rules.local_steps)
        here = list(range(N)) if rules.taking_part is None else list(rules.taking_part(r))
        sizes = alphas[t : t + K]
        done = _local_steps(field, rules, sent, here, clocks, own, sizes, K, trace)
        t += len(sizes)
        if len(sizes) < K:  # the run ends within the round
            return trace
        rules.variates.end(sent, done.thetas, sizes)
        for i, theta in done.thetas.items():
            done.changes[i] = rules.report(i, r, theta - sent)
        velocity = momentum * velocity + step * rules.combine(done)
        x = x + velocity
        for i in range(N):
            clocks[i] += own[i] if i in here or not rules.others_wait else 0
        trace.add([x], [1.0])
        trace.syncs.append(t)
    raise AssertionError("unreachable")


def _local_steps(
    field: Field,
    rules: Rules,
    sent: np.ndarray,
    here: Sequence[int],
    clocks: Sequence[int],
    own: Sequence[int],
    sizes: Sequence[float],
    K: int,
    trace: Trace,
) -> Round:
    """The steps of a round, recorded at each time but the one at which the server averages."""
    thetas = {i: sent.copy() for i in here}
    visits: dict[int, list[tuple[int, float, float]]] = {i: [] for i in here}
    rules.variates.begin(field.F, sent, {i: clocks[i] for i in here})
    for l, alpha in enumerate(sizes):
        for i in here:
            if l >= own[i]:
                continue
            k, theta = clocks[i] + l, thetas[i]
            F = field.F(i, k, theta)
            if field.cell is not None:
                cell = field.cell(i, k)
                visits[i].append((cell, alpha, theta[cell] + F[cell]))
            thetas[i] = theta + alpha * (F + rules.variates.of(i))
        if l + 1 < K:
            if here:
                trace.add([thetas[i] for i in here], [rules.weights[i] for i in here])
            else:
                trace.add([sent], [1.0])
    return Round(sent, thetas, {}, visits, len(rules.weights))
