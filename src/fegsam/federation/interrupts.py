"""How the command of a federation reacts to signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def terminable() -> Iterator[None]:
    """Make SIGTERM end the block as Ctrl-C does, so that all processes are ended too."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt("terminated")

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore signals, so that they do not interrupt the cleanup."""
    before = [
        (number, signal.signal(number, signal.SIG_IGN))
        for number in (signal.SIGINT, signal.SIGTERM)
    ]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
