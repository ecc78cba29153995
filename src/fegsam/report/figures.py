"""Figures for print: one journal column wide, 8-point type, as readable in grey as in colour."""

from __future__ import annotations

import os
import pathlib
import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fegsam.print_style import COLUMN, GREY, PRINT, require_matplotlib
from fegsam.report.figure_data import FigureData, Series, drawable, few_places, shown_range
from fegsam.report.looks import Look, looks, reference_dashes, reference_name
from fegsam.safe_files import whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_HEIGHT, _ROW = 2.3, 0.155
"""Inches: without a legend, and additionally for each row of the legend."""
_TALL, _WIDE = 28, 48
"""The letters after which the y label and a legend entry are wrapped."""
POINTS_WITH_BARS = 12
"""With more points than this, a band replaces the bars."""


def save(
    figure: FigureData,
    directory: str | os.PathLike[str],
    formats: Sequence[str] = ("svg", "pdf", "png"),
) -> list[pathlib.Path]:
    """Write ``directory/key.svg`` and so on, and return the paths.

    The folder is created if it is missing.

    Examples
    --------
    >>> import tempfile
    >>> from fegsam.report.figure_data import Series
    >>> line = Series("N = 4", [0, 10], [1.0, 0.1], style="exact")
    >>> figure = FigureData(
    ...     "error", "Error", "The error falls.", "steps", "squared error", "linear", "log", (line,)
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in save(figure, folder, formats=("svg",))]
    ['error.svg']
    """
    matplotlib = require_matplotlib()
    folder = pathlib.Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{figure.key}.{ending}" for ending in formats]
    with matplotlib.rc_context(PRINT):
        drawn = draw(figure)
        # The layout takes half of the time, so it is computed once for all formats.
        drawn.draw_without_rendering()
        drawn.set_layout_engine("none")
        for path in paths:
            # A temporary name comes first: the path itself may be a link out of the folder.
            with whole(path) as temporary:
                drawn.savefig(
                    temporary, format=path.suffix[1:], metadata=_metadata(path.suffix, figure)
                )
    return paths


def draw(figure: FigureData) -> Figure:
    """The figure as a matplotlib figure, without a title: a paper has the caption below it."""
    matplotlib = require_matplotlib()
    from matplotlib.figure import Figure

    with matplotlib.rc_context(PRINT):
        page = Figure(figsize=(COLUMN, _HEIGHT))
        axes = page.add_subplot()
        looked = looks(figure)
        for series in figure.series:
            _draw_series(axes, figure, series, looked.get(str(series.group)))
        axes.set(xscale=figure.x_scale, yscale=figure.y_scale, xlabel=figure.x_label)
        # Do not break a formula over two lines.
        words = re.sub(
            "‖[^‖]*‖", lambda formula: formula[0].replace(" ", "\N{NO-BREAK SPACE}"), figure.y_label
        )
        axes.set_ylabel(textwrap.fill(words, _TALL))
        _place_ticks(axes, figure)
        handles = _legend(figure, looked)
        if len(handles) > 1:
            rows = _add_legend(page, handles)
            page.set_figheight(_HEIGHT + _ROW * rows)
    return page


def _draw_series(axes: Axes, figure: FigureData, series: Series, look: Look | None) -> None:
    x, y, low, high = drawable(figure, series)
    if not len(x):
        return
    if look is None or series.style == "reference":
        colour, dash = (
            GREY if look is None else look.colour,
            reference_dashes(figure)[reference_name(series)][0],
        )
        axes.plot(
            x, y, color=colour, linewidth=0.9, linestyle=dash, zorder=1.5 if look is None else 2.1
        )
        return
    if series.style != "sampled":
        dash = "dashdot" if series.style == "bound" else look.dash[0]
        axes.plot(
            x, y, color=look.colour, linestyle=dash, zorder=2.5 if series.style == "exact" else 2
        )
        if low is not None and high is not None:
            axes.fill_between(x, low, high, color=look.colour, alpha=0.18, linewidth=0)
        return
    through = any(s.style == "exact" and s.group == series.group for s in figure.series)
    kept = marked(figure, x)
    axes.plot(x, y, color=look.colour, linewidth=0 if through else 0.8, alpha=0.9, zorder=2.2)
    if low is not None and high is not None and len(x) > POINTS_WITH_BARS:
        axes.fill_between(x, low, high, color=look.colour, alpha=0.22, linewidth=0, zorder=1.8)
    elif low is not None and high is not None:
        bars = np.maximum(np.stack([y - low, high - y]), 0.0)
        axes.errorbar(
            x,
            y,
            bars,
            fmt="none",
            ecolor=look.colour,
            elinewidth=0.8,
            capsize=2,
            capthick=0.8,
            zorder=2.8,
        )
    spots = {
        "marker": look.marker[0],
        "markerfacecolor": "white" if through else look.colour,
        "markeredgewidth": 0.9,
    }
    axes.plot(x[kept], y[kept], color=look.colour, linestyle="none", zorder=3, **spots)


def marked(figure: FigureData, x: np.ndarray, count: int = POINTS_WITH_BARS) -> np.ndarray:
    """Which of many points have a marker: about `count`, evenly spread along the axis."""
    if len(x) <= count:
        return np.arange(len(x))
    places = np.log(x) if figure.x_scale == "log" else x
    targets = np.linspace(places[0], places[-1], count)
    return np.unique(np.abs(places[None, :] - targets[:, None]).argmin(axis=1))


def _place_ticks(axes: Axes, figure: FigureData) -> None:
    from matplotlib import ticker

    limits = shown_range(figure)
    if limits is not None:
        axes.set_ylim(*limits)
    places = few_places(figure)
    if places:
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.xaxis.set_minor_locator(ticker.NullLocator())
    _number_short_range(axes.yaxis, figure.y_scale, axes.get_ylim())
    if not places:
        _number_short_range(axes.xaxis, figure.x_scale, axes.get_xlim())


def _number_short_range(axis: Axis, scale: str, limits: tuple[float, float]) -> None:
    """Label a range of about a decade with its own numbers: it may contain no power of ten."""
    from matplotlib import ticker

    low, high = limits
    if scale == "log" and high < 11 * low:
        axis.set_major_locator(
            ticker.LogLocator(subs=(1, 2, 5) if high > 3 * low else (1, 1.5, 2, 3, 4, 5, 6, 8))
        )
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(ticker.NullLocator())


def _legend(figure: FigureData, looked: dict[str, Look]) -> list[Any]:
    """The legend's handles: one per group, then one per reference.

    If a group has both markers and lines, further handles say what they mean.
    """
    from matplotlib.lines import Line2D

    handles, shared = [], set()
    for group, look in looked.items():
        styles = {s.style for s in figure.series if s.group == group and s.style != "reference"}
        shared |= styles if len(styles) > 1 else set()
        marker = look.marker[0] if "sampled" in styles else ""
        dash: Any = "dashdot" if styles == {"bound"} else look.dash[0]
        face = "white" if {"sampled", "exact"} <= styles else look.colour
        handles.append(
            Line2D(
                [],
                [],
                color=look.colour,
                marker=marker,
                linestyle=dash,
                markerfacecolor=face,
                label=group,
            )
        )
    for name, (dash, _) in reference_dashes(figure).items():
        handles.append(Line2D([], [], color=GREY, linewidth=0.9, linestyle=dash, label=name))
    keys: dict[str, tuple[str, Any]] = {
        "sampled": ("o", "none"),
        "exact": ("", "solid"),
        "bound": ("", "dashdot"),
    }
    for style in (style for style in keys if style in shared):
        marker, dash = keys[style]
        handles.append(
            Line2D(
                [],
                [],
                color="#444444",
                marker=marker,
                linestyle=dash,
                label=style,
                markerfacecolor="white",
            )
        )
    return handles


def _add_legend(page: Figure, handles: list[Any]) -> int:
    """Add the legend below the axes, in as many columns as fit, and return the number of rows."""
    for handle in handles:
        handle.set_label(textwrap.fill(handle.get_label(), _WIDE))
    longest = max(len(handle.get_label()) for handle in handles)
    columns = int(np.clip(58 // (longest + 8), 1, min(4, len(handles))))
    page.legend(handles=handles, loc="outside lower center", ncols=columns)
    lines = [handle.get_label().count("\n") + 1 for handle in handles]
    return sum(lines) if columns == 1 else -(-len(handles) // columns)


def _metadata(suffix: str, figure: FigureData) -> dict[str, str | None]:
    title = f"{figure.title}: {figure.panel}" if figure.panel else figure.title
    if suffix == ".png":
        return {"Title": title, "Description": figure.caption, "Software": None}
    if suffix == ".pdf":
        return {"Title": title, "Subject": figure.caption, "CreationDate": None}
    return {"Title": title, "Description": figure.caption, "Date": None}
