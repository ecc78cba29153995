"""The log of strangers: those who reached the port of a server and were turned away."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from fegsam.federation.protocol.state import append_event

STRANGERS_FILE = "strangers.jsonl"


def log_stranger(path: Path, peer: str, reason: str, **details: Any) -> None:
    """Write one line for a refusal; the log is rotated, so that no flood can fill the disk."""
    event = {"event": "stranger", "clock": time.time(), "peer": peer, "reason": reason}
    with contextlib.suppress(OSError):  # A full disk lets no stranger end the server.
        append_event(path, event | details)
