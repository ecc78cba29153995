"""The sentences for what is wrong with a log: each names the file, the row, the episode and a cure.

Rows are counted from 0 in each file.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from fegsam.data import scan
from fegsam.data.columns import Layout
from fegsam.data.scan import Logged
from fegsam.errors import ProblemError


class Place(NamedTuple):
    """A row of a log."""

    file: Path
    row: int
    episode: Any

    def __str__(self) -> str:
        return f"{self.file}, row {self.row} (episode {self.episode})"


class Row(NamedTuple):
    """One logged row, with its original values."""

    place: Place
    layout: Layout
    values: dict[str, Any]

    def value(self, role: str) -> Any:
        """Its original value in a role; None where the field is empty."""
        names = self.layout.names[role]
        found = [self.values[name] for name in names]
        return found[0] if len(found) == 1 else found

    def empty(self, role: str) -> bool:
        """Whether its field in a role is empty, or has an empty entry."""
        value = self.value(role)
        return value is None or (isinstance(value, list) and None in value)


def damage(
    code: int, row: Row, before: Row | None, logged: Logged, index: int, limits: tuple[int, int]
) -> ProblemError:
    """The error for a row that `scan` found wrong.

    Parameters
    ----------
    row, before : Row
        The row, and the row before it.
    logged, index
        The arrays that were scanned, and the row's index in them.
    limits : (int, int)
        The numbers of states and of actions, or -1.
    """
    return ProblemError(f"{row.place}: {_sentence(code, row, before, logged, index, limits)}")


def _sentence(
    code: int, row: Row, before: Row | None, logged: Logged, index: int, limits: tuple[int, int]
) -> str:
    states, actions = limits
    simple = {
        scan.REWARD: "reward",
        scan.TERMINATED: "terminated",
        scan.TRUNCATED: "truncated",
        scan.NO_ACTION: "action",
        scan.NO_NEXT: "next_observation",
    }
    if code in simple:
        return _value(row, simple[code])
    if code in (scan.OBSERVATION, scan.NEXT_RANGE):
        role = "observation" if code == scan.OBSERVATION else "next_observation"
        return _observation(row, role, logged.vector.shape[1], states)
    if code == scan.ACTION:
        return _action(row, actions)
    if code in (scan.BEHAVIOR, scan.TARGET):
        role = "behavior_probability" if code == scan.BEHAVIOR else "target_probability"
        return _probability(row, role)
    episode = row.place.episode
    if code == scan.STEP:
        return (
            f"step goes from {logged.step[index - 1]} to {logged.step[index]}: sort by episode and "
            "step, or split the episode"
        )
    if code == scan.NEXT:
        reached = row.value("next_observation")
        following = logged.vector[index + 1] if logged.vector.size else logged.state[index + 1]
        following = following.tolist()
        return (
            f"next_observation is {reached}, but the following row begins at {following}: put the "
            "rows in order"
        )
    if code == scan.AFTER_END:
        kind = "terminated" if before and before.value("terminated") else "last"
        return f"episode {episode} has rows behind its {kind} row: start a new episode there"
    if code == scan.NO_END:
        return (
            f"episode {episode} ends without terminated, truncated or a last observation: mark how "
            "it ended"
        )
    if code == scan.NO_LAST:
        return (
            f"episode {episode} is truncated without a last observation, so its last step cannot "
            'be bootstrapped: add the row, or missing_final="drop" (--drop)'
        )
    return (
        "the last observation of an episode has no action, but is marked as an end: mark the row "
        "of the last action"
    )


def _value(row: Row, role: str) -> str:
    if row.empty(role):
        return f"{role!r} is empty before the episode's end: fill it or drop the episode"
    return f"{role} is {row.value(role)}: correct it"


def _observation(row: Row, role: str, width: int, states: int) -> str:
    if row.empty(role):
        return f"{role!r} is empty before the episode's end: fill it or drop the episode"
    value = row.value(role)
    if isinstance(value, list) and len(value) != width:
        return (
            f"{role} has {len(value)} numbers, and the others have {width}: log the same numbers "
            "everywhere"
        )
    if width:
        return f"{role} is {value}: correct it"
    if states < 0:
        return f"{role} is {value}, but states are numbered from 0: number them so"
    return (
        f"{role} is {value}, but there are {states} states (0 to {states - 1}): correct it or "
        "declare more"
    )


def _action(row: Row, actions: int) -> str:
    value = row.value("action")
    if value != math.floor(value) if math.isfinite(value) else True:
        return f"action is {value}, not a whole number: number the actions 0, 1, 2, ..."
    if actions < 0:
        return f"action is {value:.0f}: numbers start at 0"
    return (
        f"action is {value:.0f}, but there are {actions} actions (0 to {actions - 1}): numbers "
        "start at 0"
    )


def _probability(row: Row, role: str) -> str:
    value = row.value(role)
    if value is None or math.isnan(value):
        return _value(row, role)
    if value == 0:
        return f"{role} is 0, but this action was taken: log the chance it had"
    return f"{role} is {value:.8g}, a logarithm or a density: log probabilities"
