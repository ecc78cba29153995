"""What exact computations return."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Moments:
    """Exact expectations at given times.

    Attributes
    ----------
    times : (t,) array of int
    mse : (t,) array
        E||avg_t - theta*||_2^2.
    mean : (t, d) array
        E avg_t.
    sync_error : (t,) array
        E Omega_t, the expected mean over the agents of ||theta^i_t - avg_t||_2^2.
    order : int
        The recursion keeps sets of at most `order` agents.
    truncation : float
        The largest relative difference in `mse` to the order below, usually far larger than the
        difference to the order above. Zero if nothing was left out; NaN if no two orders were
        compared or if they differ by more than a tenth (`note` says which).
    note : str
        Empty, or why the truncation error is unknown, and the cure.

    Examples
    --------
    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> fg.exact.moments(coin, average, step_size=0.5, sync_period=3, times=[0, 1]).mean.ravel()
    array([0.  , 0.25])
    """

    times: np.ndarray
    mse: np.ndarray
    mean: np.ndarray
    sync_error: np.ndarray
    order: int
    truncation: float
    note: str = ""

    def plot(
        self,
        axes: Axes | None = None,
        *,
        label: str = "exact, 2-norm",
        save: str | os.PathLike[str] | None = None,
    ) -> Axes:
        """Draw the error at the given times, for instance beside that of runs.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Those of ``history.plot(error="squared_error_2")``, or by default a new figure.
        label : str
            For the legend.
        save : path, optional
            Write the figure, too: a PDF, SVG or PNG file by its ending.

        Examples
        --------
        >>> import fegsam as fg
        >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
        >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
        >>> settings = {"step_size": 0.5, "sync_period": 3}
        >>> axes = fg.run(coin, average, num_steps=9, seeds=range(4), **settings).plot()
        >>> exact = fg.exact.moments(coin, average, times=range(10), **settings)
        >>> len(exact.plot(axes).lines)
        2
        """
        from fegsam.history.plot import plot_exact, save_figure

        drawn = plot_exact(self.times, self.mse, axes, label)
        if save is not None:
            save_figure(drawn, save)
        return drawn


class ExactValue(float):
    """A float that also says how accurate it is.

    Attributes
    ----------
    order : int
        The recursion kept sets of at most `order` agents.
    truncation : float
        The relative difference to the order below, as in `Moments`.
    note : str
        Empty, or why the truncation error is unknown, and the cure.

    Examples
    --------
    >>> value = ExactValue(0.5, order=2, truncation=1e-12)
    >>> value + 1, value.order
    (1.5, 2)
    """

    order: int
    truncation: float
    note: str

    def __new__(cls, value: float, order: int, truncation: float, note: str = "") -> ExactValue:
        self = super().__new__(cls, value)
        self.order, self.truncation, self.note = order, truncation, note
        return self

    def __getnewargs__(self) -> tuple[float, int, float, str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return float(self), self.order, self.truncation, self.note


@dataclass(frozen=True, eq=False)
class TailMoments:
    """Exact expectations of a tail average, the mean of the averages at the end of a run.

    Attributes
    ----------
    mse : float
        E||tail - theta*||_2^2.
    mean : (d,) array
        E tail.
    order, truncation, note
        As in `Moments`.

    Examples
    --------
    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> settings = {"step_size": 0.5, "sync_period": 1, "num_steps": 2}
    >>> fg.exact.tail_error(coin, average, tail=1.0, **settings).mean
    array([0.3125])
    """

    mse: float
    mean: np.ndarray
    order: int
    truncation: float
    note: str = ""
