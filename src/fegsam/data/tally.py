"""What is in a log, added up row by row in fixed memory: `LogSummary` and its `Tally`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fegsam.data.damage import Place
from fegsam.data.rows import Rows, joined, part
from fegsam.data.scanner import RowLimits, Scanner
from fegsam.data.spread import EpisodeLengths, powers_of_two
from fegsam.problem.checks import FloatArray, IntArray
from fegsam.problem.feature_maps import FeatureMap

LARGEST_TABLE = 2**24
"""Cells (state, action) beyond this number are not counted."""
LARGEST_MATRIX = 1000
"""The truncation eigenvalue is found for at most this many features."""
EXPECTED = 10.0
"""A cell that the target would have reached this often, but the log never shows, is not covered."""
STANDARD_ERRORS = 5.0
"""A mean ratio this many standard errors away from one is wrong."""
FEWEST_ROWS = 100
"""Ratios of shorter logs are not judged."""


@dataclass(frozen=True, eq=False)
class LogSummary:
    """What is in one agent's log; `None` and NaN stand for what the log does not say.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(
    ...         f"{folder}/log.parquet", walk, go, episodes=3, length=5, seed=0
    ...     )
    ...     (summary,) = fg.data.summarise(fg.LogSource(path)).values()
    >>> summary.transitions, summary.episodes, summary.truncated, summary.cells_seen
    (15, 3, 3, 4)
    """

    transitions: int
    episodes: int
    terminated: int
    """episodes that end in a terminated transition; the others are truncated"""
    width: int | None
    """k where an observation has k numbers; None where it is a state number"""
    counts: IntArray | None
    """(S, A): how often each action was taken in each state, where observations are states"""
    num_actions: int
    """as many as were declared, or one more than the largest that occurs"""
    uncovered: tuple[int, int] | None
    """a state and an action that the target would have taken there at least ten times, and that
    never occurs"""
    reward_range: tuple[float, float]
    mean_reward: float
    least_probability: float
    """the smallest `behavior_probability`"""
    ratio_mean: float
    ratio_error: float
    """the standard error of `ratio_mean`"""
    ratio_max: float
    ratio_place: Place | None
    """the row of the largest ratio"""
    effective_rows: float
    """(sum of ratios)^2 / (sum of their squares)"""
    truncation_eigenvalue: float
    """TD with these features is stable for n = 1 if it is below one"""
    feature_norm: float
    """the largest squared 2-norm of a row of features"""
    episode_lengths: Mapping[int, int]
    """the number of episodes by their number of transitions"""
    ratio_sizes: Mapping[int | None, int]
    """the number of ratios from 2^k up to 2^(k + 1), by k; None stands for ratios of zero"""

    @property
    def truncated(self) -> int:
        """Episodes that end without a terminated transition."""
        return self.episodes - self.terminated

    @property
    def cells_seen(self) -> int:
        """The number of (state, action) that occur."""
        return 0 if self.counts is None else int((self.counts > 0).sum())

    @property
    def ratios_are_off(self) -> bool:
        """Whether the mean ratio is far from 1, which it is where the probabilities are right."""
        if np.isnan(self.ratio_mean) or self.transitions < FEWEST_ROWS:
            return False
        return abs(self.ratio_mean - 1.0) > STANDARD_ERRORS * self.ratio_error + 1e-6


class Tally:
    """Adds up the rows of one agent."""

    def __init__(
        self, limits: RowLimits, target: FloatArray | None, features: FeatureMap | None
    ) -> None:
        self._target, self._features = target, features
        shape = max(limits.num_states, 1), max(limits.num_actions, 1)
        self._counts: IntArray | None = np.zeros(shape, np.int64)
        self._transitions = self._episodes = self._terminated = 0
        self._rewards, self._low, self._high = 0.0, np.inf, -np.inf
        self._least, self._width, self._last_action = np.inf, None, -1
        self._ratios, self._ratio_max = np.zeros(3), 0.0
        self._place: Place | None = None
        self._lengths, self._ratio_sizes = EpisodeLengths(), Counter[int | None]()
        self._before: Rows | None = None
        self._norm = 0.0
        size = features.dimension if features is not None else 0
        self._matrices = np.zeros((2, size, size)) if 0 < size <= LARGEST_MATRIX else None

    def add(self, rows: Rows, scanner: Scanner | None) -> None:
        """Add the latest rows of a scanner, or rows whose places are not known."""
        if not len(rows.gap):
            return
        on = ~rows.gap
        self._transitions += int(on.sum())
        self._episodes += len(on) - int(on.sum())
        self._terminated += int((rows.discount[on] == 0.0).sum())
        self._lengths.add(rows)
        reward = rows.reward[on]
        self._rewards += float(reward.sum())
        self._low = min(self._low, float(reward.min(initial=np.inf)))
        self._high = max(self._high, float(reward.max(initial=-np.inf)))
        self._least = min(self._least, float(np.min(rows.behavior[on], initial=np.inf)))
        self._last_action = max(self._last_action, int(rows.action[on].max(initial=-1)))
        if rows.observation.ndim == 1:
            self._count(rows, on)
        else:
            self._width, self._counts = rows.observation.shape[1], None
        ratios = self._add_ratios(rows, on, scanner)
        if self._features is not None:
            self._add_features(rows, ratios, self._features)

    def _count(self, rows: Rows, on: np.ndarray) -> None:
        counts = self._counts
        if counts is None:
            return
        states, actions = rows.observation, rows.action
        size = (
            max(counts.shape[0], int(states.max()) + 1),
            max(counts.shape[1], int(actions.max()) + 1),
        )
        if size[0] * size[1] > LARGEST_TABLE:
            self._counts = None
            return
        if size != counts.shape:
            # Twice the rows, so that a log whose states grow slowly is not copied at every batch.
            tall = max(size[0], 2 * counts.shape[0]) if size[0] > counts.shape[0] else size[0]
            tall = tall if tall * size[1] <= LARGEST_TABLE else size[0]
            larger = np.zeros((tall, size[1]), np.int64)
            larger[: counts.shape[0], : counts.shape[1]] = counts
            counts = larger
        cells = (states * counts.shape[1] + actions)[on]
        found = np.bincount(cells, minlength=counts.size)
        self._counts = counts + found.reshape(counts.shape)

    def _add_ratios(self, rows: Rows, on: np.ndarray, scanner: Scanner | None) -> np.ndarray:
        """(L): the importance ratios; 1 where they are not known, and in gaps."""
        aims = rows.target
        if self._target is not None and rows.observation.ndim == 1:
            aims = self._target[rows.observation, rows.action]
        elif self._target is not None and len(self._target) == 1:
            aims = self._target[0, rows.action]
        ratios = np.where(on, aims / rows.behavior, np.nan)
        known = ratios[on]
        if len(known) and not np.isnan(known).any():
            self._ratios += np.array([len(known), known.sum(), known @ known])
            self._ratio_sizes.update(powers_of_two(known))
            if known.max() > self._ratio_max:
                self._ratio_max = float(known.max())
                if scanner is not None:
                    self._place = scanner.place(int(np.nanargmax(ratios)))
        return np.where(np.isnan(ratios), 1.0, ratios)

    def _add_features(self, rows: Rows, ratios: np.ndarray, features: FeatureMap) -> None:
        """Add to E[phi phi^T] and E[ratio discount^2 phi' phi'^T]."""
        rows = rows._replace(behavior=ratios)  # the ratio travels with the row that is held back
        if self._before is not None:
            rows = joined([self._before, rows])
        self._before = part(rows, len(rows.gap) - 1, len(rows.gap))
        if features.active:
            self._norm = float(features.active)
            if self._matrices is None:
                return
        phi = features.dense(rows.observation)
        if not features.active:
            self._norm = max(self._norm, float((phi**2).sum(axis=1).max()))
        if self._matrices is not None:
            on = ~rows.gap[:-1]
            now, after = phi[:-1][on], phi[1:][on]
            weights = (rows.behavior * rows.discount**2)[:-1][on]
            self._matrices[0] += now.T @ now
            self._matrices[1] += (after * weights[:, None]).T @ after

    def summary(self, limits: RowLimits) -> LogSummary:
        """What was added up."""
        count, total, squares = self._ratios
        known = count > 0 and total > 0
        mean = total / count if known else np.nan
        spread = np.sqrt(max(squares / count - mean**2, 0.0) / count) if known else np.nan
        counts = None if self._counts is None else _trimmed(self._counts, limits)
        return LogSummary(
            transitions=self._transitions,
            episodes=self._episodes,
            terminated=self._terminated,
            width=self._width,
            counts=counts,
            num_actions=max(limits.num_actions, self._last_action + 1),
            uncovered=_uncovered(counts, self._target),
            reward_range=(self._low, self._high),
            mean_reward=self._rewards / max(self._transitions, 1),
            least_probability=self._least if np.isfinite(self._least) else np.nan,
            ratio_mean=float(mean),
            ratio_error=float(spread),
            ratio_max=self._ratio_max if known else np.nan,
            ratio_place=self._place,
            effective_rows=float(total**2 / squares) if known else np.nan,
            truncation_eigenvalue=_largest(self._matrices),
            feature_norm=self._norm if self._features is not None else np.nan,
            episode_lengths=self._lengths.found,
            ratio_sizes=dict(self._ratio_sizes),
        )


def _uncovered(counts: IntArray | None, target: FloatArray | None) -> tuple[int, int] | None:
    """The first state and action that the target would have shown, and that never occur."""
    if counts is None or target is None or counts.shape != target.shape:
        return None
    expected = counts.sum(axis=1)[:, None] * target
    for state, action in np.argwhere((expected >= EXPECTED) & (counts == 0)).tolist():
        return state, action
    return None


def _trimmed(counts: IntArray, limits: RowLimits) -> IntArray:
    """The counts without the states and actions behind the last declared or seen one."""
    states = max(limits.num_states, int(np.flatnonzero(counts.any(axis=1)).max(initial=-1)) + 1)
    actions = max(limits.num_actions, int(np.flatnonzero(counts.any(axis=0)).max(initial=-1)) + 1)
    return counts[:states, :actions]


def _largest(matrices: np.ndarray | None) -> float:
    """The largest eigenvalue of C^-1 B; infinite where B reaches features that C never sees."""
    if matrices is None or not matrices[0].any():
        return float("nan")
    seen, directions = np.linalg.eigh(matrices[0])
    kept = seen > 1e-12 * seen[-1]
    unseen = directions[:, ~kept]
    if unseen.size and np.abs(unseen.T @ matrices[1] @ unseen).max() > 1e-9 * seen[-1]:
        return float("inf")
    scaled = directions[:, kept] / np.sqrt(seen[kept])
    return float(np.linalg.eigvalsh(scaled.T @ matrices[1] @ scaled)[-1])
