"""The agents of a short run on paper: their paths in a plane, and their values as heat maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fegsam.errors import ProblemError, shown
from fegsam.history.agent_paths import AgentPaths, in_plane
from fegsam.history.plot import add_legend, print_axes, wake_backend
from fegsam.print_style import COLOURS, COLUMN, PAGE, PRINT, require_matplotlib
from fegsam.problem.checks import FloatArray, array_shape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_AGENTS = 7
"""Agents whose values are drawn, beside the average."""


def plot_paths(agents: AgentPaths, axes: Axes | None, plane: tuple[int, int] | None = None) -> Axes:
    """See `AgentPaths.plot`."""
    paths, averages, fixed, names = in_plane(agents, plane)
    with print_axes(axes) as drawn:
        for agent in range(paths.shape[1]):
            colour = COLOURS[agent % (len(COLOURS) - 1)]
            line = _with_jumps(paths[:, agent], averages, agents.syncs)
            drawn.plot(*line.T, color=colour, linewidth=0.7, alpha=0.8, zorder=2)
            ends = paths[agents.syncs, agent]
            drawn.plot(*ends.T, "o", color=colour, markersize=2.6, zorder=3)
        met = averages[np.concatenate([[0], agents.syncs])]
        drawn.plot(*met.T, "D", color="black", markersize=3.2, label="average", zorder=4)
        drawn.plot(*fixed, "x", color="black", markersize=6, label="fixed point", zorder=5)
        drawn.set(xlabel=names[0], ylabel=names[1])
        add_legend(drawn)
    return drawn


def _with_jumps(path: FloatArray, averages: FloatArray, syncs: Any) -> FloatArray:
    """The path of an agent, which a synchronisation moves to the average."""
    met = {int(t) for t in syncs}
    points = [
        point
        for t, place in enumerate(path)
        for point in ((place, averages[t]) if t in met else (place,))
    ]
    return np.array(points)


def plot_values(
    agents: AgentPaths, time: int | None = None, grid: tuple[int, int] | None = None
) -> Figure:
    """See `AgentPaths.plot`."""
    matplotlib = require_matplotlib()
    from matplotlib.figure import Figure

    wake_backend()
    if time is None:
        time = int(agents.syncs[-1]) if len(agents.syncs) else len(agents.params) - 1
    values = agents.values(time)
    taking_part = np.flatnonzero(np.isfinite(values).all(axis=1))
    average = agents.value_of(np.nanmean(agents.params[time], axis=0))
    rows, columns = _shape(agents, grid, values.shape[1])
    shown_agents = taking_part[:_MOST_AGENTS]
    panels = [(f"agent {agent}", values[agent]) for agent in shown_agents]
    panels += [("average", average), ("exact", agents.value_of(agents.fixed_point))]
    across = min(len(panels), 3 if len(panels) <= 3 else 5 if len(panels) > 6 else 3)
    down = -(-len(panels) // across)
    low, high = min(each.min() for _, each in panels), max(each.max() for _, each in panels)
    width = COLUMN if across <= 3 else PAGE
    with matplotlib.rc_context(PRINT | {"axes.grid": False}):
        height = down * (width / across * min(1.5, rows / columns) + 0.22) + 0.5
        page = Figure(figsize=(width, height))
        places = page.subplots(down, across, squeeze=False).ravel()
        image = None
        for place, (title, each) in zip(places, panels, strict=False):
            image = place.imshow(each.reshape(rows, columns), cmap="cividis", vmin=low, vmax=high)
            place.set_title(title, fontsize=8)
            place.set(xticks=[], yticks=[])
        for place in places[len(panels) :]:
            place.set_axis_off()
        assert image is not None
        page.colorbar(
            image,
            ax=list(places),
            label=f"value after {time} steps",
            orientation="horizontal",
            aspect=40,
        )
    return page


def _shape(agents: AgentPaths, grid: Any, states: int) -> tuple[int, int]:
    chosen = agents.grid if grid is None else grid
    if chosen is None:
        return 1, states
    try:
        rows, columns = chosen
    except (TypeError, ValueError):
        raise ProblemError(f"grid is {shown(grid)}; give (rows, columns).") from None
    rows, columns = array_shape(rows=rows, columns=columns)
    if rows * columns != states:
        raise ProblemError(
            f"grid is {(rows, columns)}, which has {rows * columns} cells for {states} states; "
            "give rows and columns whose product is that."
        )
    return rows, columns
