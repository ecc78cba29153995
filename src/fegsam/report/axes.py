"""Ticks and ranges of the axes of a page's figures, and the figures that share them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fegsam.report.figure_data import FigureData, Scale, drawable, few_places, shown_range

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Axis(NamedTuple):
    """One axis as it is drawn."""

    scale: Scale
    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]


def axes_of(figures: Sequence[FigureData]) -> list[tuple[Axis, Axis]]:
    """The x and y axis of each figure; figures in the same units share them.

    The x axis is shared only if all figures reach about equally far.

    Examples
    --------
    >>> from fegsam.report.figure_data import Series
    >>> lines = [Series("error", [1, 10], [top, 0.01], style="exact") for top in (1.0, 10.0)]
    >>> pair = [FigureData("f", "F", "It falls.", "N", "error", series=(line,)) for line in lines]
    >>> [y.labels for _, y in axes_of(pair)] == [("0.01", "0.1", "1", "10")] * 2
    True
    """
    found = [(_x_range(figure), shown_range(figure) or (0.1, 1.0)) for figure in figures]
    lows, highs = zip(*(x for x, _ in found), strict=True)
    if len({figure.x_label for figure in figures}) == 1 and _are_close(figures[0], lows, highs):
        found = [((min(lows), max(highs)), y) for _, y in found]
    if len({(figure.y_label, figure.y_scale) for figure in figures}) == 1:
        low, high = min(y[0] for _, y in found), max(y[1] for _, y in found)
        found = [(x, (low, high)) for x, _ in found]
    return [
        (_x_axis(figure, *x), _axis(figure.y_scale, *y))
        for figure, (x, y) in zip(figures, found, strict=True)
    ]


def ticks(scale: Scale, low: float, high: float, most: int = 6) -> tuple[list[float], list[str]]:
    """At most about `most` round numbers from `low` to `high`, and how they are written.

    Examples
    --------
    >>> ticks("log", 0.9e-4, 12.0)[1]
    ['10⁻⁴', '10⁻³', '0.01', '0.1', '1', '10']
    >>> ticks("log", 2.0, 30.0)[1], ticks("log", 0.95, 1.3)[1], ticks("linear", 0, 4000)[1]
    (['2', '5', '10', '20'], ['1', '1.1', '1.2', '1.3'], ['0', '1000', '2000', '3000', '4000'])
    """
    if scale == "log" and high >= 80 * low:
        first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        step = max(1, math.ceil((last - first + 1) / most))
        powers = range(first, last + 1, step)
        return [10.0**power for power in powers], [_power(power) for power in powers]
    if scale == "log" and high >= 4 * low:
        first = math.floor(math.log10(low))
        values = [
            round(lead * 10.0**power, 12)
            for power in range(first, first + 4)
            for lead in (1, 2, 5)
            if low <= lead * 10.0**power * (1 + 1e-9) and lead * 10.0**power <= high * (1 + 1e-9)
        ]
        return values, [_number(value) for value in values]
    return _even(low, high, most)


def _even(low: float, high: float, most: int) -> tuple[list[float], list[str]]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten."""
    width = high - low
    if not width > 0:
        return [low], [_number(low)]
    power = 10.0 ** math.floor(math.log10(width / most))
    step = next(lead * power for lead in (1, 2, 2.5, 5, 10) if width / (lead * power) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = [float(f"{k * step:.12g}") for k in range(first, last + 1)]
    return values, [_number(value) for value in values]


def _power(power: int) -> str:
    return f"{10.0**power:g}" if -3 < power < 4 else f"10{str(power).translate(_SUPERSCRIPTS)}"


def _number(value: float) -> str:
    if value and not 1e-3 <= abs(value) < 1e6:
        lead, _, power = f"{value:.6e}".partition("e")
        lead = f"{float(lead):g}"
        return f"{'' if lead == '1' else f'{lead}·'}10{str(int(power)).translate(_SUPERSCRIPTS)}"
    return f"{value:g}" if abs(value) < 1e5 else f"{value:.0f}"


def _x_range(figure: FigureData) -> tuple[float, float]:
    values = np.concatenate([drawable(figure, series).x for series in figure.series])
    if not values.size:
        return (0.1, 1.0)
    low, high = float(values.min()), float(values.max())
    if figure.x_scale == "log":
        margin = max((high / low) ** 0.04, 1.02)
        return low / margin, high * margin
    margin = 0.03 * (high - low) or 0.5
    return low - margin, high + margin


def _are_close(figure: FigureData, lows: Sequence[float], highs: Sequence[float]) -> bool:
    if figure.x_scale == "log":
        widest = math.log(max(highs) / min(lows))
        narrowest = min(math.log(high / low) for low, high in zip(lows, highs, strict=True))
        return widest <= 1.5 * narrowest
    return max(highs) <= 1.5 * min(highs)


def _x_axis(figure: FigureData, low: float, high: float) -> Axis:
    places = few_places(figure)
    values, labels = (
        (places, [f"{place:g}" for place in places])
        if places
        else ticks(figure.x_scale, low, high, 5)
    )
    return _axis(figure.x_scale, low, high, (values, labels))


def _axis(
    scale: Scale, low: float, high: float, marked: tuple[list[float], list[str]] | None = None
) -> Axis:
    values, labels = marked or ticks(scale, low, high)
    return Axis(scale, low, high, tuple(values), tuple(labels))
