"""Ctrl-C in a command: noticed even where Python cannot raise it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def lost_interrupts() -> Iterator[threading.Event]:
    """An event that is set by an interrupt that is lost meanwhile.

    One that arrives in a callback of the compiler is lost there: Python can only print it, and the
    compiler then fails with an error of its own. Whoever catches that error looks at the event.
    """
    lost = threading.Event()
    printed = sys.unraisablehook

    def notice(found: Any) -> None:
        if issubclass(found.exc_type, KeyboardInterrupt):
            lost.set()
        else:
            printed(found)

    sys.unraisablehook = notice
    try:
        yield lost
    finally:
        sys.unraisablehook = printed
