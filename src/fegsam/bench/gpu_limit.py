"""The limit of a GPU: memory sectors with many agents, dependent loads with few.

A step reads the policy's entry, the row of the transition table, an entry of that row and, in
Algorithms 2 to 5, a reward. Each read is at an address that no other thread of the warp shares, so
it costs a whole sector, however few of its bytes are used. We measure the rate of such reads on a
table as large as these tables together, so that caches help it as they help the engine. Once per
round an agent's state is read and written and its kind is read, all sequentially; this costs the
bytes divided by the measured speed of a copy. Parameters are not counted, because they may be in
shared memory or registers.

Many agents hide the latency of a load; few do not. Each step of a path waits for at least one load
beyond shared memory: the entry of the transition table that is the next state. A round therefore
takes at least K such loads, however many agents there are.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import config

from fegsam.bench.cpu_limit import random_cycle
from fegsam.engines.job import Job

_THREADS = 256
_COPIED = 1 << 28
"""32-bit words: one gibibyte, larger than every cache."""
_STREAMED_BYTES = 12
"""An agent's state, read and written, and its kind: 4 bytes each."""
_CHASED = 1 << 14
"""Dependent loads in one timing."""
_REPEATS = 5
_LAUNCHES = 10
"""Launches in one timing: launching through Numba takes about 0.1 ms."""


def gpu_missing() -> str | None:
    """Why this machine cannot run on a GPU; None if it can."""
    if config.ENABLE_CUDASIM:  # pyright: ignore[reportAttributeAccessIssue]
        return "no GPU (Numba's simulator is on)"
    try:
        return None if _cuda().is_available() else "no GPU"
    except ImportError:
        return "no GPU (numba-cuda is missing: pip install 'fegsam[cuda]')"


def sector_limit(plan: Job, sync_period: int) -> float:
    """Seconds per agent-step with all of the GPU busy."""
    tables = [plan.chain.policy, plan.chain.row, plan.chain.entry]
    tables += [plan.tables.rewards] if hasattr(plan.tables, "rewards") else []
    sectors = len(tables) / sectors_per_second(sum(table.nbytes for table in tables))
    return sectors + _STREAMED_BYTES / sync_period / copied_bytes_per_second()


def path_limit(plan: Job) -> float:
    """Seconds per agent-step if all agents run at once and each waits for its loads."""
    return load_seconds(plan.chain.entry.nbytes) / plan.num_agents


@functools.cache
def load_seconds(num_bytes: int) -> float:
    """Seconds per load in a chain of dependent loads from a table of `num_bytes`."""
    table = _cuda().to_device(random_cycle(max(16, min(num_bytes, 4 * _COPIED) // 4)))
    out = _cuda().device_array(1, np.uint64)
    return _best(lambda: _kernels().chase[1, 1](table, _CHASED, out)) / _CHASED


@functools.cache
def sectors_per_second(num_bytes: int) -> float:
    """Random sectors of a table of `num_bytes` that the GPU reads per second."""
    cuda, kernels = _cuda(), _kernels()
    num_sectors = max(1, num_bytes // (4 * kernels.SECTOR))
    table = cuda.to_device(np.zeros(num_sectors * kernels.SECTOR, np.uint32))
    blocks = 64 * cuda.get_current_device().MULTIPROCESSOR_COUNT
    out = cuda.device_array(blocks * _THREADS, np.uint32)
    taken = _best(lambda: kernels.gather[blocks, _THREADS](table, np.uint64(num_sectors), out))
    return blocks * _THREADS * kernels.LOADS * kernels.TURNS / taken


@functools.cache
def copied_bytes_per_second() -> float:
    """Bytes that a copy reads and writes per second."""
    cuda, kernels = _cuda(), _kernels()
    source, target = (cuda.device_array(_COPIED // 2, np.float64) for _ in range(2))
    blocks = 32 * cuda.get_current_device().MULTIPROCESSOR_COUNT
    return 2 * source.nbytes / _best(lambda: kernels.copy[blocks, _THREADS](source, target))


def _best(launch: Callable[[], Any]) -> float:
    cuda = _cuda()
    launch()
    taken = []
    for _ in range(_REPEATS):
        cuda.synchronize()
        began = time.perf_counter()
        for _ in range(_LAUNCHES):
            launch()
        cuda.synchronize()
        taken.append((time.perf_counter() - began) / _LAUNCHES)
    return min(taken)


def _cuda() -> Any:
    from numba import cuda

    return cuda


def _kernels() -> Any:
    from fegsam.bench import gpu_kernels

    return gpu_kernels
