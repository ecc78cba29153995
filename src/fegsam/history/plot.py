"""A history's error over time, on matplotlib axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from fegsam.errors import ProblemError, shown

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
        raise ProblemError(f"label is {shown(label)}; give a text.")
    if axes is None:
        axes = _pyplot().subplots(layout="constrained")[1]
    times, values = history.data["time"].values, history.data[error].values
    mean = values.mean(axis=0)
    (line,) = axes.plot(times, mean, label=label or f"{history.settings.num_agents} agents")
    if len(values) > 1:
        half = stats.t.ppf(0.975, len(values) - 1) * values.std(axis=0, ddof=1) / np.sqrt(len(values))
        axes.fill_between(times, mean - half, mean + half, color=line.get_color(), alpha=0.2, linewidth=0)
    labels = {name: history.data[name].attrs.get("long_name", name) for name in ("time", error)}
    axes.set(yscale="log", xlabel=labels["time"], ylabel=labels[error])
    axes.legend()
    return axes


def _pyplot():
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ProblemError("Plots need matplotlib; run: pip install 'fegsam[report]'") from error
    return plt
