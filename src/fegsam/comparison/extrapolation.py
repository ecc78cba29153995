"""(i) Two step sizes, extrapolated to zero, have a bias of second order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fegsam.comparison.contestants import PLAIN
from fegsam.comparison.drift import bias
from fegsam.comparison.suite import entry
from fegsam.experiments.estimates import slope_estimate
from fegsam.methods.method import Method
from fegsam.report import FigureData, Section, Series
from fegsam.reproduction.thresholds import ClaimSpec


def norms(spec: ClaimSpec, key: str) -> tuple[list[float], list[float]]:
    """The biases at each step size, of plain averaging and after extrapolation."""
    sizes = spec.sizes
    fine = [*sizes.step_sizes, sizes.step_sizes[-1] / 2]
    found = [
        bias(
            entry(key),
            sizes.agents,
            Method(),
            size,
            sizes.sync_period,
            relaxations=sizes.relaxations,
        )
        for size in fine
    ]
    plain = [float(np.linalg.norm(each)) for each in found[:-1]]
    both = [float(np.linalg.norm(2 * half - whole)) for whole, half in itertools.pairwise(found)]
    return plain, both


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """All biases are exact, so `engine` is not used."""
    sizes = spec.sizes
    table = {key: norms(spec, key) for key in sizes.problems}
    verdicts = [
        spec.verdict(
            check,
            entry(key).title,
            slope_estimate(sizes.step_sizes, found[place]),
            f"bias {found[place][0]:.3g} at α = {sizes.step_sizes[0]:g}",
            column=entry(key).title,
        )
        for place, check in enumerate(("first", "second"))
        for key, found in table.items()
    ]
    first = sizes.problems[0]
    return Section(
        spec.letter,
        spec.title,
        "Local steps and Markov draws leave a bias proportional to the step size. Twice the "
        "average of a run with half the step size minus that of the run itself has a bias of "
        "second order, on the same samples.",
        tuple(verdicts),
        (
            FigureData(
                "extrapolation",
                f"{entry(first).title}: bias against the step size",
                "The exact long-run bias, with rounds of "
                f"{sizes.sync_period} steps and Markov draws.",
                "step size α",
                "bias ‖E θ − θ*‖",
                series=tuple(
                    Series(name, sizes.step_sizes, found, style="exact")
                    for name, found in zip((PLAIN, "extrapolated"), table[first], strict=True)
                ),
            ),
        ),
    )
