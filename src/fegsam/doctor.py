"""`fegsam doctor`: what is installed, what is missing, and how to install it."""

from __future__ import annotations

import os
import pathlib
import platform
import shutil
import subprocess
from collections.abc import Iterator

from fegsam.text import aligned
from fegsam.versions import installed_version

OPTIONAL = {
    "netCDF4": ("saving and loading histories", "netcdf"),
    "gymnasium": ("environments from Gymnasium", "gymnasium"),
    "pyarrow": ("logs of real data", "data"),
    "minari": ("importing Minari's datasets", "minari"),
    "matplotlib": ("figures", "report"),
    "plotly": ("the HTML report", "report"),
    "jinja2": ("the page of the HTML report", "report"),
    "pydantic": ("studies from TOML files", "experiments"),
    "ray": ("sweeps on a Ray cluster", "ray"),
    "grpcio": ("federations on several machines", "federation"),
    "cryptography": ("keys of federations on several machines", "federation"),
    "flwr": ("Flower as the transport of a federation", "flower"),
    "numba-cuda": ("runs on a GPU", "cuda"),
    "jax": ("the benchmarks' JAX baseline", "bench"),
}
"""The purpose of each package, and the extra that installs it."""


def examine() -> str:
    """A table with a line for each package and device that a run may use.

    Examples
    --------
    >>> examine().splitlines()[0].startswith("fegsam ")
    True
    """
    lines = [
        f"fegsam {installed_version('fegsam')}, Python {platform.python_version()}, "
        f"{platform.platform(terse=True)}"
    ]
    found = aligned([*_needed(), *_optional(), *_machine()])
    return "\n".join([*lines, *(f"  {line}" for line in found)])


def _needed() -> Iterator[tuple[str, str, str]]:
    for name in ("numpy", "scipy", "numba", "xarray"):
        yield name, str(installed_version(name)), ""


def _optional() -> Iterator[tuple[str, str, str]]:
    for name, (purpose, extra) in OPTIONAL.items():
        version = installed_version(name)
        yield (
            name,
            version or "missing",
            purpose if version else f"{purpose}: pip install 'fegsam[{extra}]'",
        )


def _machine() -> Iterator[tuple[str, str, str]]:
    from numba.core import config

    threads, cores = config.NUMBA_NUM_THREADS, os.cpu_count() or 1  # pyright: ignore[reportAttributeAccessIssue]
    fewer = "" if threads >= cores else f"of {cores} cores: unset NUMBA_NUM_THREADS to use them all"
    yield "threads", str(threads), fewer
    yield _compiler_cache()
    yield _gpu()
    if shutil.which("cc") is None:
        yield "cc", "missing", "the benchmarks' C loop: install a C compiler"


def _compiler_cache() -> tuple[str, str, str]:
    """Where compiled rules are kept: beside the package, unless NUMBA_CACHE_DIR is set."""
    folder = pathlib.Path(os.environ.get("NUMBA_CACHE_DIR") or pathlib.Path(__file__).parent)
    if os.access(folder if folder.exists() else folder.parent, os.W_OK):
        return "compiler cache", "kept", f"in {folder}"
    return (
        "compiler cache",
        "not kept",
        "rules are compiled in each process: set NUMBA_CACHE_DIR to a folder you can write to",
    )


def _gpu() -> tuple[str, str, str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return (
            "GPU",
            "none seen",
            "runs use the CPU; on a machine with an NVIDIA card, install its driver",
        )
    ask = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(ask, capture_output=True, text=True, timeout=30)
    if done.returncode:
        return (
            "GPU",
            "not usable",
            f"nvidia-smi says: {(done.stdout + done.stderr).strip().splitlines()[0]}; reinstall "
            "the driver",
        )
    return "GPU", "seen", "; ".join(done.stdout.strip().splitlines())
