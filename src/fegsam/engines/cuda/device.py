"""The `cuda` engine's side of the GPU: the problem's tables, one batch of seeds, and the kernels
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

from fegsam.engines.cuda import paths as cuda_paths
from fegsam.engines.cuda import rule as cuda_rule
from fegsam.engines.cuda.kernel import make_advance
from fegsam.engines.cuda.layout import Device, GpuLayout, global_arrays
from fegsam.engines.cuda.memory import NOT_FAILED, Launch, Memory
from fegsam.engines.cuda.paths import make_begin
from fegsam.engines.job import Job
from fegsam.errors import ProblemError

NEVER = np.int64(2**62)
BEGIN_THREADS = 128
_OLDEST = (7, 0)
"""Compute capability: older GPUs have no loads and additions that order memory."""


def simulated() -> bool:
    """Whether Numba's CUDA simulator stands in for a GPU."""
    return bool(config.ENABLE_CUDASIM)  # pyright: ignore[reportAttributeAccessIssue]


def describe(kept: int) -> Device:
    """The GPU, with `kept` bytes of each block's shared memory taken by copies of tables."""
    if simulated():
        # The simulator runs one block after the other, so there is one processor; warps of two
        # leave some threads idle, as real ones may.
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
class GpuProblem:
    """The problem's arrays on the GPU."""

    chain: Any
    """a `PackedChain`"""
    agents: Any
    tables: Any
    """what the rule reads"""
    num_bytes: int


def upload(job: Job, real: Any) -> GpuProblem:
    total = 0

    def put(value: Any) -> Any:
        nonlocal total
        if isinstance(value, np.ndarray):
            value = np.ascontiguousarray(value if value.dtype.kind != "f" else value.astype(real))
            total += value.nbytes
            # A GPU cannot hold an empty array.
            return cuda.to_device(value if value.size else np.zeros((1,) * value.ndim, value.dtype))
        return real(value) if isinstance(value, np.floating) else value

    chain, agents, tables = (
        type(group)(*map(put, group))
        for group in (cuda_paths.pack(job.chain), job.agents, job.tables)
    )
    return GpuProblem(chain, agents, tables, total)


def constants(job: Job, copied: dict[Any, int]) -> tuple[Any, ...]:
    """The parts of a problem that its kernels are compiled for: small numbers, and the shapes of
    arrays that blocks copy."""
    found: list[Any] = [cuda_paths.is_narrow(job.chain)]
    for name, group in (("chain", cuda_paths.pack(job.chain)), ("tables", job.tables)):
        for field, value in group._asdict().items():
            if cuda_rule.is_small(value):
                found.append(int(value))
            elif (name, field) in copied:
                found.append((field, value.shape))
    return tuple(found)


class Kernels:
    """One rule's kernels, compiled when first launched."""

    def __init__(
        self, job: Job, rule: Any, layout: GpuLayout, real: Any, iid: bool, copied: dict[Any, int]
    ) -> None:
        self.begin = make_begin(1 if iid else max(job.window, 1), cuda_paths.is_narrow(job.chain))
        self.advance: Any = make_advance(job, rule, layout, from_dtype(np.dtype(real)), iid, copied)
        self._most_shared = 0

    def launch(self, layout: GpuLayout, args: tuple[Any, ...]) -> None:
        threads, grid = layout.threads, layout.grid
        if layout.shared_bytes > self._most_shared:
            allow_shared(self.advance, layout.shared_bytes, args)
            self._most_shared = layout.shared_bytes
        self.advance[grid, threads, 0, layout.shared_bytes](*args)


def allow_shared(kernel: Any, shared_bytes: int, args: tuple[Any, ...]) -> None:
    """Allow a kernel's blocks more than 48 KB of shared memory, which it must ask for."""
    if simulated():
        return
    from cuda.bindings import driver  # pyright: ignore[reportMissingImports]

    kernel.compile(tuple(kernel.typeof_pyval(arg) for arg in args))
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    device = cuda.get_current_device()
    for overload in kernel.overloads.values():
        function = overload._codelibrary.get_cufunc()
        (status,) = driver.cuKernelSetAttribute(attribute, shared_bytes, function.handle, device.id)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise ProblemError(
                f"The GPU's driver refused {shared_bytes} bytes of shared memory for a block "
                f"({status}); use engines.Cuda(layout='table'), or engine='cpu'."
            )


class SeedBatch:
    """Some seeds, from their start on."""

    def __init__(self, run: Any, members: np.ndarray) -> None:
        job, settings, layout = run.job, run.settings, run.layout
        self._run, self._layout, self._kernels, self._problem = (
            run,
            layout,
            run.kernels,
            run.problem,
        )
        self._agents, self._half = job.num_agents, 0
        self._iid = settings.sampling == "iid"
        self.alive = np.ones(len(members), bool)
        seeds, dim, ahead = layout.seeds, job.dimension, 1 if self._iid else max(job.window, 1)
        average = np.zeros((seeds, dim))
        average[: len(members)] = job.start.params[members]
        size = np.zeros((2, seeds), np.int32)
        size[0] = np.maximum(np.frexp(np.abs(average).max(axis=1))[1], 0)
        self._failed = np.zeros(seeds, np.uint64)
        self._failed[: len(members)] = NOT_FAILED
        names = np.zeros(seeds, np.uint64)
        names[: len(members)] = np.array([settings.seeds[i] for i in members], np.uint64)
        arrays = {
            name: zeros(*what) for name, what in global_arrays(layout, run.shape, run.real).items()
        }
        self._memory = Memory(
            seeds=cuda.to_device(names),
            average=cuda.to_device(np.stack([average, average])),
            rounded=cuda.to_device(average.astype(run.real)),
            states=zeros((2, seeds, ahead, job.num_agents), np.uint32),
            actions=zeros((2, seeds, ahead, job.num_agents), np.uint32),
            failed=cuda.to_device(self._failed),
            size=cuda.to_device(size),
            points=cuda.to_device(np.full((seeds, layout.rows + 1), NEVER)),
            **arrays,
        )
        if job.start.states is not None and not self._iid:
            for slot, index in enumerate(members):
                self._memory.states[0, slot, 0].copy_to_device(
                    np.ascontiguousarray(job.start.states[index])
                )
        self._count = len(members)
        if not self._iid:
            self._draw_windows(job.start.time, job.start.states is None)

    def _draw_windows(self, time: int, draw_first: bool) -> None:
        """Every agent's window at `time`, from its first state, which may be drawn too."""
        grid = min(-(-self._count * self._agents // BEGIN_THREADS), 1 if simulated() else 4096)
        problem, launch = self._problem, self._launch(time, time)
        with quiet():
            self._kernels.begin[grid, BEGIN_THREADS if not simulated() else 4](
                launch, problem.chain, problem.agents, self._memory, draw_first
            )

    def launch(self, begin: int, stop: int, wanted: list[np.ndarray]) -> tuple[Any, Any, Any]:
        """Run from `begin` to `stop`; averages (seeds, points, d), sync errors (seeds, points),
        failures (time, agent)."""
        layout, memory, problem = self._layout, self._memory, self._problem
        most = max((len(times) for times in wanted), default=0)
        points = np.full((layout.seeds, layout.rows + 1), NEVER)
        for slot, times in enumerate(wanted):
            points[slot, : len(times)] = times
        memory.points.copy_to_device(points)
        launch = self._launch(begin, stop)
        with quiet():
            self._kernels.launch(
                layout,
                (launch, problem.chain, problem.agents, problem.tables, memory, layout.place),
            )
        if self._agents > 1 and (stop - begin) // self._run.settings.sync_period % 2:
            self._half = 1 - self._half
        failures = self._failures(begin)
        rows = first_rows(memory.rows, most)
        return rows, self._sync_errors(points[:, :most]), failures

    def _failures(self, begin: int) -> list[tuple[int, int]]:
        """Time and agent of each living seed's first failure; a seed that failed is dead from then
        on."""
        failed = self._memory.failed.copy_to_host()
        found = [
            self._failure(key, begin) if alive else (int(NEVER), 0)
            for key, alive in zip(failed, self.alive, strict=False)
        ]
        dead = failed != NOT_FAILED
        if (failed[dead] != 0).any():
            failed[dead] = 0
            self._memory.failed.copy_to_device(failed)
        return found

    def _sync_errors(self, points: np.ndarray) -> np.ndarray:
        """(seeds, points): zero at a synchronisation."""
        most = points.shape[1]
        if self._agents == 1 or most == 0:
            return np.zeros(points.shape)
        squares, apart = np.moveaxis(first_rows(self._memory.parts, most).sum(axis=2), -1, 0)
        with np.errstate(over="ignore", invalid="ignore"):
            gap = np.where(
                np.isfinite(squares), np.maximum(squares / self._agents - apart, 0.0), np.inf
            )
        return np.where(points % self._run.settings.sync_period != 0, gap, 0.0)

    def averages(self) -> np.ndarray:
        return self._memory.average[self._half].copy_to_host()[: self._count]

    def states(self) -> np.ndarray:
        """(seeds, N)"""
        return self._memory.states[self._half, :, 0].copy_to_host()[: self._count]

    def _failure(self, key: Any, begin: int) -> tuple[int, int]:
        if key == NOT_FAILED:
            return int(NEVER), 0
        return begin + int(key >> np.uint64(32)), int(key & np.uint64(0xFFFFFFFF))

    def _launch(self, begin: int, stop: int) -> Launch:
        run, layout, shape = self._run, self._layout, self._run.shape
        return Launch(
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
            agent_blocks=np.int64(layout.agent_blocks),
        )


def zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    array = cuda.device_array(shape, dtype)
    if simulated():
        array[:] = 0
        return array
    cuda.driver.device_memset(array, 0, array.nbytes)
    return array


def first_rows(array: Any, count: int) -> np.ndarray:
    """The first `count` rows, by seed."""
    taken = array[:count].copy_to_host() if count else np.zeros((0, *array.shape[1:]))
    return np.swapaxes(taken, 0, 1)


@contextlib.contextmanager
def quiet() -> Any:
    """Silence Numba's warnings of small grids: small problems need them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Grid size")
        warnings.filterwarnings("ignore", message=".*under-utilization.*")
        yield
