"""A history's error over time, on matplotlib axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fegsam.errors import ProblemError, shown
from fegsam.history.intervals import mean_bounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fegsam.history.history import History

_ERRORS = ("squared_error", "squared_error_2", "value_error", "sync_error")


def plot_error(history: History, axes: Axes | None, error: str, label: str | None) -> Axes:
    """See `History.plot`."""
    known = [name for name in _ERRORS if name in history.data]
    if not isinstance(error, str) or error not in known:
        raise ProblemError(f"error is {shown(error)}; give one of {', '.join(map(repr, known))}.")
    if label is not None and not isinstance(label, str):
        raise ProblemError(f"label is {shown(label)}; give a string.")
    if axes is None:
        axes = _pyplot().subplots(layout="constrained")[1]
    times, values = history.data["time"].values, history.data[error].values
    (line,) = axes.plot(
        times, values.mean(axis=0), label=label or f"{history.settings.num_agents} agents"
    )
    band = error_band(values)
    if band is not None:
        axes.fill_between(times, *band, color=line.get_color(), alpha=0.2, linewidth=0)
    labels = {name: history.data[name].attrs.get("long_name", name) for name in ("time", error)}
    axes.set(yscale="log", xlabel=labels["time"], ylabel=labels[error])
    axes.legend()
    return axes


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


def _pyplot():
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ProblemError("Plots need matplotlib; run: pip install 'fegsam[report]'") from error
    return plt
