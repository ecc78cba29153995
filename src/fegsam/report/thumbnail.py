"""A figure as a small picture without numbers: it shows the shape of what was found."""

from __future__ import annotations

import math

import numpy as np

from fegsam.print_style import GREY
from fegsam.report.axes import Axis, axes_of
from fegsam.report.figure_data import FigureData, Series, drawable
from fegsam.report.figures import marked
from fegsam.report.looks import looks, reference_dashes, reference_name

_WIDTH, _HEIGHT = 132.0, 84.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 5.0, 128.0, 4.0, 79.0


def thumbnail(figure: FigureData) -> str:
    """The figure as an SVG of 132 by 84, in the colours of the page.

    Examples
    --------
    >>> line = Series("N = 4", [0, 10], [1.0, 0.1], style="exact")
    >>> shown = thumbnail(FigureData("error", "F", "It falls.", "x", "y", "linear", series=(line,)))
    >>> shown.startswith("<svg"), shown.count("<polyline")
    (True, 1)
    """
    [(x_axis, y_axis)] = axes_of([figure])
    frame = f'<path class="frame" d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}"/>'
    curves = "".join(_curve(figure, series, x_axis, y_axis) for series in figure.series)
    return (
        f'<svg class="thumbnail" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" aria-hidden="true">'
        f"{frame}{curves}</svg>"
    )


def _curve(figure: FigureData, series: Series, x_axis: Axis, y_axis: Axis) -> str:
    part, look = drawable(figure, series), looks(figure).get(str(series.group))
    if not len(part.x):
        return ""
    colour = GREY if look is None else look.colour
    ink = "currentColor" if colour == "#000000" else colour
    x = _LEFT + (_RIGHT - _LEFT) * _shares(x_axis, part.x)
    y = _BOTTOM - (_BOTTOM - _TOP) * _shares(y_axis, part.y)
    if series.style == "sampled":
        spots = "".join(
            f'<circle cx="{x[k]:.1f}" cy="{y[k]:.1f}" r="2.2"/>' for k in marked(figure, part.x, 8)
        )
        return f'<g fill="{ink}">{spots}</g>'
    dash = ""
    if series.style == "reference" or look is None:
        dash = "2 3" if reference_dashes(figure)[reference_name(series)][1] == "dot" else "4 3"
    elif series.style == "bound":
        dash = "5 2 1 2"
    elif look.dash[1] != "solid":
        dash = "6 2" if look.dash[1] == "longdash" else "2 2"
    kept = marked(figure, part.x, 60)
    points = " ".join(f"{x[k]:.1f},{y[k]:.1f}" for k in kept)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{points}" stroke="{ink}"{dashes}/>'


def _shares(axis: Axis, values: np.ndarray) -> np.ndarray:
    """Where values lie along the axis, from 0 to 1."""
    if axis.scale == "log":
        low, high = math.log(axis.low), math.log(axis.high)
        return np.clip((np.log(values) - low) / (high - low), 0.0, 1.0)
    return np.clip((values - axis.low) / (axis.high - axis.low), 0.0, 1.0)
