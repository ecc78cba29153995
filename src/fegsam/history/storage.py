"""The file of a history: NetCDF followed by a seal (see `safe_files`).

The seal is checked before anything is parsed. An attribute inside the file says that the file is
sealed. So a file with this attribute and no seal is damaged, and a file with neither was written
before files had seals: it is read with a warning, after a separate process has read it without
hanging or crashing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from fegsam.errors import ProblemError, shown
from fegsam.history.settings import Settings
from fegsam.safe_files import DamagedError, append_seal, read_plain, sealed_by, whole

if TYPE_CHECKING:
    from fegsam.history.history import Checkpoint, History

_FORMAT = 1
_SEALED = "fegsam_seal"
"""The attribute that says that a file is sealed; the raw bytes are searched for its name."""
_MEMORY = "checkpoint_memory_"
"""What the names of the arrays in `Checkpoint.memory` begin with in a file."""
_LEAST_LIMIT = 1 << 30
"""The arrays of any file may take this many bytes: NetCDF tools may have compressed it."""
PATIENCE = 30.0
"""Seconds that reading a file without a seal may take, plus one for every `_PACE` bytes."""
_PACE = 10_000_000


def save_history(history: History, path: str | os.PathLike[str], owner: str = "") -> None:
    """Write a history, sealed with `owner`, so that it is not mistaken for another one."""
    _require_netcdf()
    target = pathlib.Path(path)
    stored = history.data.assign_attrs(_attributes(history.settings))
    if history.checkpoint is not None:
        stored.attrs["checkpoint_time"] = history.checkpoint.time
        stored["checkpoint_params"] = (("seed", "param"), history.checkpoint.params)
        if history.checkpoint.states is not None:
            stored["checkpoint_states"] = (("seed", "agent"), history.checkpoint.states)
        for name, values in history.checkpoint.memory.items():
            axes = tuple(f"{name}_{axis}" for axis in range(1, values.ndim))
            stored[_MEMORY + name] = (("seed", *axes), values)
    if not target.parent.is_dir():
        raise ProblemError(
            f"There is no folder {str(target.parent)!r} to save the history in; create it first."
        )
    try:
        with whole(target) as temporary:
            stored.to_netcdf(temporary, engine="netcdf4")
            append_seal(temporary, owner)
    except (OSError, RuntimeError) as error:
        # When the disk is full, HDF5 raises a RuntimeError that only says "HDF error".
        reason = getattr(error, "strerror", None) or error
        raise ProblemError(
            f"{str(path)!r} cannot be written ({reason}); make room there, or choose a folder "
            "that can be written to."
        ) from error


def load_history(path: str | os.PathLike[str]) -> History:
    """See `fegsam.load_history`."""
    _require_netcdf()
    if not isinstance(path, str | os.PathLike):
        raise ProblemError(
            f"path is {shown(path)}; give the path of a file that History.save wrote."
        )
    try:
        label = sealed_by(path)
        content = b"" if label is not None else read_plain(path)
    except DamagedError:
        raise _damaged(path, "its checksum is wrong") from None
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise ProblemError(f"There is no history at {str(path)!r}; check the path.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProblemError(
            f"The history {str(path)!r} cannot be read ({reason}); check the path."
        ) from error
    if label is None:
        if _SEALED.encode() in content:
            raise _damaged(path, "its end, which holds the checksum, is missing or changed")
        _try_reading(path, len(content))
    history = parse_history(path)
    if label is None:
        warnings.warn(
            f"{str(path)!r} has no checksum, so changed numbers in it would go unnoticed; it was "
            "written by a version of fegsam before checksums: save it again to give it one.",
            UserWarning,
            stacklevel=3,
        )
    return history


def parse_history(path: str | os.PathLike[str]) -> History:
    """The history in a file that is known to be undamaged."""
    from fegsam.history.history import History

    _require_netcdf()
    try:
        _check_size(path)
        stored = xr.load_dataset(path, engine="netcdf4")
        settings = _settings(stored.attrs, stored["time"].values, stored["seed"].values)
        checkpoint = _checkpoint(stored)
    except Exception as error:  # the NetCDF libraries raise anything over bytes that are no history
        raise _damaged(path, " ".join(str(error).split()) or type(error).__name__) from error
    kept = [str(name) for name in stored.data_vars if str(name).startswith("checkpoint_")]
    return History(stored.drop_vars(kept).drop_attrs(deep=False), settings, checkpoint)


def _damaged(path: str | os.PathLike[str], why: str) -> ProblemError:
    return ProblemError(
        f"{str(path)!r} is not a history that fegsam wrote, or it is damaged ({why.rstrip('.')}); "
        "put a whole copy back, or run and save it again."
    )


def _limit(path: str | os.PathLike[str]) -> int:
    """The bytes that the arrays of a file may take: fegsam stores them uncompressed."""
    return max(os.stat(path).st_size, _LEAST_LIMIT)


def _check_size(path: str | os.PathLike[str]) -> None:
    import netCDF4

    from fegsam.history.trial import declared_bytes

    with netCDF4.Dataset(path) as file:
        declared = declared_bytes(file)
    if declared > _limit(path):
        raise ValueError(
            f"its arrays need {declared} bytes of memory, and the file has {os.stat(path).st_size}"
        )


def _try_reading(path: str | os.PathLike[str], size: int) -> None:
    """Refuse a file without a seal if the NetCDF reader hangs or crashes over it."""
    script = pathlib.Path(__file__).with_name("trial.py")
    command = [sys.executable, "-P", str(script), os.fspath(path), str(_limit(path))]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE + size / _PACE
        )
    except subprocess.TimeoutExpired:
        raise _damaged(path, "reading it does not end") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise _damaged(
            path, last if done.returncode > 0 and last else "reading it crashes the reader"
        )


def _attributes(settings: Settings) -> dict[str, Any]:
    plain = {
        f.name: getattr(settings, f.name)
        for f in dataclasses.fields(settings)
        if f.name not in ("record", "seeds")
    }
    return {
        "fegsam_format": _FORMAT,
        _SEALED: "the file ends in a SHA-256 of everything before it",
        "settings": json.dumps(plain),
        "communications": settings.communications,
    }


def _settings(attributes: dict[str, Any], times: np.ndarray, seeds: np.ndarray) -> Settings:
    if attributes["fegsam_format"] != _FORMAT:
        raise ValueError(f"format {attributes['fegsam_format']}, expected {_FORMAT}")
    plain = json.loads(attributes["settings"])
    plain["periods"] = tuple(plain.get("periods", ()))
    return Settings(
        record=times.astype(np.int64), seeds=tuple(int(seed) for seed in seeds), **plain
    )


def _checkpoint(stored: xr.Dataset) -> Checkpoint | None:
    from fegsam.history.history import Checkpoint

    if "checkpoint_params" not in stored:
        return None
    states = stored["checkpoint_states"].values if "checkpoint_states" in stored else None
    memory = {
        str(name).removeprefix(_MEMORY): stored[name].values
        for name in stored.data_vars
        if str(name).startswith(_MEMORY)
    }
    return Checkpoint(
        int(stored.attrs["checkpoint_time"]), stored["checkpoint_params"].values, states, memory
    )


def _require_netcdf() -> None:
    try:
        import netCDF4  # noqa: F401
    except ImportError as error:
        raise ProblemError(
            "Saving and loading histories needs NetCDF; run: pip install 'fegsam[netcdf]'"
        ) from error
