"""A progress bar on a terminal or in a notebook; silent in scripts, logs and pipes."""

from __future__ import annotations

import sys
import threading
from typing import Any

_PATIENCE = 2.0
"""Seconds before a bar appears: shorter work needs none."""
_MOMENT = 1.0
"""Seconds before a notice appears."""


class Progress:
    """A progress bar: ``with Progress(total, unit) as progress: progress.show(done)``.

    It is drawn by tqdm; without tqdm nothing is shown.

    Parameters
    ----------
    wanted : bool
        Whether to show a bar at all.
    smoothing : float
        How far the speed shown is that of the last moments; 0 for the mean speed, where work ends
        in large pieces.
    """

    def __init__(
        self,
        total: int,
        unit: str,
        what: str | None = None,
        *,
        wanted: bool = True,
        smoothing: float = 0.3,
    ) -> None:
        self._bar: Any = None
        if wanted and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return
            self._bar = tqdm(
                total=total,
                desc=what,
                unit=unit,
                unit_scale=True,
                smoothing=smoothing,
                delay=_PATIENCE,
                leave=False,
            )

    def show(self, done: int, what: str | None = None) -> None:
        if self._bar is not None:
            self._bar.update(min(done, self._bar.total) - self._bar.n)
            if what is not None:
                self._bar.set_description(what)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


class Notice:
    """``with Notice(text): ...`` prints `text` on a terminal if the block takes over a second."""

    def __init__(self, text: str) -> None:
        self._timer = threading.Timer(_MOMENT, print, (text,), {"file": sys.stderr, "flush": True})
        self._timer.daemon = True

    def __enter__(self) -> None:
        if sys.stderr.isatty():
            self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
