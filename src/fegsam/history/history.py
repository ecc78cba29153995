"""A run's labelled result, and its file."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from fegsam.errors import ProblemError
from fegsam.history.settings import Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """Where a run can go on from: its last synchronisation (for one agent, its last step)."""

    time: int
    params: np.ndarray
    """(seeds, d): the average at `time`, which every agent holds"""
    states: np.ndarray | None = None
    """uint32 (seeds, N): each agent's state at `time`; None at time 0, where it is drawn"""


@dataclass(frozen=True, eq=False)
class History:
    """What a run leaves behind.

    Attributes
    ----------
    data : xarray.Dataset
        Dimensions seed, time, param. Variables by (seed, time): `squared_error`, of the average from the fixed point in the
        norm of the algorithm's theorem (the sup norm for tables, else the 2-norm); `squared_error_2`, always in the 2-norm;
        `sync_error`, the mean squared distance of the agents from their average; `value_error`, of the values from the
        policy's, where one is evaluated. By (seed): `output_time`, the theorem's random time, `output_squared_error`, the
        squared error there, and `diverged_at`, the first time that was not finite or -1. Parameters: `final_params`,
        `output_params` (seed, param), and `average_params` (seed, time, param) if asked for.
    settings : Settings
        What the run was asked to do.
    checkpoint : Checkpoint or None
        Where ``run(..., resume_from=history)`` goes on; None where the run stopped at its output times.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> history = fg.run(fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=100, seeds=range(3), record=25)
    >>> history.data.squared_error.dims, history.data.time.values.tolist()
    (('seed', 'time'), [0, 25, 50, 75, 100])
    >>> history.settings.communications
    20
    >>> history
    History(QLearning(), agents=4, step_size=0.1, sync_period=5, num_steps=100, seeds=3, squared_error=...)
    """

    data: xr.Dataset
    settings: Settings
    checkpoint: Checkpoint | None = None

    def __repr__(self) -> str:
        settings, error = self.settings, self.data["squared_error"][:, -1].values
        return (
            f"History({settings.algorithm}, agents={settings.num_agents}, step_size={settings.step_size:g}, "
            f"sync_period={settings.sync_period}, num_steps={settings.num_steps}, seeds={len(settings.seeds)}, "
            f"squared_error={error.mean():.3g})"
        )

    def _repr_html_(self) -> str:
        from fegsam.history.plot import error_band
        from fegsam.pictures import card, curve

        settings, errors = self.settings, self.data["squared_error"].values
        mean = errors.mean(axis=0)
        diverged = int((self.data["diverged_at"].values >= 0).sum())
        rows = [
            ("agents", f"{settings.num_agents}"),
            ("step size", f"{settings.step_size:g}"),
            ("sync period", f"{settings.sync_period}: {settings.communications} communications"),
            ("steps, seeds", f"{settings.num_steps}, {len(settings.seeds)}" + (f" ({diverged} diverged)" if diverged else "")),
            ("squared error", f"{mean[0]:.3g} at the start, {mean[-1]:.3g} at the end"),
        ]
        band = error_band(errors)
        picture = curve(self.data["time"].values, mean, *(band or ()))
        drawn = "one seed" if band is None else "mean over seeds in its 95 % interval"
        return card(f"{settings.algorithm}: {drawn}", rows, picture)

    def plot(self, axes: Axes | None = None, *, error: str = "squared_error", label: str | None = None) -> Axes:
        """Draw an error over time: the mean over seeds, and its 95 % interval as a band, which no single seed has.

        The axis is logarithmic, and the interval is that of the logarithm: it is positive wherever the error is.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Where to draw, so that several histories share a figure; new ones by default.
        error : str
            "squared_error", "squared_error_2", "value_error" or "sync_error".
        label : str, optional
            For the legend; the number of agents by default.

        Returns
        -------
        matplotlib Axes

        Examples
        --------
        >>> import fegsam as fg
        >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
        >>> history = fg.run(fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=100, seeds=range(3))
        >>> history.plot().get_yscale()
        'log'
        """
        from fegsam.history.plot import plot_error

        return plot_error(self, axes, error, label)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a NetCDF file: to a temporary name first, so that the file is whole or not there.

        >>> import tempfile, pathlib
        >>> import fegsam as fg
        >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
        >>> history = fg.run(fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=100)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     history.save(pathlib.Path(folder) / "run.nc")
        ...     [path.name for path in pathlib.Path(folder).iterdir()]
        ['run.nc']
        """
        _require_netcdf()
        target = pathlib.Path(path)
        stored = self.data.assign_attrs(_attributes(self.settings))
        if self.checkpoint is not None:
            stored.attrs["checkpoint_time"] = self.checkpoint.time
            stored["checkpoint_params"] = (("seed", "param"), self.checkpoint.params)
            if self.checkpoint.states is not None:
                stored["checkpoint_states"] = (("seed", "agent"), self.checkpoint.states)
        if not target.parent.is_dir():
            raise ProblemError(f"There is no folder {str(target.parent)!r} to save the history in; create it first.")
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
        try:
            stored.to_netcdf(temporary, engine="netcdf4")
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


def load_history(path: str | os.PathLike[str]) -> History:
    """Read what `History.save` wrote.

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
    _require_netcdf()
    if not pathlib.Path(path).is_file():
        raise ProblemError(f"There is no history at {str(path)!r}; check the path.")
    try:
        stored = xr.load_dataset(path, engine="netcdf4")
        settings = _settings(stored.attrs, stored["time"].values, stored["seed"].values)
        checkpoint = _checkpoint(stored)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ProblemError(
            f"{str(path)!r} is not a history that fegsam wrote, or it is damaged ({error}); save it again."
        ) from error
    data = stored.drop_vars(["checkpoint_params", "checkpoint_states"], errors="ignore").drop_attrs(deep=False)
    return History(data, settings, checkpoint)


def _attributes(settings: Settings) -> dict[str, Any]:
    plain = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings) if f.name not in ("record", "seeds")}
    return {"fegsam_format": _FORMAT, "settings": json.dumps(plain), "communications": settings.communications}


def _settings(attributes: dict[str, Any], times: np.ndarray, seeds: np.ndarray) -> Settings:
    if attributes["fegsam_format"] != _FORMAT:
        raise ValueError(f"format {attributes['fegsam_format']}, expected {_FORMAT}")
    plain = json.loads(attributes["settings"])
    return Settings(record=times.astype(np.int64), seeds=tuple(int(seed) for seed in seeds), **plain)


def _checkpoint(stored: xr.Dataset) -> Checkpoint | None:
    if "checkpoint_params" not in stored:
        return None
    states = stored["checkpoint_states"].values if "checkpoint_states" in stored else None
    return Checkpoint(int(stored.attrs["checkpoint_time"]), stored["checkpoint_params"].values, states)


def _require_netcdf() -> None:
    try:
        import netCDF4  # noqa: F401
    except ImportError as error:
        raise ProblemError("Saving and loading histories needs NetCDF; run: pip install 'fegsam[netcdf]'") from error
