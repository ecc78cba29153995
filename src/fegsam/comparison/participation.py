"""(f) Half of the agents take part in each round, with and without control variates."""

from __future__ import annotations

from typing import Any

import numpy as np

import fegsam as fg
from fegsam.comparison.contestants import PLAIN, half
from fegsam.comparison.drift import bias
from fegsam.comparison.scalars import alike
from fegsam.comparison.suite import entry
from fegsam.methods.correction import ControlVariates
from fegsam.methods.method import Method
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.thresholds import ClaimSpec, certain

VARIATES = "SCAFFLSA"


def plain_law(step_size: float, period: int, agents: int, present: int) -> float:
    """The small-step variance of plain averaging; slope, noise and drift of an agent are one.

    >>> round(plain_law(0.002, 1, 8, 4), 9)
    0.000392857
    """
    spread = (agents - present) / (present * (agents - 1)) * period
    return step_size / 2 * (1 / present + spread)


def variates_law(step_size: float, agents: int, present: int) -> float:
    """The small-step variance with a control variate for each agent.

    >>> round(variates_law(0.002, 8, 4), 9)
    0.000375
    """
    return step_size / 2 * (2 / present - 1 / agents)


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """All moments are exact, so `engine` is not used."""
    sizes = spec.sizes
    verdicts = [_bias(spec, key) for key in sizes.problems]
    table = {period: variances(spec, period) for period in sizes.periods}
    present = half(sizes.agents).agents or 1
    for period, found in table.items():
        laws = {
            f"half, {PLAIN}": plain_law(sizes.small_step, period, sizes.agents, present),
            f"half, {VARIATES}": variates_law(sizes.small_step, sizes.agents, present),
        }
        verdicts += [
            spec.verdict(
                "law",
                f"K = {period}, {what}",
                certain(found[what] / law),
                f"variance {found[what]:.4g}, law {law:.4g}",
                what=what.partition(", ")[2] + " by half of the agents",
            )
            for what, law in laws.items()
        ]
    verdicts += [
        spec.verdict(
            "pays", f"K = {period}", certain(found[f"half, {VARIATES}"] / found[f"half, {PLAIN}"])
        )
        for period, found in table.items()
    ]
    return Section(
        spec.letter,
        spec.title,
        "A round of half of the agents has the same long-run mean as a round of all, so the price "
        "is variance alone. Without variates that price grows with the length of rounds; control "
        "variates cap it.",
        tuple(verdicts),
        (_figure(spec, table),),
        (
            f"Variances: {sizes.agents} agents with one parameter each, drawn to 1 or to −1, with "
            f"independent noise of size 1 and the step size {sizes.small_step:g}. Biases: the "
            "linear problems of the suite, with Markov draws.",
        ),
    )


def _bias(spec: ClaimSpec, key: str) -> Verdict:
    sizes, one = spec.sizes, entry(key)
    norms = [
        float(
            np.linalg.norm(
                bias(
                    one,
                    sizes.agents,
                    method,
                    sizes.step_size,
                    sizes.sync_period,
                    relaxations=sizes.relaxations,
                )
            )
        )
        for method in (Method(participation=half(sizes.agents)), Method())
    ]
    where = f"{one.title}, α = {sizes.step_size:g}, K = {sizes.sync_period}"
    detail = f"bias {norms[0]:.3g}; all agents: {norms[1]:.3g}"
    ratio = certain(norms[0] / norms[1])
    return spec.verdict("bias", where, ratio, detail, column=one.title)


def variances(spec: ClaimSpec, period: int) -> dict[str, float]:
    """The exact long-run variances of all and of half of the agents, with and without variates."""
    sizes = spec.sizes
    task = alike(sizes.agents)
    some = half(sizes.agents)
    methods = {
        f"all, {PLAIN}": Method(),
        f"all, {VARIATES}": Method(correction=ControlVariates()),
        f"half, {PLAIN}": Method(participation=some),
        f"half, {VARIATES}": Method(participation=some, correction=ControlVariates()),
    }
    return {
        name: float(
            fg.exact.stationary_error(
                *task, step_size=sizes.small_step, sync_period=period, method=method, order=1
            )
        )
        for name, method in methods.items()
    }


def _figure(spec: ClaimSpec, table: dict[int, dict[str, float]]) -> FigureData:
    names = next(iter(table.values()))
    return FigureData(
        "participation",
        "Long-run variance against the sync period",
        "The exact variance of the average if all agents or half of them take part in a round. "
        "If all take part, the two methods have the same variance.",
        "sync period K",
        "variance",
        series=tuple(
            Series(name, list(table), [found[name] for found in table.values()], style="exact")
            for name in names
        ),
    )
