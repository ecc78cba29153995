"""A progress bar on a terminal or in a notebook; silent in scripts, logs and pipes."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

_PATIENCE = 2.0
"""Seconds before a bar appears: shorter work needs none."""
_MOMENT = 1.0
"""Seconds before a notice appears."""
_listener: ContextVar[Callable[[int], None] | None] = ContextVar("listener", default=None)
_said: set[str] = set()
"""Notices that this process needs only once."""

AGENT_STEPS = "agent-steps"
"""The unit of a run's progress, which `told` passes on."""


@contextlib.contextmanager
def told(listener: Callable[[int], None]) -> Iterator[None]:
    """Call `listener` with the agent-steps that a run in this block has made, as it makes them.

    >>> heard = []
    >>> with told(heard.append), Progress(10, AGENT_STEPS) as progress:
    ...     progress.show(4)
    >>> heard
    [4]
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Progress:
    """A progress bar: ``with Progress(total, unit) as progress: progress.show(done)``.

    It is drawn by tqdm; without tqdm nothing is shown.

    Parameters
    ----------
    total : int or None
        How much there is to do; None if nobody knows.
    wanted : bool
        Whether to show a bar at all.
    smoothing : float
        How far the speed shown is that of the last moments; 0 for the mean speed, where work ends
        in large pieces.
    """

    def __init__(
        self,
        total: int | None,
        unit: str,
        what: str | None = None,
        *,
        wanted: bool = True,
        smoothing: float = 0.3,
    ) -> None:
        self._bar: Any = None
        self._listener = _listener.get() if unit == AGENT_STEPS else None
        if wanted and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return
            self._bar = tqdm(
                total=total,
                desc=what,
                unit=f" {unit}",
                unit_scale=total is not None,
                smoothing=smoothing,
                delay=_PATIENCE,
                leave=False,
            )

    def show(self, done: int, what: str | None = None) -> None:
        if self._listener is not None:
            self._listener(done)
        if self._bar is not None:
            most = done if self._bar.total is None else min(done, self._bar.total)
            if most and not self._bar.n:
                # The time before, in which loops were compiled, says nothing about the speed.
                self._bar.start_t, self._bar.initial = time.time(), most
            self._bar.update(most - self._bar.n)
            if what is not None:
                self._bar.set_description(what)

    def one_more(self) -> None:
        """Count one more piece of work whose total nobody knows."""
        if self._bar is not None:
            self._bar.update(1)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


class Notice:
    """``with Notice(text): ...`` prints `text` on a terminal if the block takes over a second.

    With `once`, a process says it a single time, and its worker processes do not repeat it.
    """

    def __init__(self, text: str, *, once: bool = False) -> None:
        self._text, self._once = text, once
        self._timer = threading.Timer(_MOMENT, self._say)
        self._timer.daemon = True

    def _say(self) -> None:
        _said.add(self._text)
        print(self._text, file=sys.stderr, flush=True)

    def __enter__(self) -> None:
        repeated = self._text in _said or multiprocessing.parent_process() is not None
        if sys.stderr.isatty() and not (self._once and repeated):
            self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
