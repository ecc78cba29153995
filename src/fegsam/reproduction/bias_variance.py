"""(e) Bias and variance: a geometric decay to a floor proportional to alpha / N (Theorem 3.1).

The theorem's first term is S_1 c^T with c = 1 - alpha phi_2 / 2, and its second is S_2 alpha / N.
The true rate for small steps is that of the slowest direction of the mean increment's matrix:
``(1 - alpha lambda)^(2t)`` for the squared error.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fegsam.exact.fixed_points import fixed_point
from fegsam.exact.moments import moments
from fegsam.experiments.estimates import Estimate, curve_estimate, ratio_estimate, slope_estimate
from fegsam.experiments.plateaus import find_plateau
from fegsam.history import History
from fegsam.problem.federation import Federation
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.mean_q_learning import MeanQLearning
from fegsam.reproduction.names import ALGORITHMS
from fegsam.reproduction.problems import Case, cases, mean_matrix
from fegsam.reproduction.runs import SHARES, exact_plateau, levels, plateau_run, run_case, sampled
from fegsam.reproduction.thresholds import ClaimSpec
from fegsam.run import Engine


def examine(spec: ClaimSpec, engine: str | Engine | None = None) -> Section:
    """Whether the error decays geometrically to a floor."""
    verdicts: list[Verdict] = []
    figures: list[FigureData] = []
    for number in spec.sizes.algorithms:
        series: list[Series] = []
        for case in cases(spec.sizes.one_problem, (number,)):
            found, drawn = _floors(case, spec, engine)
            verdicts += [found, _decay(case, spec, engine)]
            series += drawn
        figures.append(_floor_figure(number, series))
    figures += [error_curves(case, spec, engine) for case in cases(True, spec.sizes.algorithms)]
    return Section(
        spec.letter,
        spec.title,
        "The squared error falls by the same factor in every step until the start is forgotten, "
        "and then stays at a level proportional to the step size divided by the number of agents.",
        tuple(verdicts),
        tuple(figures),
        (
            "To measure the rate of decay, runs begin far from the fixed point in the direction "
            "that decays most slowly. There the squared error falls by the factor (1 - αλ)² in "
            "each step, where λ is the smallest eigenvalue of the mean increment's matrix. The "
            "theorem's own rate is a lower bound for it. Q-learning has several such matrices, "
            "one for each choice of best actions, so its prediction follows the mean increments "
            "step by step.",
        ),
    )


def _floors(
    case: Case, spec: ClaimSpec, engine: str | Engine | None
) -> tuple[Verdict, list[Series]]:
    """The long-run error against alpha / N, for several step sizes and numbers of agents."""
    sizes = spec.sizes
    chosen = sorted(sizes.settings, key=lambda pair: pair[0] / pair[1])
    settings = {
        "relaxations": sizes.relaxations,
        "sync_period": sizes.sync_period,
        "seeds": sizes.seeds,
        "engine": engine,
    }
    histories = [
        plateau_run(case, n, step_size=share * case.step_size, **settings) for share, n in chosen
    ]
    x = [case.step_size * share / n for share, n in chosen]
    table = np.stack([levels(history) for history in histories], axis=1)
    drawn, detail = [sampled(case.place, x, list(table.T), case.place)], ""
    if case.has_exact:
        truth = np.array([exact_plateau(case, history) for history in histories])
        drawn.append(Series(f"{case.place}, exact", x, truth, style="exact", group=case.place))
        detail = f"exact slope {slope_estimate(x, truth).value:.3f}"
    return spec.verdict("floor", case.name, slope_estimate(x, table), detail), drawn


def slow_start(case: Case, agents: int) -> np.ndarray:
    """(d,): a start in the slowest direction, so far out that noise is negligible."""
    problem = case.federate(agents)
    point, matrix = (
        fixed_point(problem, case.algorithm),
        mean_matrix(case.number, problem, case.algorithm),
    )
    rates, directions = np.linalg.eig(-matrix)
    direction = np.real(directions[:, int(np.argmin(np.real(rates)))])
    return point + 10.0 * max(1.0, float(np.abs(point).max())) * direction / np.abs(direction).max()


def mean_fall(case: Case, agents: int, start: np.ndarray, steps: int) -> float:
    """The log of the factor by which the squared error falls under the mean increments."""
    problem = case.federate(agents)
    point = fixed_point(problem, case.algorithm)
    left = start - point
    if case.number != 4:
        matrix = mean_matrix(case.number, problem, case.algorithm)
        decayed = np.linalg.matrix_power(np.eye(len(point)) + case.step_size * matrix, steps) @ left
        return float(np.log(np.sum(left**2) / np.sum(decayed**2)))
    # The maximum over actions makes Q-learning's mean increment piecewise linear, so it is applied
    # step by step.
    assert isinstance(problem, Federation)
    q = MeanQLearning.of(problem).after(start, case.step_size, 1, steps)
    return float(np.log(np.sum(left**2) / np.sum((q - point) ** 2)))


def _decay(case: Case, spec: ClaimSpec, engine: str | Engine | None) -> Verdict:
    sizes = spec.sizes
    start = slow_start(case, sizes.decay_agents)
    steps = round(sizes.decay_relaxations * case.relaxation)
    history = run_case(
        case,
        sizes.decay_agents,
        sync_period=sizes.sync_period,
        num_steps=steps,
        seeds=sizes.seeds,
        engine=engine,
        record=[0, steps],
        initial_params=start,
    )
    errors = history.data.squared_error_2.transpose("seed", "time").values
    fall = ratio_estimate(errors[:, 0], errors[:, -1], paired=True)
    predicted = mean_fall(case, sizes.decay_agents, start, steps)
    share = Estimate(
        *(float(np.log(bound) / predicted) for bound in (fall.value, fall.low, fall.high))
    )
    detail = (
        f"in {steps} steps the squared error falls by {fall}, predicted {np.exp(predicted):.3g}"
    )
    return spec.verdict("rate", case.name, share, detail)


def _floor_figure(number: int, series: list[Series]) -> FigureData:
    x = series[0].x
    line = Series("proportional to α/N", x, series[0].y[0] * x / x[0], style="reference")
    return FigureData(
        key=f"floor-{number}",
        title="The error that remains",
        panel=ALGORITHMS[number],
        caption="The long-run error depends on the step size and the number of agents only through "
        "their ratio.",
        x_label="step size α / agents N",
        y_label="long-run squared error E‖θ − θ*‖²",
        series=(*series, line),
    )


def error_curves(case: Case, spec: ClaimSpec, engine: str | Engine | None) -> FigureData:
    """The error over time at three step sizes, from a start at zero."""
    sizes = spec.sizes
    steps = round(sizes.curve_relaxations * case.relaxation / min(SHARES))
    settings = {
        "num_steps": steps,
        "sync_period": sizes.sync_period,
        "seeds": sizes.seeds,
        "engine": engine,
    }
    series: list[Series] = []
    reached: dict[str, bool | None] = {}
    for share in SHARES:
        name = f"α = {share * case.step_size:g}"
        history = run_case(
            case,
            sizes.curve_agents,
            step_size=share * case.step_size,
            record=max(1, steps // 80),
            **settings,
        )
        drawn, reached[name] = _curve(case, history, name)
        series += drawn
    return FigureData(
        key=f"decay-{case.number}",
        title="The error over time",
        panel=case.name,
        caption=_curve_caption(reached),
        x_label="steps",
        y_label="squared error E‖θ − θ*‖²",
        x_scale="linear",
        series=tuple(series),
    )


def _curve_caption(reached: Mapping[str, bool | None]) -> str:
    """The caption, given whether each curve reached its plateau.

    It mentions a floor only where one was reached.

    >>> _curve_caption({"α = 0.2": True, "α = 0.1": None, "α = 0.05": False}).partition(". ")[2]
    'No floor was reached at α = 0.05. Whether one was reached cannot be told at α = 0.1.'
    """
    short, unclear = (
        [name for name, found in reached.items() if found is kind] for kind in (False, None)
    )
    if not short and not unclear:
        return "Larger steps forget the start sooner and end at a higher floor."
    caption = "Larger steps forget the start sooner."
    if short:
        caption += f" No floor was reached at {', '.join(short)}."
    if unclear:
        caption += f" Whether one was reached cannot be told at {', '.join(unclear)}."
    return caption


def _curve(case: Case, history: History, name: str) -> tuple[list[Series], bool | None]:
    """The error over time, and whether it reached its plateau."""
    found, times = (
        curve_estimate(history.data.squared_error_2, positive=True),
        history.data.time.values,
    )
    drawn = [Series(name, times, found.value, found.low, found.high, group=name)]
    excess = None
    if case.has_exact:
        settings = history.settings
        problem = case.federate(settings.num_agents)
        steps = {"step_size": settings.step_size, "sync_period": settings.sync_period}
        truth = moments(problem, case.algorithm, times=times, order=1, **steps).mse
        drawn.append(Series(f"{name}, exact", times, truth, style="exact", group=name))
        excess = float(truth[times >= settings.num_steps / 2].mean()) - exact_plateau(case, history)
    return drawn, find_plateau(history, error="squared_error_2", excess=excess).reached
