"""(m) The theorem's inequality itself: the bound against the exact error of the output.

The settings are those that the theorem admits. For the linear algorithms
`fegsam.exact.weighted_error` computes the expected squared 2-norm of the error at the random output
time, for runs of any length. If the theorem's norm is another norm, the check is conservative: the
exact error is replaced by u ||x||_2^2 >= ||x||_c^2 with the smallest such u. The bound is
`fegsam.theory.error_bound`, with corrected constants.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import fegsam as fg
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.consensus import norm_shares
from fegsam.reproduction.corollary import setting
from fegsam.reproduction.names import ALGORITHMS
from fegsam.reproduction.thresholds import ClaimSpec, certain


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """The bound against the exact error; nothing is run, so `engine` is not used."""
    verdicts: list[Verdict] = []
    series: list[Series] = []
    for number in spec.sizes.algorithms:
        for place in spec.sizes.problems:
            points = compared(spec, number, place)
            verdicts.append(_bound(spec, number, place, points))
            if place == spec.sizes.problems[0]:
                series += _curves(number, points)
    chosen = "; ".join(f"N = {agents}, K = {period}" for agents, period in spec.sizes.settings)
    shares = " and ".join(f"{share:g}" for share in spec.sizes.shares)
    figure = FigureData(
        key="inequality",
        title="The bound and the error",
        caption="The exact error at the random output time and the theorem's bound, at the largest "
        "admitted step size.",
        x_label="steps T",
        y_label="squared error at the output time",
        series=tuple(series),
    )
    return Section(
        spec.letter,
        spec.title,
        "At every step size, sync period and number of steps that the theorem admits, the "
        "expected squared error of the output is at most the theorem's bound.",
        tuple(verdicts),
        (figure,),
        (
            f"The settings are {chosen}; the step sizes are {shares} times the largest that the "
            "theorem admits, and the run lengths "
            "go from a tenth of the time in which the bound forgets its start to 64 times it. "
            "Nothing is sampled.",
            "Q-learning is left out: its error is not known exactly, and the step sizes that the "
            "theorem admits are too small for a sampled run to leave its start.",
        ),
    )


class Point(NamedTuple):
    """The bound and the error at one admitted setting."""

    agents: int
    period: int
    share: float
    steps: int
    error: float
    """exact in the theorem's norm, or an upper bound on that"""
    bound: float


def compared(spec: ClaimSpec, number: int, place: str) -> list[Point]:
    """The bound and the exact error at every setting that the theorem admits."""
    algorithm, federate = setting(number, place, spec.sizes.discount)
    points = []
    for agents, period in spec.sizes.settings:
        problem = federate(agents)
        most = norm_shares(fg.theory.assumptions(problem, algorithm))[1]
        largest = fg.theory.largest_step(problem, algorithm, sync_period=period)
        for share in spec.sizes.shares:
            settings: dict[str, Any] = {"step_size": share * largest, "sync_period": period}
            constants = fg.theory.constants(problem, algorithm, step_size=share * largest)
            rest = constants["alpha"] * constants["phi_2"] / 2
            for length in spec.sizes.times:
                steps = math.ceil(length / rest)
                bound = fg.theory.error_bound(problem, algorithm, num_steps=steps, **settings)
                if bound.holds:
                    error = fg.exact.weighted_error(
                        problem, algorithm, num_steps=steps, decay=1 - rest, order=1, **settings
                    )
                    points.append(Point(agents, period, share, steps, most * error, bound.total))
    return points


def _bound(spec: ClaimSpec, number: int, place: str, points: list[Point]) -> Verdict:
    worst = max(points, key=lambda point: point.error / point.bound)
    detail = (
        f"{len(points)} admitted settings; the bound is at least {worst.bound / worst.error:.3g} "
        f"times the error, at N = {worst.agents}, K = {worst.period}, T = {worst.steps:.3g}"
    )
    return spec.verdict(
        "bound", f"{ALGORITHMS[number]}, {place}", certain(worst.error / worst.bound), detail
    )


def _curves(number: int, points: list[Point]) -> list[Series]:
    """The curves of the first setting with more than one agent, at its largest step size."""
    first = next(point for point in points if point.agents > 1)
    chosen = [point for point in points if point[:3] == first[:3]]
    steps, name = [point.steps for point in chosen], ALGORITHMS[number]
    return [
        Series(
            f"{name}, exact", steps, [point.error for point in chosen], style="exact", group=name
        ),
        Series(
            f"{name}, bound", steps, [point.bound for point in chosen], style="bound", group=name
        ),
    ]
