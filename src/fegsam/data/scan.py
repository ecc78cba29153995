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


@compiled(key=hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest())
def scan(logged, last, states, actions, discount, drop, ended, state_out, vector_out, out, origin):
    """Check rows and write rows and gaps; all rows where `last`, else all but the last one.

    Parameters
    ----------
    states, actions : int
        Their numbers, or -1 where they are not known.
    drop : bool
        Leave out a truncated transition without a last observation instead of refusing it.
    ended : bool
        Whether a transition of the first row's episode ended it.

    Returns
    -------
    written, code, index, ended
        The number of rows written, and the code and index of the first row that is wrong.
    """
    count = len(logged.episode)
    wide = logged.vector.shape[1]
    has_next = len(logged.next_state) > 0 or len(logged.next_vector) > 0
    stepped, chosen, aimed = len(logged.step) > 0, len(logged.behavior) > 0, len(logged.target) > 0
    written = 0
    for i in range(count if last else count - 1):
        goes_on = i + 1 < count and logged.episode[i + 1] == logged.episode[i]
        if wide:
            for k in range(wide):
                if not math.isfinite(logged.vector[i, k]):
                    return written, OBSERVATION, i, ended
                vector_out[written, k] = logged.vector[i, k]
        else:
            state = logged.state[i]
            if state < 0 or (states >= 0 and state >= states):
                return written, OBSERVATION, i, ended
            state_out[written] = state
        action = logged.action[i]
        is_gap = action == EMPTY
        add_gap = known = False
        if is_gap:
            if has_next:
                return written, NO_ACTION, i, ended
            if goes_on:
                return written, AFTER_END if ended else NO_ACTION, i + 1 if ended else i, ended
            if logged.terminated[i] == 1 or logged.truncated[i] == 1:
                return written, FLAG_ON_LAST, i, ended
        else:
            if action < 0 or (actions >= 0 and action >= actions):
                return written, ACTION, i, ended
            if not math.isfinite(logged.reward[i]):
                return written, REWARD, i, ended
            if logged.terminated[i] == 2:
                return written, TERMINATED, i, ended
            if logged.truncated[i] == 2:
                return written, TRUNCATED, i, ended
            if chosen and not 0.0 < logged.behavior[i] <= 1.0:
                return written, BEHAVIOR, i, ended
            if aimed and not 0.0 <= logged.target[i] <= 1.0:
                return written, TARGET, i, ended
            ended = logged.terminated[i] == 1 or logged.truncated[i] == 1
            known = has_next
            if has_next and wide:
                for k in range(wide):
                    known = known and not math.isnan(logged.next_vector[i, k])
                    if math.isinf(logged.next_vector[i, k]):
                        return written, NEXT_RANGE, i, ended
            elif has_next:
                reached = logged.next_state[i]
                known = reached != EMPTY
                if known and (reached < 0 or (states >= 0 and reached >= states)):
                    return written, NEXT_RANGE, i, ended
            if goes_on:
                if ended and (has_next or logged.action[i + 1] != EMPTY):
                    return written, AFTER_END, i + 1, ended
                if has_next and not known:
                    return written, NO_NEXT, i, ended
                if stepped and logged.step[i + 1] != logged.step[i] + 1:
                    return written, STEP, i + 1, ended
                if has_next and wide:
                    for k in range(wide):
                        if logged.next_vector[i, k] != logged.vector[i + 1, k]:
                            return written, NEXT, i, ended
                elif has_next and logged.next_state[i] != logged.state[i + 1]:
                    return written, NEXT, i, ended
            elif logged.terminated[i] == 1 or known:
                add_gap = True
            elif not ended:
                return written, NO_END, i, ended
            elif drop:
                is_gap = True
            else:
                return written, NO_LAST, i, ended
        out.action[written] = 0 if is_gap else action
        out.reward[written] = 0.0 if is_gap else logged.reward[i]
        out.discount[written] = 0.0 if is_gap or logged.terminated[i] == 1 else discount
        out.behavior[written] = logged.behavior[i] if chosen and not is_gap else math.nan
        out.target[written] = logged.target[i] if aimed and not is_gap else math.nan
        out.gap[written] = is_gap
        origin[written] = 2 * i
        written += 1
        if add_gap:
            # The last observation of a terminated episode has discount 0 before it, so that any
            # observation may stand for one that was not logged.
            if wide:
                for k in range(wide):
                    vector_out[written, k] = (
                        logged.next_vector[i, k] if known else logged.vector[i, k]
                    )
            else:
                state_out[written] = logged.next_state[i] if known else logged.state[i]
            out.action[written] = 0
            out.reward[written] = 0.0
            out.discount[written] = 0.0
            out.behavior[written] = math.nan
            out.target[written] = math.nan
            out.gap[written] = True
            origin[written] = 2 * i + 1
            written += 1
        if not goes_on:
            ended = False
    return written, FINE, -1, ended
