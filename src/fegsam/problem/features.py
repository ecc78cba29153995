"""Features: how an observation becomes the row that a linear rule reads.

A map is a frozen value. Called with observations, (L, k) numbers or (L,) state numbers, it returns
(L, d) rows; tiles and one-hot features return (L, m) indices of their ones instead, and ``dense``
gives the full rows. ``digest()`` identifies a map, and ``to_dict()`` is its form in a TOML file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import (
    FloatArray,
    finite_array,
    integer,
    positive,
    read_only,
)
from fegsam.problem.feature_maps import (
    Columns,
    FeatureMap,
    Fourier,
    Function,
    OneHot,
    Radial,
    Table,
    Tiles,
)

__all__ = [
    "FeatureMap",
    "columns",
    "fourier",
    "from_dict",
    "function",
    "one_hot",
    "radial",
    "table",
    "tiles",
]


def __dir__() -> list[str]:
    return list(__all__)


F = TypeVar("F", bound=FeatureMap)

LARGEST_DIMENSION = 2**31
"""More features are refused: their indices would not fit the rules' tables."""


def fourier(low: ArrayLike, high: ArrayLike, order: int) -> Fourier:
    """The Fourier basis of a box: cos(pi c.x) for all whole frequencies c from 0 to `order`.

    Parameters
    ----------
    low, high : (k,) array, or a number
        The box; it is scaled to [0, 1]^k, and what lies outside is moved to its edge.
    order : int
        The largest frequency in each direction; d = (order + 1)^k.

    Examples
    --------
    >>> fourier(0.0, 1.0, 2)([[0.0], [0.5]]).round(3) + 0.0
    array([[ 1.,  1.,  1.],
           [ 1.,  0., -1.]])
    """
    box = _box(low, high)
    found = Fourier(*box, integer(order, "order", least=0, most=2**20))
    return _of_a_size(found)


def tiles(low: ArrayLike, high: ArrayLike, tiles: int | ArrayLike, tilings: int) -> Tiles:
    """Tile coding: `tilings` shifted grids, in each of which one tile is one.

    Parameters
    ----------
    low, high : (k,) array, or a number
        The box; what lies outside is moved to its edge.
    tiles : int, or (k,) ints
        The tiles of a grid in each direction. A shifted grid needs one more to cover the box, so
        d = tilings * (tiles + 1)^k.
    tilings : int
        m, the number of grids. Grid i is shifted by i (1, 3, 5, ...) / m of a tile, modulo one.

    Examples
    --------
    >>> grid = tiles([0, 0], [1, 1], tiles=4, tilings=2)
    >>> grid.dimension, grid([[0.1, 0.1], [0.2, 0.1]]).tolist()
    (50, [[0, 25], [0, 30]])
    """
    box = _box(low, high)
    counts = np.broadcast_to(np.asarray(tiles, dtype=object), (len(box[0]),))
    each = tuple(integer(count, "tiles", most=2**31) for count in counts.tolist())
    return _of_a_size(Tiles(*box, each, integer(tilings, "tilings", most=2**20)))


def radial(centers: ArrayLike, width: float) -> Radial:
    """Gaussian bumps exp(-r^2 / (2 width^2)), where r is the distance from a center.

    Parameters
    ----------
    centers : (d, k) array, or (d,) for observations of one number
    width : float

    Examples
    --------
    >>> radial([0.0, 1.0], width=1.0)([[0.0]]).round(4)
    array([[1.    , 0.6065]])
    """
    points = finite_array(centers, "centers", "(d, k)")
    points = points[:, None] if points.ndim == 1 else points
    if points.ndim != 2 or 0 in points.shape:
        raise ProblemError(f"centers have shape {points.shape}: give shape (d, k)")
    return Radial(tuple(map(tuple, points.tolist())), positive(width, "width"))


def columns(width: int = 1) -> Columns:
    """The `width` numbers of an observation themselves, as they are logged.

    Examples
    --------
    >>> columns(2)([[0.5, 2.0]])
    array([[0.5, 2. ]])
    """
    return Columns(integer(width, "width", most=LARGEST_DIMENSION))


def one_hot(states: int) -> OneHot:
    """One feature for each of `states` states: a table.

    Examples
    --------
    >>> one_hot(3)([2, 0]).tolist(), one_hot(3).dense([2]).tolist()
    ([[2], [0]], [[0.0, 0.0, 1.0]])
    """
    return OneHot(integer(states, "states", most=LARGEST_DIMENSION))


def table(phi: ArrayLike) -> Table:
    """A given row of features for each state.

    Parameters
    ----------
    phi : (S, d) array

    Examples
    --------
    >>> table([[1.0], [2.0]])([1, 0, 1]).ravel()
    array([2., 1., 2.])
    """
    rows = finite_array(phi, "phi", "(S, d)")
    if rows.ndim != 2 or 0 in rows.shape:
        raise ProblemError(f"phi has shape {rows.shape}, but needs a row per state: give (S, d)")
    return Table(read_only(rows))


def function(f: Callable[[np.ndarray], ArrayLike], dim: int) -> Function:
    """Features of one's own: ``f(observations)`` returns (L, dim) numbers.

    Machines compare the SHA-256 of its source, and its values on probe observations.

    Examples
    --------
    >>> squares = function(lambda x: x**2, 1)
    >>> squares([[3.0]])
    array([[9.]])
    >>> squares.check_probe([[3.0]], [[9.1]])
    Traceback (most recent call last):
    fegsam.errors.ProblemError: the function features of probe observation 0 differ by 0.1 from
    those elsewhere: use the same features everywhere
    """
    if not callable(f):
        raise ProblemError(f"f is {shown(f)}, but must be a function of observations: give one")
    return Function(f, integer(dim, "dim", most=LARGEST_DIMENSION))


_MAKERS: dict[str, Callable[..., FeatureMap]] = {
    "fourier": fourier,
    "tiles": tiles,
    "radial": radial,
    "columns": columns,
    "one_hot": one_hot,
    "table": table,
}


def from_dict(plain: Mapping[str, Any]) -> FeatureMap:
    """The map whose plain form is `plain`, as in a TOML file.

    A function's plain form names its code but does not hold it: give `function` the code instead.

    Examples
    --------
    >>> from_dict({"kind": "one_hot", "states": 3}).dimension
    3
    """
    settings = dict(plain)
    kind = settings.pop("kind", None)
    if kind not in _MAKERS:
        raise ProblemError(
            f"features of kind {shown(kind)} are not known: use {', '.join(_MAKERS)}"
        )
    try:
        return _MAKERS[kind](**settings)
    except TypeError as error:
        said = str(error).partition("() ")[2]
        raise ProblemError(f"features of kind {kind!r}: {said}; see fegsam.features") from None


def _box(low: ArrayLike, high: ArrayLike) -> tuple[tuple[float, ...], tuple[float, ...]]:
    ends: list[FloatArray] = [
        np.atleast_1d(finite_array(end, name, "(k,)"))
        for name, end in (("low", low), ("high", high))
    ]
    if ends[0].shape != ends[1].shape or ends[0].ndim != 1 or not ends[0].size:
        raise ProblemError(
            f"low has shape {ends[0].shape} and high {ends[1].shape}: give both one number for "
            "each entry of an observation"
        )
    wrong = np.flatnonzero(ends[0] >= ends[1])
    if wrong.size:
        i = int(wrong[0])
        raise ProblemError(
            f"low[{i}] is {ends[0][i]:g} and high[{i}] is {ends[1][i]:g}: give a low below its high"
        )
    return tuple(ends[0].tolist()), tuple(ends[1].tolist())


def _of_a_size(found: F) -> F:
    if found.dimension > LARGEST_DIMENSION:
        raise ProblemError(
            f"the {found.kind} features have dimension {found.dimension:.3g}, but at most "
            f"{LARGEST_DIMENSION} are possible: use fewer"
        )
    return found
