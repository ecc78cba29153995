"""The contestants: the engines and their baselines.

A contestant prepares a case and returns a function of the number of rounds, or raises `Unfit`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numba.core import config

from fegsam import engines
from fegsam.bench.c_loop import CLoop
from fegsam.bench.gpu_limit import gpu_missing
from fegsam.bench.jax_scan import JaxScan, import_jax
from fegsam.bench.numpy_loop import numpy_loop
from fegsam.bench.problems import STEP_SIZE, BenchCase
from fegsam.bench.tables import BaselineTables, q_learning_tables
from fegsam.engines.cpu.sampling import first_states
from fegsam.errors import ProblemError

Clock = Literal["cpu", "wall"]
Run = Callable[[int], Any]


class Unfit(Exception):
    """A contestant cannot run in a cell; the message says why."""


@dataclass(frozen=True)
class Contestant:
    """`enter` prepares a case and returns a function that runs a number of rounds of it.

    It raises `Unfit` where the contestant cannot run the case.
    """

    family: str
    enter: Callable[[BenchCase], Run]
    threads: int = 1
    clock: Clock = "cpu"
    """How it is timed: by processor time if it uses one thread, else by wall-clock time."""

    @property
    def name(self) -> str:
        return self.family if self.threads == 1 else f"{self.family}, {self.threads} threads"


def all_threads() -> int:
    return config.NUMBA_NUM_THREADS  # pyright: ignore[reportAttributeAccessIssue]


def thread_counts() -> list[int]:
    """1, 2, 4, ... and the number of all threads."""
    powers = [2**k for k in range(all_threads().bit_length()) if 2**k < all_threads()]
    return [*powers, all_threads()]


def everyone(quick: bool) -> list[Contestant]:
    """All contestants of a single-seed cell.

    A quick run times JAX, which takes seconds to compile, in one precision only.
    """
    jax = ("float32",) if quick else ("float32", "float64")
    shared = [Contestant("cpu", _enter_engine(lambda: engines.Cpu(threads=1)))]
    if all_threads() > 1:
        shared.append(cpu(all_threads()))
    return [
        Contestant("reference", _enter_reference),
        Contestant("NumPy", _enter_numpy),
        *(
            Contestant(f"JAX {p}", functools.partial(_enter_jax, precision=p), clock="wall")
            for p in jax
        ),
        Contestant("C", functools.partial(_enter_c, threads=1)),
        *shared,
        *cuda(),
    ]


def cuda() -> list[Contestant]:
    return [
        Contestant(
            f"cuda {p}", _enter_engine(functools.partial(_make_cuda, precision=p)), clock="wall"
        )
        for p in ("float32", "float64")
    ]


def cpu(threads: int) -> Contestant:
    return Contestant("cpu", _enter_engine(lambda: engines.Cpu(threads=threads)), threads, "wall")


def c_threads(threads: int) -> Contestant:
    """The C loop with its seeds in parallel: the speed-up that the machine itself allows."""
    return Contestant("C", functools.partial(_enter_c, threads=threads), threads, "wall")


def _enter_engine(make: Callable[[], Any]) -> Callable[[BenchCase], Run]:
    def enter(case: BenchCase) -> Run:
        engine = make()

        def run(num_rounds: int) -> None:
            history = engine(case.lasting(num_rounds))
            if (history.data.diverged_at.values >= 0).any():
                raise RuntimeError(f"{case.setting} diverged, so its time means nothing")

        return run

    return enter


def _make_cuda(precision: str) -> Any:
    missing = gpu_missing()
    if missing is not None:
        raise Unfit(missing)
    return engines.Cuda(precision=precision)


def _enter_reference(case: BenchCase) -> Run:
    _require(8 * case.job.num_agents * case.job.dimension, memory_bytes())
    return _enter_engine(engines.Reference)(case)


def _enter_numpy(case: BenchCase) -> Run:
    tables = _q_tables(case)
    _require(8 * case.job.num_agents * case.job.dimension, memory_bytes())
    period = case.setting.sync_period
    return lambda rounds: numpy_loop(
        tables, step_size=STEP_SIZE, sync_period=period, num_steps=rounds * period
    )


def _enter_c(case: BenchCase, threads: int) -> Run:
    period, seeds = case.setting.sync_period, case.setting.num_seeds
    loop = CLoop(_q_tables(case), step_size=STEP_SIZE, sync_period=period)

    def run(num_rounds: int) -> None:
        with ThreadPoolExecutor(threads) as pool:
            for done in [
                pool.submit(loop, num_rounds * period, seed=seed) for seed in range(seeds)
            ]:
                done.result()

    return run


def _enter_jax(case: BenchCase, precision: str) -> Run:
    tables = _q_tables(case)
    limits = import_jax().devices()[0].memory_stats() or {}
    # The tables take this much, and as much again while they are averaged.
    need = 2 * np.dtype(precision).itemsize * case.job.num_agents * case.job.dimension
    _require(need, limits.get("bytes_limit", memory_bytes()))
    first = np.zeros(case.job.num_agents, np.uint32)
    first_states(case.job.chain, np.uint64(0), 0, len(first), first)
    return JaxScan(
        tables,
        first,
        step_size=STEP_SIZE,
        sync_period=case.setting.sync_period,
        precision=precision,
    )


def _q_tables(case: BenchCase) -> BaselineTables:
    if case.setting.algorithm != "q_learning" or case.setting.record is not None:
        raise Unfit("written for Q-learning without recording")
    return q_learning_tables(case.job)


def memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _require(need: int, memory: int) -> None:
    """Refuse to take more than half of the memory: other processes use this machine too."""
    if need > memory // 2:
        raise Unfit(
            f"a table for each agent takes {need / 1e9:.0f} GB, more than half of the memory "
            f"({memory / 2e9:.0f} GB)"
        )


REASONS = (Unfit, ProblemError, MemoryError)
"""Exceptions by which a contestant declines a case; any other one is a fault."""
