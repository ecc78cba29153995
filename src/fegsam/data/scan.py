"""The compiled pass over logged rows: every check of a single row, and the rows and gaps.

What a row means depends on the row after it alone (does its episode go on?), so the pass looks one
row ahead and can begin anywhere. An empty field is `EMPTY` in whole numbers, NaN in numbers and 2
in flags.
"""

from __future__ import annotations

import hashlib
import math
import pathlib
from typing import NamedTuple

import numpy as np

from fegsam.compilation import compiled
from fegsam.data.rows import Rows

EMPTY = -(2**63)
"""An empty whole number."""
SINGLE_PRECISION = 1e-6
"""Probabilities of single precision may sum to one, or be it, with this error."""

FINE, OBSERVATION, ACTION, REWARD, TERMINATED, TRUNCATED, BEHAVIOR, TARGET = range(8)
STEP, NEXT, NEXT_RANGE, NO_ACTION, NO_NEXT, AFTER_END, NO_END, NO_LAST, FLAG_ON_LAST = range(8, 17)
"""What is wrong with a row; `fegsam.data.damage` has the sentences."""


class Logged(NamedTuple):
    """Rows as they are in a log; a column that is missing has length 0."""

    episode: np.ndarray
    """int64 (L)"""
    step: np.ndarray
    """int64 (L)"""
    state: np.ndarray
    """int64 (L), where observations are state numbers"""
    vector: np.ndarray
    """float64 (L, k), where they are not"""
    next_state: np.ndarray
    next_vector: np.ndarray
    action: np.ndarray
    """int64 (L)"""
    reward: np.ndarray
    """float64 (L)"""
    terminated: np.ndarray
    """uint8 (L)"""
    truncated: np.ndarray
    """uint8 (L)"""
    behavior: np.ndarray
    """float64 (L)"""
    target: np.ndarray
    """float64 (L)"""


def uniform(logged: Logged) -> Logged:
    """The same arrays, all contiguous and read-only, so that `scan` is compiled only once."""
    arrays = [np.ascontiguousarray(array) for array in logged]
    for array in arrays:
        array.flags.writeable = False
    return Logged(*arrays)


def room(logged: Logged) -> tuple[Rows, np.ndarray]:
    """Space for the rows that `scan` makes of `logged`, and for where each comes from.

    That is twice the index of the logged row, plus one where the row was added as a gap.
    """
    length = 2 * len(logged.episode)
    wide = logged.vector.shape[1]
    observation = np.empty((length, wide)) if wide else np.empty(length, np.int64)
    rows = Rows(
        observation,
        action=np.empty(length, np.int64),
        reward=np.empty(length),
        discount=np.empty(length),
        behavior=np.empty(length),
        target=np.empty(length),
        gap=np.empty(length, np.bool_),
    )
    return rows, np.empty(length, np.int64)


class Held(NamedTuple):
    """What rows are held to."""

    states: int
    """S, or -1 where it is not known"""
    actions: int
    discount: float
    drop: bool
    """leave out a truncated transition without a last observation instead of refusing it"""


class Room(NamedTuple):
    """Where rows are written; one type for states and vectors, so that `scan` is compiled once."""

    state: np.ndarray
    """int64 (L), or of length 0"""
    vector: np.ndarray
    """float64 (L, k), or of length 0"""
    rows: Rows
    """the fields of the rows but their observations"""
    origin: np.ndarray


_KEY = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()


@compiled(key=_KEY)
def _observation_fault(logged, i, held):
    wide = logged.vector.shape[1]
    if wide == 0:
        state = logged.state[i]
        return state < 0 or (held.states >= 0 and state >= held.states)
    wrong = False
    for k in range(wide):
        wrong = wrong or not math.isfinite(logged.vector[i, k])
    return wrong


@compiled(key=_KEY)
def _last_fault(logged, i, goes_on, ended, has_next):
    """What is wrong with a row without an action, and in which row."""
    if has_next:
        return NO_ACTION, i
    if goes_on:
        return (AFTER_END, i + 1) if ended else (NO_ACTION, i)
    if logged.terminated[i] == 1 or logged.truncated[i] == 1:
        return FLAG_ON_LAST, i
    return FINE, -1


@compiled(key=_KEY)
def _transition_fault(logged, i, held):
    """What is wrong with the action, the reward, the flags or the probabilities of a row."""
    action = logged.action[i]
    if action < 0 or (held.actions >= 0 and action >= held.actions):
        return ACTION
    if not math.isfinite(logged.reward[i]):
        return REWARD
    if logged.terminated[i] == 2:
        return TERMINATED
    if logged.truncated[i] == 2:
        return TRUNCATED
    if len(logged.behavior) > 0 and not 0.0 < logged.behavior[i] <= 1.0 + SINGLE_PRECISION:
        return BEHAVIOR
    if len(logged.target) > 0 and not 0.0 <= logged.target[i] <= 1.0 + SINGLE_PRECISION:
        return TARGET
    return FINE


@compiled(key=_KEY)
def _next_fault(logged, i, held):
    """Whether a row says which observation is next, and what is wrong with that."""
    wide = logged.vector.shape[1]
    if wide == 0:
        reached = logged.next_state[i]
        known = reached != EMPTY
        beyond = reached < 0 or (held.states >= 0 and reached >= held.states)
        return known, NEXT_RANGE if known and beyond else FINE
    known = True
    for k in range(wide):
        known = known and not math.isnan(logged.next_vector[i, k])
        if math.isinf(logged.next_vector[i, k]):
            return known, NEXT_RANGE
    return known, FINE


@compiled(key=_KEY)
def _link_fault(logged, i, ended, has_next, known):
    """What is wrong between a row and the next one of its episode, and in which row."""
    if ended and (has_next or logged.action[i + 1] != EMPTY):
        return AFTER_END, i + 1
    if has_next and not known:
        return NO_NEXT, i
    if len(logged.step) > 0 and logged.step[i + 1] != logged.step[i] + 1:
        return STEP, i + 1
    if not has_next:
        return FINE, -1
    wide = logged.vector.shape[1]
    if wide == 0 and logged.next_state[i] != logged.state[i + 1]:
        return NEXT, i
    for k in range(wide):
        if logged.next_vector[i, k] != logged.vector[i + 1, k]:
            return NEXT, i
    return FINE, -1


@compiled(key=_KEY)
def _put(out, at, logged, i, is_gap, discount):
    """Write row `i` at place `at`."""
    for k in range(logged.vector.shape[1]):
        out.vector[at, k] = logged.vector[i, k]
    if logged.vector.shape[1] == 0:
        out.state[at] = logged.state[i]
    rows = out.rows
    rows.action[at] = 0 if is_gap else logged.action[i]
    rows.reward[at] = 0.0 if is_gap else logged.reward[i]
    rows.discount[at] = 0.0 if is_gap or logged.terminated[i] == 1 else discount
    rows.behavior[at] = rows.target[at] = math.nan
    if len(logged.behavior) and not is_gap:
        rows.behavior[at] = min(logged.behavior[i], 1.0)
    if len(logged.target) and not is_gap:
        rows.target[at] = min(logged.target[i], 1.0)
    rows.gap[at] = is_gap
    out.origin[at] = 2 * i


@compiled(key=_KEY)
def _put_end(out, at, logged, i, known):
    """Write the observation behind row `i`, with which its episode ends, at place `at`."""
    # After a terminated transition the discount is 0, so that any observation may stand for one
    # that was not logged.
    _put(out, at, logged, i, True, 0.0)
    out.origin[at] = 2 * i + 1
    if not known:
        return
    for k in range(logged.vector.shape[1]):
        out.vector[at, k] = logged.next_vector[i, k]
    if logged.vector.shape[1] == 0:
        out.state[at] = logged.next_state[i]


@compiled(key=_KEY)
def scan(logged, last, held, ended, out):
    """Check rows and write rows and gaps; all rows where `last`, else all but the last one.

    `ended` says whether a transition of the first row's episode ended it.

    Returns
    -------
    written, code, index, ended
        The number of rows written, and the code and index of the first row that is wrong.
    """
    count = len(logged.episode)
    has_next = len(logged.next_state) > 0 or len(logged.next_vector) > 0
    written = 0
    for i in range(count if last else count - 1):
        goes_on = i + 1 < count and logged.episode[i + 1] == logged.episode[i]
        if _observation_fault(logged, i, held):
            return written, OBSERVATION, i, ended
        is_gap, add_gap, known = logged.action[i] == EMPTY, False, False
        if is_gap:
            code, index = _last_fault(logged, i, goes_on, ended, has_next)
            if code != FINE:
                return written, code, index, ended
        else:
            code = _transition_fault(logged, i, held)
            if code != FINE:
                return written, code, i, ended
            ended = logged.terminated[i] == 1 or logged.truncated[i] == 1
            if has_next:
                known, code = _next_fault(logged, i, held)
                if code != FINE:
                    return written, code, i, ended
            if goes_on:
                code, index = _link_fault(logged, i, ended, has_next, known)
                if code != FINE:
                    return written, code, index, ended
            elif logged.terminated[i] == 1 or known:
                add_gap = True
            elif not ended or not held.drop:
                return written, NO_LAST if ended else NO_END, i, ended
            else:
                is_gap = True
        _put(out, written, logged, i, is_gap, held.discount)
        written += 1
        if add_gap:
            _put_end(out, written, logged, i, known)
            written += 1
        if not goes_on:
            ended = False
    return written, FINE, -1, ended
