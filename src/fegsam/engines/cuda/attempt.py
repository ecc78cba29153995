"""From one attempt at a round to the next: where a thread stands, and what lies ahead of it."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from fegsam.engines.cuda.instructions import inlined
from fegsam.engines.cuda.memory import Attempt


class Cursor(NamedTuple):
    """Where a thread stands between two attempts."""

    time: Any
    half: Any
    row: Any
    """index of the next record point"""
    upcoming: Any
    """the next record point"""
    rounds: Any
    """rounds since the launch began"""
    buffer: Any
    """see `Attempt`; counted on, since a remainder would take longer than a step"""
    last_points: Any
    """record points inside the last attempt"""


@inlined
def first_cursor(launch, memory, thread):
    zero = np.int64(0)
    upcoming = memory.points[thread.seed_index, 0]
    return Cursor(launch.begin, launch.half, zero, upcoming, zero, zero, zero)


@inlined
def begin_attempt(launch, memory, box, thread, cursor, alive, reload):
    """The next attempt; the squares at its record points begin with zero."""
    length = min(launch.sync_period, launch.stop - cursor.time)
    synced = length == launch.sync_period
    # The average at a synchronisation is recorded after the round, not inside it.
    end = cursor.time + length + (0 if synced else 1)
    points, upcoming = 0, cursor.upcoming
    while alive and upcoming < end:
        memory.squares[points, cuda.grid(1)] = 0.0
        points += 1
        upcoming = memory.points[thread.seed_index, cursor.row + points]
    return Attempt(
        time=cursor.time,
        length=length,
        synced=synced,
        row=cursor.row,
        points=points,
        most_points=most_points_of_block(box, points),
        upcoming=upcoming,
        half=cursor.half,
        buffer=cursor.buffer,
        rounds=cursor.rounds,
        alive=alive,
        reload=reload,
    )


@inlined
def most_points_of_block(box, points):
    """The largest number of record points inside the round, over the seeds of the block."""
    most = 0
    if cuda.syncthreads_or(np.int32(points)):
        if cuda.threadIdx.x == 0:
            box[0] = 0
        cuda.syncthreads()
        cuda.atomic.max(box, 0, np.int32(points))
        cuda.syncthreads()
        most = box[0]
    return most


@inlined
def end_attempt(memory, thread, cursor, attempt, repeat):
    """The cursor behind the attempt, or at its beginning where it is to be repeated."""
    row, time, rounds, half = cursor.row, cursor.time, cursor.rounds, cursor.half
    upcoming = attempt.upcoming
    if not repeat:
        row += attempt.points
        time += attempt.length
        rounds += 1
        if attempt.alive and attempt.synced and upcoming == time:
            row += 1
        if attempt.synced:
            half = 1 - half
    if attempt.points > 0 or upcoming <= time:
        upcoming = memory.points[thread.seed_index, row]
    buffer = cursor.buffer + 1 if cursor.buffer < 2 else 0
    return Cursor(time, half, row, upcoming, rounds, buffer, attempt.points)


@inlined
def previous(buffer):
    """The buffer that the attempt before has used, and the next but one will use."""
    return buffer - 1 if buffer > 0 else 2
