"""(b) Agents with one fixed point may communicate rarely (Corollary sample_complexity).

The corollary needs N communications in all. Here the number of steps T is fixed and the sync period
K goes from 1 to T / N. The theorem charges (K - 1) alpha^2 for it. To first order the true price is
smaller: the variance does not change, but the bias of order alpha, which is divided by N at K = 1,
no longer is.
"""

from __future__ import annotations

import math

import numpy as np

from fegsam.experiments.estimates import Estimate, ratio_estimate, slope_estimate
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.names import ALGORITHMS
from fegsam.reproduction.problems import Case, cases
from fegsam.reproduction.runs import (
    SHARES,
    estimates,
    exact_level,
    exact_plateau,
    levels,
    plateau_run,
)
from fegsam.reproduction.thresholds import ClaimSpec
from fegsam.run import Engine


def examine(spec: ClaimSpec, engine: str | Engine | None = None) -> Section:
    """The cost of fewer communications."""
    verdicts: list[Verdict] = []
    figures: list[FigureData] = []
    for number in spec.sizes.algorithms:
        series: list[Series] = []
        # Algorithm 5 has one fixed point only if its agents behave alike; claim (c) has the others.
        alike = cases(spec.sizes.one_problem, (number,))
        private = (
            cases(spec.sizes.one_problem, (number,), kinds=spec.sizes.kinds)
            if number in (3, 4)
            else alike
        )
        for case, same in zip(private, alike, strict=True):
            found, drawn = _prices(case, spec, engine)
            verdicts += found
            if same.has_exact:
                verdicts.append(vanishing_verdict(same, spec))
            series += drawn
        figures.append(_figure(number, series))
    return Section(
        spec.letter,
        spec.title,
        "Agents that learn the same thing need to communicate only about as often as there are "
        "agents, however long they learn: the error is nearly that of agents that average after "
        "every step.",
        tuple(verdicts),
        tuple(figures),
        (
            f"{spec.sizes.agents} agents start at the fixed point. All runs of a problem have the "
            "same number of steps, the same step size and the same random paths. The agents of "
            "off-policy tabular TD and of Q-learning have private behaviour policies, but one "
            "fixed point.",
            "The remaining price is a bias of the order of the step size: each agent's own, which "
            "averaging at every step would divide by N. It vanishes with smaller steps, not with "
            "more agents. By the small-step law the error with K = 1 is Vα/N, and long local runs "
            "add the squared bias wα² of one agent, so the price is 1 + Nαw/V.",
            "Agents with private policies forget at different rates. In rounds that are long "
            "enough to forget their start, this changes the noise of the average even for the "
            "smallest steps, so the price tends to a number other than 1, which may be below 1.",
            "Q-learning pays most, on the grid world and on FrozenLake in trial runs at full size. "
            "A likely cause is that some actions are equally good: the maximum over noisy values "
            "exceeds the true one by about their noise, and between synchronisations that is the "
            "noise of one agent, not of N. Breaking the ties removed nearly all of the price on "
            "the grid world but only part of it on FrozenLake, so there must be other causes. "
            "Smaller steps lowered both.",
        ),
    )


def sync_periods(num_steps: int, agents: int, count: int) -> list[int]:
    """Sync periods from 1 to T / N, evenly spaced in the logarithm.

    >>> sync_periods(8000, 8, 4)
    [1, 10, 100, 1000]
    """
    return [round(float(period)) for period in np.geomspace(1, num_steps // agents, count)]


def _prices(
    case: Case, spec: ClaimSpec, engine: str | Engine | None
) -> tuple[list[Verdict], list[Series]]:
    sizes = spec.sizes
    steps = round(sizes.relaxations * case.relaxation)
    periods = sync_periods(steps, sizes.agents, sizes.periods)
    settings = {"relaxations": sizes.relaxations, "seeds": sizes.seeds, "engine": engine}
    histories = [
        plateau_run(case, sizes.agents, sync_period=period, **settings) for period in periods
    ]
    found = [levels(history) for history in histories]
    prices = [ratio_estimate(each, found[0], paired=True) for each in found]
    drawn = [estimates(case.place, periods, prices, case.place)]
    detail = (
        f"T = {steps}, K = {periods[-1]}: {steps // periods[-1]} communications instead of {steps}"
    )
    last = prices[-1]
    kept = Estimate(
        *(
            float(np.log(price) / np.log(sizes.agents))
            for price in (last.value, last.low, last.high)
        )
    )
    detail += f"; price {last}"
    verdicts = [spec.verdict("price", case.name, kept, detail, times=steps // periods[-1])]
    if case.has_exact:
        truth = np.array([exact_plateau(case, history) for history in histories])
        drawn.append(
            Series(
                f"{case.place}, exact", periods, truth / truth[0], style="exact", group=case.place
            )
        )
        exact = truth[-1] / truth[0]
        share = Estimate(last.value / exact, last.low / exact, last.high / exact)
        verdicts.append(spec.verdict("exact", case.name, share, f"exact price {exact:.3f}"))
    return verdicts, drawn


def vanishing_verdict(case: Case, spec: ClaimSpec) -> Verdict:
    """The verdict on whether the price vanishes with the step size.

    Smaller steps take longer, so the same number of communications means a longer period.
    """
    rises, period = [], round(spec.sizes.relaxations * case.relaxation) // spec.sizes.agents
    for share in SHARES:
        often, rarely = (
            exact_level(case, spec.sizes.agents, K, share * case.step_size)
            for K in (1, round(period / share))
        )
        rises.append(rarely / often - 1)
    detail = (
        "prices above 1: "
        + ", ".join(f"{rise:.3g}" for rise in rises)
        + f" at shares {SHARES} of the step size"
    )
    return spec.verdict("vanishes", case.name, slope_estimate(SHARES, np.abs(rises)), detail)


def _figure(number: int, series: list[Series]) -> FigureData:
    x = series[0].x
    rise = max(float(each.high.max()) for each in series if each.high is not None) - 1
    return FigureData(
        key=f"local-steps-{number}",
        title="The price of fewer communications",
        panel=ALGORITHMS[number],
        caption="The error when agents average every K steps, relative to averaging at every step, "
        f"up to K = T/N. It rises by at most {math.ceil(100 * rise)} %.",
        x_label="sync period K",
        y_label="long-run error, relative to K = 1",
        y_scale="linear",
        series=(*series, Series("no price", x, np.ones(len(x)), style="reference")),
    )
