"""The results of a federation: the file of its history, checked against its settings."""

from __future__ import annotations

from pathlib import Path

from fegsam.errors import ProblemError
from fegsam.federation.errors import FederationError
from fegsam.history import load_history
from fegsam.history.settings import Settings

HISTORY_FILE = "history.nc"
_DECIDING = (
    "fingerprint",
    "seeds",
    "step_size",
    "sync_period",
    "periods",
    "num_steps",
    "method",
    "schedule",
)
"""Settings that identify the experiment of a history."""


def finished(output: Path, settings: Settings) -> Path:
    """The file of a federation's history, checked to be undamaged and to have these settings."""
    path = output / HISTORY_FILE
    try:
        history = load_history(path)
    except ProblemError as error:
        raise FederationError(
            f"{path} is damaged or not a history: remove it and run the same command again, which "
            "makes it from the records."
        ) from error
    if any(getattr(history.settings, name) != getattr(settings, name) for name in _DECIDING):
        raise FederationError(
            f"{path} is the history of another experiment: remove it, then run the command again."
        )
    return path
