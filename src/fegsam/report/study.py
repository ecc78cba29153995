"""The figures that a study specifies, and its page."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fegsam.errors import ProblemError
from fegsam.experiments.estimates import Estimate, curve_estimate
from fegsam.experiments.spec.cells import Cell
from fegsam.experiments.spec.study_tables import POINT, FigureSpec
from fegsam.experiments.sweep.sweep import Results, load_results
from fegsam.report.figure_data import FigureData, Series
from fegsam.report.figures import save
from fegsam.report.late import Late
from fegsam.report.page import write_report
from fegsam.report.verdict import Section

ERROR = "squared error E‖θ − θ*‖²"
_SHORT = {
    "num_agents": "N",
    "sync_period": "K",
    "step_size": "α",
    "horizon": "n",
    "num_steps": "T",
    "heterogeneity": "h",
}


def report_study(directory: str | os.PathLike[str], *, trust: bool = False) -> pathlib.Path:
    """Draw the stored results of a study into its directory, and return the path of the HTML page.

    Exact curves and bounds are computed again from the problem. If that would run code that the
    study names (its own rule, an environment of Gymnasium), they are left out and the page says so,
    unless `trust` is true.
    """
    results = load_results(directory, trust=trust)
    wanted = results.study.figures or (FigureSpec(kind="error_curves"),)
    late = Late(results, lambda cell: _label(results, cell))
    figures = tuple(
        _FIGURES[spec.kind](results, spec, place, late) for place, spec in enumerate(wanted, 1)
    )
    folder = pathlib.Path(directory)
    for figure in figures:
        save(figure, folder / "figures")
    title = results.study.title or results.study.name
    lead = "The error of the agents' average, over the seeds of the study."
    section = Section("1", title, lead, figures=figures, notes=late.exact.notes(directory))
    settings = {
        "study": results.study.name,
        "cells": len(results.cells),
        "spec": results.study.text,
    }
    return write_report([section], folder, title=title, settings=settings)


def _error_curves(results: Results, spec: FigureSpec, place: int, late: Late) -> FigureData:
    series = []
    for cell in results.cells:
        history, name = results.history(cell), _label(results, cell)
        times = history.data.time.values
        found = curve_estimate(history.data.squared_error_2, positive=True)
        series.append(Series(name, times, found.value, found.low, found.high))
        exact = late.exact.curve(cell) if spec.exact else None
        if exact is not None:
            series.append(Series(f"{name}, exact", times, exact, style="exact", group=name))
        total = late.exact.bound(cell) if spec.bound else None
        if total is not None:
            series.append(
                Series(f"{name}, bound", times[[0, -1]], [total, total], style="bound", group=name)
            )
    notice = late.notice(spec.exact)
    caption = (
        "The error of the average over time."
        if notice
        else "The error of the average falls from its start to a floor."
    )
    return _figure(
        spec,
        place,
        "Error over time",
        (caption, notice),
        "steps of each agent",
        ERROR,
        "linear",
        series,
    )


def _speed_up(results: Results, spec: FigureSpec, place: int, late: Late) -> FigureData:
    series, most = [], [1.0]
    for name, cells in _families(results, "num_agents").items():
        agents, levels = (
            [cell.num_agents for cell in cells],
            late.exact_errors(cells) if spec.exact else None,
        )
        series += _measured(
            name,
            agents,
            late.ratios(cells, spec.exact),
            None if levels is None else levels[0] / levels,
        )
        most = max(most, [agents[0], agents[-1]], key=lambda ends: ends[-1])
    series.append(Series("linear speed-up", most, np.array(most) / most[0], style="reference"))
    what, notice = _what(late, spec, "the error's floor", "the error")
    caption = f"How many times lower {what} is with more agents than with the fewest."
    return _figure(
        spec,
        place,
        "Speed-up",
        (caption, notice),
        "number of agents",
        "times lower error",
        "log",
        series,
    )


def _tradeoff(results: Results, spec: FigureSpec, place: int, late: Late) -> FigureData:
    series = []
    for name, cells in _families(results, "sync_period", _rarely_first).items():
        met = [cell.communications for cell in cells]
        series += _late_errors(name, met, late, cells, spec)
    what, notice = _what(late, spec, "The error that is left", "The error")
    caption = (f"{what}, against how often the agents communicate.", notice)
    return _figure(
        spec,
        place,
        "The price of fewer communications",
        caption,
        "communications",
        ERROR,
        "log",
        series,
    )


def _floor(results: Results, spec: FigureSpec, place: int, late: Late) -> FigureData:
    axis, series = spec.by or "sync_period", []
    for name, cells in _families(results, axis).items():
        series += _late_errors(name, [_number(cell, axis) for cell in cells], late, cells, spec)
    what, notice = _what(late, spec, "floor of the error", "error at the last time")
    caption = (
        "The error that is left once the start is forgotten." if late.settled(spec.exact) else ""
    )
    return _figure(
        spec, place, f"The {what}", (caption, notice), axis.replace("_", " "), ERROR, "log", series
    )


def _what(late: Late, spec: FigureSpec, plateau: str, last: str) -> tuple[str, str]:
    """What a figure shows, in words, and the notice that its caption must have."""
    if late.settled(spec.exact):
        return plateau, late.notice(spec.exact)
    return (
        last,
        f"{late.notice(spec.exact).removesuffix('.')}; the error at the last time is shown.",
    )


_FIGURES: dict[str, Callable[[Results, FigureSpec, int, Late], FigureData]] = {
    "error_curves": _error_curves,
    "speed_up": _speed_up,
    "tradeoff": _tradeoff,
    "floor": _floor,
}


def _figure(
    spec: FigureSpec,
    place: int,
    title: str,
    words: tuple[str, str],
    x_label: str,
    y_label: str,
    x_scale: Any,
    series: list[Series],
) -> FigureData:
    """A figure whose `words` are a caption, which the study may replace, and a fixed notice."""
    caption = " ".join(filter(None, (spec.caption or words[0], words[1])))
    key = f"{place}-{spec.kind.replace('_', '-')}"
    return FigureData(
        key, spec.title or title, caption, x_label, y_label, x_scale, "log", tuple(series)
    )


def _measured(name: str, x: Any, found: list[Estimate], exact: np.ndarray | None) -> list[Series]:
    name = name or "measured"
    series = [
        Series(name, x, [e.value for e in found], [e.low for e in found], [e.high for e in found])
    ]
    return (
        series
        if exact is None
        else [*series, Series(f"{name}, exact", x, exact, style="exact", group=name)]
    )


def _late_errors(
    name: str, x: Any, late: Late, cells: list[Cell], spec: FigureSpec
) -> list[Series]:
    return _measured(
        name, x, late.errors(cells, spec.exact), late.exact_errors(cells) if spec.exact else None
    )


def _label(results: Results, cell: Cell, without: str | None = None) -> str:
    """The coordinates that distinguish the cell from others: ``N = 4, K = 10``."""
    varied = [
        axis for axis, values in results.study.axes.items() if len(values) > 1 and axis != without
    ]
    return ", ".join(f"{_SHORT.get(axis, axis)} = {cell.axes[axis]}" for axis in varied)


def _rarely_first(cell: Cell, axis: str) -> float:
    return -cell.communications


def _number(cell: Cell, axis: str) -> float:
    """A coordinate of a cell, for a figure that runs over it."""
    value = getattr(cell, axis) if axis in POINT else cell.axes[axis]
    if not isinstance(value, int | float):
        raise ProblemError(
            f"A figure runs over {axis}, which has the value {value}; choose an axis of numbers."
        )
    return float(value)


def _families(
    results: Results, axis: str, order: Callable[[Cell, str], float] = _number
) -> dict[str, list[Cell]]:
    """Groups of cells that differ only in `axis`, in its order; the keys say what they share."""
    if axis not in results.study.axes:
        raise ProblemError(
            f"A figure runs over {axis}, which is not an axis of the study; give it values in "
            "[grid]."
        )
    families: dict[str, list[Cell]] = {}
    for cell in results.cells:
        families.setdefault(_label(results, cell, without=axis), []).append(cell)
    return {
        name: sorted(cells, key=lambda cell: order(cell, axis)) for name, cells in families.items()
    }
