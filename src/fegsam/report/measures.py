"""The figures of a study on data, where no fixed point is known and so no error is.

They show what was measured instead, each quantity over time in a figure of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import xarray as xr

from fegsam.experiments.estimates import curve_estimate
from fegsam.experiments.spec.cells import Cell
from fegsam.experiments.sweep.sweep import Results
from fegsam.history.history import History
from fegsam.history.measures import DEVIATION, DISTANCES, MEASURES, NORMAL
from fegsam.report.figure_data import FigureData, Series

_ERRORS = ("squared_error", "squared_error_2", "value_error")
"""What needs a known fixed point."""
_WORDS = MEASURES | {
    "sync_error": (
        "squared distance of the agents from their average",
        "How far the agents are from their average. It does not tell how good the average is.",
    ),
}
"""What each quantity is, and the caption of its figure."""


def error_is_unknown(results: Results) -> bool:
    """Whether no cell has an error: its agents learn from data, and nobody gave a fixed point."""
    return all(cell.on_data and cell.fixed_point is None for cell in results.cells)


def lead(figures: tuple[FigureData, ...]) -> str:
    """What the page says first."""
    said = (
        "The agents learn from data, whose fixed point is not known, so there is no error to show."
    )
    if len(figures) > 1:
        return f"{said} The figures show what was measured instead."
    return f"{said} Only the distance of the agents from their average was measured."


def measure_figures(results: Results, label: Callable[[Cell], str]) -> tuple[FigureData, ...]:
    """A figure for each quantity that the histories have over time."""
    histories = {cell: results.history(cell) for cell in results.cells}
    found = dict.fromkeys(name for each in histories.values() for name in _measured(each))
    # The agents' distance from their average says least, so it comes last.
    names = sorted(found, key="sync_error".__eq__)
    return tuple(_figure(place, name, histories, label) for place, name in enumerate(names, 1))


def _measured(history: History) -> list[str]:
    """The names of what was measured over time."""
    return [
        str(name)
        for name, values in history.data.data_vars.items()
        if values.dims == ("seed", "time")
        and name not in _ERRORS
        and not str(name).endswith(DEVIATION)
        and np.isfinite(values.values).any()
    ]


def _figure(
    place: int, name: str, histories: Mapping[Cell, History], label: Callable[[Cell], str]
) -> FigureData:
    plain = name.replace("_", " ")
    words, caption = _WORDS.get(name, (plain, f"{plain[:1].upper()}{plain[1:]} over time."))
    series = tuple(
        _series(label(cell) or words, history.data, name)
        for cell, history in histories.items()
        if name in history.data
    )
    return FigureData(
        f"{place}-{name.replace('_', '-')}",
        f"{words[:1].upper()}{words[1:]}",
        caption,
        "steps of each agent",
        words,
        "linear",
        # A log axis leaves out what is not above zero.
        "log" if name in DISTANCES else "linear",
        series,
    )


def _series(label: str, data: xr.Dataset, name: str) -> Series:
    """The mean over seeds, with the interval of the seeds or, if wider, of the measurement."""
    value = data[name].mean("seed").values
    low = high = np.full(len(value), np.nan)
    if data.sizes["seed"] > 1:
        found = curve_estimate(data[name])
        low, high = np.asarray(found.low), np.asarray(found.high)
    if name + DEVIATION in data:
        # The same held-out episodes measure all seeds, so their errors do not average out.
        spread = NORMAL * data[name + DEVIATION].mean("seed").values
        low, high = np.fmin(low, value - spread), np.fmax(high, value + spread)
    if np.isnan(low).all():
        return Series(label, data.time.values, value)
    return Series(label, data.time.values, value, low, high)
