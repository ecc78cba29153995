"""The worker of a sweep: runs the cells that it receives.

A local worker is this module in a separate interpreter: requests come on stdin and answers go to
stdout, one at a time, each after the numbers of agent-steps that the cell had made by then. It
writes no files. When the sweep's process ends for any reason, stdin ends
and so does the worker, even in the middle of a cell.
"""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
import time
import traceback
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from fegsam.engines import Cpu
from fegsam.errors import DivergenceWarning, ProblemError
from fegsam.progress import told

if TYPE_CHECKING:
    from fegsam.experiments.spec.cells import Cell
    from fegsam.history.history import History


_INTERVAL = 0.5
"""Seconds between two messages about the progress of a cell."""


def environment(threads: int) -> dict[str, str]:
    """Environment variables that a worker needs before it imports NumPy.

    The last bits of a linear solve depend on the number of threads, so it always uses one.
    """
    one = dict.fromkeys(
        ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
        "1",
    )
    return one | {"NUMBA_NUM_THREADS": str(threads)}


@dataclass(frozen=True, eq=False)
class Answer:
    """The outcome of a cell: its history, or a sentence that says why there is none."""

    history: History | None = None
    error: str = ""
    trace: str = ""
    """traceback of the error, for debugging"""


def attempt(cell: Cell, engine: Any, threads: int) -> Answer:
    """Run a cell on `engine`, or by default on its own; errors become part of the answer."""
    engine = cell.engine if engine is None else engine
    try:
        with warnings.catch_warnings():
            # The sweep warns once for all cells.
            warnings.simplefilter("ignore", DivergenceWarning)
            return Answer(cell.run(Cpu(threads=threads) if engine == "cpu" else engine))
    except ProblemError as error:
        return Answer(error=str(error), trace=traceback.format_exc())
    except Exception as error:
        return Answer(error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())


def serve() -> None:
    """Work as a local worker until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    # Output that a cell prints must not mix with the answers.
    os.dup2(2, 1)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    while True:
        request = requests.get()
        try:
            cell, engine, threads = pickle.loads(request)
        except Exception as error:
            answer = Answer(
                error=f"a worker cannot load it ({error}); put what it uses in a module, not in a "
                "script"
            )
        else:
            with told(_Teller(answers)):
                answer = attempt(cell, engine, threads)
        pickle.dump(answer, answers)
        answers.flush()


class _Teller:
    """Sends the agent-steps of a cell to the sweep, twice a second at most."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers, self._last = answers, time.monotonic()

    def __call__(self, steps: int) -> None:
        if time.monotonic() - self._last > _INTERVAL:
            pickle.dump(steps, self._answers)
            self._answers.flush()
            self._last = time.monotonic()


def _listen(stdin: BinaryIO, requests: queue.SimpleQueue[bytes]) -> None:
    while True:
        try:
            requests.put(pickle.load(stdin))
        except EOFError:
            os._exit(0)
