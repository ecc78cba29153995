"""The figures that a study asks for, and its page."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

import fegsam as fg
from fegsam.errors import ProblemError
from fegsam.experiments.cells import Cell
from fegsam.experiments.estimates import Estimate, curve_estimate, mean_estimate, plateau, plateau_ratio
from fegsam.experiments.study_tables import FigureSpec
from fegsam.experiments.sweep import Results, load_results
from fegsam.report.figure_data import FigureData, Series
from fegsam.report.figures import save
from fegsam.report.page import write_report
from fegsam.report.verdict import Section

ERROR = "squared error E‖θ − θ*‖²"
_SHORT = {"num_agents": "N", "sync_period": "K", "step_size": "α", "horizon": "n", "num_steps": "T", "heterogeneity": "h"}


def report_study(directory: str | os.PathLike[str]) -> pathlib.Path:
    """Draw the stored results of a study into its directory; the path of the HTML page."""
    results = load_results(directory)
    wanted = results.study.figures or (FigureSpec(kind="error_curves"),)
    truth = _Exact(results)
    figures = tuple(_FIGURES[spec.kind](results, spec, place, truth) for place, spec in enumerate(wanted, 1))
    folder = pathlib.Path(directory)
    for figure in figures:
        save(figure, folder / "figures")
    title = results.study.title or results.study.name
    section = Section("1", title, "The error of the agents' average, over the seeds of the study.", figures=figures)
    settings = {"study": results.study.name, "cells": len(results.cells), "spec": results.study.text}
    return write_report([section], folder, title=title, settings=settings)


def _error_curves(results: Results, spec: FigureSpec, place: int, truth: _Exact) -> FigureData:
    series = []
    for cell in results.cells:
        history, name = results.history(cell), _label(results, cell)
        times = history.data.time.values
        found = curve_estimate(history.data.squared_error_2, positive=True)
        series.append(Series(name, times, found.value, found.low, found.high))
        exact = truth.curve(cell) if spec.exact else None
        if exact is not None:
            series.append(Series(f"{name}, exact", times, exact, style="exact", group=name))
        if spec.bound:
            problem, algorithm = cell.build()
            settings = {"step_size": cell.step_size, "sync_period": cell.sync_period, "num_steps": cell.num_steps}
            total = fg.theory.error_bound(problem, algorithm, **settings).total_2
            series.append(Series(f"{name}, bound", times[[0, -1]], [total, total], style="bound", group=name))
    caption = "The error of the average falls from its start to a floor."
    return _figure(spec, place, "Error over time", caption, "steps of each agent", ERROR, "linear", series)


def _speed_up(results: Results, spec: FigureSpec, place: int, truth: _Exact) -> FigureData:
    series, most = [], [1.0]
    for name, cells in _families(results, "num_agents").items():
        agents, first = [cell.num_agents for cell in cells], results.history(cells[0])
        ratios = [Estimate(1.0, 1.0, 1.0), *(plateau_ratio(first, results.history(cell)) for cell in cells[1:])]
        levels = truth.plateaus(cells) if spec.exact else None
        series += _measured(name, agents, ratios, None if levels is None else levels[0] / levels)
        most = max(most, [agents[0], agents[-1]], key=lambda ends: ends[-1])
    series.append(Series("linear speed-up", most, np.array(most) / most[0], style="reference"))
    caption = "How many times lower the error's floor is with more agents than with the fewest."
    return _figure(spec, place, "Speed-up", caption, "number of agents", "times lower error", "log", series)


def _tradeoff(results: Results, spec: FigureSpec, place: int, truth: _Exact) -> FigureData:
    series = []
    for name, cells in _families(results, "sync_period").items():
        met = [cell.num_steps // cell.sync_period for cell in cells]
        series += _measured(name, met, _plateaus(results, cells), truth.plateaus(cells) if spec.exact else None)
    caption = "The error that is left, against how often the agents meet."
    return _figure(spec, place, "The price of fewer communications", caption, "communications", ERROR, "log", series)


def _floor(results: Results, spec: FigureSpec, place: int, truth: _Exact) -> FigureData:
    axis, series = spec.by or "sync_period", []
    for name, cells in _families(results, axis).items():
        where = [float(cell.axes[axis]) for cell in cells]
        series += _measured(name, where, _plateaus(results, cells), truth.plateaus(cells) if spec.exact else None)
    caption = "The error that is left once the start is forgotten."
    return _figure(spec, place, "The floor of the error", caption, axis.replace("_", " "), ERROR, "log", series)


_FIGURES: dict[str, Callable[[Results, FigureSpec, int, _Exact], FigureData]] = {
    "error_curves": _error_curves,
    "speed_up": _speed_up,
    "tradeoff": _tradeoff,
    "floor": _floor,
}


def _figure(
    spec: FigureSpec, place: int, title: str, caption: str, x_label: str, y_label: str, x_scale: Any, series: list[Series]
) -> FigureData:
    key = f"{place}-{spec.kind.replace('_', '-')}"
    return FigureData(key, spec.title or title, spec.caption or caption, x_label, y_label, x_scale, "log", tuple(series))


def _measured(name: str, x: Any, found: list[Estimate], exact: np.ndarray | None) -> list[Series]:
    name = name or "measured"
    series = [Series(name, x, [e.value for e in found], [e.low for e in found], [e.high for e in found])]
    return series if exact is None else [*series, Series(f"{name}, exact", x, exact, style="exact", group=name)]


def _plateaus(results: Results, cells: list[Cell]) -> list[Estimate]:
    return [mean_estimate(plateau(results.history(cell)), positive=True) for cell in cells]


def _label(results: Results, cell: Cell, without: str | None = None) -> str:
    """The coordinates that tell the cell from others: ``N = 4, K = 10``."""
    told = [axis for axis, values in results.study.axes.items() if len(values) > 1 and axis != without]
    return ", ".join(f"{_SHORT.get(axis, axis)} = {cell.axes[axis]}" for axis in told)


def _families(results: Results, axis: str) -> dict[str, list[Cell]]:
    """The cells that differ in `axis` alone, in its order, by what they share."""
    if axis not in results.study.axes:
        raise ProblemError(f"A figure goes over {axis}, which is no axis of the study; give it values in [grid].")
    families: dict[str, list[Cell]] = {}
    for cell in results.cells:
        families.setdefault(_label(results, cell, without=axis), []).append(cell)
    return {name: sorted(cells, key=lambda cell: float(cell.axes[axis])) for name, cells in families.items()}


class _Exact:
    """E||avg - theta*||^2 of each cell at its recorded times, made once, where it can be had without sampling."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._known: dict[str, np.ndarray | None] = {}

    def curve(self, cell: Cell) -> np.ndarray | None:
        if cell.key not in self._known:
            self._known[cell.key] = _exact_curve(cell, self._results.history(cell).data.time.values)
        return self._known[cell.key]

    def plateaus(self, cells: list[Cell]) -> np.ndarray | None:
        """The mean over the last half of each cell's run."""
        levels = []
        for cell in cells:
            curve = self.curve(cell)
            if curve is None:
                return None
            times = self._results.history(cell).data.time.values
            levels.append(curve[times >= cell.num_steps / 2].mean())
        return np.array(levels)


def _exact_curve(cell: Cell, times: np.ndarray) -> np.ndarray | None:
    problem, algorithm = cell.build()
    start = cell.arguments(algorithm.dimension(problem))["initial_params"]
    settings = {"step_size": cell.step_size, "sync_period": cell.sync_period, "sampling": cell.sampling}
    try:
        return fg.exact.moments(problem, algorithm, times=times, initial_params=start, order=1, **settings).mse
    except ProblemError:
        return None
