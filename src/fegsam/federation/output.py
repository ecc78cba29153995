"""Lines that a process of a federation writes for its operator."""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO


def say(text: str, stream: TextIO | None = None) -> None:
    """Write a line where that is possible: a full disk or a closed pipe ends no federation."""
    with contextlib.suppress(OSError):
        print(text, file=stream or sys.stderr, flush=True)
