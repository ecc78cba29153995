"""The steps and rounds of one launch: step sizes, tail counts, and where averages are recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from fegsam.engines.cuda.methods.memory import LaunchCourse
from fegsam.engines.job import Job
from fegsam.engines.method_schedule import RoundCall


def make_course(job: Job, call: RoundCall, real: Any, visits: bool) -> LaunchCourse:
    """The course of a call, on the GPU."""
    settings, length = job.settings, call.length
    rounds = 1 if call.inside else (call.stop - call.time) // length
    end = call.time + rounds * length
    sizes = job.step_sizes(call.time, end).reshape(rounds, length)
    counts, tails = np.zeros((rounds, length)), np.zeros(rounds)
    if settings.tail and call.reports:
        counts, tails = _tail(job, call, rounds)
    logs = -np.log1p(-sizes) if visits else np.zeros_like(sizes)
    passed = np.concatenate([np.zeros((rounds, 1)), np.cumsum(sizes, axis=1)], axis=1)
    rows, points = np.full(rounds, -1), np.zeros(1, np.int64)
    if call.inside:
        points = call.times - call.time
    else:
        rows[(call.times - call.time) // length - 1] = np.arange(len(call.times))
    course = LaunchCourse(
        sizes=_padded(sizes).astype(real),
        passed=passed.ravel().astype(real),
        logs=_padded(logs),
        counts=_padded(counts),
        areas=sizes.sum(axis=1),
        tail_areas=(sizes * counts).sum(axis=1),
        rows=rows,
        tails=tails,
        points=points,
    )
    return LaunchCourse(*map(cuda.to_device, course))


def _tail(job: Job, call: RoundCall, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """How often the increment of each local step counts at times inside its round (rounds, K), and
    whether the average after each round counts."""
    settings, length = job.settings, call.length
    starts = call.time + length * np.arange(rounds)[:, None]
    first = np.maximum(np.arange(1, length + 1), settings.tail_start - starts + 1)
    # The average after a whole round is the server's.
    last = call.stop - call.time if call.inside else length - 1
    counts = np.maximum(last + 1 - first, 0).astype(float)
    if settings.tail_over == "syncs":
        counts[:] = 0.0
    if call.inside:
        return counts, np.zeros(rounds)
    return counts, (starts[:, 0] + length > settings.tail_start).astype(float)


def _padded(values: np.ndarray) -> np.ndarray:
    """The rows one after the other, each with one more entry."""
    return np.pad(values, ((0, 0), (0, 1))).ravel()
