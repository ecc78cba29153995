"""Symmetric (D, D) matrices as vectors of their D(D+1)/2 entries on and above the diagonal."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Packing:
    """Converts between symmetric matrices and their upper triangles.

    Examples
    --------
    >>> packing = Packing(2)
    >>> packing.packed(np.array([[1.0, 2.0], [2.0, 3.0]]))
    array([1., 2., 3.])
    >>> packing.unpacked(np.array([1.0, 2.0, 3.0]))
    array([[1., 2.],
           [2., 3.]])
    """

    size: int
    """D"""

    @cached_property
    def _upper(self) -> tuple[np.ndarray, np.ndarray]:
        return np.triu_indices(self.size)

    @cached_property
    def _twice(self) -> np.ndarray:
        """1 on the diagonal, 2 off it: an entry off the diagonal stands for two."""
        return np.where(self._upper[0] == self._upper[1], 1.0, 2.0)

    @property
    def entries(self) -> int:
        return self.size * (self.size + 1) // 2

    def packed(self, full: np.ndarray) -> np.ndarray:
        """(..., D(D+1)/2) of (..., D, D)."""
        return full[..., self._upper[0], self._upper[1]]

    def unpacked(self, upper: np.ndarray) -> np.ndarray:
        """(..., D, D) of (..., D(D+1)/2)."""
        full = np.empty((*upper.shape[:-1], self.size, self.size))
        full[..., self._upper[0], self._upper[1]] = upper
        full[..., self._upper[1], self._upper[0]] = upper
        return full

    def dual(self, functional: np.ndarray) -> np.ndarray:
        """(..., D(D+1)/2): the vector whose product with a packed X is ``<functional, X>``.

        The functional need not be symmetric.
        """
        both = functional + functional.swapaxes(-1, -2)
        return 0.5 * self._twice * self.packed(both)

    def functional(self, dual: np.ndarray) -> np.ndarray:
        """(..., D, D): the symmetric functional whose packed form is `dual`."""
        return self.unpacked(dual / self._twice)

    def conjugation(self, matrices: np.ndarray) -> np.ndarray:
        """(..., D(D+1)/2, D(D+1)/2): ``X -> A X A'``, packed, for A (..., D, D)."""
        i, j = self._upper
        straight = matrices[..., i[:, None], i] * matrices[..., j[:, None], j]
        crossed = matrices[..., i[:, None], j] * matrices[..., j[:, None], i]
        return np.where(self._twice == 2.0, straight + crossed, straight)

    def derivation(self, matrices: np.ndarray) -> np.ndarray:
        """(..., D(D+1)/2, D(D+1)/2): ``X -> A X + X A'``, packed, for A (..., D, D)."""
        i, j = self._upper
        identity = np.eye(self.size)

        def image_of_unit(i: np.ndarray, j: np.ndarray) -> np.ndarray:
            rows, columns = self._upper
            one = matrices[..., rows[:, None], i] * identity[columns[:, None], j]
            return one + identity[rows[:, None], i] * matrices[..., columns[:, None], j]

        unit = image_of_unit(i, j)
        return np.where(self._twice == 2.0, unit + image_of_unit(j, i), unit)
