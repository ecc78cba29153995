"""Where a report comes from: version, commit and machine."""

from __future__ import annotations

import os
import pathlib
import platform
import subprocess
from importlib import metadata


def origin() -> dict[str, str]:
    """The version of fegsam, its commit if it runs from a checkout, and the machine.

    Examples
    --------
    >>> sorted(origin())[:2]
    ['Python', 'commit']
    """
    return {
        "fegsam": metadata.version("fegsam"),
        "commit": _commit(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
        "Python": platform.python_version(),
    }


def _commit() -> str:
    """The commit of the checkout that this file lies in."""
    here = pathlib.Path(__file__)
    if not any((folder / ".git").exists() for folder in here.parents):
        return "unknown: not a checkout"
    answers = []
    for question in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "-uno")):
        try:
            asked = subprocess.run(
                ["git", "-C", str(here.parent), *question],
                capture_output=True,
                text=True,
                timeout=20,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return "unknown: git does not answer"
        answers.append(asked.stdout.strip())
    return f"{answers[0]}, with changes that are not committed" if answers[1] else answers[0]


def _processor() -> str:
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
