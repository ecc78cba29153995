"""Rows of features, dense or sparse, of many observations at once, for many parameters at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from fegsam.data.rows import Rows
from fegsam.errors import ProblemError
from fegsam.problem.checks import FloatArray, IntArray
from fegsam.problem.feature_maps import FeatureMap


@dataclass(frozen=True, eq=False)
class Basis:
    """L rows of d features: dense, or given by the indices of their ones.

    Examples
    --------
    >>> import numpy as np
    >>> Basis(3, indices=np.array([[0], [2]])).values(np.array([[1.0, 2.0, 5.0]]))
    array([[1.],
           [5.]])
    """

    size: int
    """d"""
    indices: IntArray | None = None
    """(L, m)"""
    dense: FloatArray | None = None
    """(L, d)"""

    def values(self, params: FloatArray) -> FloatArray:
        """(L, T): each row's product with each of the parameters (T, d)."""
        if self.dense is not None:
            return self.dense @ params.T
        assert self.indices is not None
        columns = np.ascontiguousarray(params.T)
        total = columns[self.indices[:, 0]]
        for k in range(1, self.indices.shape[1]):
            total += columns[self.indices[:, k]]
        return total

    def sums(self, scales: FloatArray, groups: IntArray, count: int) -> FloatArray:
        """(T, G, d): the sum of scales (L, T) times rows in each of `count` groups."""
        times = scales.shape[1]
        found = np.zeros((times, count, self.size))
        if self.dense is not None:
            for group in range(count):
                own = groups == group
                found[:, group] = scales[own].T @ self.dense[own]
            return found
        assert self.indices is not None
        for k in range(self.indices.shape[1]):
            cells = groups * self.size + self.indices[:, k]
            for t in range(times):
                added = np.bincount(cells, scales[:, t], minlength=count * self.size)
                found[t] += added.reshape(count, self.size)
        return found

    def matrix(self) -> Any:
        """(L, d): the rows as a sparse matrix in CSR format."""
        if self.dense is not None:
            return sparse.csr_array(self.dense)
        assert self.indices is not None
        rows, active = self.indices.shape
        ones = np.ones(rows * active)
        starts = np.arange(0, rows * active + 1, active)
        return sparse.csr_array((ones, self.indices.ravel(), starts), shape=(rows, self.size))

    def gram(self, weights: FloatArray) -> FloatArray:
        """(d, d): the sum of weight times row times row."""
        if self.dense is not None:
            return (self.dense * weights[:, None]).T @ self.dense
        matrix = self.matrix()
        return (matrix.T @ (sparse.diags_array(weights) @ matrix)).toarray()

    def with_actions(self, actions: IntArray, num_actions: int) -> Basis:
        """The rows of pairs: feature i of action a is number ``i * num_actions + a``."""
        size = self.size * num_actions
        if self.indices is not None:
            return Basis(size, indices=self.indices * num_actions + actions[:, None])
        assert self.dense is not None
        wide = np.zeros((len(actions), self.size, num_actions))
        wide[np.arange(len(actions)), :, actions] = self.dense
        return Basis(size, dense=wide.reshape(len(actions), size))


def basis_of(rows: Rows, features: FeatureMap | None, num_states: int | None) -> Basis:
    """The features of the rows' observations; a feature for each state where there is no map."""
    if features is not None:
        found = features(rows.observation)
        if features.active:
            return Basis(features.dimension, indices=found)
        return Basis(features.dimension, dense=np.ascontiguousarray(found, dtype=np.float64))
    if rows.observation.ndim != 1:
        raise ProblemError(
            "the observations are not states, so that no table fits them: give features"
        )
    least = int(rows.observation.max(initial=-1)) + 1
    size = least if num_states is None else num_states
    if least > size:
        raise ProblemError(
            f"an observation is {least - 1}, but there are {size} states (0 to {size - 1}): "
            "correct it or declare more"
        )
    return Basis(size, indices=rows.observation[:, None].astype(np.int64))
