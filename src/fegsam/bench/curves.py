"""Scaling curves: throughput along an axis with its limit, and speed-up against threads."""

from __future__ import annotations

import os
import pathlib

from fegsam.bench.results import BenchResults, TimedCell
from fegsam.report.figure_data import FigureData, Series, Style
from fegsam.report.figures import save

_X_LABELS = {
    "agents": "agents N",
    "period": "sync period K",
    "scale": "sync period K",
    "table": "parameters d",
}


def save_curves(results: BenchResults, directory: str | os.PathLike[str]) -> list[pathlib.Path]:
    return [path for figure in figures(results) for path in save(figure, directory)]


def figures(results: BenchResults) -> list[FigureData]:
    """One figure per numeric axis with two or more cells, and one per cell of the threads axis."""
    found = []
    for axis, x_label in _X_LABELS.items():
        cells = [cell for cell in results.cells if cell.axis == axis]
        if len(cells) > 1:
            found.append(_throughput(axis, x_label, cells))
    return found + [
        _speed_up(cell) for cell in results.cells if cell.axis == "threads" and cell.timed
    ]


def _throughput(axis: str, x_label: str, cells: list[TimedCell]) -> FigureData:
    curves: dict[str, list[tuple[float, float]]] = {}
    bounds: dict[str, list[tuple[float, float]]] = {}
    for cell in cells:
        for entry in cell.timed:
            curves.setdefault(entry.name, []).append((cell.place, 1 / entry.best))
        for limit in cell.limits:
            name = "limit of the GPU" if "GPU" in limit.name else "limit of one core"
            bounds.setdefault(name, []).append((cell.place, 1 / limit.seconds_per_step))
    series = [_series(name, points, "sampled") for name, points in curves.items()]
    series += [_series(name, points, "reference") for name, points in bounds.items()]
    caption = "Agent-steps per second of each contestant; the grey line is the limit of the memory."
    return FigureData(
        f"bench-{axis}", x_label, caption, x_label, "agent-steps per second", series=tuple(series)
    )


def _series(name: str, points: list[tuple[float, float]], style: Style) -> Series:
    x, y = zip(*points, strict=True)
    return Series(name, x, y, style=style)


def _speed_up(cell: TimedCell) -> FigureData:
    families: dict[str, list[tuple[int, float]]] = {}
    for entry in cell.timed:
        families.setdefault(entry.family, []).append((entry.threads, entry.best))
    series = []
    for family, points in families.items():
        threads, times = zip(*sorted(points), strict=True)
        series.append(Series(family, threads, [times[0] / taken for taken in times]))
    most = max(entry.threads for entry in cell.timed)
    series.append(Series("ideal", [1, most], [1, most], style="reference"))
    key = f"bench-threads-{cell.label.replace(' ', '-')}"
    caption = "Speed-up over one thread; the dashed line is the ideal speed-up."
    return FigureData(
        key, f"Threads, {cell.label}", caption, "threads", "speed-up", series=tuple(series)
    )
