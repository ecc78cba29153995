"""Legends of a page's figures: every entry shows the marker and the dash that are drawn."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from fegsam.print_style import GREY
from fegsam.report.figure_data import MEANING, FigureData, Series, Style, drawable
from fegsam.report.looks import Look, looks, reference_dashes, reference_name

MOST_LABELS, LONGEST_LABEL = 5, 30
"""More or longer names than these do not fit beside the curves; a legend lists them."""
_DASHES = {
    "solid": "",
    "dot": "2 3",
    "dash": "6 4",
    "longdash": "10 4",
    "2px,8px": "2 8",
    "dashdot": "7 3 2 3",
    "longdashdot": "10 3 2 3",
}
"""Plotly's dashes as those of an SVG line."""
_MARKERS = {
    "circle": "M14 3a4 4 0 1 0 .01 0z",
    "square": "M10 3h8v8h-8z",
    "triangle-up": "M14 2.5l4.5 8h-9z",
    "diamond": "M14 2l5 5-5 5-5-5z",
    "triangle-down": "M14 11.5l-4.5-8h9z",
    "cross": "M12.5 2.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "x": "M10.5 3.5l7 7m0-7l-7 7",
}
"""Plotly's markers in a box of 28 by 14."""


class LegendEntry(NamedTuple):
    """One name of a legend.

    `key` is that of the curves that it hides and shows; `swatch` is an SVG of how they are drawn.
    """

    label: str
    key: str
    swatch: str


class Label(NamedTuple):
    """A name at the end of its curve."""

    text: str
    colour: str
    y: float
    dashed: bool


def key_of(series: Series) -> str:
    """What the curves that are hidden and shown together share.

    >>> key_of(Series("N = 4, exact", [1], [1], style="exact", group="N = 4"))
    'N = 4'
    """
    return reference_name(series) if series.style == "reference" else str(series.group)


def entries(figure: FigureData) -> list[LegendEntry]:
    """The legend: one entry per group, then one per reference line.

    Examples
    --------
    >>> lines = (Series("N = 4", [1], [1]), Series("1/N", [1], [1], style="reference"))
    >>> [
    ...     entry.label
    ...     for entry in entries(FigureData("f", "F", "It falls.", "N", "y", series=lines))
    ... ]
    ['N = 4', '1/N']
    """
    found = []
    for group, look in looks(figure).items():
        styles = {s.style for s in figure.series if s.group == group and s.style != "reference"}
        found.append(LegendEntry(group, group, _group_swatch(look, styles)))
    for name, (_, dash) in reference_dashes(figure).items():
        found.append(LegendEntry(name, name, swatch(GREY, dash)))
    return found


def labels(figure: FigureData) -> list[Label]:
    """A name for the last point of each group and of each reference line."""
    looked = looks(figure)
    found: dict[str, tuple[float, Label]] = {}
    for series in figure.series:
        part, key = drawable(figure, series), key_of(series)
        if not len(part.x):
            continue
        look, end = looked.get(str(series.group)), int(part.x.argmax())
        colour = GREY if look is None else look.colour
        label = Label(key, colour, float(part.y[end]), series.style == "reference")
        # Of a group's curves, the one that reaches furthest to the right has the name.
        if key not in found or part.x[end] > found[key][0]:
            found[key] = (float(part.x[end]), label)
    return [label for _, label in found.values()]


def fit_beside(figure: FigureData) -> bool:
    """Whether the names of the curves fit beside them."""
    names = [label.text for label in labels(figure)]
    return len(names) <= MOST_LABELS and max(map(len, names), default=0) <= LONGEST_LABEL


def style_entries(figure: FigureData) -> list[LegendEntry]:
    """What markers, lines and dashes mean in a figure."""
    drawn: dict[Style, str] = {
        "sampled": swatch(GREY, None, "circle"),
        "exact": swatch(GREY, "solid"),
        "bound": swatch(GREY, "dashdot"),
        "reference": swatch(GREY, "dash"),
    }
    return [
        LegendEntry(MEANING[style].partition(": ")[2], style, drawn[style])
        for style in figure.styles
    ]


def swatch(colour: str, dash: str | None, marker: str = "", hollow: bool = False) -> str:
    """A line and a marker as SVG; black is the page's ink.

    >>> swatch("#767676", "dash").count("stroke-dasharray")
    1
    """
    ink = "currentColor" if colour == "#000000" else colour
    parts = []
    if dash is not None:
        dashes = f' stroke-dasharray="{_DASHES[dash]}"' if _DASHES[dash] else ""
        parts.append(f'<path d="M0 7h28" stroke="{ink}" stroke-width="2"{dashes}/>')
    if marker:
        fill = "var(--paper)" if hollow else ink
        shape = _MARKERS[marker]
        parts.append(f'<path d="{shape}" fill="{fill}" stroke="{ink}" stroke-width="1.5"/>')
    body = "".join(parts)
    return f'<svg class="swatch" viewBox="0 0 28 14" aria-hidden="true">{body}</svg>'


def _group_swatch(look: Look, styles: Collection[str]) -> str:
    if "sampled" in styles:
        return swatch(look.colour, "solid", look.marker[1], hollow="exact" in styles)
    return swatch(look.colour, "dashdot" if set(styles) == {"bound"} else look.dash[1])
