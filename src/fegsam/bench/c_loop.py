"""The C loop of `baseline.c`, compiled with the system compiler and called through ctypes."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fegsam.bench.tables import BaselineTables
from fegsam.errors import ProblemError

COMPILER = "cc"
FLAGS = ("-O3", "-march=native", "-fopenmp-simd", "-shared", "-fPIC")
POINTER = ctypes.c_void_p


class _Problem(ctypes.Structure):
    """`Problem` of baseline.c, field by field."""

    _fields_ = (
        ("num_states", ctypes.c_uint64),
        ("num_actions", ctypes.c_uint64),
        ("num_agents", ctypes.c_uint64),
        ("agent_policy", POINTER),
        ("agent_mdp", POINTER),
        ("policy_threshold", POINTER),
        ("policy_alias", POINTER),
        ("row_start", POINTER),
        ("threshold", POINTER),
        ("stay", POINTER),
        ("go", POINTER),
        ("rewards", POINTER),
        ("discount", ctypes.c_double),
        ("step_size", ctypes.c_double),
    )


@functools.cache
def compile_loop() -> Any:
    """The C function, compiled once per process."""
    if shutil.which(COMPILER) is None:
        raise ProblemError(f"this machine has no C compiler {COMPILER!r}")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "baseline.so")
        with resources.as_file(resources.files("fegsam.bench") / "baseline.c") as source:
            subprocess.run([COMPILER, *FLAGS, "-o", library, source, "-lm"], check=True)
        q_learning = ctypes.CDLL(str(library)).q_learning
    q_learning.argtypes = (POINTER, *[ctypes.c_uint64] * 3, *[POINTER] * 3)
    return q_learning


class CLoop:
    """Q-learning on `tables`; each call is one run in one thread, with the GIL released."""

    def __init__(self, tables: BaselineTables, *, step_size: float, sync_period: int) -> None:
        self._q_learning, self._sync_period = compile_loop(), sync_period
        self._dimension = tables.num_states * tables.num_actions
        dtypes = {"row_start": np.uint64, "rewards": np.float64}
        # Keep a reference: the C structure only points at them.
        self._arrays = {
            name: np.ascontiguousarray(value, dtypes.get(name, np.uint32))
            for name, value in tables._asdict().items()
            if isinstance(value, np.ndarray)
        }
        self._problem = _Problem(
            num_states=tables.num_states,
            num_actions=tables.num_actions,
            num_agents=tables.num_agents,
            discount=tables.discount,
            step_size=step_size,
            **{name: array.ctypes.data for name, array in self._arrays.items()},
        )

    def __call__(
        self, num_steps: int, *, seed: int = 0, fixed_point: np.ndarray | None = None
    ) -> tuple[np.ndarray, Any]:
        """The final average, and its squared sup error after every sync.

        The errors are None unless a fixed point is given.
        """
        average = np.zeros(self._dimension)
        errors = None
        if fixed_point is not None:
            fixed_point = np.ascontiguousarray(fixed_point, np.float64)
            errors = np.empty(-(-num_steps // self._sync_period))
        failed = self._q_learning(
            ctypes.addressof(self._problem),
            seed,
            self._sync_period,
            num_steps,
            average.ctypes.data,
            None if fixed_point is None else fixed_point.ctypes.data,
            None if errors is None else errors.ctypes.data,
        )
        if failed:
            raise MemoryError("the C loop could not allocate its agents")
        return average, errors
