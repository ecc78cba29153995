"""A history's error over time or over communications, on matplotlib axes."""

from __future__ import annotations

import contextlib
import os
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fegsam.errors import ProblemError, shown
from fegsam.history.intervals import mean_bounds
from fegsam.history.measures import DEVIATION, DISTANCES, MEASURES, NORMAL, leading
from fegsam.print_style import COLOURS, COLUMN, PRINT, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fegsam.history.history import History

_ERRORS = ("squared_error", "squared_error_2", "value_error", "sync_error")
_HEIGHT = 2.4
"""Inches."""
_TALL = 30
"""The letters after which the y label is wrapped."""
_ACROSS = 46
"""The letters that fit beside each other in a legend; a key takes six."""
_POINTS = 40
"""Numbers of communications at which a frontier is drawn."""
_OWN = "fegsam"
"""The id of axes that were made here."""


def plot_error(
    history: History, axes: Axes | None, error: str, label: str | None, over: str = "time"
) -> Axes:
    """See `History.plot`; `over` is "time" or "communications"."""
    known = [name for name in (*_ERRORS, *MEASURES) if name in history.data]
    if not isinstance(error, str) or error not in known:
        raise ProblemError(f"error is {shown(error)}; give one of {', '.join(map(repr, known))}.")
    if error == "squared_error" and not np.isfinite(history.data[error]).any():
        # Agents on data: no fixed point is known.
        error = leading(name for name in known if np.isfinite(history.data[name]).any()) or error
    if label is not None and not isinstance(label, str):
        raise ProblemError(f"label is {shown(label)}; give a string.")
    if error == "sync_error" and not history.data[error].values.any():
        raise ProblemError(
            "sync_error is 0 at every recorded time, because each of them is a synchronisation; "
            "run again with record= a number of steps that is no multiple of sync_period."
        )
    settings = history.settings
    times, values = history.data["time"].values, history.data[error].values
    band = error_band(values) if error in _ERRORS else measured_band(history, error)
    x_label = history.data["time"].attrs.get("long_name", "time")
    plural = "" if settings.num_agents == 1 else "s"
    said = label or f"{settings.num_agents} agent{plural}"
    if over == "communications":
        rounds = np.array([settings.rounds.count(int(t)) for t in times])
        chosen = _spread(rounds)
        times, values = rounds[chosen] * settings.exchanges, values[:, chosen]
        band = None if band is None else (band[0][chosen], band[1][chosen])
        x_label = "communications"
        said = label or f"K = {settings.sync_period}"
    y_label = textwrap.fill(history.data[error].attrs.get("long_name", error), _TALL)
    with print_axes(axes) as drawn:
        (line,) = drawn.plot(times, values.mean(axis=0), label=said)
        if band is not None:
            drawn.fill_between(times, *band, color=line.get_color(), alpha=0.2, linewidth=0)
        falls = error in _ERRORS or error in DISTANCES
        drawn.set(yscale="log" if falls else "linear", xlabel=x_label, ylabel=y_label)
        if falls and band is not None and (values.mean(axis=0) <= 0).any():
            # Near zero, where the noise of the measurement crosses it, the axis is linear.
            drawn.set_yscale("symlog", linthresh=float(np.median(band[1] - band[0])))
        if over == "communications":
            drawn.set_xscale("log")
        add_legend(drawn)
    return drawn


def plot_exact(times: np.ndarray, errors: np.ndarray, axes: Axes | None, label: str) -> Axes:
    """See `fegsam.exact.Moments.plot`."""
    if not isinstance(label, str):
        raise ProblemError(f"label is {shown(label)}; give a string.")
    order = np.argsort(times)
    with print_axes(axes) as drawn:
        drawn.plot(times[order], errors[order], "--", color="black", label=label)
        if axes is None:
            y_label = textwrap.fill("squared error of the average, 2-norm", _TALL)
            drawn.set(yscale="log", xlabel="steps of each agent", ylabel=y_label)
        add_legend(drawn)
    return drawn


def _spread(rounds: np.ndarray) -> np.ndarray:
    """The places of about `_POINTS` numbers of rounds above 0, evenly spread on a log axis."""
    numbers, first = np.unique(rounds, return_index=True)
    numbers, first = numbers[numbers > 0], first[numbers > 0]
    if not len(numbers):
        raise ProblemError(
            "The agents never communicated in this run, so there is no error against "
            "communications; give a sync_period of at most num_steps."
        )
    wanted = np.geomspace(numbers[0], numbers[-1], _POINTS)
    return first[np.unique(np.abs(np.log(numbers) - np.log(wanted)[:, None]).argmin(axis=1))]


def error_band(errors: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray] | None:
    """The interval of the mean over the seeds of (seeds, time), or None for a single seed.

    The interval is a pair (low, high), (time,) each.

    >>> low, high = error_band(np.array([[4.0, 1.0], [4.0, 3.0]]))
    >>> bool((low > 0).all()), float(low[0]), float(high[0])
    (True, 4.0, 4.0)
    """
    if len(errors) < 2:
        return None
    # A diverged seed is NaN, and its last errors may overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        return mean_bounds(errors, "t", level, 0, positive=True)[1:]


def measured_band(history: History, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The interval of what was measured on data: (low, high), (time,) each; None if it has none.

    It is that of the mean over the seeds or, where that is wider, that of the measurement: the same
    held-out episodes measure all seeds, so their errors do not average out.

    >>> import numpy as np
    >>> import xarray as xr
    >>> from types import SimpleNamespace
    >>> values = {"residual": [[1.0, 2.0]], "residual_standard_error": [[0.1, 0.2]]}
    >>> data = xr.Dataset({key: (("seed", "time"), value) for key, value in values.items()})
    >>> measured_band(SimpleNamespace(data=data), "residual")[0].round(2).tolist()
    [0.8, 1.61]
    """
    values = history.data[name].values
    mean = values.mean(axis=0)
    low = high = np.full(len(mean), np.nan)
    if len(values) > 1:
        low, high = mean_bounds(values, "t", 0.95, 0)[1:]
    if name + DEVIATION in history.data:
        spread = NORMAL * history.data[name + DEVIATION].values.mean(axis=0)
        low, high = np.fmin(low, mean - spread), np.fmax(high, mean + spread)
    return None if np.isnan(low).all() else (low, high)


@contextlib.contextmanager
def print_axes(axes: Axes | None) -> Iterator[Axes]:
    """`axes`, or those of a new figure: one column of a paper wide, in colours that all can see.

    In the block, and for axes that were made here, matplotlib's settings are those of print.

    >>> with print_axes(None) as axes:
    ...     axes.figure.get_size_inches().tolist()
    [3.4, 2.4]
    """
    if axes is not None and axes.get_gid() != _OWN:
        yield axes
        return
    matplotlib = require_matplotlib()
    import matplotlib.pyplot as plt
    from cycler import cycler

    wake_backend()
    with matplotlib.rc_context(PRINT | {"axes.prop_cycle": cycler(color=COLOURS)}):
        if axes is None:
            axes = plt.subplots(figsize=(COLUMN, _HEIGHT), layout="constrained")[1]
            axes.set_gid(_OWN)
        yield axes


def wake_backend() -> None:
    """Let Jupyter's backend start now.

    When it is first used, it turns interactive mode on and learns to show figures. If that happened
    while matplotlib's settings are those of print, their end would turn it off again, and no later
    figure of the user's own would be shown; without it, a figure that a cell returns is not shown.
    """
    import matplotlib.pyplot as plt

    plt.draw_if_interactive()


def add_legend(axes: Axes) -> None:
    """A legend above axes that were made here, where it hides nothing; else where there is room."""
    if axes.get_gid() == _OWN:
        labels = axes.get_legend_handles_labels()[1]
        columns = max(1, _ACROSS // (max(map(len, labels)) + 6))
        axes.legend(loc="lower left", bbox_to_anchor=(-0.05, 1.0), ncols=columns, borderaxespad=0.2)
    else:
        axes.legend()


def save_figure(drawn: Any, path: str | os.PathLike[str]) -> None:
    """Write the figure of axes, or a figure, with text that stays text in a PDF."""
    matplotlib = require_matplotlib()
    figure = getattr(drawn, "figure", drawn)
    with matplotlib.rc_context(PRINT):
        try:
            figure.savefig(path)
        except (OSError, ValueError) as error:
            raise ProblemError(
                f"The figure cannot be written to {str(path)!r} ({error}); give the name of a "
                "file that ends in .pdf, .svg or .png."
            ) from error
