"""Many rounds at once: the round as a matrix, its powers, its fixed point and its spectral radius.

Once the modes are stationary a round is one linear map F of the moments. The entry that stays one (of x's last coordinate)
makes it affine; without that entry, F is *stable* where its spectral radius is below one, and the moments converge.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigs, gmres

from fegsam.errors import ProblemError
from fegsam.exact.hierarchy import Hierarchy, Parts

DENSE_ENTRIES = 1600
"""Up to this many moments the round is kept as a matrix."""
_DIRECT_ENTRIES = 100
_RESIDUAL = 1e-12


class _Cells:
    """The modes of a set of agents. Agents of a kind may be swapped, so only the sorted modes of each kind are kept."""

    def __init__(self, chosen: tuple[int, ...], modes: list[int]) -> None:
        self.shape = tuple(modes[kind] for kind in chosen)
        cells = np.indices(self.shape).reshape(len(chosen), int(np.prod(self.shape)))
        for kind in set(chosen):
            axes = [axis for axis, other in enumerate(chosen) if other == kind]
            cells[axes] = np.sort(cells[axes], axis=0)
        sorted_cell = np.ravel_multi_index(tuple(cells), self.shape) if chosen else np.zeros(1, np.int64)
        self.kept, self.place = np.unique(sorted_cell, return_inverse=True)


class LongRun:
    """A hierarchy whose modes are stationary, acting on packed moments: upper triangles, part after part."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        self.before = [each.moves.stationary for each in hierarchy.rounds]
        self.laws = hierarchy.laws(self.before)
        self._pack = np.triu_indices(hierarchy.size)
        self._cells = {chosen: _Cells(chosen, [each.modes for each in hierarchy.rounds]) for chosen in hierarchy.sets}
        upper = len(self._pack[0])
        self.entries = sum(len(cells.kept) * upper for cells in self._cells.values())
        self.constant = upper - 1
        """where the entry stands that stays one"""

    def packed(self, parts: Parts) -> np.ndarray:
        flat = []
        for chosen, cells in self._cells.items():
            upper = parts[chosen][..., self._pack[0], self._pack[1]]
            flat.append(upper.reshape(-1, upper.shape[-1])[cells.kept].ravel())
        return np.concatenate(flat)

    def unpacked(self, vector: np.ndarray) -> Parts:
        parts, begin, size = {}, 0, self.hierarchy.size
        for chosen, cells in self._cells.items():
            end = begin + len(cells.kept) * len(self._pack[0])
            upper = vector[begin:end].reshape(len(cells.kept), -1)[cells.place].reshape(*cells.shape, -1)
            full = np.empty((*cells.shape, size, size))
            full[..., self._pack[0], self._pack[1]] = upper
            full[..., self._pack[1], self._pack[0]] = upper
            parts[chosen], begin = full, end
        return parts

    def advance(self, vector: np.ndarray) -> np.ndarray:
        """One round."""
        return self.packed(self.hierarchy.advance(self.unpacked(vector), self.laws))

    def within(self, vector: np.ndarray, steps: int) -> float:
        """E||avg - theta*||^2 so many steps after the synchronisation."""
        return self.hierarchy.within(self.unpacked(vector), self.before, steps)[0]

    @cached_property
    def matrix(self) -> np.ndarray:
        """(entries, entries): one round."""
        matrix = np.stack([self.advance(unit) for unit in np.eye(self.entries)], axis=1)
        # Rounding in the entry that stays one would grow with the power.
        matrix[self.constant] = 0.0
        matrix[self.constant, self.constant] = 1.0
        return matrix

    def stationary(self) -> np.ndarray:
        """The moments that a round leaves as they are.

        Raises
        ------
        ProblemError
            Where there are none that the moments converge to.
        """
        keep = np.delete(np.arange(self.entries), self.constant)
        unit = np.zeros(self.entries)
        unit[self.constant] = 1.0
        push = self.advance(unit)[keep]
        solution = unit.copy()
        if self.entries <= _DIRECT_ENTRIES:
            solution[keep] = np.linalg.solve(np.eye(len(keep)) - self.matrix[np.ix_(keep, keep)], push)
            return solution
        operator = _operator(len(keep), lambda v: v - self._reduced(v, keep))
        scale = float(np.linalg.norm(push))
        if scale > 0.0:
            settings = {"rtol": _RESIDUAL, "atol": 0.0, "restart": 60, "maxiter": 10}
            found, failed = gmres(operator, push, M=self._preconditioner(keep), **settings)
            if failed:
                gap = float(np.linalg.norm(operator @ found - push)) / scale
                raise ProblemError(
                    f"The stationary moments were found only to a residual of {gap:.1e} instead of {_RESIDUAL:g}; use a larger "
                    "step, or theory.small_step_law for small ones."
                )
            solution[keep] = found
        return solution

    def _reduced(self, vector: np.ndarray, keep: np.ndarray) -> np.ndarray:
        full = np.zeros(self.entries)
        full[keep] = vector
        return self.advance(full)[keep]

    @cached_property
    def _slow(self) -> np.ndarray:
        """The inverse of I - F, as far as it takes the average's own moments to themselves; without the constant."""
        few = self.constant
        block = np.empty((few, few))
        for column, unit in enumerate(np.eye(self.entries)[:few]):
            alone = {(): self.unpacked(unit)[()]}
            block[:, column] = self.hierarchy.average_alone(alone, self.laws)[self._pack][:few]
        return np.linalg.inv(np.eye(few) - block)

    def _preconditioner(self, keep: np.ndarray) -> LinearOperator:
        """The average's own moments change slowly and are solved for; connected parts are gone after a round or two."""
        few = self.constant

        def solve(vector: np.ndarray) -> np.ndarray:
            return np.concatenate([self._slow @ vector[:few], vector[few:]])

        return _operator(len(keep), solve)

    def settled(self, change: np.ndarray) -> np.ndarray:
        """(d, d): what the average's own moments gain in the long run from the same change (D, D) each round."""
        upper = np.append(self._slow @ change[self._pack][: self.constant], 0.0)
        return self.hierarchy.rounds[0].unpacked(upper)[:-1, :-1]

    def spectral_radius(self) -> float:
        keep = np.delete(np.arange(self.entries), self.constant)
        if self.entries <= _DIRECT_ENTRIES:
            return float(np.abs(np.linalg.eigvals(self.matrix[np.ix_(keep, keep)])).max())
        operator = _operator(len(keep), lambda v: self._reduced(v, keep))
        start = self.packed({chosen: self._start(chosen) for chosen in self.hierarchy.sets})[keep]
        largest = eigs(operator, k=1, which="LM", v0=start, ncv=min(24, len(keep)), tol=1e-7, return_eigenvectors=False)  # pyright: ignore[reportArgumentType]
        return float(np.abs(largest[0]))

    def _start(self, chosen: tuple[int, ...]) -> np.ndarray:
        size = self.hierarchy.size
        return np.zeros((*self._cells[chosen].shape, size, size)) if chosen else np.eye(size)


def _operator(size: int, matvec: Callable[[np.ndarray], np.ndarray]) -> LinearOperator:
    return LinearOperator((size, size), matvec=matvec, dtype=np.float64)  # pyright: ignore[reportCallIssue]


def apply_power(squares: list[np.ndarray], vector: np.ndarray, times: int) -> np.ndarray:
    """A power of the matrix ``squares[0]``, applied; the list keeps its squares for the next time."""
    place = 0
    while times:
        if place == len(squares):
            squares.append(squares[-1] @ squares[-1])
        if times & 1:
            vector = squares[place] @ vector
        times >>= 1
        place += 1
    return vector


def largest_stable_step(radius: Callable[[float], float], unstable: float) -> float:
    """The step up to which the moments converge, to three digits, below one for which they do not."""
    low = unstable / 2
    for _ in range(60):
        if radius(low) < 1.0:
            break
        unstable, low = low, low / 2
    else:
        return 0.0
    while unstable > 1.002 * low:
        middle = (low * unstable) ** 0.5
        low, unstable = (middle, unstable) if radius(middle) < 1.0 else (low, middle)
    return low
