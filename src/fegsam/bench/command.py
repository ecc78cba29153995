"""`fegsam bench`: run the axes, print each cell as it is done, keep the results, compare and draw
them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence

from fegsam.bench.curves import save_curves
from fegsam.bench.machine import describe_machine
from fegsam.bench.results import Cell, Results, compare, load_results
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


def bench(
    *,
    axes: Sequence[str] | None = None,
    contestants: Sequence[str] | None = None,
    quick: bool = False,
    seconds: float | None = None,
    repeats: int | None = None,
    output: Path | None = None,
    stored: Path | None = None,
    old: Path | None = None,
    figures: Path | None = None,
    markdown: bool = False,
) -> int:
    """Run the axes, or take `stored` results; then compare with `old` ones and draw. 1 if a
    contestant broke, else 0."""
    before = None if old is None else load_results(old)
    if stored is not None:
        results = load_results(stored)
        print(whole_text(results, markdown))
    else:
        effort = QUICK if quick else FULL
        effort = dataclasses.replace(
            effort, seconds=seconds or effort.seconds, repeats=repeats or effort.repeats
        )
        results = _run(
            run_axes(axes or tuple(AXES), effort, quick, contestants), effort, output, markdown
        )
    if before is not None:
        print(f"\nAgainst {old}; above one is slower\n\n{conditions(before, results)}")
        print(comparison(compare(before, results), markdown))
    if figures is not None:
        for path in save_curves(results, figures):
            print(path)
    return int(any(entry.fault for cell in results.cells for entry in cell.entries))


def _run(cells: Iterator[Cell], effort: Effort, output: Path | None, markdown: bool) -> Results:
    """`output` is written after every cell: a run that is killed leaves the cells before."""
    results = Results(describe_machine(), effort, ())
    print(machine_text(results, markdown), flush=True)
    axis = None
    for cell in cells:
        if cell.axis != axis:
            print(axis_heading(cell, markdown))
        print(cell_text(cell, markdown), flush=True)
        axis = cell.axis
        results = dataclasses.replace(results, cells=(*results.cells, cell))
        if output is not None:
            results.save(output)
    return results
