"""The noise of one kind of agents at the fixed point, and how long it stays correlated.

An agent of a linear algorithm moves ``theta += alpha (M(y_t) theta + b(y_t))``, theta measured from
theta*. The small-step law needs the moments of M and b under the stationary chain: their means,
``Cov(b, b)``, and the correlation of b at one time with M and b at later times. That correlation is
carried by the chain: knowing b(y_0) disturbs the distribution of the next state or mode by

    g(z) = E[b~(y_0) 1{z_1 = z}],        b~ = b - E b,

a measure with values in R^d and total mass zero. `lag_sums` propagates it: ``E[M(y_j) b~(y_0)]`` is
the sum over z of ``E[M | z] (Q^{j-1} g)(z)``, and ``E[b(y_j) b~(y_0)']`` is the sum over z of
``E[b | z] (Q^{j-1} g)(z)'``.

The modes of n-step TD are windows. But n - 1 steps after a disturbance, the window starts at the
last state of the disturbed one, so from then on the chain of states alone is enough, however many
windows there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from fegsam.algorithms.rule import Algorithm
from fegsam.algorithms.structure import LinearOperator
from fegsam.exact.chains import kind_chains, kind_stationary_laws
from fegsam.exact.windows import Windows, chain_windows
from fegsam.problem.federation import MarkovNoise, Problem
from fegsam.theory.small_step.lag_sums import lag_sums


class AgentNoise(Protocol):
    """The moments that the small-step law needs of one kind's noise.

    `StateNoise`, `WindowNoise` and `cell_noise.CellNoise` implement it.
    """

    @property
    def mean_matrix(self) -> np.ndarray:
        """(d, d): E M."""
        ...

    @property
    def mean_offset(self) -> np.ndarray:
        """(d,): E b."""
        ...

    @property
    def spread(self) -> np.ndarray:
        """(d, d): Cov(b, b) at one time."""
        ...

    def after_effects(self, period: int) -> tuple[np.ndarray, np.ndarray]:
        """(m, d): ``sum_{j>=1} Q^{j-1} g``, plain and with weights ``max(0, 1 - j / period)``."""
        ...

    def offset_response(self, effects: np.ndarray) -> np.ndarray:
        """(d, d): ``sum_z E[b | z] effects(z)'``."""
        ...

    def matrix_response(self, effects: np.ndarray) -> np.ndarray:
        """(d,): ``sum_z E[M | z] effects(z)``."""
        ...


@dataclass(frozen=True, eq=False)
class StateNoise:
    """The noise of a linear operator, whose matrix and offset depend on the state of the chain.

    The mode is the state: m = Y.
    """

    chain: sparse.csr_array
    """(Y, Y)"""
    stationary: np.ndarray
    """(Y,): the stationary distribution of the chain"""
    matrices: np.ndarray
    """(Y, d, d)"""
    offsets: np.ndarray
    """(Y, d): b at the fixed point"""

    @property
    def mean_matrix(self) -> np.ndarray:
        """(d, d): E M."""
        return np.tensordot(self.stationary, self.matrices, axes=1)

    @property
    def mean_offset(self) -> np.ndarray:
        """(d,): E b."""
        return self.stationary @ self.offsets

    @cached_property
    def _deviations(self) -> np.ndarray:
        return self.stationary[:, None] * (self.offsets - self.mean_offset)

    @property
    def spread(self) -> np.ndarray:
        """(d, d): Cov(b, b) at one time."""
        return self._deviations.T @ (self.offsets - self.mean_offset)

    def after_effects(self, period: int) -> tuple[np.ndarray, np.ndarray]:
        """(m, d): ``sum_{j>=1} Q^{j-1} g``, plain and with weights ``max(0, 1 - j / period)``."""
        total, triangle = lag_sums(
            self.chain, self.stationary, self.chain.T @ self._deviations, period - 1
        )
        return total, triangle / period

    def offset_response(self, effects: np.ndarray) -> np.ndarray:
        """(d, d): ``sum_z E[b | z] effects(z)'``."""
        return self.offsets.T @ effects

    def matrix_response(self, effects: np.ndarray) -> np.ndarray:
        """(d,): ``sum_z E[M | z] effects(z)``."""
        return np.einsum("yij,yj->i", self.matrices, effects)


@dataclass(frozen=True, eq=False)
class WindowNoise:
    """The noise of TD, where a window y adds its temporal difference times a row.

    The row is that of the window's first state: ``M(y) = row(S_t) w(y)'``.
    """

    windows: Windows
    chain: sparse.csr_array
    """(S, S)"""
    stationary: np.ndarray
    """(S,): the stationary distribution of the chain"""
    errors: np.ndarray
    """(E,): the temporal differences at the fixed point"""

    @cached_property
    def _start(self) -> np.ndarray:
        """(E,): the first state of each window."""
        return self.windows.first_state[self.windows.source]

    @cached_property
    def _frequency(self) -> np.ndarray:
        """(E,): the stationary probability of each window."""
        return self.windows.stationary[self.windows.source] * self.windows.probability

    @cached_property
    def _value_weights(self) -> sparse.csr_array:
        """(m, S): E[w | z], as weights of the values of the states."""
        windows = self.windows
        weights = (windows.probability[:, None] * windows.coefficients).ravel()
        modes = np.repeat(windows.source, windows.states.shape[1])
        table = sparse.coo_array(
            (weights, (modes, windows.states.ravel())),
            shape=(windows.num_modes, len(self.stationary)),
        )
        return sparse.csr_array(table)

    def _sum_by_start(self, weights: np.ndarray) -> np.ndarray:
        """(d,): the sum over the windows of a weight (E,) times the row of the first state."""
        return self._times_rows(np.bincount(self._start, weights, minlength=len(self.stationary)))

    def _times_rows(self, by_state: Any) -> np.ndarray:
        """``by_state @ rows`` for (S,) or (r, S), sparse or dense."""
        if self.windows.rows is None:
            return by_state.toarray() if sparse.issparse(by_state) else by_state
        return by_state @ self.windows.rows

    @property
    def mean_matrix(self) -> np.ndarray:
        """(d, d): E M."""
        windows = self.windows
        modes = np.arange(windows.num_modes)
        shape = (len(self.stationary), windows.num_modes)
        visits = sparse.csr_array((windows.stationary, (windows.first_state, modes)), shape=shape)
        by_states = sparse.csr_array((visits @ self._value_weights).T)
        transposed = self._times_rows(by_states)
        return transposed.T if windows.features is None else transposed.T @ windows.features

    @property
    def mean_offset(self) -> np.ndarray:
        """(d,): E b."""
        return self._sum_by_start(self._frequency * self.errors)

    @property
    def spread(self) -> np.ndarray:
        """(d, d): Cov(b, b) at one time."""
        squares = np.bincount(
            self._start, self._frequency * self.errors**2, minlength=len(self.stationary)
        )
        rows = self.windows.rows
        second_moment = np.diag(squares) if rows is None else rows.T @ (squares[:, None] * rows)
        return second_moment - np.outer(self.mean_offset, self.mean_offset)

    def after_effects(self, period: int) -> tuple[np.ndarray, np.ndarray]:
        """(m, d): ``sum_{j>=1} Q^{j-1} g``, plain and with weights ``max(0, 1 - j / period)``."""
        windows, (states,) = self.windows, self.stationary.shape
        shape = (windows.num_modes, states)
        flow = sparse.coo_array(
            (self._frequency * self.errors, (windows.target, self._start)), shape=shape
        )
        term = self._times_rows(sparse.csr_array(flow)) - np.outer(
            windows.stationary, self.mean_offset
        )
        near, near_triangle = np.zeros_like(term), np.zeros_like(term)
        horizon = windows.states.shape[1] - 1
        backward = windows.chain().T
        for lag in range(1, horizon):
            near += term
            near_triangle += max(0, period - lag) * term
            term = backward @ term
        marginal = (
            sparse.csr_array(
                (np.ones(shape[0]), (windows.first_state, np.arange(shape[0]))), shape=shape[::-1]
            )
            @ term
        )
        far, far_triangle = lag_sums(
            self.chain, self.stationary, marginal, max(0, period - horizon)
        )
        share = (windows.stationary / self.stationary[windows.first_state])[:, None]
        total = near + share * far[windows.first_state]
        return total, (near_triangle + share * far_triangle[windows.first_state]) / period

    def offset_response(self, effects: np.ndarray) -> np.ndarray:
        """(d, d): ``sum_z E[b | z] effects(z)'``."""
        windows = self.windows
        mean_errors = np.bincount(
            windows.source, windows.probability * self.errors, minlength=windows.num_modes
        )
        shape = (len(self.stationary), windows.num_modes)
        by_start = (
            sparse.csr_array((mean_errors, (windows.first_state, np.arange(shape[1]))), shape=shape)
            @ effects
        )
        return self._times_rows(by_start.T).T

    def matrix_response(self, effects: np.ndarray) -> np.ndarray:
        """(d,): ``sum_z E[M | z] effects(z)``."""
        windows, weights = self.windows, self._value_weights
        if windows.features is None:
            modes = np.repeat(np.arange(windows.num_modes), np.diff(weights.indptr))
            changes = np.bincount(
                modes, weights.data * effects[modes, weights.indices], minlength=windows.num_modes
            )
        else:
            changes = np.einsum("zi,zi->z", weights @ windows.features, effects)
        return self._times_rows(
            np.bincount(windows.first_state, changes, minlength=len(self.stationary))
        )


def state_noises(
    problem: MarkovNoise,
    operator: LinearOperator,
    distributions: np.ndarray,
    fixed_point: np.ndarray,
) -> list[tuple[float, StateNoise]]:
    """The noise of each kind of agents of a linear operator, with the kind's share of the agents.

    `distributions` (M, Y) are the stationary distributions of the kinds.
    """
    matrices, offsets = operator.of_kinds(problem.num_kinds)
    return [
        (
            float(problem.kind_counts[kind] / problem.num_agents),
            StateNoise(
                problem.kernels[kind],
                distributions[kind],
                matrices[kind],
                offsets[kind] + matrices[kind] @ fixed_point,
            ),
        )
        for kind in np.flatnonzero(problem.kind_counts)
    ]


def window_noises(
    algorithm: Algorithm, problem: Problem, fixed_point: np.ndarray
) -> list[tuple[float, WindowNoise]]:
    """The noise of each kind of agents of TD, with the kind's share of the agents.

    Kinds with the same windows are merged.
    """
    chains = kind_chains(problem, algorithm)
    distributions = kind_stationary_laws(problem, algorithm)
    shares: dict[int, float] = {}
    distinct: dict[int, WindowNoise] = {}
    for kind, windows in enumerate(chain_windows(problem, algorithm)):
        if problem.kind_counts[kind] == 0:
            continue
        key = id(windows)
        shares[key] = shares.get(key, 0.0) + float(problem.kind_counts[kind] / problem.num_agents)
        if key not in distinct:
            distinct[key] = WindowNoise(
                windows, chains[kind], distributions[kind], windows.errors(fixed_point)
            )
    return [(shares[key], noise) for key, noise in distinct.items()]
