"""Resuming from a stored history, so that the result equals the uninterrupted run."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fegsam.engines.job import Engine, Job
from fegsam.errors import ProblemError
from fegsam.history.history import Checkpoint, History
from fegsam.history.recorder import output_error
from fegsam.history.settings import Settings

_SAME = (
    "algorithm",
    "num_agents",
    "step_size",
    "sync_period",
    "periods",
    "method",
    "schedule",
    "tail",
    "tail_over",
    "seeds",
    "sampling",
    "record_params",
    "fingerprint",
)


def check_resumable(history: History, settings: Settings) -> Checkpoint:
    """The point where a run with `settings` continues `history`; `ProblemError` if it cannot."""
    if settings.stop_at_output or history.checkpoint is None:
        raise ProblemError(
            "A run that stops at its output times cannot be resumed; run with stop_at_output=False."
        )
    for name in _SAME:
        before, now = getattr(history.settings, name), getattr(settings, name)
        if before != now:
            what = (
                "the problem, its operator, initial_params or fixed_point"
                if name == "fingerprint"
                else name
            )
            raise ProblemError(
                f"The history to resume from differs in {what} ({before!r}, now {now!r}); give "
                "the same again."
            )
    if settings.num_steps < history.settings.num_steps:
        raise ProblemError(
            f"The history to resume from has {history.settings.num_steps} steps already and "
            f"num_steps is {settings.num_steps}; give the total, at least as many."
        )
    if settings.tail and settings.tail_start < history.checkpoint.time:
        raise ProblemError(
            f"The tail average of num_steps={settings.num_steps} begins at time "
            f"{settings.tail_start}, before the history to resume from ends; run from the start, "
            "or for longer."
        )
    return history.checkpoint


def record_after(history: History, record: Any, asked: np.ndarray) -> np.ndarray:
    """The recorded times of a resumed run: those of `history`, and the `asked` ones after it.

    If `record` lists times explicitly, those within the earlier part must have been recorded there.
    """
    known, done = history.data.time.values, history.settings.num_steps
    if record is None:
        return np.union1d(known, asked[asked > done])
    missing = np.setdiff1d(asked[asked <= done], known)
    if len(missing):
        raise ProblemError(
            f"record has time {missing[0]}, which the history to resume from did not record; "
            "leave it out, or run from the start."
        )
    return asked


def merge(history: History, engine: Engine, job: Job) -> History:
    """Run the rest of every seed that has not diverged, and append it to `history`."""
    alive = np.flatnonzero(history.data.diverged_at.values < 0)
    data = _blank(history, job)
    start = job.start
    states = None if start.states is None else np.zeros_like(start.states)
    memory = {name: np.zeros_like(values) for name, values in start.memory.items()}
    checkpoint = Checkpoint(start.time, np.full_like(start.params, np.nan), states, memory)
    if len(alive):
        rest = engine(job.only(alive))
        fresh = rest.data.time.values >= start.time
        for name, variable in rest.data.data_vars.items():
            if "time" in variable.dims:
                data[name].values[np.ix_(alive, fresh)] = variable.values[:, fresh]
            elif "seed" in variable.dims:
                data[name].values[alive] = variable.values
        assert rest.checkpoint is not None
        checkpoint.params[alive] = rest.checkpoint.params
        seeds = len(job.settings.seeds)
        if rest.checkpoint.states is not None:
            checkpoint = Checkpoint(
                rest.checkpoint.time,
                checkpoint.params,
                _among(rest.checkpoint.states, alive, seeds),
                {
                    name: _among(values, alive, seeds)
                    for name, values in rest.checkpoint.memory.items()
                },
            )
    _earlier_outputs(data, history, engine, job)
    data["output_squared_error"].values[:] = output_error(data.output_params.values, job.truth)
    return History(data, job.settings, checkpoint)


def _among(values: np.ndarray, places: np.ndarray, seeds: int) -> np.ndarray:
    """(seeds, ...): `values` at `places`, and zeros for the other seeds."""
    found = np.zeros((seeds, *values.shape[1:]), values.dtype)
    found[places] = values
    return found


def _blank(history: History, job: Job) -> Any:
    """The dataset of the whole run, filled up to the end of `history`."""
    data = history.data.reindex(time=job.settings.record).copy(deep=True)
    data["output_params"].values[:] = np.nan
    data["final_params"].values[:] = np.nan
    for name in ("tail_params", "tail_squared_error"):
        if name in data:
            data[name].values[:] = np.nan
    data["output_time"].values[:] = job.output_times
    return data


def _earlier_outputs(data: Any, history: History, engine: Engine, job: Job) -> None:
    """Fill in the outputs whose time lies within `history`: copy known ones, run others again."""
    diverged, known = history.data.diverged_at.values, history.data.output_time.values
    times = job.output_times
    done = (times < job.start.time) | (diverged >= 0)
    finite = (diverged < 0) | (times < diverged)
    same = np.flatnonzero(done & finite & (times == known))
    data.output_params.values[same] = history.data.output_params.values[same]
    again = np.flatnonzero(done & finite & (times != known))
    if len(again) == 0:
        return
    shape = (len(job.settings.seeds), job.dimension)
    beginning = Checkpoint(0, np.broadcast_to(job.initial_params, shape))
    short = dataclasses.replace(
        job.settings,
        record=np.zeros(1, np.int64),
        record_params=False,
        stop_at_output=True,
        tail=0.0,
    )
    rerun = engine(dataclasses.replace(job, start=beginning, settings=short).only(again))
    data.output_params.values[again] = rerun.data.output_params.values
