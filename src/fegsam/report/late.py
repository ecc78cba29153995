"""The late errors of a study: its plateaus, or its last errors if a run was too short for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fegsam.experiments.estimates import ERROR, Estimate, mean_estimate, plateau, ratio_estimate
from fegsam.experiments.plateaus import Plateau, find_plateau
from fegsam.experiments.spec.cells import Cell
from fegsam.experiments.sweep.sweep import Results
from fegsam.report.exact_answers import ExactAnswers

_GROWTH = 10.0
"""An error that is larger than at the start, and this many times what it was in the middle of the
run, grows."""


class Late:
    """The errors late in each cell's run, sampled and exact; each is computed once.

    Parameters
    ----------
    results : Results
    label : callable
        The name of a cell: ``N = 4, K = 10``.
    """

    def __init__(self, results: Results, label: Callable[[Cell], str]) -> None:
        self._results, self._label = results, label
        self.exact = ExactAnswers(results)
        self._plateaus: dict[tuple[str, bool], Plateau] = {}

    def settled(self, exact: bool) -> bool:
        """Whether no cell of the study is known to have missed its plateau.

        If `exact`, cells with an exact error are judged by it. Those whose error grows have none.
        """
        return all(
            self._plateau(cell, exact).reached is not False or self._grows(cell)
            for cell in self._results.cells
        )

    def errors(self, cells: Sequence[Cell], exact: bool) -> list[Estimate]:
        """The level of each cell's plateau.

        If a cell of the study has missed its plateau, these are the errors at the last time.
        """
        return [mean_estimate(each, positive=True) for each in self._samples(cells, exact)]

    def ratios(self, cells: Sequence[Cell], exact: bool) -> list[Estimate]:
        """How many times lower each cell's error is than that of the first.

        Seeds that both have are compared in pairs.
        """
        first, *others = self._samples(cells, exact)
        seeds = [self._results.history(cell).settings.seeds for cell in cells]
        pairs = zip(others, seeds[1:], strict=True)
        return [
            Estimate(1.0, 1.0, 1.0),
            *(ratio_estimate(first, each, paired=own == seeds[0]) for each, own in pairs),
        ]

    def exact_errors(self, cells: Sequence[Cell]) -> np.ndarray | None:
        """The exact values that `errors` estimates; None if one of them is not known."""
        curves = [self.exact.curve(cell) for cell in cells]
        settled, levels = self.settled(True), []
        for cell, curve in zip(cells, curves, strict=True):
            if curve is None:
                return None
            levels.append(
                curve[self._times(cell) >= cell.num_steps / 2].mean() if settled else curve[-1]
            )
        return np.array(levels)

    def notice(self, exact: bool) -> str:
        """What a caption must say about runs that did not reach a plateau, or perhaps did not.

        It is empty if all runs reached one.
        """
        cells = self._results.cells
        found = [self._plateau(cell, exact) for cell in cells]
        lost = [not np.isfinite(each.level.value) for each in found]
        grown = [self._grows(cell) for cell in cells]
        missed, unsure = (
            [
                each.reached is which and not bad
                for each, bad in zip(found, np.logical_or(lost, grown), strict=True)
            ]
            for which in (False, None)
        )
        grow = [bad and not gone for bad, gone in zip(grown, lost, strict=True)]
        said = (
            (lost, "Runs diverged by {}; a smaller step size may help"),
            (grow, "The error still grows at {}; a smaller step size may help"),
            (
                unsure,
                "These seeds and recorded times cannot tell whether a plateau was reached by {}",
            ),
            (missed, "No plateau was reached by {}"),
        )
        return " ".join(
            f"{words.format(self._where(which))}." for which, words in said if any(which)
        )

    def _where(self, which: Sequence[bool]) -> str:
        """The time and, unless they are all, the cells: ``T = 2000 with N = 4; N = 16``."""
        cells = [cell for cell, chosen in zip(self._results.cells, which, strict=True) if chosen]
        ends = {cell.num_steps for cell in cells}
        when = f"T = {ends.pop()}" if len(ends) == 1 else "the end of the run"
        return when if all(which) else f"{when} with {'; '.join(map(self._label, cells))}"

    def _times(self, cell: Cell) -> np.ndarray:
        return self._results.history(cell).data.time.values

    def _samples(self, cells: Sequence[Cell], exact: bool) -> list[np.ndarray]:
        """(seeds,) for each cell; NaN where the error grows."""
        histories = [self._results.history(cell) for cell in cells]
        if self.settled(exact):
            found = [plateau(history) for history in histories]
        else:
            found = [history.data[ERROR].isel(time=-1).values for history in histories]
        return [
            np.full_like(each, np.nan) if self._grows(cell) else each
            for cell, each in zip(cells, found, strict=True)
        ]

    def _grows(self, cell: Cell) -> bool:
        error = self._results.history(cell).data[ERROR].mean("seed", skipna=False)
        first, middle, last = error.sel(
            time=[0, cell.num_steps / 2, cell.num_steps], method="nearest"
        ).values
        return not (last <= first or last <= _GROWTH * middle)

    def _plateau(self, cell: Cell, exact: bool) -> Plateau:
        key = (cell.key, exact)
        if key not in self._plateaus:
            excess = self.exact.excess(cell) if exact else None
            self._plateaus[key] = find_plateau(self._results.history(cell), excess=excess)
        return self._plateaus[key]
