"""A run's labelled result, and its file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from fegsam.errors import ProblemError, shown
from fegsam.history.agent_paths import AgentPaths
from fegsam.history.measures import leading
from fegsam.history.settings import Settings
from fegsam.problem.policies import greedy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Checkpoint:
    """Where a run can be continued: its last synchronisation (for one agent, its last step)."""

    time: int
    params: np.ndarray
    """(seeds, d): the average at `time`, which every agent holds"""
    states: np.ndarray | None = None
    """uint32 (seeds, N): each agent's state at `time`; None at time 0, before it is drawn"""
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)
    """what else the method keeps from round to round, by name; each array begins with the seeds"""

    def only(self, places: np.ndarray) -> Checkpoint:
        """The same for some of the seeds."""
        states = None if self.states is None else self.states[places]
        memory = {name: values[places] for name, values in self.memory.items()}
        return Checkpoint(self.time, self.params[places], states, memory)


@dataclass(frozen=True, eq=False)
class History:
    """The result of a run.

    Attributes
    ----------
    data : xarray.Dataset
        Dimensions seed, time, param. Variables by (seed, time): `squared_error`, the squared
        distance of the average from the fixed point in the norm of the algorithm's theorem (the sup
        norm for tables, else the 2-norm); `squared_error_2`, the same in the 2-norm; `sync_error`,
        the mean squared distance of the agents from their average, which is 0 at a synchronisation
        (``record=`` chooses times between them); `value_error`, the weighted
        squared distance of the values from those of the policy, where one is evaluated. By (seed):
        `output_time`, the theorem's random time; `output_squared_error`, the squared error there;
        and `diverged_at`, the first time at which a parameter was beyond 1e140 or a recorded error
        was not finite, or -1. From that time on all values are NaN. Parameters: `final_params` and
        `output_params` (seed, param), and `average_params` (seed, time, param) if requested. With
        a tail average: `tail_params` (seed, param) and `tail_squared_error` (seed). Of agents on
        data also what was measured, by (seed, time), such as `distance_to_estimate`, each with its
        standard error, and what is in their logs, by (agent), such as `data_effective_rows`.
    settings : Settings
        The arguments of the run.
    checkpoint : Checkpoint or None
        Where ``run(..., resume_from=history)`` continues; None if the run stopped at its output
        times.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> history = fg.run(
    ...     fed,
    ...     fg.QLearning(),
    ...     step_size=0.1,
    ...     sync_period=5,
    ...     num_steps=100,
    ...     seeds=range(3),
    ...     record=25,
    ... )
    >>> history.data.squared_error.dims, history.data.time.values.tolist()
    (('seed', 'time'), [0, 25, 50, 75, 100])
    >>> history.settings.communications
    20
    >>> history
    History(QLearning(), agents=4, step_size=0.1, sync_period=5, num_steps=100, seeds=3,
    squared_error=...)
    """

    data: xr.Dataset
    settings: Settings
    checkpoint: Checkpoint | None = None

    def __repr__(self) -> str:
        settings, name = self.settings, self._quality()
        error = self.data[name][:, -1].values
        return (
            f"History({settings.algorithm}, agents={settings.num_agents}, "
            f"step_size={settings.step_size:g}, sync_period={settings.sync_period}, "
            f"num_steps={settings.num_steps}, seeds={len(settings.seeds)}, "
            f"{name}={error.mean():.3g})"
        )

    def _repr_html_(self) -> str:
        from fegsam.history.plot import error_band, measured_band
        from fegsam.pictures import card, curve

        settings, name = self.settings, self._quality()
        errors = self.data[name].values
        mean = errors.mean(axis=0)
        diverged = int((self.data["diverged_at"].values >= 0).sum())
        rows = [
            ("agents", f"{settings.num_agents}"),
            ("step size", f"{settings.step_size:g}"),
            ("sync period", f"{settings.sync_period}: {settings.communications} communications"),
            (
                "steps, seeds",
                f"{settings.num_steps}, {len(settings.seeds)}"
                + (f" ({diverged} diverged)" if diverged else ""),
            ),
            (name.replace("_", " "), f"{mean[0]:.3g} at the start, {mean[-1]:.3g} at the end"),
        ]
        band = error_band(errors) if name == "squared_error" else measured_band(self, name)
        picture = curve(self.data["time"].values, mean, *(band or ()))
        several = len(settings.seeds) > 1
        drawn = "mean over seeds in its 95 % interval" if several else "one seed"
        return card(f"{settings.algorithm}: {drawn}", rows, picture)

    def _quality(self) -> str:
        """The squared error or, where no fixed point is known, the most telling measure."""
        if np.isfinite(self.data["squared_error"].values).any():
            return "squared_error"
        known = (str(name) for name in self.data if np.isfinite(self.data[name].values).any())
        return leading(known) or "squared_error"

    def plot(
        self,
        axes: Axes | None = None,
        *,
        kind: str = "error",
        error: str = "squared_error",
        label: str | None = None,
        agents: AgentPaths | None = None,
        save: str | os.PathLike[str] | None = None,
    ) -> Any:
        """Draw the history, by default its error over time, one column of a paper wide.

        The error is the mean over seeds, with its 95 % interval as a band. The axis is logarithmic,
        and the interval is that of the logarithm, so it is positive wherever the error is. A single
        seed has no band.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Where to draw, so that several histories can share a figure; by default a new figure.
        kind : "error", "frontier", "paths" or "values"
            The error over time, or against communications, where histories of several sync periods
            show what a communication buys. With `agents`: their paths in the plane in which they
            move most, or their values as heat maps, agent by agent against the average.
        error : str
            "squared_error", "squared_error_2", "value_error" or "sync_error". Of agents on data any
            quantity that was measured, by default the most telling one, such as
            "distance_to_estimate"; its band includes the error of the measurement.
        label : str, optional
            For the legend; the number of agents by default, or the sync period for a frontier.
        agents : AgentPaths, optional
            What ``fegsam.agent_paths`` returned, for kinds that show single agents.
        save : path, optional
            Write the figure, too: a PDF, SVG or PNG file by its ending.

        Returns
        -------
        matplotlib Axes, or Figure for the values

        Examples
        --------
        >>> import fegsam as fg
        >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
        >>> history = fg.run(
        ...     fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=100, seeds=range(3)
        ... )
        >>> history.plot().get_yscale()
        'log'
        >>> history.plot(kind="frontier").get_xlabel()
        'communications'
        """
        from fegsam.history.plot import plot_error, save_figure

        if kind in ("error", "frontier"):
            over = "time" if kind == "error" else "communications"
            drawn = plot_error(self, axes, error, label, over)
        elif kind not in ("paths", "values"):
            raise ProblemError(
                f"kind is {shown(kind)}; give 'error', 'frontier', 'paths' or 'values'."
            )
        elif not isinstance(agents, AgentPaths):
            raise ProblemError(
                f"kind={kind!r} shows single agents, which a history does not keep; give "
                "agents=fegsam.agent_paths(...) with the arguments of the run."
            )
        else:
            return agents.plot(axes, kind=kind, save=save)
        if save is not None:
            save_figure(drawn, save)
        return drawn

    def q_table(self, seed: int | None = None) -> xr.DataArray:
        """The action values that a seed learned: the average of the agents at the end.

        Parameters
        ----------
        seed : int, optional
            One of the run's seeds; the first by default.

        Returns
        -------
        (S, A) xarray.DataArray
            Dimensions state and action.

        Examples
        --------
        >>> import fegsam as fg
        >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
        >>> history = fg.run(fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=1e3)
        >>> history.q_table().dims, history.q_table().shape
        (('state', 'action'), (2, 2))
        """
        actions = self.settings.num_actions
        if not actions:
            raise ProblemError(
                f"{self.settings.algorithm} learns no action values, or the history was saved "
                "before histories knew; read data.final_params instead."
            )
        seeds = self.settings.seeds
        if seed is not None and seed not in seeds:
            raise ProblemError(
                f"seed is {shown(seed)}, which the run does not have; give one of "
                f"{shown(list(seeds))}."
            )
        final = self.data["final_params"].values[0 if seed is None else seeds.index(seed)]
        table = final.reshape(-1, actions)
        coords = {"state": np.arange(len(table)), "action": np.arange(actions)}
        return xr.DataArray(
            table.copy(), coords, ("state", "action"), attrs={"long_name": "action value"}
        )

    def policy(self, seed: int | None = None) -> np.ndarray:
        """The greedy policy of the table that a seed learned (see `q_table`).

        Returns
        -------
        (S, A) array

        Examples
        --------
        >>> import fegsam as fg
        >>> mdp = fg.examples.two_state()
        >>> fed = fg.Federation(mdp, fg.policies.uniform(2, 2), num_agents=4)
        >>> history = fg.run(fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=1e3)
        >>> best = fg.fixed_point(fed, fg.QLearning()).reshape(2, 2)
        >>> bool((history.policy() == fg.policies.greedy(best)).all())
        True
        >>> fg.policy_value(mdp, history.policy()).shape
        (2,)
        """
        return greedy(self.q_table(seed).values)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the history as a NetCDF file, followed by a checksum.

        It is written to a temporary name and renamed, so the file is never there in part. Once this
        returns, the file is on the disk. Any NetCDF reader opens it.

        >>> import tempfile, pathlib
        >>> import fegsam as fg
        >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
        >>> history = fg.run(fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=100)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     history.save(pathlib.Path(folder) / "run.nc")
        ...     [path.name for path in pathlib.Path(folder).iterdir()]
        ['run.nc']
        """
        from fegsam.history.storage import save_history

        save_history(self, path)


def load_history(path: str | os.PathLike[str]) -> History:
    """Read what `History.save` wrote.

    The file's SHA-256 is checked before anything is parsed, and a truncated or changed file is
    refused. A file from a version that wrote no checksum is read with a `UserWarning`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> history = fg.run(fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=100)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     history.save(pathlib.Path(folder) / "run.nc")
    ...     again = fg.load_history(pathlib.Path(folder) / "run.nc")
    >>> again.data.equals(history.data)
    True
    """
    from fegsam.history.storage import load_history as load

    return load(path)
