"""(h) Control variates from one observation have a variance that does not fall with the step."""

from __future__ import annotations

from typing import Any

import numpy as np

import fegsam as fg
from fegsam.comparison.contestants import PLAIN, by_kind
from fegsam.comparison.scalars import unequal
from fegsam.experiments.estimates import slope_estimate
from fegsam.methods import fedhsa
from fegsam.methods.method import Method
from fegsam.report import FigureData, Section, Series
from fegsam.reproduction.thresholds import ClaimSpec

_METHODS = {PLAIN: Method(), "SCAFFLSA by kind": by_kind(2), "FedHSA": fedhsa()}


def variance(method: Method, step_size: float, total: float, rounds: int) -> float:
    """The variance of the average after many rounds of ``total / step_size`` steps, exactly."""
    problem, algorithm = unequal(2)
    period = round(total / step_size)
    found = fg.exact.moments(
        problem,
        algorithm,
        step_size=step_size,
        sync_period=period,
        times=np.array([rounds * period]),
        method=method,
        order=1,
    )
    apart = found.mean[0] - fg.fixed_point(problem, algorithm)
    return float(found.mse[0] - apart @ apart)


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """All variances are exact, so `engine` is not used."""
    sizes = spec.sizes
    table = {
        name: [variance(method, size, sizes.total, sizes.rounds) for size in sizes.step_sizes]
        for name, method in _METHODS.items()
    }
    verdicts = tuple(
        spec.verdict(
            "order",
            f"two agents of slopes 1 and 1/4, α K = {sizes.total:g}",
            slope_estimate(sizes.step_sizes, found),
            f"variance {found[0]:.3g} at α = {sizes.step_sizes[0]:g}, {found[-1]:.3g} at "
            f"{sizes.step_sizes[-1]:g}",
            method=name,
        )
        for name, found in table.items()
    )
    return Section(
        spec.letter,
        spec.title,
        "Smaller steps and proportionally longer rounds lower the variance of plain averaging and "
        "of variates of the last round. A variate of the first step is one observation, and a "
        "round adds its noise K times: no step size lowers that.",
        verdicts,
        (
            FigureData(
                "first-step",
                "Long-run variance against the step size, at a fixed α K",
                "The exact variance of the average; rounds are longer where steps are smaller.",
                "step size α",
                "variance",
                series=tuple(
                    Series(name, sizes.step_sizes, found, style="exact")
                    for name, found in table.items()
                ),
            ),
        ),
        (
            "If all agents had the same slope, the noise of the corrections would cancel in the "
            "average, and FedHSA would have the variance of plain averaging.",
        ),
    )
