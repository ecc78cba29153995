"""The hand-written C loop of `baseline.c`, compiled with the system compiler and called through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from tables import Tables

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


class CLoop:
    """Compiles the loop once; each call is one run in one thread, with the GIL released."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder, "baseline.so")
            source = Path(__file__).with_name("baseline.c")
            subprocess.run([COMPILER, *FLAGS, "-o", library, source, "-lm"], check=True)
            self._q_learning = ctypes.CDLL(str(library)).q_learning
        self._q_learning.argtypes = (POINTER, *[ctypes.c_uint64] * 3, *[POINTER] * 3)

    def __call__(
        self,
        tables: Tables,
        *,
        step_size: float,
        sync_period: int,
        num_steps: int,
        seed: int = 0,
        fixed_point: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """The final average and, where a fixed point is given, its squared sup error after every sync."""
        dtypes = {"row_start": np.uint64, "rewards": np.float64}
        arrays = {
            name: np.ascontiguousarray(value, dtypes.get(name, np.uint32))
            for name, value in tables._asdict().items()
            if isinstance(value, np.ndarray)
        }
        problem = _Problem(
            num_states=tables.num_states,
            num_actions=tables.num_actions,
            num_agents=tables.num_agents,
            discount=tables.discount,
            step_size=step_size,
            **{name: array.ctypes.data for name, array in arrays.items()},
        )
        average = np.zeros(tables.num_states * tables.num_actions)
        errors = None
        if fixed_point is not None:
            fixed_point = np.ascontiguousarray(fixed_point, np.float64)
            errors = np.empty(-(-num_steps // sync_period))
        failed = self._q_learning(
            ctypes.addressof(problem),
            seed,
            sync_period,
            num_steps,
            average.ctypes.data,
            None if fixed_point is None else fixed_point.ctypes.data,
            None if errors is None else errors.ctypes.data,
        )
        if failed:
            raise MemoryError("the C loop could not allocate its agents")
        return average, errors
