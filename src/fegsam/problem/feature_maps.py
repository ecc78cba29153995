"""The feature maps behind `fegsam.features`: frozen values that turn observations into rows.

An observation is a state number, or k real numbers. A map has two forms of a row: dense, with
`dimension` numbers, or sparse, with the indices of the `active` entries that are one.
"""

from __future__ import annotations

import abc
import hashlib
import inspect
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import FloatArray, IntArray, finite_array

PROBE_TOLERANCE = 1e-9
"""Two machines may round the same features differently, but not by more than this."""


class FeatureMap(abc.ABC):
    """A map from observations to features; `fegsam.features` makes them.

    Attributes
    ----------
    kind : str
    dimension : int
        d, the number of features.
    width : int or None
        k, the numbers in an observation; None where an observation is a state number.
    active : int
        m, the ones in a sparse row; 0 where rows are dense.

    Examples
    --------
    >>> import fegsam as fg
    >>> grid = fg.features.tiles(0.0, 1.0, tiles=3, tilings=2)
    >>> grid.kind, grid.dimension, grid.width, grid.active
    ('tiles', 8, 1, 2)
    """

    kind: str
    width: int | None = None
    active: int = 0

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """d, the number of features."""

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """The arguments of the map as plain numbers, strings and lists."""

    @abc.abstractmethod
    def compute(self, observations: np.ndarray) -> np.ndarray:
        """The rows of checked observations."""

    def check(self, observations: ArrayLike) -> np.ndarray:
        """`observations` as (L, k) finite numbers, or as (L,) state numbers, or an error."""
        found = finite_array(observations, "observations", f"(L, {self.width})")
        found = found[:, None] if found.ndim == 1 and self.width == 1 else found
        if found.ndim != 2 or found.shape[1] != self.width:
            raise ProblemError(
                f"observations have shape {found.shape}, but the {self.kind} features take "
                f"{self.width} numbers each: give shape (L, {self.width})"
            )
        return found

    def __call__(self, observations: ArrayLike) -> np.ndarray:
        """(L, d) rows, or (L, m) indices of the ones where the map is sparse."""
        return self.compute(self.check(observations))

    def dense(self, observations: ArrayLike) -> FloatArray:
        """(L, d) rows, also where the map is sparse."""
        rows = self(observations)
        if not self.active:
            return rows
        full = np.zeros((len(rows), self.dimension))
        full[np.arange(len(rows))[:, None], rows] = 1.0
        return full

    def to_dict(self) -> dict[str, Any]:
        """The map in a plain form that TOML and JSON hold; `features.from_dict` reads it."""
        return {"kind": self.kind, **self.settings()}

    def digest(self) -> str:
        """The SHA-256 of the plain form: machines that agree on it compute the same features."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def check_probe(self, observations: ArrayLike, expected: ArrayLike) -> None:
        """Raise unless the rows of `observations` equal another machine's `expected` to 1e-9."""
        ours, theirs = self.dense(observations), np.asarray(expected, dtype=np.float64)
        if ours.shape != theirs.shape:
            raise ProblemError(
                f"the {self.kind} features of {len(ours)} probe observations have shape "
                f"{ours.shape} here and {theirs.shape} elsewhere: use the same features everywhere"
            )
        apart = np.abs(ours - theirs).max(axis=1, initial=0.0)
        wrong = np.flatnonzero(~(apart <= PROBE_TOLERANCE))
        if wrong.size:
            raise ProblemError(
                f"the {self.kind} features of probe observation {wrong[0]} differ by "
                f"{apart[wrong[0]]:.3g} from those elsewhere: use the same features everywhere"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeatureMap) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.digest())


class _Discrete(FeatureMap):
    """A map of state numbers."""

    num_states: int

    def check(self, observations: ArrayLike) -> np.ndarray:
        found = np.asarray(observations)
        if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
            raise ProblemError(
                f"observations have shape {found.shape} and type {found.dtype}, but the "
                f"{self.kind} features take state numbers: give (L,) whole numbers"
            )
        wrong = np.flatnonzero((found < 0) | (found >= self.num_states))
        if wrong.size:
            raise ProblemError(
                f"observations[{wrong[0]}] is {found[wrong[0]]}, but there are {self.num_states} "
                f"states (0 to {self.num_states - 1}): correct it or declare more"
            )
        return found.astype(np.int64)


class _Ranged(FeatureMap):
    """A map of observations from a box; what lies outside is moved to its edge."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def width(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return len(self.low)

    def unit(self, observations: np.ndarray) -> FloatArray:
        """The observations with the box as [0, 1]^k."""
        low, high = np.array(self.low), np.array(self.high)
        return np.clip((observations - low) / (high - low), 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Fourier(_Ranged):
    """Cosines of whole frequencies: cos(pi c.x) with c in {0..order}^k and x in [0, 1]^k."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    order: int
    kind = "fourier"

    @property
    def dimension(self) -> int:
        return (self.order + 1) ** len(self.low)

    def settings(self) -> dict[str, Any]:
        return {"low": list(self.low), "high": list(self.high), "order": self.order}

    def frequencies(self) -> IntArray:
        """(d, k): the vector c of each feature, the last entry fastest."""
        every = itertools.product(range(self.order + 1), repeat=len(self.low))
        return np.array(list(every), dtype=np.int64)

    def compute(self, observations: np.ndarray) -> np.ndarray:
        return np.cos(np.pi * (self.unit(observations) @ self.frequencies().T))


@dataclass(frozen=True, eq=False)
class Tiles(_Ranged):
    """Tile coding: each of m shifted grids has one tile that contains the observation."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    tiles: tuple[int, ...]
    tilings: int
    kind = "tiles"

    @property
    def active(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.tilings

    @property
    def dimension(self) -> int:
        return self.tilings * self._tiling

    @property
    def _tiling(self) -> int:
        """The tiles of one tiling: one more in each direction, since the grid is shifted."""
        return int(np.prod(np.array(self.tiles, dtype=np.int64) + 1))

    def settings(self) -> dict[str, Any]:
        ranges = {"low": list(self.low), "high": list(self.high)}
        return {**ranges, "tiles": list(self.tiles), "tilings": self.tilings}

    def compute(self, observations: np.ndarray) -> np.ndarray:
        place = self.unit(observations) * np.array(self.tiles)
        rows = np.empty((len(place), self.tilings), dtype=np.int64)
        # Odd displacements 1, 3, 5, ... avoid the diagonal artefacts of equal ones.
        odd = 2 * np.arange(len(self.tiles)) + 1
        for tiling in range(self.tilings):
            shift = (tiling * odd % self.tilings) / self.tilings
            cells = np.floor(place + shift).astype(np.int64)
            index = np.zeros(len(place), dtype=np.int64)
            for column, tiles in enumerate(self.tiles):
                index = index * (tiles + 1) + cells[:, column]
            rows[:, tiling] = tiling * self._tiling + index
        return rows


@dataclass(frozen=True, eq=False)
class Radial(FeatureMap):
    """Gaussian bumps exp(-r^2 / (2 width^2)), where r is the distance from a center."""

    centers: tuple[tuple[float, ...], ...]
    bump_width: float
    kind = "radial"

    @property
    def width(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return len(self.centers[0])

    @property
    def dimension(self) -> int:
        return len(self.centers)

    def settings(self) -> dict[str, Any]:
        return {"centers": [list(center) for center in self.centers], "width": self.bump_width}

    def compute(self, observations: np.ndarray) -> np.ndarray:
        apart = observations[:, None, :] - np.array(self.centers)
        return np.exp(-(apart**2).sum(axis=2) / (2.0 * self.bump_width**2))


@dataclass(frozen=True, eq=False)
class Columns(FeatureMap):
    """The numbers of an observation themselves."""

    width: int  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]
    kind = "columns"

    @property
    def dimension(self) -> int:
        return self.width

    def settings(self) -> dict[str, Any]:
        return {"width": self.width}

    def compute(self, observations: np.ndarray) -> np.ndarray:
        return observations


@dataclass(frozen=True, eq=False)
class OneHot(_Discrete):
    """One feature per state."""

    num_states: int
    kind = "one_hot"
    active = 1

    @property
    def dimension(self) -> int:
        return self.num_states

    def settings(self) -> dict[str, Any]:
        return {"states": self.num_states}

    def compute(self, observations: np.ndarray) -> np.ndarray:
        return observations[:, None]


@dataclass(frozen=True, eq=False)
class Table(_Discrete):
    """A given row for each state."""

    phi: FloatArray
    """(S, d), read-only"""
    kind = "table"

    @property
    def num_states(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.phi.shape[0]

    @property
    def dimension(self) -> int:
        return self.phi.shape[1]

    def settings(self) -> dict[str, Any]:
        return {"phi": self.phi.tolist()}

    def compute(self, observations: np.ndarray) -> np.ndarray:
        return self.phi[observations]


@dataclass(frozen=True, eq=False)
class Function(FeatureMap):
    """Features by a function of one's own, identified by the SHA-256 of its source."""

    function: Callable[[np.ndarray], ArrayLike]
    features: int
    kind = "function"

    @property
    def dimension(self) -> int:
        return self.features

    def settings(self) -> dict[str, Any]:
        name = f"{self.function.__module__}:{self.function.__qualname__}"
        return {"name": name, "dimension": self.features, "code": code_digest(self.function)}

    def check(self, observations: ArrayLike) -> np.ndarray:
        return np.asarray(observations)

    def compute(self, observations: np.ndarray) -> np.ndarray:
        name = self.function.__qualname__
        rows = finite_array(self.function(observations), f"the result of {name}", "(L, d)")
        if rows.shape != (len(observations), self.features):
            raise ProblemError(
                f"the features of {name} have shape {rows.shape} for {len(observations)} "
                f"observations and dimension {self.features}: return shape "
                f"({len(observations)}, {self.features})"
            )
        return rows


def code_digest(function: Callable[..., Any]) -> str:
    """The SHA-256 of a function's source text, or of its bytecode where there is no source."""
    try:
        text = inspect.getsource(function).encode()
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        if code is None:
            raise ProblemError(
                f"the feature function {shown(function)} has no code to compare: define it with def"
            ) from None
        text = code.co_code + repr((code.co_consts, code.co_names)).encode()
    return hashlib.sha256(text).hexdigest()
