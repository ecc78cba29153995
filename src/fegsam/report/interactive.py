"""The same figures for a browser: the pointer shows values, a click on the legend hides series."""

from __future__ import annotations

from typing import Any

import numpy as np

from fegsam.errors import ProblemError
from fegsam.print_style import GREY
from fegsam.report.axes import Axis, axes_of
from fegsam.report.figure_data import FigureData, Series, drawable, few_places, shown_range
from fegsam.report.figures import POINTS_WITH_BARS, marked
from fegsam.report.legend import key_of, labels
from fegsam.report.looks import Look, looks, reference_dashes, reference_name


def interactive(figure: FigureData) -> Any:
    """The figure as a `plotly.graph_objects.Figure`, to show in a notebook or to write elsewhere.

    Examples
    --------
    >>> line = Series("N = 4", [0, 10], [1.0, 0.1], style="exact")
    >>> shown = interactive(
    ...     FigureData(
    ...         "error", "Error", "It falls.", "steps", "squared error", "linear", "log", (line,)
    ...     )
    ... )
    >>> shown.data[0].name, shown.data[0].y.tolist()
    ('N = 4', [1.0, 0.1])
    """
    graph_objects = require_plotly()
    looked, traces, named = looks(figure), [], set()
    for series in figure.series:
        look = looked.get(str(series.group))
        group = series.name if look is None else str(series.group)
        traces += _traces(figure, series, look, group, group not in named)
        named.add(group)
    shown = graph_objects.Figure(traces)
    shown.update_layout(_layout(figure))
    return shown


def plot_json(
    figure: FigureData, axes: tuple[Axis, Axis] | None = None, *, direct: bool = False
) -> str:
    """Traces and layout as JSON without ``<``, so that it can be inside a script element.

    The page has its own legend and its own titles of the axes. If `direct`, the layout has the
    names of the curves, and the page writes them beside the curves.
    """
    shown = interactive(figure)
    shown.layout.template = None  # the page has its own look
    # The plot of a page is small: its titles and its legend are text of the page.
    shown.layout.showlegend = False
    for axis, drawn in zip(("xaxis", "yaxis"), axes or axes_of([figure])[0], strict=True):
        shown.layout[axis].title = None
        log = drawn.scale == "log"
        ends = np.log10([drawn.low, drawn.high]) if log else np.array([drawn.low, drawn.high])
        shown.layout[axis].update(
            range=ends.tolist(),
            tickmode="array",
            tickvals=drawn.ticks,
            ticktext=drawn.labels,
            automargin=False,
        )
    named = [label._asdict() for label in labels(figure)] if direct else []
    shown.layout.meta = {"labels": named}
    return shown.to_json().replace("<", "\\u003c")


def plotly_script() -> str:
    """Plotly's own JavaScript."""
    require_plotly()
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def _traces(
    figure: FigureData, series: Series, look: Look | None, group: str, first: bool
) -> list[dict[str, Any]]:
    x, y, low, high = drawable(figure, series)
    colour = GREY if look is None else look.colour
    banded = low is not None and (series.style != "sampled" or len(x) > POINTS_WITH_BARS)
    main: dict[str, Any] = {
        "type": "scatter",
        "name": group,
        "legendgroup": group,
        "meta": key_of(series),
        "showlegend": first,
        "x": x,
        "y": y,
        "hovertemplate": _hover(figure, series, low is not None),
        "line": {"color": colour, "width": 2},
    }
    if low is not None and high is not None:
        main["customdata"] = np.stack([low, high], axis=1)
    if look is None or series.style == "reference":
        dash = reference_dashes(figure)[reference_name(series)][1]
        main |= {"mode": "lines", "line": {"color": colour, "width": 1.5, "dash": dash}}
    elif series.style != "sampled":
        main |= {
            "mode": "lines",
            "line": main["line"] | {"dash": "dashdot" if series.style == "bound" else look.dash[1]},
        }
    else:
        _mark(main, figure, series, look, banded)
    return [*(_band(main, colour) if banded else []), main]


def _mark(
    main: dict[str, Any], figure: FigureData, series: Series, look: Look, banded: bool
) -> None:
    """Add markers to a trace, hollow if an exact curve runs through them.

    Of many points only some have markers, but the pointer shows the values of all.
    """
    through = any(s.style == "exact" and s.group == series.group for s in figure.series)
    x, y = main["x"], main["y"]
    size = np.zeros(len(x))
    size[marked(figure, x)] = 8
    symbol = look.marker[1] + ("-open" if through else "")
    main |= {"mode": "markers" if through else "lines+markers"}
    main["line"] |= {"width": 1.5}
    main["marker"] = {
        "symbol": symbol,
        "size": size if (size == 0).any() else 8,
        "color": look.colour,
    }
    main["marker"]["line"] = {"width": 1.6 if through else 0, "color": look.colour}
    if "customdata" in main and not banded:
        low, high = main["customdata"].T
        bars = {"array": np.maximum(high - y, 0.0), "arrayminus": np.maximum(y - low, 0.0)}
        main["error_y"] = bars | {
            "type": "data",
            "symmetric": False,
            "thickness": 1.2,
            "width": 4,
            "color": look.colour,
        }


def _band(main: dict[str, Any], colour: str) -> list[dict[str, Any]]:
    low, high = main["customdata"].T
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    edge = {key: main[key] for key in ("type", "name", "legendgroup", "meta", "x")}
    edge |= {
        "mode": "lines",
        "line": {"width": 0, "color": colour},
        "showlegend": False,
        "hoverinfo": "skip",
    }
    return [
        edge | {"y": low},
        edge | {"y": high, "fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.2)"},
    ]


def _hover(figure: FigureData, series: Series, interval: bool) -> str:
    bounds = "<br>interval: %{customdata[0]:.3g} to %{customdata[1]:.3g}" if interval else ""
    place = f"{_escaped(figure.x_label)}: %{{x:.6~g}}"
    value = f"value: %{{y:.4g}}{bounds}<extra></extra>"
    return f"<b>{_escaped(series.name)}</b><br>{place}<br>{value}"


def _layout(figure: FigureData) -> dict[str, Any]:
    layout: dict[str, Any] = {
        "xaxis": _axis(figure.x_label, figure.x_scale),
        "yaxis": _axis(figure.y_label, figure.y_scale),
        "hovermode": "closest",
        "showlegend": True,
        "legend": {"itemsizing": "constant", "groupclick": "togglegroup", "tracegroupgap": 0},
        "margin": {"l": 70, "r": 16, "t": 34, "b": 56},
    }
    parts, limits = [drawable(figure, s) for s in figure.series], shown_range(figure)
    if limits is not None:
        layout["yaxis"]["range"] = (
            list(np.log10(limits)) if figure.y_scale == "log" else list(limits)
        )
    places = few_places(figure)
    if places:
        layout["xaxis"] |= {"tickvals": places, "ticktext": [f"{place:g}" for place in places]}
    for axis, values in (
        ("xaxis", [part.x for part in parts]),
        ("yaxis", [part.y for part in parts]),
    ):
        layout[axis] |= (
            _tick_format(layout[axis]["type"], np.abs(np.concatenate(values)))
            if not places or axis == "yaxis"
            else {}
        )
    return layout


def _tick_format(scale: str, sizes: np.ndarray) -> dict[str, Any]:
    """The format of the ticks.

    A long logarithmic axis has whole decades; a linear one has full numbers if they are readable.
    """
    least, most = sizes.min(initial=np.inf), sizes.max(initial=0.0)
    if scale == "log":
        return (
            {"dtick": 1, "exponentformat": "power"}
            if most > 30 * least
            else {"exponentformat": "power"}
        )
    return {"exponentformat": "none" if 1e-3 < most < 1e7 else "power", "separatethousands": True}


def _axis(label: str, scale: str) -> dict[str, Any]:
    return {
        "title": {"text": _escaped(label)},
        "type": scale,
        "automargin": True,
        "zeroline": False,
        "ticks": "outside",
    }


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def require_plotly() -> Any:
    try:
        import plotly.graph_objects
    except ImportError as error:
        raise ProblemError("The report needs Plotly; run: pip install 'fegsam[report]'") from error
    return plotly.graph_objects
