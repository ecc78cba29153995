"""(a) With N agents the noise in the common parameters is N times smaller (Theorem 3.1, its second term).

Two ways to see it. At one and the same step size the squared error, once the start is forgotten, is proportional to 1/N.
Or: N agents may take N times as large a step for the same error, and reach an accuracy N times sooner.
"""

from __future__ import annotations

import numpy as np

from fegsam.engines.run import Engine
from fegsam.experiments.estimates import Estimate, plateau, ratio_estimate, slope_estimate, speed_up
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.problems import ALGORITHMS, Case, cases
from fegsam.reproduction.runs import estimates, exact_plateau, levels, plateau_run, run_case, sampled
from fegsam.reproduction.thresholds import ClaimSpec, claim_spec, held_against


def section(quick: bool, engine: str | Engine | None = None) -> Section:
    """Whether N agents are N times as good as one."""
    return examine(claim_spec("speed_up", quick), engine)


def examine(spec: ClaimSpec, engine: str | Engine | None = None) -> Section:
    sizes = spec.sizes
    verdicts: list[Verdict] = []
    figures: list[FigureData] = []
    gains: dict[str, list[Estimate]] = {}
    for number in sizes.algorithms:
        series: list[Series] = []
        for case in cases(sizes.one_problem, (number,)):
            found, drawn = _plateaus(case, spec, engine)
            verdicts += found
            series += drawn
            gains[case.name] = _times(case, spec, engine)
        figures.append(_plateau_figure(number, sizes.agents, series))
    verdicts += [_time_verdict(name, found[-1], spec) for name, found in gains.items()]
    figures += _time_figures(gains, spec)
    return Section(
        "a",
        "More agents, proportionally less error",
        "N agents that average their parameters are worth N times the samples: the error that remains is N times smaller, or "
        "an accuracy is reached N times sooner.",
        tuple(verdicts),
        tuple(figures),
        (
            f"Agents average every {sizes.sync_period} steps. Runs for the long-run error begin at the fixed point, so that "
            "nothing but noise is seen; those for the time to an accuracy begin at zero, with a step size proportional to N.",
            "At a fixed step size the proportionality ends where the noise meets a bias of the order of the step size that N "
            "does not divide: agents that do not average at every step are each as biased as one alone. The steps here are "
            "small enough for that to lie beyond the agents shown; where exact answers exist, the lines show how far it is.",
        ),
    )


def _plateaus(case: Case, spec: ClaimSpec, engine: str | Engine | None) -> tuple[list[Verdict], list[Series]]:
    """One step size, more and more agents."""
    sizes, agents = spec.sizes, spec.sizes.agents
    settings = {"relaxations": sizes.relaxations, "sync_period": sizes.sync_period, "seeds": sizes.seeds, "engine": engine}
    histories = [plateau_run(case, n, **settings) for n in agents]
    table = np.stack([levels(history) for history in histories], axis=1)
    gain = ratio_estimate(table[:, 0], table[:, -1], paired=True)
    drawn = [sampled(case.place, agents, list(table.T), case.place)]
    detail = f"{agents[-1]} agents: error {gain} times smaller"
    found = []
    if case.has_exact:
        truth = [exact_plateau(case, history) for history in histories]
        drawn.append(Series(f"{case.place}, exact", agents, truth, style="exact", group=case.place))
        exact_slope, exact_gain = slope_estimate(agents, np.array(truth)).value, truth[0] / truth[-1]
        detail += f" (exactly {exact_gain:.1f}); exact slope {exact_slope:.3f}"
        share = Estimate(gain.value / exact_gain, gain.low / exact_gain, gain.high / exact_gain)
        sentence = f"The measured gain of {agents[-1]} agents over one is the exact one (their ratio is 1)."
        found.append(held_against(case.name, sentence, share, *spec.claim.exact, detail=detail))
    sentence = "The long-run error is proportional to 1/N: on logarithmic scales it falls with slope -1."
    return [held_against(case.name, sentence, slope_estimate(agents, table), *spec.claim.slope, detail=detail), *found], drawn


def _plateau_figure(number: int, agents: list[int], series: list[Series]) -> FigureData:
    line = Series("proportional to 1/N", agents, series[0].y[0] / np.array(agents, float), style="reference")
    return FigureData(
        key=f"speed-up-{number}",
        title=f"{ALGORITHMS[number]}: error against the number of agents",
        caption="At one and the same step size, the error that remains in the long run is divided by the number of agents.",
        x_label="agents N",
        y_label="long-run squared error E‖θ − θ*‖²",
        series=(*series, line),
    )


def _times(case: Case, spec: ClaimSpec, engine: str | Engine | None) -> list[Estimate]:
    """How many times sooner N agents with N times the step size reach the accuracy than one agent, for each N."""
    sizes, most = spec.sizes, spec.sizes.timed_agents[-1]
    settings = {"sync_period": sizes.sync_period, "seeds": sizes.seeds, "engine": engine}
    histories = []
    for agents in sizes.timed_agents:
        steps = round(sizes.timed_relaxations * case.relaxation * most / agents)
        histories.append(run_case(case, agents, num_steps=steps, step_size=case.step_size * agents / most, **settings))
    last = plateau(histories[0], 0.2).mean()
    return [speed_up(histories[0], history, sizes.accuracy * last) for history in histories]


def _time_verdict(name: str, gain: Estimate, spec: ClaimSpec) -> Verdict:
    agents = spec.sizes.timed_agents[-1]
    share = Estimate(gain.value / agents, gain.low / agents, gain.high / agents)
    sentence = f"{agents} agents with {agents} times the step size reach an accuracy {agents} times sooner than one agent."
    return held_against(name, sentence, share, *spec.claim.time, detail=f"{gain} times sooner; judged divided by N")


def _time_figures(gains: dict[str, list[Estimate]], spec: ClaimSpec) -> list[FigureData]:
    """Six curves at most in one figure."""
    agents = spec.sizes.timed_agents
    reference = Series("N times sooner", agents, agents, style="reference")
    names = list(gains)
    parts = [names[first : first + 6] for first in range(0, len(names), 6)]
    return [
        FigureData(
            key=f"speed-up-time-{number}",
            title=f"Time until the error is {spec.sizes.accuracy:g} times what remains in the long run",
            caption="With a step size in proportion to their number, N agents reach the same accuracy N times sooner.",
            x_label="agents N",
            y_label="how many times sooner than one agent",
            series=(*(estimates(name, agents, gains[name]) for name in part), reference),
        )
        for number, part in enumerate(parts, start=1)
    ]
