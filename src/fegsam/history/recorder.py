"""From averages to a history.

Engines hand their averages to a `Recorder`, so that errors are measured in one place.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from fegsam.compilation import compiled
from fegsam.errors import DivergenceWarning
from fegsam.history.history import Checkpoint, History
from fegsam.history.measures import MEASURES, leading
from fegsam.history.settings import Settings
from fegsam.text import short

_LABELS = {
    "seed": "seed",
    "time": "steps of each agent",
    "squared_error": "squared error of the average, {norm}",
    "squared_error_2": "squared error of the average, 2-norm",
    "sync_error": "mean squared distance of the agents from their average",
    "value_error": "weighted squared error of the values",
    "average_params": "average of the agents' parameters",
    "final_params": "average at the end",
    "output_params": "average at the output time",
    "output_time": "output time, steps",
    "output_squared_error": "squared error at the output time, {norm}",
    "tail_params": "mean of the averages over the last part of the run",
    "tail_squared_error": "squared error of the tail average, {norm}",
    "diverged_at": "first time at which a parameter or an error was not finite, or -1",
    **{name: words for name, (words, _) in MEASURES.items()},
}
"""The label of each variable, which xarray writes beside an axis and a stored history holds."""
SERVER_KIND = -2
"""Stands for the server where a kind of agents is named."""
_ERRORS_KIND = -1


Measure = Callable[[np.ndarray], dict[str, np.ndarray]]
"""From averages (rows, d) to what is measured of them, by name, each (rows)."""


@dataclass(frozen=True)
class Truth:
    """What the averages are measured against."""

    fixed_point: np.ndarray
    """(d)"""
    norm: str
    """the norm of the algorithm's theorem, "2" or "sup\""""
    value: ValueForm | None = None
    """the error of a value function, for the algorithms that evaluate a policy"""


@dataclass(frozen=True)
class ValueForm:
    """The weighted error ||Phi v - V^pi||^2 as a quadratic x' G x + 2 g' x + c in x = v - theta*.

    It is centred at the fixed point, so that no digits cancel near it.
    """

    gram: np.ndarray
    """G (d, d), or its diagonal (1, d)"""
    slope: np.ndarray
    """g (d)"""
    floor: float
    """c, the error of the fixed point itself"""


# Each row is summed by itself, so that an error does not depend on which other times are measured
# in the same call.
@compiled
def _norms(averages, fixed_point, square, largest):
    """Squared 2-norm and squared sup norm of each row's deviation."""
    for r in range(averages.shape[0]):
        total, top = 0.0, 0.0
        for c in range(averages.shape[1]):
            off = averages[r, c] - fixed_point[c]
            total += off * off
            top = max(top, abs(off))
        square[r] = total
        largest[r] = top * top


@compiled(_nrt=True)
def _value_errors(averages, fixed_point, gram, slope, floor, errors):
    off = np.empty(averages.shape[1])
    for r in range(averages.shape[0]):
        total = floor
        for c in range(averages.shape[1]):
            off[c] = averages[r, c] - fixed_point[c]
        for i in range(averages.shape[1]):
            inner = 2.0 * slope[i]
            if gram.shape[0] == 1:
                inner += gram[0, i] * off[i]
            else:
                for j in range(averages.shape[1]):
                    inner += gram[i, j] * off[j]
            total += inner * off[i]
        errors[r] = max(total, 0.0)


class Recorder:
    """Collects the averages of one run. Different threads may add those of different seeds."""

    def __init__(
        self,
        truth: Truth,
        settings: Settings,
        measure: Measure | None = None,
        facts: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self._truth, self._facts = truth, facts or {}
        self._settings = settings
        self._measure, self._measures = measure, dict[str, np.ndarray]()
        seeds, times, dim = len(settings.seeds), len(settings.record), len(truth.fixed_point)
        self._by_time = {
            name: np.full((seeds, times), np.nan)
            for name in ("squared_error", "squared_error_2", "sync_error")
        }
        if truth.value is not None:
            self._by_time["value_error"] = np.full((seeds, times), np.nan)
        self._averages = np.full((seeds, times, dim), np.nan) if settings.record_params else None
        self._final = np.full((seeds, dim), np.nan)
        self._output = np.full((seeds, dim), np.nan)
        self._tail = np.full((seeds, dim), np.nan) if settings.tail else None
        self._diverged_at = np.full(seeds, -1, np.int64)
        self._diverged_kind = np.full(seeds, -1, np.int64)
        self._overflowed_at = np.full(seeds, -1, np.int64)

    def add(
        self, seed: int, times: np.ndarray, averages: np.ndarray, sync_errors: np.ndarray
    ) -> None:
        """Add the averages (rows, d) of the `seed`-th seed at `times`; skip unrecorded times."""
        index = np.searchsorted(self._settings.record, times)
        wanted = self._settings.record[np.minimum(index, len(self._settings.record) - 1)] == times
        if not wanted.any():
            return
        index = index[wanted]
        averages = np.ascontiguousarray(averages[wanted])
        square, largest = np.full((2, len(averages)), np.nan)
        if self._measured:
            _norms(averages, self._truth.fixed_point, square, largest)
        self._by_time["squared_error_2"][seed, index] = square
        self._by_time["squared_error"][seed, index] = square if self._truth.norm == "2" else largest
        self._by_time["sync_error"][seed, index] = sync_errors[wanted]
        if self._truth.value is not None:
            value = self._truth.value
            _value_errors(
                averages, self._truth.fixed_point, value.gram, value.slope, value.floor, square
            )
            self._by_time["value_error"][seed, index] = square
        if self._averages is not None:
            self._averages[seed, index] = averages
        if self._measure is not None and len(averages):
            for name, values in self._measure(averages).items():
                if name not in self._measures:
                    shape = len(self._settings.seeds), len(self._settings.record)
                    self._measures[name] = np.full(shape, np.nan)
                self._measures[name][seed, index] = values
        finite = np.all(
            [np.isfinite(values[seed, index]) for values in self._by_time.values()], axis=0
        )
        if not finite.all() and self._measured:
            self._overflow(seed, int(self._settings.record[index[~finite]][0]))

    @property
    def _measured(self) -> bool:
        """Whether there is a fixed point to measure against; it is NaN where none was computed."""
        return bool(np.isfinite(self._truth.fixed_point).all())

    def _overflow(self, seed: int, time: int) -> None:
        """Note that an error was not finite at `time` although the parameters were."""
        before = self._overflowed_at[seed]
        self._overflowed_at[seed] = time if before < 0 else min(before, time)

    def add_final(self, seed: int, params: np.ndarray) -> None:
        self._final[seed] = params

    def add_output(self, seed: int, params: np.ndarray) -> None:
        """Add the average at the output time."""
        self._output[seed] = params

    def add_tail(self, seed: int, params: np.ndarray) -> None:
        """Add the tail average, where the settings ask for one."""
        if self._tail is not None:
            self._tail[seed] = params

    def add_divergence(self, seed: int, time: int, kind: int) -> None:
        """Note that a parameter of an agent of `kind` (or `SERVER_KIND`) was not finite at `time`.

        Nothing is added for this seed afterwards.
        """
        self._diverged_at[seed] = time
        self._diverged_kind[seed] = kind

    def latest(self, seed: int) -> str:
        """What was measured of a seed last, in a few words for a progress bar."""
        known = {name: found[np.isfinite(found)] for name, found in self._of(seed)}
        name = leading(name for name, values in known.items() if len(values))
        return "" if name is None else f"{MEASURES[name][0]} {short(known[name][-1])}"

    def _of(self, seed: int) -> Iterator[tuple[str, np.ndarray]]:
        """What was measured of a seed, but standard errors."""
        return ((name, self._measures[name][seed]) for name in MEASURES if name in self._measures)

    def history(self, output_times: np.ndarray, checkpoint: Checkpoint | None) -> History:
        settings = self._settings
        self._break_off_overflows(output_times, checkpoint)
        self._warn_of_divergence()
        data: dict[str, Any] = {
            name: (("seed", "time"), values)
            for name, values in (self._by_time | self._measures).items()
        }
        if self._averages is not None:
            data["average_params"] = (("seed", "time", "param"), self._averages)
        data["final_params"] = (("seed", "param"), self._final)
        data["output_params"] = (("seed", "param"), self._output)
        data["output_time"] = (("seed",), np.asarray(output_times, np.int64))
        data["output_squared_error"] = (("seed",), output_error(self._output, self._truth))
        if self._tail is not None:
            data["tail_params"] = (("seed", "param"), self._tail)
            data["tail_squared_error"] = (("seed",), output_error(self._tail, self._truth))
        data["diverged_at"] = (("seed",), self._diverged_at)
        data |= {name: (("agent",), values) for name, values in self._facts.items()}
        coords = {"seed": np.array(settings.seeds, np.uint64), "time": settings.record}
        dataset = xr.Dataset(data, coords)
        for name, label in _LABELS.items():
            if name in dataset.variables:
                dataset[name].attrs["long_name"] = label.format(
                    norm={"2": "2-norm", "sup": "sup norm"}[self._truth.norm]
                )
        return History(dataset, settings, checkpoint)

    def _break_off_overflows(self, output_times: np.ndarray, checkpoint: Checkpoint | None) -> None:
        """Make a seed NaN from the time on at which an error overflows before a parameter does."""
        outputs = np.isfinite(self._output).all(axis=1) & ~np.isfinite(
            output_error(self._output, self._truth)
        )
        if self._measured:
            for seed in np.flatnonzero(outputs):
                self._overflow(int(seed), int(output_times[seed]))
        for seed in np.flatnonzero(self._overflowed_at >= 0):
            time, gone = self._overflowed_at[seed], self._diverged_at[seed]
            if 0 <= gone <= time:
                continue
            self._diverged_at[seed], self._diverged_kind[seed] = time, _ERRORS_KIND
            late = self._settings.record >= time
            for values in (self._by_time | self._measures).values():
                values[seed, late] = np.nan
            if self._averages is not None:
                self._averages[seed, late] = np.nan
            self._final[seed] = np.nan
            if self._tail is not None:
                self._tail[seed] = np.nan
            if output_times[seed] >= time:
                self._output[seed] = np.nan
            if checkpoint is not None:
                checkpoint.params[seed] = np.nan
                if checkpoint.states is not None:
                    checkpoint.states[seed] = 0
                for values in checkpoint.memory.values():
                    values[seed] = 0

    def _warn_of_divergence(self) -> None:
        diverged = np.flatnonzero(self._diverged_at >= 0)
        if len(diverged) == 0:
            return
        first = diverged[self._diverged_at[diverged].argmin()]
        kind = self._diverged_kind[first]
        where = {
            SERVER_KIND: "at the server",
            _ERRORS_KIND: "in its errors, though not yet in its parameters",
        }.get(int(kind), f"at an agent of kind {kind}")
        others = (
            f" ({len(diverged)} of {len(self._diverged_at)} seeds diverged)"
            if len(self._diverged_at) > 1
            else ""
        )
        warnings.warn(
            f"Seed {self._settings.seeds[first]} diverged at time {self._diverged_at[first]}, "
            f"{where}{others}; its history is NaN from there on: "
            f"use a step_size below {self._settings.step_size:g}.",
            DivergenceWarning,
            stacklevel=6,
        )


def output_error(output: np.ndarray, truth: Truth) -> np.ndarray:
    """(seeds,): the squared error of the output in the theorem's norm."""
    deviations = output - truth.fixed_point
    with np.errstate(over="ignore", invalid="ignore"):
        return np.square(
            np.linalg.norm(deviations, ord=np.inf if truth.norm == "sup" else 2, axis=1)
        )
