"""What the `cuda` engine has on the GPU: the problem's tables, one batch of seeds, and the kernels
that run it."""

from __future__ import annotations

import contextlib
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda
from numba.core import config
from numba.np.numpy_support import from_dtype

from fegsam.engines import job
from fegsam.engines.cuda import paths as cuda_paths
from fegsam.engines.cuda import rule as cuda_rule
from fegsam.engines.cuda.kernel import make_advance
from fegsam.engines.cuda.layout import Device, Layout, global_arrays
from fegsam.engines.cuda.memory import NOT_FAILED, Job, Memory
from fegsam.engines.cuda.paths import make_begin
from fegsam.errors import ProblemError

NEVER = np.int64(2**62)
_BEGIN_THREADS = 128
_OLDEST = (7, 0)
"""Compute capability: GPUs before have no loads and additions that order memory."""


def simulated() -> bool:
    """Whether Numba's CUDA simulator stands in for a GPU."""
    return bool(config.ENABLE_CUDASIM)  # pyright: ignore[reportAttributeAccessIssue]


def describe(kept: int) -> Device:
    """The GPU, as it is left by blocks that keep copies of so many bytes."""
    if simulated():
        # The simulator keeps a grid-wide synchronisation only within one block; warps of two leave
        # some threads idle.
        return Device(
            "Numba's CUDA simulator",
            1,
            1 << 16,
            1 << 17,
            1 << 30,
            most_threads=8,
            registers=1 << 16,
            reserved=0,
            warp=2,
            in_turn=True,
        )
    device: Any = cuda.get_current_device()
    name = device.name if isinstance(device.name, str) else device.name.decode()
    if tuple(device.compute_capability) < _OLDEST:
        raise ProblemError(
            f"engine='cuda' needs a GPU of compute capability {_OLDEST[0]}.{_OLDEST[1]} or later "
            f"and {name} has "
            f"{device.compute_capability[0]}.{device.compute_capability[1]}; use engine='cpu'."
        )
    free, _ = cuda.current_context().get_memory_info()
    return Device(
        name,
        device.MULTIPROCESSOR_COUNT,
        device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN - kept,
        device.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        int(free),
        device.MAX_THREADS_PER_MULTIPROCESSOR,
        device.MAX_REGISTERS_PER_MULTIPROCESSOR,
        reserved=kept + 1024,
    )


@dataclass(frozen=True)
class Tables:
    """The problem on the GPU."""

    laws: Any
    agents: Any
    rule: Any
    num_bytes: int


def upload(plan: job.Job, real: Any) -> Tables:
    total = 0

    def there(value: Any) -> Any:
        nonlocal total
        if isinstance(value, np.ndarray):
            value = np.ascontiguousarray(value if value.dtype.kind != "f" else value.astype(real))
            total += value.nbytes
            # An empty array has no place on a GPU.
            return cuda.to_device(value if value.size else np.zeros((1,) * value.ndim, value.dtype))
        return real(value) if isinstance(value, np.floating) else value

    laws, agents, rule = (
        type(group)(*map(there, group))
        for group in (cuda_paths.pack(plan.chain), plan.agents, plan.tables)
    )
    return Tables(laws, agents, rule, total)


def constants(plan: job.Job, copied: dict[Any, int]) -> tuple[Any, ...]:
    """What of a problem its kernels are compiled for: small numbers, and the shapes of arrays that
    blocks have copies of."""
    found: list[Any] = [cuda_paths.is_narrow(plan.chain)]
    for name, group in (("laws", cuda_paths.pack(plan.chain)), ("tables", plan.tables)):
        for field, value in group._asdict().items():
            if cuda_rule.is_small(value):
                found.append(int(value))
            elif (name, field) in copied:
                found.append((field, value.shape))
    return tuple(found)


class Kernels:
    """One rule's kernels, compiled when first launched."""

    def __init__(
        self, plan: job.Job, rule: Any, layout: Layout, real: Any, iid: bool, copied: dict[Any, int]
    ) -> None:
        self.begin = make_begin(1 if iid else max(plan.window, 1), cuda_paths.is_narrow(plan.chain))
        self.advance: Any = make_advance(
            plan, rule, layout, from_dtype(np.dtype(real)), iid, copied
        )
        self._most_shared = 0

    def launch(self, layout: Layout, args: tuple[Any, ...]) -> None:
        threads, grid = layout.threads, layout.grid
        if not simulated() and layout.shared_bytes > self._most_shared:
            self._allow(layout.shared_bytes, args)
        self.advance[grid, threads, 0, layout.shared_bytes](*args)

    def _allow(self, shared_bytes: int, args: tuple[Any, ...]) -> None:
        """A kernel must be told when a block may take more than 48 KB of shared memory."""
        from cuda.bindings import driver  # pyright: ignore[reportMissingImports]

        self.advance.compile(tuple(self.advance.typeof_pyval(arg) for arg in args))
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        device = cuda.get_current_device()
        for kernel in self.advance.overloads.values():
            function = kernel._codelibrary.get_cufunc()
            (status,) = driver.cuKernelSetAttribute(
                attribute, shared_bytes, function.handle, device.id
            )
            if status != driver.CUresult.CUDA_SUCCESS:
                raise ProblemError(
                    f"The GPU's driver refused {shared_bytes} bytes of shared memory for a block "
                    f"({status}); "
                    "use engines.Cuda(layout='table'), or engine='cpu'."
                )
        self._most_shared = shared_bytes


class Batch:
    """Some seeds, from their start on."""

    def __init__(self, run: Any, members: np.ndarray) -> None:
        plan, settings, layout = run.plan, run.settings, run.layout
        self._run, self._layout, self._kernels, self._tables = run, layout, run.kernels, run.tables
        self._agents, self._half = plan.num_agents, 0
        self._iid = settings.sampling == "iid"
        self.alive = np.ones(len(members), bool)
        seeds, dim, ahead = layout.seeds, plan.dimension, 1 if self._iid else max(plan.window, 1)
        average = np.zeros((seeds, dim))
        average[: len(members)] = plan.start.params[members]
        size = np.zeros((2, seeds), np.int32)
        size[0] = np.maximum(np.frexp(np.abs(average).max(axis=1))[1], 0)
        self._failed = np.zeros(seeds, np.uint64)
        self._failed[: len(members)] = NOT_FAILED
        names = np.zeros(seeds, np.uint64)
        names[: len(members)] = np.array([settings.seeds[i] for i in members], np.uint64)
        arrays = {
            name: _zeros(*what) for name, what in global_arrays(layout, run.shape, run.real).items()
        }
        self._memory = Memory(
            seeds=cuda.to_device(names),
            average=cuda.to_device(np.stack([average, average])),
            rounded=cuda.to_device(average.astype(run.real)),
            states=_zeros((2, seeds, ahead, plan.num_agents), np.uint32),
            actions=_zeros((2, seeds, ahead, plan.num_agents), np.uint32),
            failed=cuda.to_device(self._failed),
            size=cuda.to_device(size),
            cuts=cuda.to_device(np.full((seeds, layout.rows + 1), NEVER)),
            **arrays,
        )
        if plan.start.states is not None and not self._iid:
            for slot, index in enumerate(members):
                self._memory.states[0, slot, 0].copy_to_device(
                    np.ascontiguousarray(plan.start.states[index])
                )
        self._count = len(members)
        if not self._iid:
            with _quiet():
                grid = min(
                    -(-self._count * self._agents // _BEGIN_THREADS), 1 if simulated() else 4096
                )
                self._kernels.begin[grid, _BEGIN_THREADS if not simulated() else 4](
                    self._job(plan.start.time, plan.start.time),
                    run.tables.laws,
                    run.tables.agents,
                    self._memory,
                    plan.start.states is None,
                )

    def launch(self, begin: int, stop: int, wanted: list[np.ndarray]) -> tuple[Any, Any, Any]:
        """Run from `begin` to `stop`; averages (seeds, cuts, d), sync errors (seeds, cuts),
        failures (time, agent)."""
        layout, memory = self._layout, self._memory
        most = max((len(times) for times in wanted), default=0)
        table = np.full((layout.seeds, layout.rows + 1), NEVER)
        for slot, times in enumerate(wanted):
            table[slot, : len(times)] = times
        memory.cuts.copy_to_device(table)
        with _quiet():
            there = self._tables
            self._kernels.launch(
                layout,
                (
                    self._job(begin, stop),
                    there.laws,
                    there.agents,
                    there.rule,
                    memory,
                    layout.place,
                ),
            )
        period = self._run.settings.sync_period
        if self._agents > 1 and (stop - begin) // period % 2:
            self._half = 1 - self._half
        failed = memory.failed.copy_to_host()
        failures = [
            self._failure(key, begin) if alive else (NEVER, 0)
            for key, alive in zip(failed, self.alive, strict=False)
        ]
        dead = failed != NOT_FAILED
        if (failed[dead] != 0).any():
            failed[dead] = 0
            memory.failed.copy_to_device(failed)
        rows = _first(memory.rows, most)
        omegas = np.zeros(rows.shape[:2])
        if self._agents > 1 and most:
            inside = table[:, :most] % period != 0
            squares, apart = np.moveaxis(_first(memory.parts, most).sum(axis=2), -1, 0)
            with np.errstate(over="ignore", invalid="ignore"):
                gap = np.where(
                    np.isfinite(squares), np.maximum(squares / self._agents - apart, 0.0), np.inf
                )
            omegas = np.where(inside, gap, 0.0)
        return rows, omegas, failures

    def averages(self) -> np.ndarray:
        return self._memory.average[self._half].copy_to_host()[: self._count]

    def states(self) -> np.ndarray:
        """(seeds, N)"""
        return self._memory.states[self._half, :, 0].copy_to_host()[: self._count]

    def _failure(self, key: Any, begin: int) -> tuple[int, int]:
        if key == NOT_FAILED:
            return int(NEVER), 0
        return begin + int(key >> np.uint64(32)), int(key & np.uint64(0xFFFFFFFF))

    def _job(self, begin: int, stop: int) -> Job:
        run, layout, shape = self._run, self._layout, self._run.shape
        return Job(
            num_agents=np.int64(self._agents),
            num_seeds=np.int64(self._count),
            sync_period=np.int64(run.settings.sync_period),
            step_size=run.real(run.settings.step_size),
            lanes=np.int64(layout.lanes),
            slots=np.int64(layout.slots),
            blocks=np.int64(layout.blocks),
            dim=np.int64(shape.dim),
            fraction=np.int64(62 - math.ceil(math.log2(self._agents))),
            share=np.float64(1.0 / self._agents),
            largest=run.real(run.largest),
            begin=np.int64(begin),
            stop=np.int64(stop),
            half=np.int64(self._half),
            crew=np.int64(layout.crew),
        )


def _zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    array = cuda.device_array(shape, dtype)
    if simulated():
        array[:] = 0
        return array
    cuda.driver.device_memset(array, 0, array.nbytes)
    return array


def _first(array: Any, count: int) -> np.ndarray:
    """What was handed over, seed by seed."""
    taken = array[:count].copy_to_host() if count else np.zeros((0, *array.shape[1:]))
    return np.swapaxes(taken, 0, 1)


@contextlib.contextmanager
def _quiet() -> Any:
    """Numba warns of small grids, which are what small problems need."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Grid size")
        warnings.filterwarnings("ignore", message=".*under-utilization.*")
        yield
