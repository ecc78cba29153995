"""Small pictures for a notebook: inline SVG in the page's text colour, and a table beside it.

Written without Jinja2, since the base package does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import ArrayLike

from fegsam.text import html_table, number

BLUE = "#0072B2"
ORANGE = "#D55E00"
_WIDTH, _HEIGHT, _MARGIN = 260, 130, 56
"""pixels; the scale is in the margin"""
_CELLS = 24
"""The most rows and columns; a larger matrix is shown as the sums of its blocks."""


def card(title: str, rows: Sequence[tuple[str, str]], picture: str) -> str:
    """A picture and a table of its key numbers, as HTML for a notebook.

    >>> "<svg" in card("A", [("states", "2")], curve([0, 1], [1.0, 0.1]))
    True
    """
    table = html_table(title, ["", ""], rows)
    style = "display:flex;flex-wrap:wrap;gap:1.5em;align-items:center"
    return f'<div style="{style}">{table}{picture}</div>'


def curve(
    x: ArrayLike, y: ArrayLike, low: ArrayLike | None = None, high: ArrayLike | None = None
) -> str:
    """A curve over time on a logarithmic scale, in a band from `low` to `high`.

    Values that are not positive are left out.

    >>> curve([0, 1], [1.0, 0.1]).count("polyline")
    1
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    low, high = (y if edge is None else np.asarray(edge, float) for edge in (low, high))
    keep = np.isfinite(y) & (y > 0) & np.isfinite(high)
    if not keep.any():
        return _svg(
            "error over time", _text(_WIDTH / 2, _HEIGHT / 2, "nothing to draw", anchor="middle")
        )
    x, y, high = x[keep], y[keep], high[keep]
    low = np.where(low[keep] > 0, low[keep], y)
    bottom, top = math.log10(low.min()), math.log10(high.max())
    span, reach = (top - bottom) or 1.0, (x[-1] - x[0]) or 1.0
    across = _MARGIN + (x - x[0]) / reach * (_WIDTH - _MARGIN - 8)

    def down(values: np.ndarray) -> np.ndarray:
        return _HEIGHT - 20 - (np.log10(values) - bottom) / span * (_HEIGHT - 32)

    band = _points(np.append(across, across[::-1]), np.append(down(high), down(low)[::-1]))
    marks = [
        f'<polygon points="{band}" fill="{BLUE}" fill-opacity="0.2"/>',
        f'<polyline points="{_points(across, down(y))}" fill="none" stroke="{BLUE}" '
        'stroke-width="1.5"/>',
        _text(_MARGIN - 4, 14, f"{10**top:.1e}", anchor="end"),
        _text(_MARGIN - 4, _HEIGHT - 18, f"{10**bottom:.1e}", anchor="end"),
        _text(_MARGIN, _HEIGHT - 4, number(x[0])),
        _text(_WIDTH - 8, _HEIGHT - 4, f"t = {number(x[-1])}", anchor="end"),
    ]
    return _svg("error over time", *marks)


def bars(names: Sequence[str], values: ArrayLike, mark: float | None = None) -> str:
    """Bars on a logarithmic scale, one below the other, and a line at `mark`.

    Values that are not positive have no bar.

    >>> bars(["initial", "variance"], [1e-3, 10.0], mark=1.0).count("<rect")
    2
    """
    sizes = np.asarray(values, float)
    drawn = sizes[np.isfinite(sizes) & (sizes > 0)]
    ends = np.log10(drawn if mark is None or not 0 < mark < math.inf else np.append(drawn, mark))
    low, high = (ends.min() - 1, ends.max()) if ends.size else (0.0, 1.0)
    step = (_HEIGHT - 10) / max(len(sizes), 1)

    def across(value: float) -> float:
        return 90 + (math.log10(value) - low) / ((high - low) or 1.0) * (_WIDTH - 150)

    parts = []
    for row, (name, size) in enumerate(zip(names, sizes, strict=True)):
        y, end = 5 + row * step, 90.0
        parts.append(_text(84, y + step * 0.65, name.replace("_", " "), anchor="end"))
        if size > 0 and math.isfinite(size):
            end = across(size)
            parts.append(
                f'<rect x="90" y="{y + 2:.1f}" width="{end - 90:.1f}" height="{step - 4:.1f}" '
                f'fill="{BLUE}"/>'
            )
        parts.append(_text(end + 4, y + step * 0.65, number(size)))
    if mark is not None and 0 < mark < math.inf:
        x = across(mark)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="3" y2="{_HEIGHT - 3}" stroke="{ORANGE}" '
            'stroke-width="1.5"/>'
        )
    return _svg("terms on a logarithmic scale", *parts)


def matrix(values: np.ndarray, label: str) -> str:
    """A matrix of nonnegative numbers: the larger the number, the darker its cell.

    >>> matrix(np.eye(3), "transitions").count("<rect")
    4
    """
    rows, columns = values.shape
    top = float(values.max()) or 1.0
    side = min(_WIDTH / columns, _HEIGHT / rows)
    cells = [
        f'<rect x="{c * side:.1f}" y="{r * side:.1f}" width="{side:.1f}" height="{side:.1f}" '
        f'fill="{BLUE}" fill-opacity="{values[r, c] / top:.2f}"/>'
        for r, c in zip(*np.nonzero(values > 0.005 * top), strict=True)
    ]
    frame = (
        f'<rect width="{columns * side:.1f}" height="{rows * side:.1f}" fill="none" '
        'stroke="currentColor" stroke-width="0.5"/>'
    )
    return _svg(label, *cells, frame)


def blocks(size: int) -> np.ndarray:
    """(size,): for each of `size` rows or columns, the one of the picture that shows it.

    >>> blocks(3).tolist(), int(blocks(1000).max())
    ([0, 1, 2], 23)
    """
    return np.arange(size) * min(size, _CELLS) // size


def ticks(low: float, span: float) -> list[float]:
    """A few round numbers in the interval from `low` to `low + span`.

    >>> ticks(-0.1, 1.2), ticks(0, 69)
    ([0.0, 0.5, 1.0], [0.0, 20.0, 40.0, 60.0])
    """
    unit = 10.0 ** math.floor(math.log10(span / 2))
    step = next(unit * k for k in (5, 2, 1) if span / (unit * k) >= 2)
    first, last = math.ceil(low / step), math.floor((low + span) / step)
    return [float(f"{step * k:.12g}") for k in range(first, last + 1)]


def _points(x: np.ndarray, y: np.ndarray) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def _text(x: float, y: float, said: str, anchor: str = "start") -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" font-size="10" text-anchor="{anchor}"'
    return f'<text {place} fill="currentColor">{escape(said)}</text>'


def _svg(label: str, *parts: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(label)}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif">{"".join(parts)}</svg>'
    )
