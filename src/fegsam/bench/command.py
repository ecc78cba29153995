"""`fegsam bench`: run the axes, print each cell as it is done, keep the results, compare and draw
them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence

from fegsam.bench.curves import save_curves
from fegsam.bench.machine import describe_machine
from fegsam.bench.results import BenchResults, TimedCell, compare, load_results
from fegsam.bench.suite import AXES, FULL, QUICK, run_axes
from fegsam.bench.text import (
    axis_heading,
    cell_text,
    comparison,
    conditions,
    machine_text,
    whole_text,
)
from fegsam.bench.timing import Effort

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Race:
    """What is timed, and how thoroughly; None for all, or for what `quick` or its opposite says."""

    axes: Sequence[str] | None = None
    contestants: Sequence[str] | None = None
    quick: bool = False
    seconds: float | None = None
    """of one timing"""
    repeats: int | None = None
    """timings of each contestant"""

    @property
    def effort(self) -> Effort:
        usual = QUICK if self.quick else FULL
        return Effort(self.seconds or usual.seconds, self.repeats or usual.repeats)

    def run(self) -> Iterator[TimedCell]:
        return run_axes(self.axes or tuple(AXES), self.effort, self.quick, self.contestants)


def bench(
    race: Race,
    *,
    output: Path | None = None,
    stored: Path | None = None,
    old: Path | None = None,
    figures: Path | None = None,
    markdown: bool = False,
) -> int:
    """Run the race, or take `stored` results; then compare with `old` ones and draw. 1 if a
    contestant broke, else 0."""
    before = None if old is None else load_results(old)
    if stored is not None:
        results = load_results(stored)
        print(whole_text(results, markdown))
    else:
        results = _run(race, output, markdown)
    if before is not None:
        print(f"\nAgainst {old}; above one is slower\n\n{conditions(before, results)}")
        print(comparison(compare(before, results), markdown))
    if figures is not None:
        for path in save_curves(results, figures):
            print(path)
    return int(any(entry.fault for cell in results.cells for entry in cell.entries))


def _run(race: Race, output: Path | None, markdown: bool) -> BenchResults:
    """`output` is written after every cell: a run that is killed leaves the cells before."""
    results = BenchResults(describe_machine(), race.effort, ())
    print(machine_text(results, markdown), flush=True)
    axis = None
    for cell in race.run():
        if cell.axis != axis:
            print(axis_heading(cell, markdown))
        print(cell_text(cell, markdown), flush=True)
        axis = cell.axis
        results = dataclasses.replace(results, cells=(*results.cells, cell))
        if output is not None:
            results.save(output)
    return results
