"""The side of a worker: runs the cells that it is sent, wherever that is.

A local worker is this module in an interpreter of its own: requests come on stdin, answers go to
stdout, one at a time. It writes no file. When the sweep's process is gone, however it went, stdin
ends and so does the worker, in the middle of a cell if need be.
"""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
import traceback
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from fegsam.engines import Cpu
from fegsam.errors import DivergenceWarning, ProblemError

if TYPE_CHECKING:
    from fegsam.experiments.spec.cells import Cell
    from fegsam.history.history import History


def environment(threads: int) -> dict[str, str]:
    """What a worker must find in its environment before it imports NumPy.

    A linear solve has other last bits on other numbers of threads, so it always gets one.
    """
    one = dict.fromkeys(
        ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
        "1",
    )
    return one | {"NUMBA_NUM_THREADS": str(threads)}


@dataclass(frozen=True, eq=False)
class Answer:
    """What came of a cell: its history, or the sentence that says why there is none."""

    history: History | None = None
    error: str = ""
    trace: str = ""
    """where in the code it went wrong, for whoever looks into it"""


def attempt(cell: Cell, engine: Any, threads: int) -> Answer:
    """Run a cell, on its own engine where `engine` is None; what goes wrong in it is its own."""
    engine = cell.engine if engine is None else engine
    try:
        with warnings.catch_warnings():
            # The sweep says it, once for all cells.
            warnings.simplefilter("ignore", DivergenceWarning)
            return Answer(cell.run(Cpu(threads=threads) if engine == "cpu" else engine))
    except ProblemError as error:
        return Answer(error=str(error), trace=traceback.format_exc())
    except Exception as error:
        return Answer(error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())


def serve() -> None:
    """Be a local worker, until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    # What a cell prints must not come between the answers.
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
            answer = attempt(cell, engine, threads)
        pickle.dump(answer, answers)
        answers.flush()


def _listen(stdin: BinaryIO, requests: queue.SimpleQueue[bytes]) -> None:
    while True:
        try:
            requests.put(pickle.load(stdin))
        except EOFError:
            os._exit(0)
