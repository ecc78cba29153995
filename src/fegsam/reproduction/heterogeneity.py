"""(c) The floor under agents with different fixed points (Theorem 3.1, fourth term).

The agents drift apart between synchronisations. The theorem charges ``S_4 (K - 1)^2 epsilon
alpha^2`` for it. To first order the true error is the square of the drift

    alpha (K - 1) / 2 |A^-1 mean_i (A_i b_i)|,

where b_i is agent i's mean increment at the common fixed point. It is proportional to (K - 1)^2
too, but zero if the agents' matrices A_i agree, however different their fixed points; and if
matrices and fixed points move apart together, it is of order epsilon^4.

The drift is measured in the direction that the small-step law predicts, as the difference from the
run with K = 1 on the same draws, which removes nearly all noise. Draws are independent: along
Markov paths local steps add another bias, which heterogeneity does not cause.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fegsam.algorithms.td import require_federation
from fegsam.exact.fixed_points import fixed_point, heterogeneity
from fegsam.exact.moments import moments
from fegsam.experiments.estimates import Estimate, mean_estimate, ratio_estimate, slope_estimate
from fegsam.problem.federation import Problem
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.report.verdict import Outcome
from fegsam.reproduction.differing_agents import by_environments, by_policies
from fegsam.reproduction.mean_q_learning import MeanQLearning
from fegsam.reproduction.names import ALGORITHMS
from fegsam.reproduction.problems import HAVE_EXACT, Case
from fegsam.reproduction.runs import estimates, exact_plateau, levels, plateau_run, sampled
from fegsam.reproduction.thresholds import ClaimSpec, certain
from fegsam.run import Engine
from fegsam.theory.small_step.small_step import small_step_law


def examine(spec: ClaimSpec, engine: str | Engine | None = None) -> Section:
    """The cost of local steps for agents that differ."""
    sizes = spec.sizes
    verdicts: list[Verdict] = []
    figures: list[FigureData] = []
    for number, places in (
        (5, sizes.places),
        (2, sizes.places),
        (3, sizes.places),
        (4, sizes.q_places),
    ):
        series: list[Series] = []
        for place in places:
            found, drawn = _over_periods(
                _differing(number, place, sizes.strength, sizes), _sized(number, spec), engine
            )
            verdicts += found
            series += drawn
        figures.append(_period_figure(number, series))
    for number, places in ((5, sizes.places), (4, sizes.q_epsilon_places)):
        series = []
        for place in places:
            differing = [_differing(number, place, strength, sizes) for strength in sizes.strengths]
            found, drawn = _over_epsilon(differing, _sized(number, spec), engine)
            verdicts += found
            series += drawn
        figures.append(_epsilon_figure(number, series))
    found, contrast = rewards_alone(spec, engine)
    return Section(
        spec.letter,
        spec.title,
        "Agents with different fixed points that average every K steps end at a distance from the "
        "right answer that no number of agents removes: its square grows as (K - 1)², and "
        "vanishes with their differences.",
        (*verdicts, *found),
        (*figures, contrast),
        (
            "The theorem's term is (K - 1)² times ε, the mean distance of the agents' fixed "
            "points from the common one. The power of K - 1 is the true one. The power of ε is a "
            "bound: the true floor falls much faster, as ε⁴ in the limit of small differences in "
            "behaviour, because agents drift only if they differ in their matrices as well as in "
            "their fixed points. Agents that differ only in their rewards do not drift at all.",
            "Draws are independent here, so that heterogeneity is the only effect: along Markov "
            "paths, local steps leave another bias, of order α and independent of K once K exceeds "
            "the mixing time, and identical agents have it too.",
            "Q-learning has no exact answer. Its lines without noise follow the mean increments, "
            "and its small-step law is that of the increments linearised at the fixed point, which "
            "requires one best action in every state. FrozenLake has states where several actions "
            "are equally good: there the maximum over noisy values causes a far larger bias, which "
            "also changes with K. If each move has its own price there are no such states, and the "
            "law holds again.",
        ),
    )


def _differing(number: int, place: str, strength: float, sizes: Any) -> Case:
    """Agents of Algorithm 5 differ in their policies, others in their environments."""
    if number == 5:
        return by_policies(place, strength, sizes.step_size)
    return by_environments(number, place, strength, sizes.step_size)


def _sized(number: int, spec: ClaimSpec) -> ClaimSpec:
    """Tables need more steps but fewer seeds, since their drifts are larger."""
    if number not in (3, 4):
        return spec
    return spec.resized(seeds=spec.sizes.table_seeds, relaxations=spec.sizes.table_relaxations)


def _drifts(
    case: Case, periods: list[int], spec: ClaimSpec, engine: str | Engine | None
) -> tuple[np.ndarray, list, list]:
    """The displacement (seeds, periods) along the small-step law's drift.

    Then, for each period, the exact displacement and the one that the law predicts.
    """
    sizes, problem = spec.sizes, case.federate(spec.sizes.agents)
    settings = {
        "relaxations": sizes.relaxations,
        "seeds": sizes.seeds,
        "engine": engine,
        "sampling": "iid",
    }
    point = fixed_point(problem, case.algorithm)
    laws = [_law(case, problem, point, period) for period in periods]
    along = laws[-1] / np.linalg.norm(laws[-1])
    runs = [
        plateau_run(case, sizes.agents, sync_period=period, record_params=True, **settings)
        for period in (1, *periods)
    ]
    means = [
        run.data.average_params.mean("time", skipna=False).transpose("seed", "param").values
        for run in runs
    ]
    truth = [float((_long_run(case, problem, point, period) - point) @ along) for period in periods]
    return (
        np.stack([(mean - means[0]) @ along for mean in means[1:]], axis=1),
        truth,
        [float(law @ along) for law in laws],
    )


def _law(case: Case, problem: Problem, point: np.ndarray, period: int) -> np.ndarray:
    """(d,): the drift to first order in the step size."""
    if not case.has_exact:
        return MeanQLearning.of(require_federation(problem, case.algorithm)).drift(
            point, case.step_size, period
        )
    return small_step_law(
        problem, case.algorithm, step_size=case.step_size, sync_period=period
    ).drift


def _long_run(case: Case, problem: Problem, point: np.ndarray, period: int) -> np.ndarray:
    """(d,): the mean parameters after five relaxation times.

    For Q-learning they are those of a run without noise.
    """
    steps = round(5 * case.relaxation)
    if not case.has_exact:
        return MeanQLearning.of(require_federation(problem, case.algorithm)).after(
            point, case.step_size, period, math.ceil(steps / period)
        )
    common = {
        "step_size": case.step_size,
        "sync_period": period,
        "initial_params": point,
        "sampling": "iid",
    }
    return moments(problem, case.algorithm, times=[steps], **common).mean[0]


def _truth(case: Case) -> str:
    return "exact" if case.has_exact else "without noise"


def _over_periods(
    case: Case, spec: ClaimSpec, engine: str | Engine | None
) -> tuple[list[Verdict], list[Series]]:
    periods = spec.sizes.periods
    measured, truth, law = _drifts(case, periods, spec, engine)
    x = np.array(periods) - 1.0
    last = mean_estimate(measured[:, -1])
    share = Estimate(last.value / law[-1], last.low / law[-1], last.high / law[-1])
    true_slope = slope_estimate(x, np.square(truth)).value
    detail = f"{_truth(case)} slope {true_slope:.2f}; the law and the theorem say 2"
    slope, lost = _floor_slope(x, measured), _lost(measured, law, spec)
    verdicts = [
        _judged(case, "period_slope", slope, spec, detail, lost),
        spec.verdict(
            "law",
            case.name,
            share,
            f"{_truth(case)} ratio {truth[-1] / law[-1]:.3f}",
            period=periods[-1],
        ),
    ]
    return verdicts, _floor_series(case, x, measured, truth, law)


def _over_epsilon(
    differing: list[Case], spec: ClaimSpec, engine: str | Engine | None
) -> tuple[list[Verdict], list[Series]]:
    """The floor at one sync period, for agents that differ more and more."""
    case, agents = differing[0], spec.sizes.agents
    x = np.array([heterogeneity(each.federate(agents), each.algorithm) for each in differing])
    found = [_drifts(each, [spec.sizes.kept_period], spec, engine) for each in differing]
    measured = np.concatenate([each[0] for each in found], axis=1)
    truth, law = ([each[part][0] for each in found] for part in (1, 2))
    slope, lost = _floor_slope(x, measured), _lost(measured, law, spec)
    # The points lie on a curve, so the two slopes must be fitted with the same weights: the slope
    # of the quotient is their difference.
    excess = _floor_slope(x, measured / np.array(law))
    true_slope = slope_estimate(x, np.square(truth)).value
    detail = f"measured {slope}; {_truth(case)} {true_slope:.2f}; theorem's term 1"
    verdicts = [
        _judged(case, "law_slope", excess, spec, detail, lost),
        _judged(case, "bound_slope", slope, spec, detail, lost),
    ]
    return verdicts, _floor_series(case, x, measured, truth, law)


def rewards_alone(spec: ClaimSpec, engine: str | Engine | None) -> tuple[list[Verdict], FigureData]:
    """Agents that differ only in their rewards have different fixed points, but no drift."""
    sizes, periods = spec.sizes, [1, *spec.sizes.periods]
    settings = {
        "relaxations": sizes.relaxations,
        "seeds": sizes.seeds,
        "engine": engine,
        "sampling": "iid",
    }
    verdicts, series, drifts = [], [], []
    for only, name in ((True, "rewards alone differ"), (False, "transitions alone differ")):
        case = by_environments(
            2, sizes.places[0], sizes.strength, sizes.step_size, only_rewards=only
        )
        histories = [
            plateau_run(case, 4 * sizes.agents, sync_period=period, **settings)
            for period in periods
        ]
        found = [levels(history) for history in histories]
        series.append(sampled(name, periods, found, name))
        rise = ratio_estimate(found[-1], found[0], paired=True)
        problem = case.federate(4 * sizes.agents)
        truth = [exact_plateau(case, history) for history in histories]
        series.append(Series(f"{name}, exact", periods, truth, style="exact", group=name))
        exact = truth[-1] / truth[0]
        epsilon = heterogeneity(problem, case.algorithm)
        detail = f"error {rise} times that with K = 1, exactly {exact:.3f}; ε = {epsilon:.3g}"
        share = Estimate(rise.value / exact, rise.low / exact, rise.high / exact)
        verdicts.append(spec.verdict("rise", case.name, share, detail, period=periods[-1]))
        if not only:
            verdicts.append(spec.verdict("drift", case.name, rise, period=periods[-1]))
        point = fixed_point(problem, case.algorithm)
        drifts.append(float(np.linalg.norm(_long_run(case, problem, point, periods[-1]) - point)))
    none = certain(drifts[0] / drifts[1])
    detail = f"drifts {drifts[0]:.2g} and {drifts[1]:.2g}"
    verdicts.append(spec.verdict("no_drift", f"On-policy TD, {sizes.places[0]}", none, detail))
    figure = FigureData(
        key="heterogeneity-rewards",
        title="On-policy TD: which differences matter",
        caption="Local steps are free if only rewards differ, although fixed points differ too; "
        "other differences have a cost.",
        x_label="sync period K",
        y_label="long-run squared error E‖θ − θ*‖²",
        series=tuple(series),
    )
    return verdicts, figure


def _floor_slope(x: np.ndarray, measured: np.ndarray) -> Estimate | None:
    """The slope of the squared drift; None if a mean drift is not positive: no power law fits."""
    if not (measured.mean(axis=0) > 0).all():
        return None
    slope = slope_estimate(x, measured, method="t")
    return Estimate(2 * slope.value, 2 * slope.low, 2 * slope.high, slope.level)


def _lost(measured: np.ndarray, law: list[float], spec: ClaimSpec) -> Outcome:
    """The outcome if no power law fits: a drift that is too small, or one that is lost in noise."""
    shares = [
        mean_estimate(column).high / value for column, value in zip(measured.T, law, strict=True)
    ]
    return (
        "does not hold" if min(shares) < (spec.checks["law"].bounds[0] or 0.0) else "cannot be told"
    )


def _judged(
    case: Case, check: str, slope: Estimate | None, spec: ClaimSpec, detail: str, lost: Outcome
) -> Verdict:
    """The verdict on a slope, or on its absence."""
    if slope is None:
        nothing = spec.verdict(check, case.name, certain(math.nan), "no such drift was found")
        return replace(
            nothing, outcome=lost, estimate=None, threshold="a drift in the predicted direction"
        )
    return spec.verdict(check, case.name, slope, detail)


def _floor_series(
    case: Case, x: np.ndarray, measured: np.ndarray, truth: list[float], law: list[float]
) -> list[Series]:
    name = case.place
    means = [mean_estimate(column) for column in measured.T]
    squared = [Estimate(m.value**2, max(m.low, 0.0) ** 2, m.high**2) for m in means]
    return [
        estimates(name, list(x), squared, name),
        Series(f"{name}, {_truth(case)}", x, np.square(truth), style="exact", group=name),
        Series(f"{name}, small-step law", x, np.square(law), style="reference", group=name),
    ]


def _line_words(number: int) -> str:
    """A sentence on the lines that replace exact ones."""
    return "" if number in HAVE_EXACT else " Here the exact lines are exact for runs without noise."


def _period_figure(number: int, series: list[Series]) -> FigureData:
    return FigureData(
        key=f"heterogeneity-period-{number}",
        title="The floor of agents that differ, against the local steps",
        panel=ALGORITHMS[number],
        caption="The squared distance from the right answer grows as the square of K - 1."
        + _line_words(number),
        x_label="local steps K − 1",
        y_label="floor ‖E θ − θ*‖²",
        series=tuple(series),
    )


def _epsilon_figure(number: int, series: list[Series]) -> FigureData:
    first = series[0]
    line = Series(
        "proportional to ε, the theorem's",
        first.x,
        first.y[-1] * first.x / first.x[-1],
        style="reference",
    )
    return FigureData(
        key=f"heterogeneity-epsilon-{number}",
        title="The floor of agents that differ, against their differences",
        panel=ALGORITHMS[number],
        caption="The floor vanishes much faster than in proportion to the distance between the "
        "agents' fixed points." + _line_words(number),
        x_label="heterogeneity ε",
        y_label="floor ‖E θ − θ*‖²",
        series=(*series, line),
    )
