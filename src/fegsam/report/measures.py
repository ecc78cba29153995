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
from fegsam.report.figure_data import FigureData, Series

_ERRORS = ("squared_error", "squared_error_2", "value_error")
"""What needs a known fixed point."""
_DEVIATION = "_standard_error"
_NORMAL = 1.96
"""Standard errors on either side of a 95 % interval."""
_CAPTIONS = {
    "sync_error": "How far the agents are from their average. It does not tell how good the "
    "average is.",
    "residual": "The mean update on held-out episodes, squared. It is zero in mean at the fixed "
    "point.",
    "distance_to_estimate": "The squared distance of the average from what held-out episodes give.",
    "greedy_return": "The mean return of the greedy policy.",
}


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
    names: dict[str, str] = {}
    for history in histories.values():
        names |= _measured(history)
    return tuple(
        _figure(place, name, words, histories, label)
        for place, (name, words) in enumerate(names.items(), 1)
    )


def _measured(history: History) -> dict[str, str]:
    """What each quantity is, in words; the agents' distance from their average comes last."""
    found = {
        str(name): str(values.attrs.get("long_name", str(name).replace("_", " ")))
        for name, values in history.data.data_vars.items()
        if values.dims == ("seed", "time")
        and name not in _ERRORS
        and not str(name).endswith(_DEVIATION)
        and np.isfinite(values.values).any()
    }
    return dict(sorted(found.items(), key=lambda each: each[0] == "sync_error"))


def _figure(
    place: int,
    name: str,
    words: str,
    histories: Mapping[Cell, History],
    label: Callable[[Cell], str],
) -> FigureData:
    series = [
        _series(label(cell) or words, history.data, name)
        for cell, history in histories.items()
        if name in history.data
    ]
    lowest = min(float(np.nanmin(np.append(each.y, np.inf))) for each in series)
    caption = _CAPTIONS.get(name, f"{words[:1].upper()}{words[1:]} over time.")
    # A distance that is zero at the start, when the agents are equal, is left out by a log axis.
    scale = "log" if lowest > 0 or name == "sync_error" else "linear"
    return FigureData(
        f"{place}-{name.replace('_', '-')}",
        f"{words[:1].upper()}{words[1:]}",
        caption,
        "steps of each agent",
        words,
        "linear",
        scale,
        tuple(series),
    )


def _series(label: str, data: xr.Dataset, name: str) -> Series:
    """The mean over seeds, with the interval of the seeds or, if wider, of the measurement."""
    value = data[name].mean("seed").values
    low = high = np.full(len(value), np.nan)
    if data.sizes["seed"] > 1:
        found = curve_estimate(data[name])
        low, high = np.asarray(found.low), np.asarray(found.high)
    if name + _DEVIATION in data:
        # The same held-out episodes measure all seeds, so their errors do not average out.
        spread = _NORMAL * data[name + _DEVIATION].mean("seed").values
        low, high = np.fmin(low, value - spread), np.fmax(high, value + spread)
    if np.isnan(low).all():
        return Series(label, data.time.values, value)
    return Series(label, data.time.values, value, low, high)
