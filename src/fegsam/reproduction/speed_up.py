"""(a) N agents have N times less noise in the common parameters (Theorem 3.1, second term).

There are two ways to see this. At a fixed step size the squared error, after the start is
forgotten, is a part proportional to 1/N plus, for K > 1, a floor of order alpha^2 that does not
fall with N: the theorem's third term, which is in fact the squared bias of one agent. Or N agents
take steps that are N times as large, have the same error, and reach an accuracy N times sooner.
"""

from __future__ import annotations

import numpy as np

from fegsam.experiments.estimates import Estimate, plateau, ratio_estimate, slope_estimate, speed_up
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
    run_case,
    sampled,
)
from fegsam.reproduction.thresholds import ClaimSpec, exponent
from fegsam.run import Engine


def examine(spec: ClaimSpec, engine: str | Engine | None = None) -> Section:
    """Whether N agents are N times as good as one."""
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
        figures.append(_plateau_figure(number, series))
    verdicts += [_time_verdict(name, found[-1], spec) for name, found in gains.items()]
    figures += _time_figures(gains, spec)
    return Section(
        spec.letter,
        spec.title,
        "N agents that average their parameters are worth N times the samples: the error that "
        "remains is N times smaller, or an accuracy is reached N times sooner.",
        tuple(verdicts),
        tuple(figures),
        (
            f"Agents average every {sizes.sync_period} steps. Runs for the long-run error begin "
            "at the fixed point, so that they show only noise; those for the time to an accuracy "
            "begin at zero, with a step size proportional to N.",
            f"At a fixed step size the proportionality has a limit. Agents that average every "
            f"{sizes.sync_period} steps are each as biased as one alone, and the square of that "
            "bias is a floor that no number of agents lowers. The error above the floor is judged. "
            "Where exact answers exist, the lines continue beyond the numbers of agents that were "
            "run, and the flat lines are the floors. For Q-learning no exact floor is known, and "
            "the whole error is judged.",
        ),
    )


def _plateaus(
    case: Case, spec: ClaimSpec, engine: str | Engine | None
) -> tuple[list[Verdict], list[Series]]:
    """The long-run error at one step size, for more and more agents."""
    sizes, agents = spec.sizes, spec.sizes.agents
    settings = {
        "relaxations": sizes.relaxations,
        "sync_period": sizes.sync_period,
        "seeds": sizes.seeds,
        "engine": engine,
    }
    histories = [plateau_run(case, n, **settings) for n in agents]
    table = np.stack([levels(history) for history in histories], axis=1)
    gain = ratio_estimate(table[:, 0], table[:, -1], paired=True)
    drawn = [sampled(case.place, agents, list(table.T), case.place)]
    detail = f"{agents[-1]} agents: error {gain} times smaller"
    names = {"least": agents[0], "most": agents[-1]}
    if not case.has_exact:
        return [
            spec.verdict(
                "slope",
                case.name,
                exponent(agents, table),
                f"{detail}; no floor subtracted",
                **names,
            )
        ], drawn
    floor = exact_level(case, None, sizes.sync_period)
    exact_gain = exact_plateau(case, histories[0]) / exact_plateau(case, histories[-1])
    detail += (
        f" (exactly {exact_gain:.1f}); without subtracting the floor {floor:.2g}, slope "
        f"{slope_estimate(agents, table)}"
    )
    share = Estimate(gain.value / exact_gain, gain.low / exact_gain, gain.high / exact_gain)
    verdicts = [
        spec.verdict("slope", case.name, exponent(agents, table - floor), detail, **names),
        spec.verdict("exact", case.name, share, **names),
    ]
    more, lines = far_verdicts(case, spec, floor)
    return verdicts + more, drawn + lines


def far_verdicts(case: Case, spec: ClaimSpec, floor: float) -> tuple[list[Verdict], list[Series]]:
    """The exact error far beyond the numbers of agents that are run, and the order of its floor."""
    sizes, many = spec.sizes, np.array([*spec.sizes.agents, *spec.sizes.far_agents])
    truth = np.array([exact_level(case, int(n), sizes.sync_period) for n in many])
    local = np.diff(np.log(truth)) / np.diff(np.log(many))
    slopes = ", ".join(f"{slope:.2f} to N = {n}" for slope, n in zip(local, many[1:], strict=True))
    floors = [
        exact_level(case, None, sizes.sync_period, share * case.step_size) for share in SHARES
    ]
    names, detail = (
        {"least": many[0], "most": many[-1]},
        f"local slopes of the error itself: {slopes}",
    )
    at = f"at shares {SHARES} of the step size {case.step_size:g}"
    verdicts = [
        spec.verdict("far", case.name, slope_estimate(many, truth - floor), detail, **names),
        spec.verdict("floor", case.name, slope_estimate(SHARES, floors), at),
    ]
    group = case.place
    lines = [
        Series(f"{group}, exact", many, truth, style="exact", group=group),
        Series(f"{group}, floor", many[[0, -1]], np.full(2, floor), style="reference", group=group),
    ]
    return verdicts, lines


def _plateau_figure(number: int, series: list[Series]) -> FigureData:
    agents = max((each.x for each in series), key=len)
    line = Series("proportional to 1/N", agents, series[0].y[0] / agents, style="reference")
    return FigureData(
        key=f"speed-up-{number}",
        title="The long-run error against the number of agents",
        panel=ALGORITHMS[number],
        caption="At a fixed step size, more agents divide the long-run error, down to a floor that "
        "local steps leave.",
        x_label="agents N",
        y_label="long-run squared error E‖θ − θ*‖²",
        series=(*series, line),
    )


def _times(case: Case, spec: ClaimSpec, engine: str | Engine | None) -> list[Estimate]:
    """How many times sooner than one agent N agents reach the accuracy, for each N.

    N agents have N times the step size.
    """
    sizes, most = spec.sizes, spec.sizes.timed_agents[-1]
    settings = {"sync_period": sizes.sync_period, "seeds": sizes.seeds, "engine": engine}
    histories = []
    for agents in sizes.timed_agents:
        steps = round(sizes.timed_relaxations * case.relaxation * most / agents)
        histories.append(
            run_case(
                case, agents, num_steps=steps, step_size=case.step_size * agents / most, **settings
            )
        )
    last = plateau(histories[0], 0.2).mean()
    return [speed_up(histories[0], history, sizes.accuracy * last) for history in histories]


def _time_verdict(name: str, gain: Estimate, spec: ClaimSpec) -> Verdict:
    agents = spec.sizes.timed_agents[-1]
    order = Estimate(
        *(
            float(np.log(max(bound, 1e-300)) / np.log(agents))
            for bound in (gain.value, gain.low, gain.high)
        )
    )
    return spec.verdict("time", name, order, f"{gain} times sooner", agents=agents)


def _time_figures(gains: dict[str, list[Estimate]], spec: ClaimSpec) -> list[FigureData]:
    """Figures of at most six curves each."""
    agents = spec.sizes.timed_agents
    reference = Series("N times sooner", agents, agents, style="reference")
    names = list(gains)
    parts = [names[first : first + 6] for first in range(0, len(names), 6)]
    return [
        FigureData(
            key=f"speed-up-time-{number}",
            title=f"Time until the error is {spec.sizes.accuracy:g} times the long-run error",
            caption="With a step size proportional to their number, N agents reach the same "
            "accuracy N times sooner.",
            x_label="agents N",
            y_label="how many times sooner than one agent",
            series=(*(estimates(name, agents, gains[name]) for name in part), reference),
        )
        for number, part in enumerate(parts, start=1)
    ]
