"""The figures of a section as a page draws them: those of one title side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fegsam.report.axes import Axis, axes_of
from fegsam.report.figure_data import FigureData
from fegsam.report.legend import LegendEntry, entries, fit_beside, style_entries


class Panel(NamedTuple):
    """One of the figures, with its axes."""

    figure: FigureData
    axes: tuple[Axis, Axis]
    caption: str
    """what it says beyond the caption of its set"""
    legend: tuple[LegendEntry, ...] = ()
    """its own, if a name or a look is another in another panel"""


class FigureSet(NamedTuple):
    """Figures of one title: small multiples if there are several."""

    title: str
    caption: str
    panels: tuple[Panel, ...]
    direct: bool
    """whether names stand beside their curves; a legend lists them otherwise"""
    legend: tuple[LegendEntry, ...]
    """of all panels; empty if the panels have their own"""
    styles: tuple[LegendEntry, ...]

    @property
    def x_label(self) -> str:
        """The label of all x axes; empty if they differ."""
        found = {panel.figure.x_label for panel in self.panels}
        return found.pop() if len(found) == 1 else ""


def figure_sets(figures: Sequence[FigureData]) -> list[FigureSet]:
    """The figures by their titles, in order.

    Examples
    --------
    >>> from fegsam.report.figure_data import Series
    >>> line = Series("error", [1, 10], [1.0, 0.1], style="exact")
    >>> pair = [
    ...     FigureData(f"f{k}", "Error", "It falls.", "N", "error", series=(line,), panel=f"TD {k}")
    ...     for k in (1, 2)
    ... ]
    >>> [found] = figure_sets(pair)
    >>> [panel.figure.panel for panel in found.panels], found.caption
    (['TD 1', 'TD 2'], 'It falls.')
    """
    groups: dict[str, list[FigureData]] = {}
    for figure in figures:
        # Without a panel's name a figure stands alone.
        key = figure.title if figure.panel else f"{figure.title}\n{figure.key}"
        groups.setdefault(key, []).append(figure)
    return [_set(group) for group in groups.values()]


def _set(group: Sequence[FigureData]) -> FigureSet:
    first = group[0]
    shown = [tuple(entries(figure)) for figure in group]
    legend = tuple({entry: None for each in shown for entry in each})
    apart = len({entry.label for entry in legend}) < len(legend) or (
        len({entry.swatch for entry in legend}) < len(legend)
    )
    common = {figure.caption for figure in group} == {first.caption}
    shared = first.caption if common else _shared_start([figure.caption for figure in group])
    panels = tuple(
        Panel(figure, axes, figure.caption.removeprefix(shared).strip(), each if apart else ())
        for figure, axes, each in zip(group, axes_of(group), shown, strict=True)
    )
    return FigureSet(
        first.title,
        shared,
        panels,
        all(map(fit_beside, group)),
        () if apart else legend,
        tuple({entry.label: entry for figure in group for entry in style_entries(figure)}.values()),
    )


def _shared_start(captions: Sequence[str]) -> str:
    """The sentences with which all captions begin."""
    shared = []
    for sentences in zip(*(caption.split(". ") for caption in captions), strict=False):
        plain = {sentence.removesuffix(".") for sentence in sentences}
        if len(plain) > 1:
            break
        shared.append(plain.pop())
    return f"{'. '.join(shared)}." if shared else ""
