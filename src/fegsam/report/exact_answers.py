"""Results for the cells of a study without sampling: exact curves, their limits, and bounds."""

from __future__ import annotations

import os

import numpy as np

import fegsam as fg
from fegsam.errors import ProblemError
from fegsam.experiments.spec.cells import Cell
from fegsam.experiments.spec.foreign_code import code_of
from fegsam.experiments.spec.study_tables import OwnRuleTable
from fegsam.experiments.sweep.sweep import Results
from fegsam.methods.schedules import rounds_of


class ExactAnswers:
    """Exact curves and bounds, each computed once.

    They are left out if computing them would run code of the study that is not trusted.
    """

    def __init__(self, results: Results) -> None:
        self._results = results
        self._curves: dict[str, np.ndarray | None] = {}
        self._left_out: dict[str, None] = {}

    def notes(self, directory: str | os.PathLike[str]) -> tuple[str, ...]:
        """What is missing on the page, and why."""
        if not self._left_out:
            return ()
        return (
            f"Exact curves and bounds are left out where computing them would run "
            f"{', '.join(self._left_out)}. If you trust its author, run fegsam report "
            f"{os.fspath(directory)} --trust to draw them.",
        )

    def _may_build(self, cell: Cell) -> bool:
        refused = [code.what for code in code_of(cell) if not code.may_run(cell.trust)]
        self._left_out |= dict.fromkeys(refused)
        return not refused

    def bound(self, cell: Cell) -> float | None:
        """The theorem's bound in the 2-norm; None for what the theorem is not about."""
        if cell.on_data or not cell.is_plain or not self._may_build(cell):
            return None
        settings = {
            "step_size": cell.step_size,
            "sync_period": cell.sync_period,
            "num_steps": cell.num_steps,
        }
        return fg.theory.error_bound(*cell.build_simulated(), **settings).total_2

    def curve(self, cell: Cell) -> np.ndarray | None:
        """E||avg - theta*||^2 of a cell at its recorded times."""
        # Data and the user's own rules have no exact curves, so nothing is left out for them.
        if cell.on_data or isinstance(cell.algorithm, OwnRuleTable) or not self._may_build(cell):
            return None
        if cell.key not in self._curves:
            self._curves[cell.key] = _exact_curve(cell, self._times(cell))
        return self._curves[cell.key]

    def excess(self, cell: Cell) -> float | None:
        """How far the exact curve is above its limit late in the run; None if it is unknown."""
        curve, times = self.curve(cell), self._times(cell)
        if curve is None or cell.schedule is not None:
            return None
        # The limit is known for errors right after a synchronisation, under Markov sampling.
        late = (times >= cell.num_steps / 2) & rounds_of(cell.sync_period).is_sync(times)
        if cell.sampling != "markov" or not late.any():
            return None
        problem, algorithm = cell.build_simulated()
        settings = {
            "step_size": cell.step_size,
            "sync_period": cell.sync_period,
            "method": cell.method,
            "order": 1,
        }
        try:
            return float(
                curve[late].mean() - fg.exact.stationary_error(problem, algorithm, **settings)
            )
        except ProblemError:
            return None

    def _times(self, cell: Cell) -> np.ndarray:
        return self._results.history(cell).data.time.values


def _exact_curve(cell: Cell, times: np.ndarray) -> np.ndarray | None:
    problem, algorithm = cell.build_simulated()
    start = cell.arguments(algorithm.dimension(problem))["initial_params"]
    settings = {
        "step_size": cell.step_size,
        "sync_period": cell.sync_period,
        "method": cell.method,
        "schedule": cell.schedule,
        "sampling": cell.sampling,
    }
    try:
        return fg.exact.moments(
            problem, algorithm, times=times, initial_params=start, order=1, **settings
        ).mse
    except ProblemError:
        return None
