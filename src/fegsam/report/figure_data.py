"""A figure as data: both renderers draw it, and readers download it.

Labels are plain Unicode text (``E‖θ − θ*‖²``), not TeX, which a page without a network cannot
render.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from fegsam.errors import ProblemError

Style = Literal["sampled", "exact", "bound", "reference"]
Scale = Literal["log", "linear"]
MEANING: dict[Style, str] = {
    "sampled": "markers: mean over seeds, with its 95 % interval",
    "exact": "lines: exact, without sampling",
    "bound": "dash-dotted lines: the theorem's bound",
    "reference": "dashed and dotted lines: reference",
}
"""The drawing of each style, in words."""
_LONG_NUMBER = 6
"""The most digits of a tick label."""
_MOST_OF = 0.8
"""The share of the axis that ticks at the x values must cover."""


@dataclass(frozen=True, eq=False)
class Series:
    """One curve.

    Attributes
    ----------
    name : str
    x, y : (points,) arrays
    low, high : (points,) arrays or None
        The interval of y.
    style : {"sampled", "exact", "bound", "reference"}
    group : str or None
        Series of one group, such as sampled points and the exact curve through them, share a colour
        and a legend entry; by default the name.

    Examples
    --------
    >>> Series("N = 4", [0, 10], [1.0, 0.1], style="exact").x
    array([ 0., 10.])
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    style: Style = "sampled"
    group: str | None = None

    def __init__(
        self,
        name: str,
        x: ArrayLike,
        y: ArrayLike,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        style: Style = "sampled",
        group: str | None = None,
    ) -> None:
        if style not in get_args(Style):
            raise ProblemError(
                f"Series {name!r} has style {style!r}; give one of "
                f"{', '.join(map(repr, get_args(Style)))}."
            )
        if (low is None) != (high is None):
            raise ProblemError(
                f"Series {name!r} has one end of an interval; give both low and high, or neither."
            )
        values = {"x": x, "y": y} | (
            {} if low is None or high is None else {"low": low, "high": high}
        )
        arrays = {key: _flat(name, key, value) for key, value in values.items()}
        lengths = {key: len(array) for key, array in arrays.items()}
        if len(set(lengths.values())) != 1 or not lengths["x"]:
            raise ProblemError(
                f"Series {name!r} has arrays of lengths {lengths}; give one y, low and high for "
                "each x."
            )
        fields = {
            "name": name,
            "low": None,
            "high": None,
            **arrays,
            "style": style,
            "group": name if group is None else group,
        }
        for key, value in fields.items():
            object.__setattr__(self, key, value)


@dataclass(frozen=True, eq=False)
class FigureData:
    """One figure, independent of how it is drawn.

    Attributes
    ----------
    key : str
        The stem of its file names: small letters, digits, ``_`` and ``-``.
    title : str
    caption : str
        One plain sentence that says what the figure shows.
    x_label, y_label : str
        With the unit, if any, in brackets.
    x_scale, y_scale : {"log", "linear"}
    series : tuple of Series
    panel : str
        What distinguishes it from the other figures of the same title in its section, such as the
        algorithm: a page draws these side by side with the same axes.

    Examples
    --------
    >>> line = Series("N = 4", [0, 10], [1.0, 0.1], style="exact")
    >>> figure = FigureData(
    ...     "error",
    ...     "Error over time",
    ...     "The error falls.",
    ...     "steps",
    ...     "squared error",
    ...     "linear",
    ...     "log",
    ...     (line,),
    ... )
    >>> print(figure.csv(), end="")
    series,style,x,y,low,high
    N = 4,exact,0,1,,
    N = 4,exact,10,0.1,,
    """

    key: str
    title: str
    caption: str
    x_label: str
    y_label: str
    x_scale: Scale = "log"
    y_scale: Scale = "log"
    series: tuple[Series, ...] = ()
    panel: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "series", tuple(self.series))
        if not re.fullmatch(r"[a-z0-9_-]+", self.key):
            raise ProblemError(
                f"A figure's key is {self.key!r}; use only small letters, digits, '_' and '-'."
            )
        for scale in (self.x_scale, self.y_scale):
            if scale not in get_args(Scale):
                raise ProblemError(
                    f"Figure {self.key!r} has a scale {scale!r}; give 'log' or 'linear'."
                )
        if not self.series:
            raise ProblemError(f"Figure {self.key!r} has no series; give at least one.")

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that have a colour, in order of appearance."""
        return tuple(dict.fromkeys(str(s.group) for s in self.series if s.style != "reference"))

    @property
    def styles(self) -> tuple[Style, ...]:
        """The styles that appear, in the order in which they are explained."""
        return tuple(style for style in MEANING if any(s.style == style for s in self.series))

    def csv(self) -> str:
        """Every point: series, style, x, y, low, high, in full precision."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("series", "style", "x", "y", "low", "high"))
        for s in self.series:
            blank = [""] * len(s.x)
            columns = (
                s.x,
                s.y,
                s.low if s.low is not None else blank,
                s.high if s.high is not None else blank,
            )
            for row in zip(*columns, strict=True):
                writer.writerow(
                    (
                        s.name,
                        s.style,
                        *(
                            cell if cell == "" else repr(float(cell)).removesuffix(".0")
                            for cell in row
                        ),
                    )
                )
        return text.getvalue()


class Drawable(NamedTuple):
    """The part of a series that an axis can show: (points,) each."""

    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None


_LARGEST = 1e100
"""What is beyond it belongs to a run that diverges, and plotting libraries cannot place it."""


def drawable(figure: FigureData, series: Series) -> Drawable:
    """The points that the figure's scales can show.

    A logarithmic axis cannot show zero. Such points are left out, and an interval that reaches down
    to zero ends at a hundredth of its curve's smallest value, out of sight. So are points beyond
    1e100, where an interval ends, too.
    """
    kept = np.isfinite(series.x) & np.isfinite(series.y)
    if figure.x_scale == "log":
        kept &= series.x > 0
    if figure.y_scale == "log":
        kept &= (series.y > 0) & (series.y <= _LARGEST)
    x, y = series.x[kept], series.y[kept]
    if series.low is None or series.high is None:
        return Drawable(x, y, None, None)
    low, high = (
        np.where(np.isfinite(end[kept]), end[kept], y) for end in (series.low, series.high)
    )
    if figure.y_scale == "log" and y.size:
        low, high = np.maximum(low, 0.01 * y.min()), np.minimum(high, _LARGEST)
    return Drawable(x, y, low, high)


def shown_range(figure: FigureData) -> tuple[float, float] | None:
    """The range of the y axis: every point and, within a factor of two, every interval."""
    parts = [drawable(figure, s) for s in figure.series]
    values = np.concatenate([part.y for part in parts])
    if not values.size:
        return None
    low, high = values.min(), values.max()
    ends = np.concatenate(
        [values, *(end for part in parts for end in (part.low, part.high) if end is not None)]
    )
    near = ends[(ends >= low / 2) & (ends <= high * 2)] if figure.y_scale == "log" else ends
    low, high = near.min(), near.max()
    if figure.y_scale == "log":
        margin = max((high / low) ** 0.05, 1.1)
        return float(low / margin), float(high * margin)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    return float(low - margin), float(high + margin)


def few_places(figure: FigureData) -> list[float]:
    """The x values as ticks if they are few and short, such as 1, 2, 4, 8 agents; else none."""
    drawn = [(s.style, drawable(figure, s).x) for s in figure.series]
    measured = [x for style, x in drawn if style == "sampled"]
    places = np.unique(np.concatenate(measured)) if measured else np.empty(0)
    if figure.x_scale != "log" or not 2 <= len(places) <= 12:
        return []
    numbers, spans, ticks = [f"{place:g}" for place in places], np.log(places), [0]
    reach = np.log(max(x.max() for _, x in drawn if len(x))) - np.log(
        min(x.min() for _, x in drawn if len(x))
    )
    if max(map(len, numbers)) > _LONG_NUMBER or spans[-1] - spans[0] < _MOST_OF * reach:
        return []
    for k in range(1, len(places)):
        # If ticks are closer than this, their numbers touch.
        letters = (len(numbers[k]) + len(numbers[ticks[-1]])) / 2
        if spans[k] - spans[ticks[-1]] >= max(0.09, 0.025 * letters + 0.015) * reach:
            ticks.append(k)
    return [float(places[k]) for k in ticks]


def _flat(name: str, key: str, value: ArrayLike) -> np.ndarray:
    array = np.array(value, dtype=float)
    if array.ndim != 1:
        raise ProblemError(f"{key} of series {name!r} has shape {array.shape}; give a flat array.")
    array.setflags(write=False)
    return array
