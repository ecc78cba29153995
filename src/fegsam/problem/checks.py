"""The conditions on every array and number of a problem, and the errors where they fail.

Values are checked once, here, when a problem is built; the rest of the library trusts them. Each
check returns a read-only copy, so a problem cannot change during a run.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from fegsam.errors import ProblemError, shown

ROW_SUM_TOLERANCE = 1e-8
LARGEST_ENTRY = 1e100
"""Larger rewards, features and parameters are refused: their products would overflow."""
LARGEST_COUNT = 2**62 - 1
"""Larger whole numbers are refused: times and sizes are 64-bit, and the sum of two must fit."""
LARGEST_LENGTH = 10**100
"""Larger numbers of steps are refused even where no run is made, as in the theory."""
LARGEST_ARRAY = 2**37
"""Arrays with more entries (a tebibyte of doubles) are refused before they are allocated."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Forbid writes to `array`, and return it.

    >>> import numpy as np
    >>> read_only(np.ones(2)).flags.writeable
    False
    """
    array.flags.writeable = False
    return array


def read_only_csr(matrix: sparse.csr_array) -> sparse.csr_array:
    """Forbid writes to the arrays of a canonical CSR matrix, and return it.

    >>> from scipy.sparse import csr_array
    >>> read_only_csr(csr_array([[1.0]])).data.flags.writeable
    False
    """
    for part in (matrix.data, matrix.indices, matrix.indptr):
        read_only(part)
    return matrix


def real_array(value: ArrayLike, name: str, shape: str) -> FloatArray:
    """A float64 copy of `value`; an error if it is not an array of real numbers.

    The error names the expected `shape`, which is not checked.

    >>> real_array([1, 2], "rewards", "(S, A)")
    array([1., 2.])
    """
    try:
        array = np.asarray(value)
        if np.iscomplexobj(array):
            raise TypeError
        return np.array(array, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError):
        raise ProblemError(
            f"{name} is a {type(value).__name__} that cannot be read as an array of real numbers: "
            f"give an array of shape {shape}"
        ) from None


def finite_array(value: ArrayLike, name: str, shape: str) -> FloatArray:
    """A float64 copy of `value`, with finite entries of at most `LARGEST_ENTRY` in size.

    The error names the first entry that is NaN, infinite or too large.

    >>> finite_array([1, 2], "rewards", "(S, A)")
    array([1., 2.])
    """
    array = real_array(value, name, shape)
    if not np.isfinite(array).all():
        where, entry = _first_entry(array, ~np.isfinite(array), name)
        raise ProblemError(
            f"{where} is {entry}, but must be finite: replace NaN and infinity by numbers"
        )
    too_large = np.abs(array) > LARGEST_ENTRY
    if too_large.any():
        where, entry = _first_entry(array, too_large, name)
        raise ProblemError(
            f"{where} is {entry:g}, whose powers would overflow: give entries of at most "
            f"{LARGEST_ENTRY:g}, in a larger unit if need be"
        )
    return array


def _first_entry(array: FloatArray, wrong: NDArray[Any], name: str) -> tuple[str, float]:
    """The first `wrong` entry of `array`: its name for a message, and its value."""
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"{name}[{', '.join(map(str, first))}]" if first else name
    return where, float(array[first])


def integer(value: Any, name: str, least: int = 1, most: int | None = LARGEST_COUNT) -> int:
    """`value` as an int of at least `least` and at most `most`; a whole float is accepted, too.

    >>> integer(3, "num_agents"), integer(1e3, "num_steps")
    (3, 1000)
    """
    number = None
    if isinstance(value, float | np.floating):
        number = int(value) if float(value).is_integer() else None
    else:
        with contextlib.suppress(TypeError):
            number = operator.index(value)
    if number is None or isinstance(value, (bool, np.bool_)) or number < least:
        raise ProblemError(
            f"{name} is {shown(value)}, but must be a whole number of at least {least}: give such "
            "a number"
        )
    if most is not None and number > most:
        raise ProblemError(
            f"{name} is {shown(value)}, but must be at most {most}: give a smaller number"
        )
    return number


def array_shape(**sizes: Any) -> tuple[int, ...]:
    """The shape of an array from its `sizes` by name, each at least one.

    It is checked before the array is allocated: a shape that no memory can hold is refused.

    >>> array_shape(states=3, actions=2)
    (3, 2)
    """
    shape = tuple(integer(size, name) for name, size in sizes.items())
    if math.prod(shape) > LARGEST_ARRAY:
        raise ProblemError(
            f"{' and '.join(f'{name}={size}' for name, size in zip(sizes, shape, strict=True))} "
            f"ask for an array of {math.prod(shape):.3g} entries, but at most "
            f"{LARGEST_ARRAY:.3g} can be held: give smaller numbers"
        )
    return shape


def several(values: Any, name: str, cure: str) -> tuple[Any, ...]:
    """`values` as a tuple, or an error that ends in `cure`.

    >>> several(range(2), "seeds", "give several")
    (0, 1)
    """
    try:
        return tuple(values)
    except TypeError:
        raise ProblemError(f"{name} is {shown(values)}, {cure}") from None


def flag(value: Any, name: str) -> bool:
    """`value` as a bool; 0 and 1 are accepted, too.

    >>> flag(1, "connected")
    True
    """
    if not isinstance(value, bool | int | np.bool_ | np.integer) or value not in (0, 1):
        raise ProblemError(f"{name} is {shown(value)}, but must be True or False: give one of them")
    return bool(value)


def fraction(value: Any, name: str, *, closed: bool = False) -> float:
    """`value` as a float in (0, 1), or in [0, 1] where `closed`.

    >>> fraction(0.9, "discount")
    0.9
    """
    try:
        # float("0.9") would succeed, but text is never meant as a number.
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (0.0 <= number <= 1.0 if closed else 0.0 < number < 1.0):
        bounds = "between 0 and 1" if closed else "strictly between 0 and 1"
        text = ", without quotes" if isinstance(value, str | bytes) else ""
        raise ProblemError(
            f"{name} is {shown(value)}, but must lie {bounds}: give such a number{text}"
        )
    return number


def positive(value: Any, name: str) -> float:
    """`value` as a float above zero and at most `LARGEST_ENTRY`.

    >>> positive(1, "step_size")
    1.0
    """
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(
        value, bool
    )
    try:
        number = float(value) if is_number else math.nan
    except OverflowError:
        number = math.inf
    if not 0.0 < number <= LARGEST_ENTRY:
        cure = (
            f"give a positive number, at most {LARGEST_ENTRY:g}"
            if number > 0.0
            else "give a positive number"
        )
        raise ProblemError(f"{name} is {shown(value)}; {cure}.")
    return number


def flat_params(value: ArrayLike, name: str, dimension: int) -> FloatArray:
    """`value` as `dimension` finite parameters.

    >>> flat_params([1, 2], "initial_params", 2)
    array([1., 2.])
    """
    vector = real_array(value, name, f"({dimension},)")
    if vector.shape != (dimension,):
        raise ProblemError(
            f"{name} has shape {vector.shape}; give a flat array of shape ({dimension},)."
        )
    return finite_array(vector, name, f"({dimension},)")


def solve(matrix: FloatArray, right: FloatArray, what: str) -> FloatArray:
    """The x with ``matrix @ x = right``; an error if the matrix is singular in double precision.

    `what` names the matrix in the error.

    >>> import numpy as np
    >>> solve(np.array([[2.0]]), np.array([1.0]), "the mean")
    array([0.5])
    """
    try:
        return np.linalg.solve(matrix, right).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        raise ProblemError(
            f"The matrix of {what} is singular in double precision, so it has no solution: use a "
            "discount further from one, policies that explore more, or features that differ more."
        ) from None


def stochastic_rows(rows: sparse.csr_array, where: Callable[[int], str]) -> sparse.csr_array:
    """A canonical, read-only copy of `rows` in which every row is a probability distribution.

    Parameters
    ----------
    rows : (R, C) csr_array
        Each row must sum to one within 1e-8. It is divided by its sum, so that it sums to one up
        to rounding.
    where : callable
        ``where(r)`` names row r in the error.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> stochastic_rows(csr_array([[0.5, 0.5], [0.0, 1.0]]), lambda r: f"row {r}").toarray()
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    rows = _canonical(rows)
    bad = np.flatnonzero(~((rows.data >= 0.0) & np.isfinite(rows.data)))
    if bad.size:
        first = int(bad[0])
        row = int(np.searchsorted(rows.indptr, first, side="right")) - 1
        raise ProblemError(
            f"{where(row)} has probability {rows.data[first]} at index {rows.indices[first]}, but "
            "probabilities must be finite and not negative: correct that entry"
        )
    sums = rows.sum(axis=1)
    bad = np.flatnonzero(np.abs(sums - 1.0) > ROW_SUM_TOLERANCE)
    if bad.size:
        row = int(bad[0])
        raise ProblemError(
            f"{where(row)} sums to {sums[row]:.12g}, but must sum to one within "
            f"{ROW_SUM_TOLERANCE:g}: divide the row by its sum or add the probability that is "
            "missing"
        )
    lengths = np.diff(rows.indptr)
    # Rows that already sum to one up to rounding stay as they are, so that checking a matrix twice
    # does not change its bits.
    sums[np.abs(sums - 1.0) <= lengths * np.finfo(np.float64).eps] = 1.0
    rows.data /= np.repeat(sums, lengths)
    return read_only_csr(rows)


def distribution(value: ArrayLike | None, size: int, name: str) -> FloatArray:
    """`value` as a probability distribution on `size` states; None means the uniform one.

    >>> distribution(None, 4, "initial_distribution")
    array([0.25, 0.25, 0.25, 0.25])
    """
    if value is None:
        return read_only(np.full(size, 1.0 / size))
    row = real_array(value, name, f"({size},)")
    if row.shape != (size,):
        raise ProblemError(
            f"{name} has shape {row.shape}, but must have one probability per state: give shape "
            f"({size},)"
        )
    return read_only(stochastic_rows(sparse.csr_array(row[None, :]), lambda _: name).toarray()[0])


def agent_count(num_agents: int | None) -> int:
    """`num_agents` as an int of at least one; None is an error, too.

    >>> agent_count(3)
    3
    """
    if num_agents is None:
        raise ProblemError(
            "num_agents is missing, but a federation needs at least one agent: give num_agents=N"
        )
    return integer(num_agents, "num_agents")


def agent_kinds(assignment: ArrayLike, agents: int, kinds: int) -> IntArray:
    """The kind of each of the `agents` agents, read-only.

    >>> agent_kinds([0, 1, 0], 3, 2)
    array([0, 1, 0])
    """
    try:
        kind_of = np.asarray(assignment)
    except (TypeError, ValueError, OverflowError):
        raise ProblemError(
            f"assignment is a {type(assignment).__name__} that cannot be read as an array: give "
            f"({agents},) whole numbers"
        ) from None
    if kind_of.shape != (agents,) or not np.issubdtype(kind_of.dtype, np.integer):
        raise ProblemError(
            f"assignment has shape {kind_of.shape} and type {kind_of.dtype}, but must name the "
            f"kind of each of the {agents} agents: give ({agents},) whole numbers"
        )
    wrong = np.flatnonzero((kind_of < 0) | (kind_of >= kinds))
    if wrong.size:
        agent = int(wrong[0])
        raise ProblemError(
            f"assignment[{agent}] is {kind_of[agent]}, but the kinds are numbered 0 to "
            f"{kinds - 1}: name one of those, or give more MDPs or policies"
        )
    return read_only(kind_of.astype(np.int64))


def chain_kernels(kernels: Any) -> tuple[sparse.csr_array, ...]:
    """One checked (Y, Y) kernel per kind, from (M, Y, Y), (Y, Y) or a sequence of sparse matrices.

    >>> [kernel.shape for kernel in chain_kernels([[0.5, 0.5], [1.0, 0.0]])]
    [(2, 2)]
    """
    shape = "(M, Y, Y) or (Y, Y)"
    if sparse.issparse(kernels):
        kernels = [kernels]
    if isinstance(kernels, Sequence) and any(sparse.issparse(kernel) for kernel in kernels):
        tables = [
            k if sparse.issparse(k) else real_array(k, f"kernels[{i}]", "(Y, Y)")
            for i, k in enumerate(kernels)
        ]
    else:
        table = real_array(kernels, "kernels", shape)
        tables = list(table[None] if table.ndim == 2 else table) if table.ndim in (2, 3) else []
    if not tables:
        raise ProblemError(
            f"kernels has shape {np.shape(kernels)}, but must hold at least one chain: give shape "
            f"{shape}"
        )
    states = tables[0].shape[0]
    for kind, table in enumerate(tables):
        if table.shape != (states, states) or states == 0:
            raise ProblemError(
                f"kernels[{kind}] has shape {table.shape}, but every kernel must be square and of "
                f"one size: give shape {shape}"
            )
    return tuple(
        stochastic_rows(
            sparse.csr_array(table), lambda row, kind=kind: f"kernels[{kind}] in state {row}"
        )
        for kind, table in enumerate(tables)
    )


def _canonical(rows: sparse.csr_array) -> sparse.csr_array:
    """A copy with sorted indices of the narrowest type, duplicates summed, no explicit zeros."""
    rows = sparse.csr_array(rows, dtype=np.float64, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    narrow = np.int32 if max(rows.nnz, len(rows.indptr)) <= np.iinfo(np.int32).max else np.int64
    parts = (
        rows.data,
        rows.indices.astype(narrow, copy=False),
        rows.indptr.astype(narrow, copy=False),
    )
    return sparse.csr_array(parts, shape=rows.shape)
