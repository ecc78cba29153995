"""The figures that a study specifies, and its page."""

from __future__ import annotations

import math
import os
import pathlib
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fegsam.errors import ProblemError
from fegsam.experiments.estimates import Estimate, curve_estimate, speed_up
from fegsam.experiments.spec.cells import Cell
from fegsam.experiments.spec.study_tables import POINT, FigureTable
from fegsam.experiments.sweep.sweep import Results, load_results
from fegsam.report.drawing import save_figures
from fegsam.report.figure_data import FigureData, Series
from fegsam.report.late import Late
from fegsam.report.measures import data_notes, error_is_unknown, lead, measure_figures
from fegsam.report.page import write_report
from fegsam.report.verdict import Section
from fegsam.report.words import axis_words, coordinate_words

ERROR = "squared error E‖θ − θ*‖₂²"


def report_study(directory: str | os.PathLike[str], *, trust: bool = False) -> pathlib.Path:
    """Draw the stored results of a study into its directory, and return the path of the HTML page.

    Exact curves and bounds are computed again from the problem. If that would run code that the
    study names (its own rule, an environment of Gymnasium), they are left out and the page says so,
    unless `trust` is true.
    """
    every = load_results(directory, trust=trust)
    results = every.finished()
    folder, title = pathlib.Path(directory), results.study.title or results.study.name
    of_page = _measures if error_is_unknown(results) else _errors
    # Squares of the errors of runs that diverge may exceed all numbers.
    with np.errstate(over="ignore", invalid="ignore"):
        section = of_page(results, title, directory)
    section = replace(section, notes=(*_remarks(every, results), *section.notes))
    save_figures(section.figures, folder / "figures")
    settings = {
        "study": results.study.name,
        "command": f"fegsam report {shlex.quote(os.fspath(directory))}",
        "cells": len(results.cells),
        "seeds": _seeds_text(results),
        "spec": results.study.text,
    }
    return write_report([section], folder, title=title, settings=settings)


def _remarks(every: Results, shown: Results) -> tuple[str, ...]:
    """Notes on cells that are not finished or never synchronise, and on policies without agents."""
    notes = []
    if len(shown.cells) < len(every.cells):
        notes.append(
            f"{len(shown.cells)} of {len(every.cells)} cells are finished, and the figures show "
            "these. Run the study again to go on."
        )
    apart = [cell for cell in shown.cells if cell.never_synchronises]
    if apart:
        names = [name for name in (_label(shown, cell) for cell in apart) if name]
        where = f" with {_listed(names)}" if names and len(apart) < len(shown.cells) else ""
        notes.append(
            f"The agents never synchronise{where}, since a round is longer than the run. The error "
            "shown is that of an average that no agent holds."
        )
    notes += _idle_policies(shown)
    return tuple(notes)


def _idle_policies(shown: Results) -> list[str]:
    """A note where the numbers of agents that are compared follow different policies."""
    counts = {getattr(cell.problem.behavior, "count", None) for cell in shown.cells}
    agents = sorted({cell.num_agents for cell in shown.cells})
    most = max((count for count in counts if isinstance(count, int)), default=1)
    few = [f"N = {number}" for number in agents if number < most]
    if not few or len(agents) == 1:
        return []
    return [
        f"There are {most} policies, of which only the first have an agent with {_listed(few)}. So "
        "the numbers of agents differ in their data, too."
    ]


def _errors(results: Results, title: str, directory: str | os.PathLike[str]) -> Section:
    """The figures that the study asks for, by default its error over time."""
    wanted = results.study.figures or (FigureTable(kind="error_curves"),)
    late = Late(results, lambda cell: _label(results, cell))
    figures = tuple(
        figure
        for place, spec in enumerate(wanted, 1)
        for figure in _FIGURES[spec.kind](results, spec, place, late)
    )
    said = "The error of the agents' average, over the seeds of the study."
    return Section("1", title, said, figures=figures, notes=late.exact.notes(directory))


def _measures(results: Results, title: str, directory: str | os.PathLike[str]) -> Section:
    """What was measured of agents that learn from data."""
    figures = measure_figures(results, lambda cell: _label(results, cell))
    left_out = dict.fromkeys(spec.kind for spec in results.study.figures)
    left_out.pop("error_curves", None)
    notes = data_notes(results)
    if left_out:
        said = f"Figures of an error are left out, since none is known: {', '.join(left_out)}."
        notes = (*notes, said)
    return Section("1", title, lead(figures), figures=figures, notes=notes)


def _seeds_text(results: Results) -> str:
    seeds = sorted({seed for cell in results.cells for seed in cell.seeds})
    if len(seeds) == 1:
        return f"1, which is {seeds[0]}"
    return f"{len(seeds)}, from {seeds[0]} to {seeds[-1]}"


def _error_curves(
    results: Results, spec: FigureTable, place: int, late: Late
) -> tuple[FigureData, ...]:
    """The error over time: one panel for each value of the axes other than `by`."""
    notice = late.notice(spec.exact)
    caption = (
        "The error of the average over time."
        if notice
        else "The error of the average falls from its start to a floor."
    )
    if spec.by is None:
        panels = {"": results.cells}
    else:
        panels = _families(results, spec.by, lambda cell, axis: 0.0)
    figures = []
    for number, (panel, cells) in enumerate(panels.items()):
        series, vacuous = [], []
        for cell in cells:
            name = _label(results, cell, only=spec.by)
            series += _curves(results, spec, late, cell, name)
            vacuous += _vacuous(results, spec, late, cell, name)
        words = (caption, " ".join(filter(None, (notice, _vacuous_text(vacuous)))))
        figure = _figure(
            spec,
            place,
            "Error over time",
            words,
            "steps of each agent",
            ERROR,
            "linear",
            series,
        )
        if len(panels) > 1:
            figure = replace(figure, key=f"{figure.key}-{number + 1}", panel=panel)
        figures.append(figure)
    return tuple(figures)


def _curves(results: Results, spec: FigureTable, late: Late, cell: Cell, name: str) -> list[Series]:
    """The sampled error of a cell, the exact one, and the theorem's bound unless it is vacuous."""
    history, name = results.history(cell), name or "error"
    times = history.data.time.values
    found = curve_estimate(history.data.squared_error_2, positive=True)
    series = [Series(name, times, found.value, found.low, found.high)]
    exact = late.exact.curve(cell) if spec.exact else None
    if exact is not None:
        series.append(Series(f"{name}, exact", times, exact, style="exact", group=name))
    total = late.exact.bound(cell) if spec.bound else None
    if total is not None and total <= found.value[0]:
        ends = times[[0, -1]]
        series.append(Series(f"{name}, bound", ends, [total, total], style="bound", group=name))
    return series


def _vacuous(
    results: Results, spec: FigureTable, late: Late, cell: Cell, name: str
) -> list[tuple[str, float]]:
    """The bound of a cell if it exceeds the error of the start, which needs no theorem."""
    total = late.exact.bound(cell) if spec.bound else None
    if total is None:
        return []
    start = float(results.history(cell).data.squared_error_2.isel(time=0).mean())
    return [(name, total)] if total > start else []


def _listed(names: list[str]) -> str:
    """Names in a sentence, which may have commas of their own.

    >>> _listed(["N = 1"]), _listed(["N = 1", "N = 4"]), _listed(["N = 1", "N = 4", "N = 9"])
    ('N = 1', 'N = 1 and N = 4', 'N = 1; N = 4; N = 9')
    """
    return (" and " if len(names) == 2 else "; ").join(names)


def _vacuous_text(found: list[tuple[str, float]]) -> str:
    if not found:
        return ""
    least, most = min(total for _, total in found), max(total for _, total in found)
    size = " to ".join(dict.fromkeys((f"{least:.2g}", f"{most:.2g}")))
    names = _listed([name for name, _ in found if name])
    return (
        f"The theorem's bound is vacuous{f' with {names}' if names else ''}: it is {size}, above "
        "the error at the start, and is not drawn."
    )


def _speed_up(
    results: Results, spec: FigureTable, place: int, late: Late
) -> tuple[FigureData, ...]:
    if spec.accuracy is not None:
        return _time_gain(results, spec, place, spec.accuracy)
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
    figure = _figure(
        spec,
        place,
        "Speed-up",
        (caption, notice),
        "number of agents",
        "times lower error",
        "log",
        series,
    )
    return (figure,)


def _time_gain(
    results: Results, spec: FigureTable, place: int, accuracy: float
) -> tuple[FigureData, ...]:
    """How many times sooner more agents reach an accuracy than the fewest."""
    series, missed = [], []
    for name, cells in _families(results, "num_agents").items():
        histories = [results.history(cell) for cell in cells]
        gains = [speed_up(histories[0], history, accuracy) for history in histories]
        missed += [
            _label(results, cell)
            for cell, gain in zip(cells, gains, strict=True)
            if not math.isfinite(gain.value)
        ]
        series += _measured(name, [cell.num_agents for cell in cells], gains, None)
    where = "; ".join(missed)
    notice = (
        f"Unknown with {where}: the error starts below it or never reaches it." if missed else ""
    )
    words = (f"How many times sooner the error falls to {accuracy:g} than with the fewest.", notice)
    figure = _figure(
        spec, place, "Speed-up", words, "number of agents", "times sooner", "log", series
    )
    return (figure,)


def _tradeoff(
    results: Results, spec: FigureTable, place: int, late: Late
) -> tuple[FigureData, ...]:
    series = []
    for name, cells in _families(results, "sync_period", _rarely_first).items():
        met = [cell.communications for cell in cells]
        series += _late_errors(name, met, late, cells, spec)
    what, notice = _what(late, spec, "The error that is left", "The error")
    caption = (f"{what}, against how often the agents communicate.", notice)
    figure = _figure(
        spec,
        place,
        "The price of fewer communications",
        caption,
        "communications",
        ERROR,
        "log",
        series,
    )
    return (figure,)


def _floor(results: Results, spec: FigureTable, place: int, late: Late) -> tuple[FigureData, ...]:
    axis, series = spec.by or "sync_period", []
    for name, cells in _families(results, axis).items():
        series += _late_errors(name, [_number(cell, axis) for cell in cells], late, cells, spec)
    what, notice = _what(late, spec, "floor of the error", "error at the last time")
    caption = (
        "The error that is left once the start is forgotten." if late.settled(spec.exact) else ""
    )
    figure = _figure(
        spec, place, f"The {what}", (caption, notice), axis_words(axis), ERROR, "log", series
    )
    return (figure,)


def _what(late: Late, spec: FigureTable, plateau: str, last: str) -> tuple[str, str]:
    """What a figure shows, in words, and the notice that its caption must have."""
    if late.settled(spec.exact):
        return plateau, late.notice(spec.exact)
    return (
        last,
        f"{late.notice(spec.exact).removesuffix('.')}; the error at the last time is shown.",
    )


_FIGURES: dict[str, Callable[[Results, FigureTable, int, Late], tuple[FigureData, ...]]] = {
    "error_curves": _error_curves,
    "speed_up": _speed_up,
    "tradeoff": _tradeoff,
    "floor": _floor,
}


def _figure(
    spec: FigureTable,
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
    name: str, x: Any, late: Late, cells: list[Cell], spec: FigureTable
) -> list[Series]:
    return _measured(
        name, x, late.errors(cells, spec.exact), late.exact_errors(cells) if spec.exact else None
    )


def _label(
    results: Results, cell: Cell, without: str | None = None, only: str | None = None
) -> str:
    """The coordinates that distinguish the cell from others, in words: ``N = 4, Q-learning``."""
    varied = [
        axis
        for axis, values in results.study.axes.items()
        if len(values) > 1 and axis != without and only in (None, axis)
    ]
    return ", ".join(coordinate_words(axis, cell.axes[axis]) for axis in varied)


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
