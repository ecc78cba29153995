"""Colours, markers and dashes of both renderers, for the colour-blind and for grey print too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fegsam.print_style import COLOURS
from fegsam.report.figure_data import FigureData, Series

MARKERS = (
    ("o", "circle"),
    ("s", "square"),
    ("^", "triangle-up"),
    ("D", "diamond"),
    ("v", "triangle-down"),
    ("P", "cross"),
    ("X", "x"),
)
"""Each in matplotlib's words and in Plotly's."""
DASHES = (
    ("solid", "solid"),
    ("dotted", "dot"),
    ((0, (7, 2)), "longdash"),
    ((0, (1, 4)), "2px,8px"),
)
"""None is dashed and dotted: so are the theorem's bounds."""
_REFERENCES: tuple[tuple[Any, str], ...] = (
    ((0, (4, 2.5)), "dash"),
    ((0, (1, 1.5)), "dot"),
    ((0, (7, 2, 1, 2)), "longdashdot"),
)


@dataclass(frozen=True)
class Look:
    """How a group is drawn; each pair is for matplotlib and for Plotly."""

    colour: str
    marker: tuple[str, str]
    dash: tuple[Any, str]
    """the dash of its exact curve: solid if sampled points distinguish the groups"""


def reference_name(series: Series) -> str:
    """The name of a reference line in the legend; those of several groups may share one."""
    return series.name.removeprefix(f"{series.group}, ")


def reference_dashes(figure: FigureData) -> dict[str, tuple[Any, str]]:
    """The dash of each reference line, by its name.

    Examples
    --------
    >>> lines = [Series(f"slope {k}", [1, 2], [1.0, k], style="reference") for k in (1, 2)]
    >>> [
    ...     dash
    ...     for _, dash in reference_dashes(
    ...         FigureData("f", "F", "Lines.", "x", "y", series=lines)
    ...     ).values()
    ... ]
    ['dash', 'dot']
    """
    names = dict.fromkeys(
        reference_name(series) for series in figure.series if series.style == "reference"
    )
    return {name: _REFERENCES[k % len(_REFERENCES)] for k, name in enumerate(names)}


def looks(figure: FigureData) -> dict[str, Look]:
    """One look for each group of the figure.

    Examples
    --------
    >>> from fegsam.report.figure_data import Series
    >>> pair = (Series("one", [1], [1]), Series("one, exact", [1], [1], style="exact", group="one"))
    >>> list(looks(FigureData("a", "A", "A.", "x", "y", series=pair)))
    ['one']
    """
    sampled = {s.group for s in figure.series if s.style == "sampled"}
    found, bare = {}, 0
    for k, group in enumerate(figure.groups):
        dash = DASHES[0]
        if group not in sampled:
            dash, bare = DASHES[bare % len(DASHES)], bare + 1
        found[group] = Look(
            COLOURS[k % len(COLOURS)], MARKERS[(k + k // len(COLOURS)) % len(MARKERS)], dash
        )
    return found
