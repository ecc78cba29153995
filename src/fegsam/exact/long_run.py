"""Many rounds at once: the round as a matrix, its powers, its fixed point and its spectral radius.

Once the modes are stationary, a round is one linear map F of the moments. One entry, of x's last
coordinate, is always one, so that F is affine in the other entries. On these, F is *stable* if its
spectral radius is below one, and then the moments converge.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgWarning, lu_factor, lu_solve
from scipy.sparse.linalg import ArpackError, LinearOperator, eigs, gmres

from fegsam.errors import ProblemError
from fegsam.exact.hierarchy import Hierarchy
from fegsam.exact.parts import Parts

DENSE_ENTRIES = 1600
"""Up to this many moments the round is stored as a matrix."""
_DIRECT_ENTRIES = 150
LOST_IN_ROUNDING = (
    "A round hardly changes the moments, so that their limit is lost in rounding; use a larger "
    "step, or theory.small_step_law for small ones."
)
_RESIDUAL = 1e-12
_LEAST_RESIDUAL = 3e-13
"""The smallest relative residual that rounding allows."""
_ROUGH_RESIDUAL = 1e-2
_LARGEST = 1e100
_NEGATIVE = 1e-9
"""By rounding, a moment matrix may have eigenvalues this far below zero, relative to its
largest."""
_LEADING = 3
_KRYLOV = 24
"""The dimension of the first Krylov space that is searched for a spectral radius."""
_RADIUS_TOLERANCE = 1e-11
_DECISIVE = 0.02
"""A spectral radius is accurate enough once its error is this fraction of its distance from
one."""


class UnsolvedMoments(ProblemError):
    """The equations of the stationary moments were not solved to the promised accuracy."""


class _Cells:
    """The modes of a set of r agents.

    Agents may be swapped, so only the cells with sorted modes are stored, and only if each kind has
    enough agents for the set.
    """

    def __init__(self, hierarchy: Hierarchy, r: int) -> None:
        self.shape = (hierarchy.modes,) * r
        cells, none = hierarchy.sorted_cells[r], hierarchy.modes**r
        allowed = hierarchy.allowed[r]
        if allowed is not None:
            cells = np.where(allowed.ravel(), cells, none)
        self.kept, self.place = np.unique(cells, return_inverse=True)
        if self.kept[-1] == none:
            # The last place is for sets that do not exist: they read a zero that is appended to the
            # stored cells.
            self.kept = self.kept[:-1]


class LongRun:
    """A hierarchy whose modes are stationary, as a linear map of packed moments.

    The packed moments are the upper triangles of the parts, level after level. The limit and the
    spectral radius of a `coarser` run, of a lower order, are good first guesses.
    """

    def __init__(self, hierarchy: Hierarchy, coarser: LongRun | None = None) -> None:
        self.hierarchy, self._coarser = hierarchy, coarser
        self.before = hierarchy.round.maps.stationary
        self.means = hierarchy.means(self.before)
        self._packing = hierarchy.round.packing
        self._cells = [_Cells(hierarchy, r) for r in range(hierarchy.order + 1)]
        self.entries = sum(len(cells.kept) for cells in self._cells) * self._packing.entries
        self.constant = self._packing.entries - 1
        """the index of the entry that is always one"""

    def packed(self, parts: Parts) -> np.ndarray:
        flat = []
        for cells, part in zip(self._cells, parts, strict=True):
            cell_by_cell = part.reshape(-1, self._packing.size, self._packing.size)
            flat.append(self._packing.packed(cell_by_cell[cells.kept]).ravel())
        return np.concatenate(flat)

    def unpacked(self, vector: np.ndarray) -> Parts:
        parts, begin, entries = [], 0, self._packing.entries
        for cells in self._cells:
            end = begin + len(cells.kept) * entries
            upper = vector[begin:end].reshape(-1, entries)
            if cells.place.max(initial=0) == len(upper):
                upper = np.concatenate([upper, np.zeros((1, entries))])
            parts.append(
                self._packing.unpacked(upper[cells.place]).reshape(
                    *cells.shape, *(self._packing.size,) * 2
                )
            )
            begin = end
        return parts

    def dual(self, functional: Parts) -> np.ndarray:
        """The vector whose product with packed parts is ``<functional, parts>``."""
        flat = [np.zeros(self._packing.entries * len(cells.kept)) for cells in self._cells]
        for cells, part, out in zip(self._cells, functional, flat, strict=False):
            whole = self._packing.dual(part).reshape(-1, self._packing.entries)
            summed = np.zeros((int(cells.place.max(initial=0)) + 1, self._packing.entries))
            np.add.at(summed, cells.place, whole)
            out[:] = summed[: len(cells.kept)].ravel()
        return np.concatenate(flat)

    def advance(self, vector: np.ndarray) -> np.ndarray:
        """The packed moments after one round."""
        return self.packed(self.hierarchy.advance(self.unpacked(vector), self.means))

    @cached_property
    def matrix(self) -> np.ndarray:
        """(entries, entries): the matrix of one round."""
        matrix = np.empty((self.entries, self.entries))
        for column in range(self.entries):
            unit = np.zeros(self.entries)
            unit[column] = 1.0
            matrix[:, column] = self.advance(unit)
        # Rounding in the entry that is always one would grow with the power.
        matrix[self.constant] = 0.0
        matrix[self.constant, self.constant] = 1.0
        return matrix

    # --- The limit --------------------------------------------------------------------------------

    @cached_property
    def stationary(self) -> np.ndarray:
        """The moments that a round does not change; valid if the spectral radius is below one."""
        if self._overflows:
            raise UnsolvedMoments("A round makes the moments overflow; use a smaller step.")
        unit = np.zeros(self.entries)
        unit[self.constant] = 1.0
        push = self.advance(unit)[self._rest]
        solution = unit if self._coarser is None else self._lifted(self._coarser.stationary)
        defect = (self.advance(solution) - solution)[self._rest]
        # If the first guess is good, a rough correction makes it exact to rounding.
        share = float(np.linalg.norm(push)) / max(
            float(np.linalg.norm(defect)), np.finfo(float).tiny
        )
        solution[self._rest] += self._settled(
            defect, min(max(_RESIDUAL * share, _LEAST_RESIDUAL), _ROUGH_RESIDUAL)
        )
        return solution

    @cached_property
    def _overflows(self) -> bool:
        """Whether a round multiplies the moments by so much that a few rounds would overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            growth = self.hierarchy.slow_map(self.means), self.advance(np.ones(self.entries))
            return not all(float(np.abs(each).max()) < _LARGEST for each in growth)

    def _lifted(self, vector: np.ndarray) -> np.ndarray:
        """The moments of the coarser run, with zeros for the connected parts of more agents."""
        assert self._coarser is not None
        parts = self._coarser.unpacked(vector)
        return self.packed([*parts, *self.hierarchy.zeros()[len(parts) - 1 :]])

    @cached_property
    def _rest(self) -> np.ndarray:
        """All entries but the constant."""
        return np.delete(np.arange(self.entries), self.constant)

    def _settled(self, push: np.ndarray, residual: float) -> np.ndarray:
        """The limit of the moments if every round adds `push` (both without the constant)."""
        rest, scale = self._rest, float(np.linalg.norm(push))
        if self.entries <= _DIRECT_ENTRIES:
            try:
                return np.linalg.solve(np.eye(len(rest)) - self.matrix[np.ix_(rest, rest)], push)
            except np.linalg.LinAlgError:
                raise UnsolvedMoments(LOST_IN_ROUNDING) from None
        if scale == 0.0:
            return push
        found, failed = self._gmres(push, residual, restart=60, maxiter=10)
        if failed:
            gap = float(np.linalg.norm(found - self._homogeneous(found) - push)) / scale
            raise UnsolvedMoments(
                f"The stationary moments were found only to a residual of {gap:.1e} instead of "
                f"{residual:g}; use a larger step, or theory.small_step_law for small ones."
            )
        return found

    def _gmres(
        self, push: np.ndarray, residual: float, restart: int, maxiter: int
    ) -> tuple[np.ndarray, int]:
        operator = _operator(len(self._rest), lambda v: v - self._homogeneous(v))
        return gmres(
            operator,
            push,
            M=self._preconditioner,
            rtol=residual,
            atol=0.0,
            restart=restart,
            maxiter=maxiter,
        )

    def _homogeneous(self, vector: np.ndarray) -> np.ndarray:
        full = np.zeros(self.entries)
        full[self._rest] = vector
        return self.advance(full)[self._rest]

    @cached_property
    def _preconditioner(self) -> LinearOperator:
        """Solve for the average's own moments, and leave the connected parts as they are.

        The former change slowly; the latter vanish within a round or two.
        """
        few = self.constant
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinAlgWarning)
            slow = lu_factor(np.eye(few) - self.hierarchy.slow_map(self.means)[:few, :few])
        singular = not np.all(np.diag(slow[0]))

        def solve(vector: np.ndarray) -> np.ndarray:
            return (
                vector if singular else np.concatenate([lu_solve(slow, vector[:few]), vector[few:]])
            )

        return _operator(len(self._rest), solve)

    def is_positive(self, vector: np.ndarray) -> bool:
        """Whether the vector can be the moments of a random x: positive semidefinite matrices.

        If nothing is left out, this checks the moments given the modes of all agents, otherwise
        those of the average alone.
        """
        if not np.all(np.isfinite(vector)):
            return False
        parts = self.unpacked(vector)
        whole = parts[0]
        if self.hierarchy.order == self.hierarchy.num_agents:
            whole = self._given_all_modes(parts)
        eigenvalues = np.linalg.eigvalsh(whole)
        return bool(np.all(eigenvalues[..., 0] >= -_NEGATIVE * np.abs(eigenvalues).max()))

    def _given_all_modes(self, parts: Parts) -> np.ndarray:
        """(G, ..., G, D, D): E[x x' 1{z^1, ..., z^N}]."""
        order = self.hierarchy.order
        whole = np.zeros_like(parts[order])
        for r in range(order + 1):
            spread = parts[r]
            for _ in range(order - r):
                spread = self.before.reshape(-1, *(1,) * spread.ndim) * spread
            for axes in itertools.combinations(range(order), r):
                whole += np.moveaxis(spread, range(order - r, order), axes)
        return (
            whole if self.hierarchy.allowed[order] is None else whole[self.hierarchy.allowed[order]]
        )

    @property
    def spectral_radius(self) -> float:
        """The spectral radius of a round, without the entry that is always one.

        It is accurate enough to decide on which side of one it lies.
        """
        return self._slowest[0]

    @cached_property
    def _slowest(self) -> tuple[float, np.ndarray]:
        """The spectral radius, and moments (without the constant) that change by about it."""
        rest = self._rest
        if self._overflows:
            return math.inf, np.zeros(len(rest))
        if self.entries <= _DIRECT_ENTRIES:
            values, vectors = np.linalg.eig(self.matrix[np.ix_(rest, rest)])
            largest = np.argsort(np.abs(values))[-_LEADING:]
            return float(np.abs(values).max()), np.real(vectors[:, largest]).sum(axis=1)
        start, krylov, tolerance = self._slow_start(), _KRYLOV, _DECISIVE
        if self._coarser is not None:
            krylov, tolerance = _KRYLOV // 2, self._decisive(self._coarser.spectral_radius)
        while True:
            found, vector = self._arnoldi(start, krylov, tolerance)
            if tolerance <= 2 * self._decisive(found):
                return found, vector
            tolerance = self._decisive(found)

    def _decisive(self, radius: float) -> float:
        """The accuracy to which a radius near this one must be known."""
        return max(_DECISIVE * abs(1.0 - radius), _RADIUS_TOLERANCE)

    def _slow_start(self) -> np.ndarray:
        if self._coarser is not None:
            coarse = np.zeros(self._coarser.entries)
            coarse[self._coarser._rest] = self._coarser._slowest[1]
            return self._lifted(coarse)[self._rest]
        identity = self._packing.packed(np.eye(self._packing.size))[: self.constant]
        start = np.concatenate([identity, np.zeros(len(self._rest) - self.constant)])
        # The limit under a constant push points towards the slowest moments.
        return self._gmres(start, _ROUGH_RESIDUAL, restart=_KRYLOV, maxiter=1)[0]

    def _arnoldi(
        self, start: np.ndarray, krylov: int, tolerance: float
    ) -> tuple[float, np.ndarray]:
        """The largest of a few leading eigenvalues in modulus, and the sum of their eigenvectors.

        The first eigenvalue that the iteration finds need not be the largest.
        """
        operator, size = _operator(len(self._rest), self._homogeneous), len(self._rest)
        if not np.any(self._homogeneous(start)):
            start = np.random.default_rng(0).standard_normal(size)
            if not np.any(self._homogeneous(start)):
                return 0.0, start
        for vectors in (krylov, 3 * krylov, 12 * krylov):
            settings = {"which": "LM", "v0": start, "ncv": min(vectors, size), "tol": tolerance}
            try:
                values, found = eigs(operator, min(_LEADING, size - 2), **settings)  # pyright: ignore[reportArgumentType, reportAssignmentType]
            except ArpackError:
                continue
            return float(np.abs(values).max()), np.real(found).sum(axis=1)
        raise UnsolvedMoments(
            f"The spectral radius of a round of {size} moments was not found to {tolerance:g}; use "
            "fewer states or features, or sample with fegsam.run."
        )


def _operator(size: int, matvec: Callable[[np.ndarray], np.ndarray]) -> LinearOperator:
    return LinearOperator((size, size), matvec=matvec, dtype=np.float64)  # pyright: ignore[reportCallIssue]


def apply_power(squares: list[np.ndarray], vector: np.ndarray, times: int) -> np.ndarray:
    """Apply a power of the matrix ``squares[0]`` to a vector; `squares` caches repeated squares."""
    place = 0
    while times:
        if place == len(squares):
            squares.append(squares[-1] @ squares[-1])
        if times & 1:
            vector = squares[place] @ vector
        times >>= 1
        place += 1
    return vector
