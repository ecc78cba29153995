"""`fegsam bench`: run the axes, print and store each cell, compare and draw the results."""

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
    """What is timed, and how thoroughly.

    None means all axes or contestants, and for the effort the default of a quick or a full run.
    """

    axes: Sequence[str] | None = None
    contestants: Sequence[str] | None = None
    quick: bool = False
    seconds: float | None = None
    """duration of one timing"""
    repeats: int | None = None
    """number of timings of each contestant"""

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
    """Run the race, or load `stored` results; then compare with `old` results and draw.

    Returns 1 if a contestant failed, else 0.
    """
    before = None if old is None else load_results(old)
    if stored is not None:
        results = load_results(stored)
        print(whole_text(results, markdown))
    else:
        results = _run(race, output, markdown)
    if before is not None:
        print(f"\nCompared with {old}; a ratio above 1 is slower\n\n{conditions(before, results)}")
        print(comparison(compare(before, results), markdown))
    if figures is not None:
        for path in save_curves(results, figures):
            print(path)
    return int(any(entry.fault for cell in results.cells for entry in cell.entries))


def _run(race: Race, output: Path | None, markdown: bool) -> BenchResults:
    """Run the race and write `output` after every cell, so that a killed run keeps its cells."""
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
