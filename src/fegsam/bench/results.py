"""The results of a benchmark run, stored as JSON so that two runs can be compared."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from fegsam.bench.problems import BenchSetting
from fegsam.bench.timing import Effort, Entry
from fegsam.errors import ProblemError
from fegsam.safe_files import whole

_FORMAT = 1
_LEAST_CHANGE = 0.05
"""A smaller change counts as noise, however well the timings of one run agree."""


@dataclass(frozen=True)
class Limit:
    """The highest speed that the hardware allows."""

    name: str
    seconds_per_step: float


@dataclass(frozen=True)
class TimedCell:
    """One setting on one axis, and how fast each contestant was."""

    axis: str
    label: str
    """what differs from the other cells of the axis"""
    place: float
    """its coordinate on a numeric axis, else its rank"""
    setting: BenchSetting
    entries: tuple[Entry, ...]
    limits: tuple[Limit, ...] = ()

    @property
    def timed(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.seconds)


@dataclass(frozen=True)
class BenchResults:
    """The results of one benchmark run."""

    machine: dict[str, str]
    effort: Effort
    cells: tuple[TimedCell, ...]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file completely or not at all."""
        content = json.dumps({"format": _FORMAT, **asdict(self)}, indent=1) + "\n"
        with whole(pathlib.Path(path)) as temporary:
            temporary.write_text(content, encoding="utf-8")


def load_results(path: str | os.PathLike[str]) -> BenchResults:
    try:
        stored = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        if stored["format"] != _FORMAT:
            raise ProblemError(
                f"{path} has format {stored['format']}, but this version reads format {_FORMAT}; "
                "run fegsam bench again."
            )
        return BenchResults(
            stored["machine"],
            Effort(**stored["effort"]),
            tuple(_cell(cell) for cell in stored["cells"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ProblemError(
            f"{path} was not written by fegsam bench --output ({error!r}); give a file that was."
        ) from error


def _cell(stored: dict[str, Any]) -> TimedCell:
    entries = tuple(
        Entry(**{**entry, "seconds": tuple(entry["seconds"])}) for entry in stored["entries"]
    )
    limits = tuple(Limit(**limit) for limit in stored["limits"])
    return TimedCell(
        **{
            **stored,
            "setting": BenchSetting(**stored["setting"]),
            "entries": entries,
            "limits": limits,
        }
    )


class Change(NamedTuple):
    """The timings of one contestant in one cell in two runs."""

    cell: TimedCell
    name: str
    old: float
    """best seconds per agent-step"""
    new: float
    noise: float
    """relative excess of the median over the best, summed over both runs"""

    @property
    def ratio(self) -> float:
        """Above 1, the new run is slower."""
        return self.new / self.old

    @property
    def verdict(self) -> str:
        """ "slower" or "faster" if the ratio exceeds the noise, else empty."""
        beyond = 1 + max(self.noise, _LEAST_CHANGE)
        if self.ratio > beyond:
            return "slower"
        return "faster" if self.ratio < 1 / beyond else ""


def compare(old: BenchResults, new: BenchResults) -> Iterator[Change]:
    """The contestants and cells that both runs timed, in the order of the new run."""
    before = {
        (cell.axis, cell.setting, entry.name): entry for cell in old.cells for entry in cell.timed
    }
    for cell in new.cells:
        for entry in cell.timed:
            other = before.get((cell.axis, cell.setting, entry.name))
            if other is not None:
                noise = sum(one.median / one.best - 1 for one in (other, entry))
                yield Change(cell, entry.name, other.best, entry.best, noise)
