"""One BLAS thread at a time, so that a run's numbers do not depend on the number of threads.

NumPy and SciPy compute products, solves and eigenvalues with a BLAS library, which splits large
ones over its threads and then rounds sums in another order. Fixed points, weights and output times
depend on them, and a difference in their last bit would change every error that is measured against
them. There is no portable call that sets the number of threads: each library has its own, and a
process may hold several libraries.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy

_CALLS = (
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
    ("bli_thread_get_num_threads", "bli_thread_set_num_threads"),
)
"""The functions that get and set the number of threads.

They are those of OpenBLAS (in the wheels of NumPy and SciPy, and as systems install it), of MKL and
of BLIS.
"""


class _Library(NamedTuple):
    threads: Callable[[], int]
    set_threads: Callable[[int], Any]


@functools.cache
def libraries() -> tuple[_Library, ...]:
    """The BLAS libraries of NumPy and SciPy whose threads can be set: not Apple's Accelerate."""
    found: dict[int | None, _Library] = {}
    for path in _candidates():
        try:
            # The library is already loaded, and this only finds it. On Linux and macOS, names are
            # also looked up in the libraries that it depends on.
            handle = ctypes.CDLL(str(path))
        except OSError:
            continue
        for get, put in _CALLS:
            if hasattr(handle, get) and hasattr(handle, put):
                address = ctypes.cast(getattr(handle, put), ctypes.c_void_p).value
                found[address] = _Library(getattr(handle, get), getattr(handle, put))
    return tuple(found.values())


def _candidates() -> Iterator[pathlib.Path]:
    """The compiled modules that call BLAS, and on Windows the libraries beside them."""
    for package, modules in (
        (np, ("linalg/_umath_linalg.*",)),
        (scipy, ("linalg/_fblas.*", "linalg/_flapack.*")),
    ):
        root = pathlib.Path(str(package.__file__)).parent
        for pattern in modules:
            yield from (
                path
                for path in sorted(root.glob(pattern))
                if path.suffix in (".so", ".pyd", ".dylib")
            )
        yield from sorted(root.parent.glob(f"{package.__name__}.libs/*.dll"))


# The thread count is per process, so we count the callers that hold the limit.
_lock = threading.Lock()
_inside = 0
_before: list[int] = []


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS work only in the calling thread within a ``with`` block.

    Several threads may be inside such blocks; the last to leave restores the number of threads.

    >>> with one_blas_thread():
    ...     sorted({library.threads() for library in libraries()}) in ([], [1])
    True
    """
    global _inside
    with _lock:
        if _inside == 0:
            _before[:] = [library.threads() for library in libraries()]
            for library in libraries():
                library.set_threads(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                for library, threads in zip(libraries(), _before, strict=True):
                    library.set_threads(threads)
