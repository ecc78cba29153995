"""The former module of the executors, now in `fegsam.experiments.sweep`.

It forwards to the new module with a warning; the next release removes it.
"""

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
