"""The former place of the executors. It forwards to `fegsam.experiments.sweep`, and warns; the next
release drops it."""

from __future__ import annotations

import warnings
from typing import Any

from fegsam.experiments import sweep


def __getattr__(name: str) -> Any:
    if name not in ("Executor", "LocalExecutor"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"fegsam.experiments.executors.{name} is now fegsam.experiments.sweep.{name}.",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(sweep, name)
