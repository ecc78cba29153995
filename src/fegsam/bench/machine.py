"""The machine that the benchmarks ran on."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
from pathlib import Path

from fegsam.bench.c_loop import COMPILER, FLAGS
from fegsam.bench.contestants import all_threads, memory_bytes
from fegsam.versions import installed_version

_PACKAGES = ("fegsam", "numpy", "scipy", "numba", "numba-cuda", "jax", "jaxlib")


def describe_machine() -> dict[str, str]:
    """Name and value of everything that a timing may depend on."""
    compiler = _first_line(COMPILER, "--version")
    gpu = _first_line(
        "nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"
    )
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "threads": str(all_threads()),
        "load": f"{os.getloadavg()[0]:.1f} before the run",
        "caches": _caches() or "unknown",
        "memory": f"{memory_bytes() / 2**30:.0f} GiB",
        "GPU": gpu or "none",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "packages": ", ".join(
            f"{name} {version}" for name in _PACKAGES if (version := installed_version(name))
        ),
        "C": f"{compiler}, {' '.join(FLAGS)}" if compiler else "no compiler",
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores"


def _caches() -> str:
    """The caches of the first core, as Linux reports them."""
    found = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (
            (folder / name).read_text().strip() for name in ("level", "type", "size")
        )
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found)


def _first_line(*command: str) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else None
