"""Quality where no truth is known: what held-out episodes say of parameters.

Every measure that is a square estimates it without the noise's own square, so that it is zero in
mean at the fixed point, and may be a little below zero there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from fegsam.data.basis import Basis, basis_of
from fegsam.data.clusters import mean_and_error, squared_length, squared_maximum
from fegsam.data.recorded_returns import Returns, greedy_returns, returns_of, target_return
from fegsam.data.rows import Rows
from fegsam.data.sample import Sample, n_step, sample_of
from fegsam.data.solutions import (
    Solution,
    directions_seen,
    linear_values,
    optimal_table,
    table_values,
)
from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import FloatArray, flag, flat_params, integer, real_array
from fegsam.problem.feature_maps import FeatureMap

if TYPE_CHECKING:
    from fegsam.data.federation import TargetPolicy

LARGEST_SYSTEM = 2000
"""With more features than this there is no residual and no distance."""
BLOCK = 1 << 22
"""Numbers that are held at once."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out episodes of all agents, and what they say of parameters.

    Parameters
    ----------
    rows : Rows, or a sequence of Rows
        The held-out rows of each agent, with the discount in them.
    kind : "values" or "control"
        Whether the parameters are the values of a policy or action values of Q-learning.
    features : FeatureMap, optional
        A map of `fegsam.features`; without one, the parameters are a table. Feature i of action a
        has the parameter ``i * num_actions + a`` of action values.
    num_states, num_actions : int, optional
        By default, as many as occur.
    off_policy : bool
        Whether the rule uses importance ratios.
    target_policy : (S, A) array, or function of observations (L, k) that returns (L, A), optional
        By default the rows' own `target`.
    horizon : int
        The look-ahead n.
    weights : (N,) array, optional
        The weight of each agent; by default all have the same.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(
    ...         f"{folder}/log.parquet", walk, go, episodes=400, length=20, seed=0
    ...     )
    ...     rows = fg.LogSource(path).read(discount=walk.discount)
    >>> held_out = fg.data.HeldOut(rows)
    >>> exact = fg.policy_value(walk, go)
    >>> found = held_out.measure(np.stack([0 * exact, exact]))
    >>> bool(found["residual"][0] > 10 * abs(found["residual"][1]))
    True
    >>> bool(abs(found["residual"][1]) < 4 * found["residual_standard_error"][1])
    True
    """

    rows: Rows | Sequence[Rows]
    kind: Literal["values", "control"] = field(default="values", kw_only=True)
    features: FeatureMap | None = field(default=None, kw_only=True)
    num_states: int | None = field(default=None, kw_only=True)
    num_actions: int | None = field(default=None, kw_only=True)
    off_policy: bool = field(default=False, kw_only=True)
    target_policy: TargetPolicy | None = field(default=None, kw_only=True)
    horizon: int = field(default=1, kw_only=True)
    weights: ArrayLike | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.kind not in ("values", "control"):
            raise ProblemError(f"kind is {shown(self.kind)}: give 'values' or 'control'")
        integer(self.horizon, "horizon")
        if self.kind == "control" and (self.horizon != 1 or flag(self.off_policy, "off_policy")):
            raise ProblemError("Q-learning looks one step ahead and uses no ratios: leave out both")
        for number, name in ((self.num_states, "num_states"), (self.num_actions, "num_actions")):
            if number is not None:
                integer(number, name)
        _ = self.sample, self.dimension  # what does not fit is refused here

    @cached_property
    def sample(self) -> Sample:
        """The rows of all agents, with their ratios, weights and clusters."""
        agents = [self.rows] if isinstance(self.rows, Rows) else list(self.rows)
        target = flag(self.off_policy, "off_policy"), self.target_policy
        return sample_of(agents, self.weights, target, self.horizon, self.num_actions)

    @cached_property
    def actions(self) -> int:
        """A, the number of actions."""
        least = int(self.sample.rows.action.max(initial=0)) + 1
        if self.num_actions is not None and self.num_actions < least:
            raise ProblemError(
                f"an action is {least - 1}, but there are {self.num_actions} actions (0 to "
                f"{self.num_actions - 1}): numbers start at 0"
            )
        return least if self.num_actions is None else self.num_actions

    @cached_property
    def state_basis(self) -> Basis:
        """The features of the observations."""
        return basis_of(self.sample.rows, self.features, self.num_states)

    @cached_property
    def basis(self) -> Basis:
        """The direction of each row's update."""
        if self.kind == "values":
            return self.state_basis
        return self.state_basis.with_actions(self.sample.rows.action, self.actions)

    @property
    def dimension(self) -> int:
        """d, the number of parameters."""
        return self.basis.size

    @cached_property
    def _seen(self) -> tuple[FloatArray, FloatArray]:
        """The mean squares and directions that the rows show, for features."""
        return directions_seen(self.basis.gram(self.sample.weights))

    @cached_property
    def _cells(self) -> tuple[np.ndarray, FloatArray]:
        """The cells of a table that at least half of the clusters visit, and their weights (G)."""
        ones = self.sample.weights[:, None]
        visits = self.basis.sums(ones, self.sample.clusters, self.sample.num_clusters)[0]
        enough = (visits > 0.0).sum(axis=0) >= self.sample.num_clusters / 2
        return np.flatnonzero(enough), visits[:, enough]

    @cached_property
    def estimate(self) -> Solution | None:
        """The solution of the held-out rows' own mean equation, where it has one."""
        if self.features is not None:
            if self.kind == "control" or self.dimension > LARGEST_SYSTEM:
                return None
            return linear_values(self.sample, self.basis, self._seen)
        if self.kind == "control":
            return optimal_table(self.sample, self.actions, self.dimension)
        return table_values(self.sample, self.basis)

    def values(self, params: FloatArray) -> FloatArray:
        """(L, T): the value of each row's observation for parameters (T, d)."""
        if self.kind == "values":
            return self.state_basis.values(params)
        tables = params.reshape(len(params), -1, self.actions)
        best = self.state_basis.values(tables[:, :, 0])
        for action in range(1, self.actions):
            np.maximum(best, self.state_basis.values(tables[:, :, action]), out=best)
        return best

    def mean_update(self, params: ArrayLike) -> FloatArray:
        """(T, d): the mean held-out direction of an update of parameters (T, d)."""
        table = self._checked(params)
        scaled = n_step(self.sample, self._errors(table)[0]) * self.sample.weights[:, None]
        everything = np.zeros(len(scaled), np.int64)
        return self.basis.sums(scaled, everything, 1)[:, 0]

    def _errors(self, params: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(L, T) and (L, T): one-step errors, and values of the observations.

        A gap has no next value and no weight: its discount and its ratio are 0.
        """
        rows, values = self.sample.rows, self.values(params)
        here = values if self.kind == "values" else self.basis.values(params)
        ahead = np.append(values[1:], values[:1], axis=0)
        return rows.reward[:, None] + rows.discount[:, None] * ahead - here, values

    def _checked(self, params: ArrayLike) -> FloatArray:
        table = real_array(params, "params", "(T, d)")
        if table.ndim != 2 or table.shape[1] != self.dimension:
            raise ProblemError(
                f"params has shape {table.shape}: give shape (T, {self.dimension}), a row for each "
                "time"
            )
        return table

    def measure(
        self, params: ArrayLike, previous: ArrayLike | None = None
    ) -> dict[str, FloatArray]:
        """What the held-out rows say of parameters (T, d): a (T,) array for each name.

        `previous` are the (d,) parameters before the first. Each of the following but `moved` has a
        standard error beside it, as ``residual_standard_error``.

        residual
            ``g' C^-1 g`` with the mean update g and C the mean of the features' squares; for a
            table the square of the largest mean update of a cell.
        distance_to_estimate
            The squared distance from the solution on the held-out rows, less its own variance.
        td_error
            The mean squared one-step error. It is far from zero at the fixed point, too.
        start_value
            The mean value of the episodes' first observations.
        return_error
            The mean squared difference from the returns of terminated episodes (values only).
        ope_return
            The return of the target policy, or of the greedy policy, by weighted importance
            sampling.
        ope_return_robust
            The greedy policy's return by the doubly robust estimate (a table of action values).
        moved
            The squared distance from the parameters before, in the same norm.
        """
        table = self._checked(params)
        finite = np.isfinite(table).all(axis=1)
        step = max(
            1, BLOCK // max(len(self.sample.ratios), self.sample.num_clusters * self.dimension)
        )
        good = table[finite]
        blocks = [self._block(good[i : i + step]) for i in range(0, max(len(good), 1), step)]
        found = {"moved": self._moved(table, previous)}
        for name in blocks[0]:
            found[name] = np.full(len(table), np.nan)
            found[name][finite] = np.concatenate([block[name] for block in blocks])
        return found

    def _block(self, params: FloatArray) -> dict[str, FloatArray]:
        """All measures of finite parameters (T, d) but `moved`."""
        sample = self.sample
        errors, values = self._errors(params)
        at = sample.starts
        ratios = sample.weights * sample.ratios
        pairs = {
            "residual": self._residual(n_step(sample, errors)),
            "distance_to_estimate": self._distance(params),
            "td_error": mean_and_error(errors**2, ratios, sample.clusters, sample.num_clusters),
            "start_value": mean_and_error(
                values[at], sample.start_weights, sample.clusters[at], sample.num_clusters
            ),
        }
        if self.kind == "values":
            returns = self._returns
            off = (values[returns.at] - returns.returns[:, None]) ** 2
            pairs["return_error"] = mean_and_error(
                off, returns.weights, sample.clusters[returns.at], sample.num_clusters
            )
        pairs |= self._off_policy(params)
        return {
            name: array
            for key, pair in pairs.items()
            for name, array in zip((key, f"{key}_standard_error"), pair, strict=True)
        }

    @cached_property
    def _returns(self) -> Returns:
        return returns_of(self.sample)

    def _residual(self, errors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The squared size of the mean update, from the n-step errors (L, T)."""
        sample, count = self.sample, self.sample.num_clusters
        if self.features is not None and self.dimension > LARGEST_SYSTEM:
            return _unknown(errors.shape[1])
        sums = self.basis.sums(errors * sample.weights[:, None], sample.clusters, count)
        if self.features is None:
            cells, visits = self._cells
            sums, share = sums[:, :, cells] / visits.sum(axis=0), visits / visits.sum(axis=0)
        else:
            squares, directions = self._seen
            sums = sums @ (directions / np.sqrt(squares))
            share = np.bincount(sample.clusters, sample.weights, minlength=count)[:, None]
        # A mean is a sum over a count; a cluster moves it by its own sum less its share of both.
        mean = sums.sum(axis=1, keepdims=True)
        parts = mean + count * (sums - share * mean)
        return squared_maximum(parts) if self.features is None else squared_length(parts)

    def _distance(self, params: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The squared distance from the estimate, in the norm of the rule."""
        if self.estimate is None:
            return _unknown(len(params))
        parts = self.estimate.parts(params)
        if self.features is not None:
            return squared_length(parts)
        return squared_maximum(parts[:, :, np.isin(self.estimate.directions, self._cells[0])])

    @cached_property
    def _target_return(self) -> tuple[float, float]:
        return target_return(self.sample)[:2]

    def _off_policy(self, params: FloatArray) -> dict[str, tuple[FloatArray, FloatArray]]:
        if self.kind == "values":
            value, error = self._target_return
            times = len(params)
            return {"ope_return": (np.full(times, value), np.full(times, error))}
        if self.features is not None:
            return {}
        found = greedy_returns(self.sample, params.reshape(len(params), -1, self.actions))
        table = np.array([[*weighted[:2], *robust[:2]] for weighted, robust in found])
        columns = table.reshape(len(params), 4).T
        return {
            "ope_return": (columns[0], columns[1]),
            "ope_return_robust": (columns[2], columns[3]),
        }

    def _moved(self, params: FloatArray, previous: ArrayLike | None) -> FloatArray:
        first = np.full((1, self.dimension), np.nan)
        if previous is not None:
            first = flat_params(previous, "previous", self.dimension)[None]
        squares = np.diff(params, axis=0, prepend=first) ** 2
        return squares.max(axis=1) if self.features is None else squares.sum(axis=1)


def _unknown(times: int) -> tuple[FloatArray, FloatArray]:
    return np.full(times, np.nan), np.full(times, np.nan)
