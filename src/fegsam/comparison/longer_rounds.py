"""(c) Under drift correction there is a best length of rounds, and longer ones are slower."""

from __future__ import annotations

from typing import Any

import numpy as np

import fegsam as fg
from fegsam.comparison.contestants import PLAIN, by_kind
from fegsam.comparison.scalars import pulled, unequal
from fegsam.methods.method import Method
from fegsam.report import FigureData, Section, Series
from fegsam.reproduction.thresholds import ClaimSpec, certain

_START = 3.0
_METHODS = {PLAIN: Method(), "SCAFFLSA by kind": by_kind(2)}


def mean_errors(
    task: tuple[Any, Any], method: Method, step_size: float, period: int, rounds: int
) -> np.ndarray:
    """(rounds + 1,): how far the mean is from its limit after each round."""
    times = period * np.append(np.arange(rounds + 1), 10 * rounds)
    found = fg.exact.moments(
        *task,
        step_size=step_size,
        sync_period=period,
        times=times,
        method=method,
        initial_params=[_START],
        order=1,
    )
    return np.abs(found.mean[:-1, 0] - found.mean[-1, 0])


def rounds_to_forget(errors: np.ndarray, fraction: float) -> int:
    """The first round from which on the error stays within a fraction of the first one.

    >>> rounds_to_forget(np.array([1.0, 0.01, 0.2, 0.01, 0.01]), 0.1)
    3
    """
    return int(np.flatnonzero(errors > fraction * errors[0])[-1]) + 1


def rate(errors: np.ndarray, floor: float = 1e-9) -> float:
    """The factor by which errors fall in a round, before they reach rounding.

    >>> round(rate(0.5 ** np.arange(60.0)), 12)
    0.5
    """
    last = int(np.flatnonzero(errors > floor)[-1])
    first = last // 2
    return float((errors[last] / errors[first]) ** (1 / (last - first)))


def law(step_size: float, period: int) -> float:
    """The rate per round for agents of slope one.

    >>> round(law(0.01, 1000), 6)
    0.900004
    """
    kept = (1 - step_size) ** period
    return max(kept, 1 - (1 - kept) / (step_size * period))


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """All rates are exact, so `engine` is not used."""
    sizes, verdicts = spec.sizes, []
    curves = {
        name: [
            rounds_to_forget(
                mean_errors(unequal(2), method, sizes.step_size, period, sizes.rounds),
                sizes.fraction,
            )
            for period in sizes.periods
        ]
        for name, method in _METHODS.items()
    }
    for name, counts in curves.items():
        taken = dict(zip(sizes.periods, counts, strict=True))
        long, short = taken[sizes.long], taken[sizes.short]
        verdicts.append(
            spec.verdict(
                "fewer",
                "two agents of slopes 1 and 1/4",
                certain(long / short),
                f"{long} rounds of {sizes.long} steps, {short} of {sizes.short}",
                long=sizes.long,
                short=sizes.short,
                method=name,
            )
        )
    near = pulled((1.0, 0.98), (1.0, -1.0), (1.0, 1.0), 2)
    for period in sizes.periods:
        if sizes.step_size * period < 1:
            continue
        errors = mean_errors(near, by_kind(2), sizes.step_size, period, sizes.rounds)
        expected = law(sizes.step_size, period)
        verdicts.append(
            spec.verdict(
                "law",
                f"α K = {sizes.step_size * period:g}",
                certain(rate(errors) / expected),
                f"rate {rate(errors):.4f}, law {expected:.4f}",
            )
        )
    return Section(
        spec.letter,
        spec.title,
        "Plain averaging forgets its start in fewer rounds the longer they are. Control variates "
        "are of the last round: from about α K = 1 on they are out of date, and a longer round "
        "is slower than a short one.",
        tuple(verdicts),
        (_figure(spec, curves),),
        (
            "Two agents with one parameter each; the mean of the average is computed without "
            "sampling. The best length is about one time constant, α K = 1.",
        ),
    )


def _figure(spec: ClaimSpec, curves: dict[str, list[int]]) -> FigureData:
    return FigureData(
        "longer-rounds",
        "Communications to forget the start",
        f"Rounds until the mean error stays below {spec.sizes.fraction:g} of its start, against "
        "their length, at the step size "
        f"{spec.sizes.step_size:g}.",
        "sync period K",
        "rounds",
        series=tuple(
            Series(name, spec.sizes.periods, counts, style="exact")
            for name, counts in curves.items()
        ),
    )
