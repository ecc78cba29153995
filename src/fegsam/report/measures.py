"""The figures of a study on data, where no fixed point is known and so no error is.

They show what was measured instead, each quantity over time in a figure of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import xarray as xr

from fegsam.data.division import FEWEST_EPISODES
from fegsam.experiments.estimates import curve_estimate
from fegsam.experiments.spec.cells import Cell
from fegsam.experiments.sweep.sweep import Results
from fegsam.history.history import History
from fegsam.history.measures import DEVIATION, DISTANCES, MEASURES, NORMAL
from fegsam.report.figure_data import FigureData, Series
from fegsam.text import short

_ERRORS = ("squared_error", "squared_error_2", "value_error")
"""What needs a known fixed point."""
_CENTRED = ("residual", "distance_to_estimate")
"""Quantities that are 0 in mean at the fixed point, and so may be below 0 by noise."""
_NOT_HELD = (
    f"none are with held_out = 0, and none of a log with fewer than {FEWEST_EPISODES} episodes."
)
"""Why nothing was measured."""
_MOST_NOTES = 8
"""Agents whose logs are described."""
_WORDS = MEASURES | {
    "sync_error": (
        "squared distance of the agents from their average",
        "How far the agents are from their average, which is 0 right after they communicate. It "
        "does not tell how good the average is.",
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
    if not figures:
        return f"{said} No episodes were held out to measure something else: {_NOT_HELD}"
    if [figure.key for figure in figures] == ["1-sync-error"]:
        return (
            f"{said} Only the distance of the agents from their average was measured, since no "
            f"episodes were held out: {_NOT_HELD}"
        )
    return f"{said} The figures show what was measured instead."


def measure_figures(results: Results, label: Callable[[Cell], str]) -> tuple[FigureData, ...]:
    """A figure for each quantity that the histories have over time."""
    histories = {cell: results.history(cell) for cell in results.cells}
    found = dict.fromkeys(name for each in histories.values() for name in _measured(each))
    # The most telling ones come first; the agents' distance from their average says least.
    order = list(_WORDS)
    names = sorted(found, key=lambda name: order.index(name) if name in order else 0)
    return tuple(_figure(place, name, histories, label) for place, name in enumerate(names, 1))


def data_notes(results: Results) -> tuple[str, ...]:
    """A sentence about the log of each agent, of which the cell with most agents is asked."""
    data = results.history(max(results.cells, key=lambda cell: cell.num_agents)).data
    if "data_transitions" not in data:
        return ()
    known = np.flatnonzero(np.isfinite(data.data_transitions.values))
    notes = [_data_note(data, int(agent)) for agent in known[:_MOST_NOTES]]
    more = len(known) - len(notes)
    return (*notes, *([f"There are {more} more agents with logs."] if more else []))


def _data_note(data: xr.Dataset, agent: int) -> str:
    facts = {
        str(name).removeprefix("data_"): float(values[agent])
        for name, values in data.data_vars.items()
        if values.dims == ("agent",) and np.isfinite(values[agent])
    }
    said = (
        f"The log of agent {agent} has {facts['transitions']:.0f} transitions in "
        f"{facts['episodes']:.0f} episodes, of which {facts['terminated']:.0f} terminated"
    )
    if "cells_seen" in facts:
        said += f", and shows {facts['cells_seen']:.0f} pairs of state and action"
    if "ratio_max" in facts:
        said += (
            f". Its importance ratios are {short(facts['ratio_mean'])} on average and at most "
            f"{short(facts['ratio_max'])}, so it is worth {facts['effective_rows']:.0f} transitions"
        )
    if "truncation_eigenvalue" in facts:
        said += f". The truncation eigenvalue is {short(facts['truncation_eigenvalue'])}"
    return f"{said}."


def _measured(history: History) -> list[str]:
    """The names of what was measured over time."""
    return [
        str(name)
        for name, values in history.data.data_vars.items()
        if values.dims == ("seed", "time")
        and name not in _ERRORS
        and not str(name).endswith(DEVIATION)
        and (values.values > 0 if name in DISTANCES else np.isfinite(values.values)).any()
    ]


def _figure(
    place: int, name: str, histories: Mapping[Cell, History], label: Callable[[Cell], str]
) -> FigureData:
    plain = name.replace("_", " ")
    words, caption = _WORDS.get(name, (plain, f"{plain[:1].upper()}{plain[1:]} over time."))
    if any(name + DEVIATION in history.data for history in histories.values()):
        caption += " The band includes the error of this measurement."
        if name in _CENTRED:
            caption += " Where it reaches the axis, what is left is no more than noise."
    if name == "ope_return" and all(
        _stays(each.data[name]) for each in histories.values() if name in each.data
    ):
        caption += " It stays the same while the agents learn."
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


def _stays(values: xr.DataArray) -> bool:
    return bool((values == values[:, :1]).all())


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
