"""A sweep: every cell of a study, run once and stored; what is stored already is not run again.

So a sweep that was stopped, in whatever way, goes on when it is run again, and ends with the data
of one that was not.
"""

from __future__ import annotations

import contextlib
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
from fegsam.progress import Progress

if TYPE_CHECKING:
    from fegsam.experiments.spec.cells import Cell
    from fegsam.experiments.spec.study import Study

_NAMED = 5
"""Cells that a message names; of more it says the number."""


class SweepError(ProblemError):
    """Some cells failed; the others are stored.

    Attributes
    ----------
    failures : dict
        For each failed cell's place in the grid, where in the code it went wrong.
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
            raise ProblemError(
                f"{str(self._store.path(cell))!r} is missing or damaged ({describe(cell)}); run "
                "the study again to make it."
            )
        return history

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
    """What a sweep has stored in `directory`, with the study that it was.

    Nothing is built, and no code that lies there is run, unless `trust` is true: then `Cell.build`
    may run it.
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
    """Run the cells of a study that are not yet stored, and store each as soon as it is done.

    Parameters
    ----------
    study : Study
    directory : path
        Where the results are kept; made where it is not there. One that holds another study's
        results is refused.
    executor : "local", "ray" or an Executor
        Who runs the cells. An executor of your own stays open: ``with LocalExecutor() as executor``
        serves many sweeps.
    engine : optional
        As in `fegsam.run`; by default the study's.
    workers : int, optional
        How many cells run at once; by default as many as there are cores.
    progress : bool
        Show a bar, where a person is watching.

    Returns
    -------
    Results

    Raises
    ------
    SweepError
        Where cells failed, after all others are done.
    KeyboardInterrupt
        On Ctrl-C, with the sentence that says how to go on.

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
            f"workers is {workers!r}, but an open executor has its own number; leave one of the "
            "two out."
        )


def _left(store: Store, cells: Sequence[Cell], engine: Any) -> list[Cell]:
    """The cells that are still to run, each once; says which files are damaged."""
    # Cells that differ in nothing share a file.
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
            "go on with that one, or choose another directory."
        )
    return left


@contextlib.contextmanager
def _kept_interrupts() -> Iterator[threading.Event]:
    """Says whether Ctrl-C was pressed, for whoever asks where it does no harm; pressed again, it
    interrupts at once.

    Raised in the middle of storing it can leave a lock of the library that writes the file taken,
    and then all wait for ever.
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
    """What has been done so far."""

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
                # Cells end now and then: only the mean speed says something about the time left.
                Progress(steps, " agent-steps", wanted=watched, smoothing=0) as progress,
                _kept_interrupts() as interrupted,
                contextlib.closing(executor.outcomes(self.left, engine)) as outcomes,  # pyright: ignore[reportArgumentType]
            ):
                for outcome in outcomes:
                    if outcome is not None:
                        self._take(*outcome)
                    if interrupted.is_set():
                        raise KeyboardInterrupt
                    progress.show(self.steps, f"{self.stored} of {self.total} cells")
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"Stopped: {self.stored} of {self.total} cells are stored in "
                f"{str(self.store.directory)!r}; "
                "run the same again to go on from there."
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
        """Say what did not go as it should."""
        if self._diverged:
            warnings.warn(
                f"In {len(self._diverged)} of {self.total} cells some seed left the finite numbers "
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
                "same again to try the rest.",
                {place: trace for place, _, trace in self._failed},
            )


def _some(places: Sequence[str]) -> str:
    more = [f"and {len(places) - _NAMED} more"] if len(places) > _NAMED else []
    return "; ".join([*places[:_NAMED], *more])
