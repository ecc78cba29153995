"""Executors run the cells of a sweep and yield their answers in any order.

Histories have the same bits from every executor and any number of workers: paths depend only on
seeds, an engine's sums do not depend on its threads, and every worker solves for the fixed point on
one thread.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from numba.core import config

from fegsam.errors import ProblemError
from fegsam.experiments.sweep.worker import Answer, environment
from fegsam.problem.checks import integer

if TYPE_CHECKING:
    from fegsam.experiments.spec.cells import Cell

TICK = 0.5
"""Longest time in seconds before an executor yields to the sweep, with or without an answer."""

_MOMENT = 0.05
_TRIES = 3
"""Attempts at a cell whose process dies; the cause may be a passing lack of memory."""

_START = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from fegsam.experiments.sweep.worker import serve; serve()"
)


class Executor(Protocol):
    """Runs cells; in a ``with`` block it may serve several sweeps in turn."""

    def outcomes(
        self, cells: Sequence[Cell], engine: Any
    ) -> Iterator[tuple[Cell, Answer] | int | None]:
        """Yield each cell with its answer as it finishes.

        At intervals meanwhile, yield the agent-steps that unfinished cells have made, or None where
        that is not known.
        """
        ...

    def close(self) -> None: ...


def make_executor(name: str, workers: int | None) -> Executor:
    """The executor with this name: "local" or "ray"."""
    if name == "local":
        return LocalExecutor(workers)
    if name == "ray":
        from fegsam.experiments.sweep.ray_executor import RayExecutor

        return RayExecutor(workers)
    raise ProblemError(f"executor is {name!r}; choose 'local' or 'ray', or pass an executor.")


class LocalExecutor:
    """Processes on this machine, each with its share of the cores.

    They are new interpreters: nothing is forked, and the calling script is not run again. A process
    that dies is replaced.

    Parameters
    ----------
    workers : int, optional
        The number of processes; by default, and at most, one per core (or NUMBA_NUM_THREADS).

    Examples
    --------
    >>> with LocalExecutor(workers=1) as executor:
    ...     executor.workers
    1
    """

    def __init__(self, workers: int | None = None) -> None:
        self._cores: int = config.NUMBA_NUM_THREADS  # pyright: ignore[reportAttributeAccessIssue]
        self.workers = (
            self._cores if workers is None else min(integer(workers, "workers"), self._cores)
        )
        self._pool = [_Worker(self._cores // self.workers) for _ in range(self.workers)]

    def outcomes(
        self, cells: Sequence[Cell], engine: Any
    ) -> Iterator[tuple[Cell, Answer] | int | None]:
        pool = self._pool[: len(cells)]
        answered: queue.SimpleQueue[tuple[Cell, Answer]] = queue.SimpleQueue()
        waiting, turn, stopped = iter(cells), threading.Lock(), threading.Event()

        def work(worker: _Worker) -> None:
            _leave_interrupts_to_others()
            while not stopped.is_set():
                with turn:
                    cell = next(waiting, None)
                if cell is None:
                    return
                answered.put((cell, worker.ask((cell, engine, self._cores // len(pool)), stopped)))

        threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in pool]
        for thread in threads:
            thread.start()
        left = len(cells)
        try:
            while left:
                try:
                    outcome = answered.get(timeout=TICK)
                except queue.Empty:
                    yield sum(worker.steps for worker in pool)
                else:
                    left -= 1
                    yield outcome
        finally:
            stopped.set()
            for worker, thread in zip(pool, threads, strict=True):
                while thread.is_alive():
                    # Repeat the kill: its process may just be starting.
                    if left:
                        worker.kill()
                    thread.join(_MOMENT)

    def close(self) -> None:
        """End the processes."""
        for worker in self._pool:
            worker.end()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Worker:
    """A process that is replaced when it dies; only one thread at a time uses it."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: Any = None
        self.steps = 0
        """the agent-steps that its cell has made"""

    def ask(self, request: Any, stopped: threading.Event) -> Answer:
        """The answer to a request, from a new process if the last one died."""
        try:
            message = pickle.dumps(request)
        except Exception as error:
            return Answer(
                error=f"it cannot be sent to a worker ({error}); put what it uses in a module, "
                "not in a script"
            )
        end = ""
        for _ in range(_TRIES):
            if stopped.is_set():
                break
            process = self._process or self._begin()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                pickle.dump(message, process.stdin)
                process.stdin.flush()
                while isinstance(answer := pickle.load(process.stdout), int):
                    self.steps = answer
                return answer
            except (EOFError, OSError, pickle.UnpicklingError):
                end = self.end()
            finally:
                self.steps = 0
        return Answer(
            error=f"its process died {_TRIES} times ({end}); check whether it needs more memory "
            "than the machine has"
        )

    def kill(self) -> None:
        """Kill the process from any thread; a pending `ask` gets no answer."""
        if self._process is not None:
            self._process.kill()

    def end(self) -> str:
        """End the process; return its exit status and the last line of its output."""
        if self._process is None:
            return ""
        process, self._process = self._process, None
        process.kill()
        for stream in (process.stdin, process.stdout):
            # Closing flushes unsent data, which fails now.
            with contextlib.suppress(OSError):
                stream.close()  # pyright: ignore[reportOptionalMemberAccess]
        process.wait()
        with self._errors as file:
            file.seek(0)
            said = file.read().decode(errors="replace").strip().splitlines()[-1:]
        return ": ".join([f"exit {process.returncode}", *said])

    def _begin(self) -> subprocess.Popen[bytes]:
        # A file, not the terminal: progress bars of several processes would overwrite each other.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | environment(self._threads),
        )
        return self._process


def _leave_interrupts_to_others() -> None:
    """Block Ctrl-C in this thread and in the processes that it starts: the sweep handles it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
