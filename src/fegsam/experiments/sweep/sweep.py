"""A sweep runs and stores every cell of a study; stored cells are not run again.

A sweep that was stopped in any way therefore resumes when it is run again, and ends with the same
data as one that was not stopped.
"""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import xarray as xr

from fegsam.errors import DivergenceWarning, ProblemError
from fegsam.experiments.sweep.executors import Executor, make_executor
from fegsam.experiments.sweep.store import Store, describe
from fegsam.history.history import History
from fegsam.progress import AGENT_STEPS, Progress

if TYPE_CHECKING:
    from fegsam.experiments.spec.cells import Cell
    from fegsam.experiments.spec.study import Study

_NAMED = 5
"""Number of cells that a message names; it counts the others."""


class SweepError(ProblemError):
    """Some cells failed; the others are stored.

    Attributes
    ----------
    failures : dict
        The traceback of each failed cell, by its place in the grid.
    """

    def __init__(self, sentence: str, failures: dict[str, str]) -> None:
        super().__init__(sentence)
        self.failures = failures


class Results:
    """The stored histories of a study.

    Attributes
    ----------
    study : Study
    cells : list of Cell
        In the order of the grid.
    """

    def __init__(self, study: Study, directory: str | os.PathLike[str]) -> None:
        self.study = study
        self.cells: list[Cell] = study.cells()
        self._store = Store(directory)

    def history(self, cell: Cell) -> History:
        """One cell's history, read from its file."""
        history = self._store.read(cell)
        if history is None:
            raise self._damaged(cell)
        return history

    def _damaged(self, cell: Cell) -> ProblemError:
        return ProblemError(
            f"{str(self._store.path(cell))!r} is missing or damaged ({describe(cell)}); run the "
            "study again to make it."
        )

    def finished(self) -> Results:
        """The results of the cells that are stored; an error if none is, or one is damaged."""
        found = copy.copy(self)
        found.cells = [cell for cell in self.cells if self._store.path(cell).exists()]
        for cell in found.cells:
            if not self._store.is_whole(cell):
                raise self._damaged(cell)
        if not found.cells:
            raise ProblemError(
                f"{str(self._store.directory)!r} has a study, but no finished cell of it: give the "
                "directory that fegsam run wrote its results to, or run the study."
            )
        return found

    def select(self, **axes: Any) -> list[tuple[Cell, History]]:
        """The cells at these coordinates, with their histories: ``select(num_agents=4)``."""
        known = list(dict.fromkeys(name for cell in self.cells for name in cell.axes))
        unknown = next((name for name in axes if name not in known), None)
        if unknown is not None:
            raise ProblemError(
                f"The study has no axis {unknown!r}; its axes are: {', '.join(known) or 'none'}."
            )
        wanted = [
            cell
            for cell in self.cells
            if all(cell.axes.get(name) == value for name, value in axes.items())
        ]
        return [(cell, self.history(cell)) for cell in wanted]

    def errors(self, cell: Cell) -> xr.DataArray:
        """Squared errors (seed, time) of a cell, in the norm of its algorithm's theorem."""
        return self.history(cell).data.squared_error


def load_results(directory: str | os.PathLike[str], *, trust: bool = False) -> Results:
    """The results that a sweep stored in `directory`, with their study.

    No problem is built and no stored code is run, unless `trust` is true: then `Cell.build` may run
    it.
    """
    from fegsam.experiments.spec.study import load_study

    return Results(load_study(Store(directory).directory / "study.toml", trust=trust), directory)


def run_sweep(
    study: Study,
    directory: str | os.PathLike[str],
    *,
    executor: str | Executor = "local",
    engine: Any = None,
    workers: int | None = None,
    progress: bool = True,
) -> Results:
    """Run the cells of a study that are not yet stored, and store each as soon as it finishes.

    Parameters
    ----------
    study : Study
    directory : path
        The directory of the results, created if it is missing. A directory with another study's
        results is refused.
    executor : "local", "ray" or an Executor
        What runs the cells. An executor that you pass stays open: ``with LocalExecutor() as
        executor`` serves many sweeps.
    engine : optional
        As in `fegsam.run`; by default the study's.
    workers : int, optional
        The number of cells that run at once; by default the number of cores.
    progress : bool
        Show a progress bar if the output is a terminal.

    Returns
    -------
    Results

    Raises
    ------
    SweepError
        If cells failed, after all others have finished.
    KeyboardInterrupt
        On Ctrl-C, with a sentence that says how to continue.

    Examples
    --------
    >>> import tempfile
    >>> from fegsam.experiments.spec.study import EXAMPLE, parse_study
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = run_sweep(parse_study(EXAMPLE), folder, workers=1)
    ...     again = load_results(folder)
    ...     [
    ...         (cell.step_size, history.settings.num_agents)
    ...         for cell, history in again.select(num_agents=4)
    ...     ]
    [(0.1, 4), (0.05, 4)]
    """
    results = Results(study, directory)
    store = Store(directory)
    with _opened(executor, workers) as opened, store.held():
        store.adopt(study.text, results.cells)
        study.copy_inputs(store.directory)
        left = _left(store, results.cells, engine)
        sweep = _Sweep(store, len(results.cells), left)
        if left:
            sweep.run(opened, engine, progress)
        sweep.conclude()
    return results


@contextlib.contextmanager
def _opened(executor: str | Executor, workers: int | None) -> Iterator[Executor]:
    if isinstance(executor, str):
        with contextlib.closing(make_executor(executor, workers)) as opened:
            yield opened
    elif workers is None:
        yield executor
    else:
        raise ProblemError(
            f"workers is {workers!r}, but an open executor has its own number; omit one of the two."
        )


def _left(store: Store, cells: Sequence[Cell], engine: Any) -> list[Cell]:
    """The distinct cells that are still to run; warns about damaged files."""
    # Equal cells share a file.
    distinct = list({store.path(cell): cell for cell in cells}.values())
    done = store.done(distinct)
    whole = set(map(store.path, done))
    left = [cell for cell in distinct if store.path(cell) not in whole]
    damaged = [store.path(cell) for cell in left if store.path(cell).exists()]
    if damaged:
        warnings.warn(
            f"{len(damaged)} stored cells are damaged and are computed again, the first of them "
            f"{str(damaged[0])!r}.",
            RuntimeWarning,
            stacklevel=3,
        )
    before = store.read(done[0]) if done and left else None
    asked = cells[0].engine if engine is None else engine
    name = asked if isinstance(asked, str) else getattr(asked, "name", None)
    if before is not None and name is not None and before.settings.engine != name:
        raise ProblemError(
            f"{str(store.directory)!r} holds results of the engine {before.settings.engine!r}, "
            f"but {name!r} is asked for; "
            f"use {before.settings.engine!r}, or choose another directory."
        )
    return left


@contextlib.contextmanager
def _kept_interrupts() -> Iterator[threading.Event]:
    """An event that is set by Ctrl-C, to be tested at safe points; a second Ctrl-C interrupts.

    An interrupt while a file is being written could leave a lock of the NetCDF library taken, and
    every later write would hang.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield pressed
        return

    def keep(number: int, frame: Any) -> None:
        if pressed.is_set():
            signal.default_int_handler(number, frame)
        pressed.set()

    signal.signal(signal.SIGINT, keep)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _Sweep:
    """The progress of one sweep, and what went wrong in it."""

    def __init__(self, store: Store, total: int, left: Sequence[Cell]) -> None:
        self.store = store
        self.left = left
        self.total = total
        self.stored = total - len(left)
        self.steps = 0
        self._failed: list[tuple[str, str, str]] = []
        self._diverged: list[str] = []

    def run(self, executor: Executor, engine: Any, watched: bool) -> None:
        steps = sum(cell.agent_steps for cell in self.left)
        try:
            with (
                # Cells finish irregularly: only the mean speed predicts the remaining time.
                Progress(steps, AGENT_STEPS, wanted=watched, smoothing=0) as progress,
                _kept_interrupts() as interrupted,
                contextlib.closing(executor.outcomes(self.left, engine)) as outcomes,  # pyright: ignore[reportArgumentType]
            ):
                for outcome in outcomes:
                    under_way = outcome if isinstance(outcome, int) else 0
                    if isinstance(outcome, tuple):
                        self._take(*outcome)
                    if interrupted.is_set():
                        raise KeyboardInterrupt
                    done = self.steps + under_way
                    first = "" if done else ", compiling"
                    progress.show(done, f"{self.stored} of {self.total} cells{first}")
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"Stopped: {self.stored} of {self.total} cells are stored in "
                f"{str(self.store.directory)!r}; "
                "run the same study again to continue."
            ) from None

    def _take(self, cell: Cell, answer: Any) -> None:
        self.steps += cell.agent_steps
        if answer.history is None:
            self._failed.append((describe(cell), answer.error, answer.trace))
            return
        self.store.write(cell, answer.history)
        self.stored += 1
        if (answer.history.data.diverged_at >= 0).any():
            self._diverged.append(describe(cell))

    def conclude(self) -> None:
        """Warn about diverged cells and raise an error about failed ones."""
        if self._diverged:
            warnings.warn(
                f"In {len(self._diverged)} of {self.total} cells some seed diverged "
                f"({_some(self._diverged)}); their histories are NaN from there on: use smaller "
                "step sizes.",
                DivergenceWarning,
                stacklevel=3,
            )
        if self._failed:
            places = [place for place, _, _ in self._failed]
            reason = self._failed[0][1].rstrip(".")
            raise SweepError(
                f"{len(places)} of {self.total} cells failed ({_some(places)}), the first with: "
                f"{reason}. "
                f"The other {self.stored} are stored in {str(self.store.directory)!r}; run the "
                "same study again to retry the rest.",
                {place: trace for place, _, trace in self._failed},
            )


def _some(places: Sequence[str]) -> str:
    more = [f"and {len(places) - _NAMED} more"] if len(places) > _NAMED else []
    return "; ".join([*places[:_NAMED], *more])
