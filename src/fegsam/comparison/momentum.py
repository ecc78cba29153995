"""(e) Server momentum against plain averaging at the same effective step size."""

from __future__ import annotations

from typing import Any

import numpy as np

import fegsam as fg
from fegsam.comparison.contest import ERROR
from fegsam.comparison.contestants import PLAIN
from fegsam.comparison.longer_rounds import rounds_to_forget
from fegsam.comparison.suite import SuiteProblem, entry
from fegsam.methods import fedavgm
from fegsam.methods.method import Method
from fegsam.report import FigureData, Section, Series
from fegsam.reproduction.thresholds import ClaimSpec, certain


def curves(spec: ClaimSpec, one: SuiteProblem, step_size: float) -> tuple[np.ndarray, np.ndarray]:
    """(rounds + 1,) twice: the exact errors of plain averaging and of momentum."""
    sizes = spec.sizes
    methods = ((step_size, Method()), (step_size * (1 - sizes.momentum), fedavgm(sizes.momentum)))
    plain, heavy = (
        fg.exact.moments(
            one.problem(sizes.agents),
            one.algorithm,
            step_size=size,
            sync_period=sizes.sync_period,
            times=sizes.sync_period * np.arange(sizes.rounds + 1),
            method=method,
            order=1,
        ).mse
        for size, method in methods
    )
    return plain, heavy


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """All errors are exact, so `engine` is not used."""
    sizes = spec.sizes
    cases = [(entry(key), size) for key in sizes.problems for size in sizes.step_sizes]
    found = [(one, size, *curves(spec, one, size)) for one, size in cases]
    verdicts = []
    for one, size, plain, heavy in found:
        rounds = [
            rounds_to_forget(each, sizes.times * plain[-1] / each[0]) for each in (plain, heavy)
        ]
        verdicts.append(
            spec.verdict(
                "sooner",
                f"{one.title}, α = {size:g}",
                certain(rounds[1] / rounds[0]),
                f"{rounds[1]} rounds; {PLAIN}: {rounds[0]}",
                column=one.title,
                times=sizes.times,
            )
        )
    verdicts += [
        spec.verdict(
            "floor",
            f"{one.title}, α = {size:g}",
            certain(heavy[-1] / plain[-1]),
            column=one.title,
        )
        for one, size, plain, heavy in found
    ]
    return Section(
        spec.letter,
        spec.title,
        "Momentum β at the server makes steps 1 / (1 − β) times as long in the end. Against plain "
        "averaging with steps that are as long from the beginning, it is not sooner but later. "
        "What it may buy is a smaller long-run error, from smaller local steps; not where mixing "
        "is slow.",
        tuple(verdicts),
        (_figure(spec, *found[0]),),
        ("At one step size for both, momentum looks ten times as fast, and has the noise for it.",),
    )


def _figure(
    spec: ClaimSpec, one: SuiteProblem, size: float, plain: np.ndarray, heavy: np.ndarray
) -> FigureData:
    rounds = np.arange(1, 101)
    small = size * (1 - spec.sizes.momentum)
    return FigureData(
        "momentum",
        f"{one.title}: error against rounds",
        "The exact error after a number of rounds, at the same effective step size.",
        "rounds",
        ERROR,
        series=(
            Series(f"{PLAIN}, α = {size:g}", rounds, plain[rounds], style="exact"),
            Series(
                f"momentum {spec.sizes.momentum:g}, α = {small:g}",
                rounds,
                heavy[rounds],
                style="exact",
            ),
        ),
    )
