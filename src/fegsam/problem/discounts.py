"""Discounts of transitions: one number for all, or an array where episodes end."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from fegsam.errors import ProblemError
from fegsam.problem.checks import FloatArray, IntArray, fraction, read_only, real_array


def check_discount(
    discount: Any, transitions: sparse.csr_array, num_actions: int
) -> tuple[float, FloatArray | None]:
    """The largest discount of a possible transition, and the array if they are not all the same.

    Parameters
    ----------
    discount : float or array
        A number strictly between 0 and 1, or an array that broadcasts to (S, A, S), with entries in
        [0, 1).
    transitions : (S*A, S) csr_array
    num_actions : int

    Returns
    -------
    float
    (1 or S, 1 or A, 1 or S) array, read-only, or None
        The discounts, with an axis of length one where they do not vary.

    Examples
    --------
    >>> moves = sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])
    >>> check_discount([0.5, 0.0], moves, 1)
    (0.5, array([[[0.5, 0. ]]]))
    """
    if not isinstance(discount, list | tuple | np.ndarray) or (
        isinstance(discount, np.ndarray) and discount.ndim == 0
    ):
        return fraction(discount, "discount"), None
    states = (len(transitions.indptr) - 1) // num_actions
    table = _compact(_check_shape(discount, (states, num_actions, states)))
    if table.size == 1:
        return fraction(table.item(), "discount"), None
    largest = float(discounts_at(table, *possible(transitions, num_actions)).max())
    if largest == 0.0:
        raise ProblemError(
            "discount is 0 on every possible transition, but some must continue: give a positive "
            "discount to the transitions that do not end an episode"
        )
    return largest, read_only(table)


def possible(
    transitions: sparse.csr_array, num_actions: int
) -> tuple[IntArray, IntArray, IntArray]:
    """s, a and s' of every possible transition, in the order of the entries of `transitions`.

    >>> possible(sparse.csr_array([[0.0, 1.0], [0.5, 0.5]]), 1)
    (array([0, 1, 1]), array([0, 0, 0]), array([1, 0, 1]))
    """
    rows = np.arange(len(transitions.indptr) - 1)
    states, actions = np.divmod(np.repeat(rows, np.diff(transitions.indptr)), num_actions)
    return states, actions, transitions.indices.astype(np.int64)


def discounts_at(
    table: FloatArray, states: IntArray, actions: IntArray, following: IntArray
) -> FloatArray:
    """The entries of a (1 or S, 1 or A, 1 or S) array at transitions (s, a, s').

    >>> discounts_at(np.array([[[0.5, 0.0]]]), np.array([0, 1]), np.array([0, 0]), np.array([1, 0]))
    array([0. , 0.5])
    """
    places = zip(table.shape, (states, actions, following), strict=True)
    return table[tuple(place if size > 1 else np.zeros_like(place) for size, place in places)]


def _check_shape(discount: Any, shape: tuple[int, int, int]) -> FloatArray:
    """The given array with three axes, each of length one or as in `shape`."""
    table = real_array(discount, "discount", "(S, A, S)")
    wrong = np.argwhere(~((table >= 0.0) & (table < 1.0)))
    if len(wrong):
        place = tuple(int(index) for index in wrong[0])
        raise ProblemError(
            f"discount has the entry {table[place]} at {place}, but the discount of a transition "
            "lies in [0, 1): give 0 where an episode ends and less than 1 elsewhere"
        )
    spread = table.reshape((1,) * (3 - table.ndim) + table.shape)
    if spread.ndim != 3 or any(
        given not in (1, wanted) for given, wanted in zip(spread.shape, shape, strict=True)
    ):
        raise ProblemError(
            f"discount has shape {table.shape}, which does not broadcast to (S, A, S) = {shape}: "
            "give a number, a discount for each state that is entered, or one for each transition"
        )
    return spread


def _compact(table: FloatArray) -> FloatArray:
    """The array with an axis of length one where its entries do not vary along it."""
    for axis in range(3):
        first = table.take([0], axis=axis)
        table = first if (table == first).all() else table
    return np.ascontiguousarray(table)
