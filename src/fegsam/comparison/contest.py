"""One problem of the suite: every contestant is tuned, run on fresh seeds, and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from fegsam.comparison.contestants import CONTESTANTS, ComparedMethod
from fegsam.comparison.curve import Curve
from fegsam.comparison.frontier import GridPoint, best_within, grid
from fegsam.comparison.kept_curves import KeptCurves
from fegsam.comparison.suite import SuiteProblem
from fegsam.comparison.trials import Trials
from fegsam.progress import Progress
from fegsam.report import FigureData, Section, Series
from fegsam.reproduction.runs import sampled
from fegsam.reproduction.thresholds import fresh_seeds
from fegsam.run import Engine

ERROR = "squared error E‖θ − θ*‖²"
_AXES = {
    "communications": "communications",
    "samples": "samples of each agent",
}
_PARTS = {
    "local": "corrections and participation",
    "server": "averages, server and output",
}


@dataclass(frozen=True, eq=False)
class Contest:
    """All frontiers on one problem, by contestant."""

    entry: SuiteProblem
    by_communications: dict[ComparedMethod, Curve]
    by_samples: dict[ComparedMethod, Curve]


def contestants_for(entry: SuiteProblem) -> list[ComparedMethod]:
    """The contestants that are defined for the problem's algorithm.

    >>> from fegsam.comparison.suite import entry
    >>> len(contestants_for(entry("alike"))) - len(contestants_for(entry("policies")))
    1
    """
    return [each for each in CONTESTANTS if entry.has_cells or not each.for_cells]


def compete(
    entry: SuiteProblem,
    sizes: SimpleNamespace,
    engine: str | Engine,
    kept: KeptCurves | None = None,
) -> Contest:
    """Tune every contestant on the pilots' seeds, and run its choices on fresh ones.

    Contestants that are kept are not run again.
    """
    communications, samples = {}, {}
    everyone = contestants_for(entry)
    with Progress(len(everyone), "method", smoothing=0.0) as progress:
        for done, each in enumerate(everyone):
            progress.show(done, each.name)
            trials = Trials(entry, each, sizes.agents, engine)
            found = kept.read(trials, sizes) if kept else None
            if found is None:
                found = frontiers(trials, sizes)
                if kept:
                    kept.write(trials, sizes, found)
            communications[each], samples[each] = found
    return Contest(entry, communications, samples)


def frontiers(trials: Trials, sizes: SimpleNamespace) -> tuple[Curve, Curve]:
    """The frontiers of one contestant, along communications and along samples."""
    own = trials.contestant.scale * np.array(sizes.step_sizes)
    settings = grid(own, sizes.sync_periods, sizes.lengths)
    pilots = range(sizes.first_pilot, sizes.first_pilot + sizes.pilot_seeds)
    with np.errstate(over="ignore", invalid="ignore"):
        means = trials.errors(settings, pilots).mean(axis=1)
    exchanges = trials.contestant.exchanges
    axes = (
        ([each.communications(exchanges) for each in settings], sizes.budgets),
        ([each.num_steps for each in settings], sizes.lengths),
    )
    choices = [_choice(settings, costs, means, budgets) for costs, budgets in axes]
    chosen = sorted({one for _, picked in choices for one in picked}, key=str)
    found = dict(zip(chosen, trials.errors(chosen, fresh_seeds(sizes.seeds)), strict=True))
    exact = {each: trials.exact(each, sizes.exact_rounds) for each in chosen}
    first, second = (
        Curve(
            budgets,
            picked,
            np.array([found[each] for each in picked]),
            np.array([exact[each] for each in picked]),
        )
        for budgets, picked in choices
    )
    return first, second


def _choice(
    settings: Sequence[GridPoint], costs: Sequence[int], means: np.ndarray, budgets: Sequence[int]
) -> tuple[np.ndarray, tuple[GridPoint, ...]]:
    places = best_within(costs, means, budgets)
    kept = places >= 0
    return np.array(budgets)[kept], tuple(settings[place] for place in places[kept])


def section(contest: Contest, number: int, sizes: SimpleNamespace) -> Section:
    """The frontiers on one problem; its letter is its number."""
    axes = {"communications": contest.by_communications, "samples": contest.by_samples}
    figures = [
        _figure(contest.entry, curves, axis, part)
        for axis, curves in axes.items()
        for part in _PARTS
    ]
    trials = len(sizes.step_sizes) * len(sizes.sync_periods)
    return Section(
        str(number),
        contest.entry.title,
        f"{contest.entry.about} {sizes.agents} agents.",
        figures=tuple(figures),
        notes=(
            f"Every method has the same {trials} trials, {len(sizes.step_sizes)} step sizes times "
            f"{len(sizes.sync_periods)} sync periods, each on {sizes.pilot_seeds} pilot seeds. The "
            "setting of the smallest error within a budget is run again on "
            f"{sizes.seeds} other seeds, and drawn. A run has at most {max(sizes.lengths)} steps, "
            "and may stop early. Step sizes have the same range for all methods in terms of the "
            "effective one: that of momentum β is α / (1 − β), that of a server step η is η α.",
            _choices(contest, sizes),
        ),
    )


def _choices(contest: Contest, sizes: SimpleNamespace) -> str:
    """What the pilots chose, and which choices lie at an end of the grid."""
    ends, parts = np.array([min(sizes.step_sizes), max(sizes.step_sizes)]), []
    for each, curve in contest.by_communications.items():
        found = curve.at(sizes.judged)
        if found is not None:
            at_end = np.isclose(found[0].step_size, each.scale * ends).any()
            parts.append(f"{each.name}: {found[0]}{' (an end of the grid)' if at_end else ''}")
    return f"Chosen within {sizes.judged} communications: {'; '.join(parts)}."


def _figure(
    entry: SuiteProblem, curves: dict[ComparedMethod, Curve], axis: str, part: str
) -> FigureData:
    series = []
    for each, curve in curves.items():
        if len(curve.budgets) and (each.figure == part or each.key == "plain"):
            series += _series(each, curve)
    return FigureData(
        f"{entry.key}-{axis}-{part}",
        f"The error against {axis}",
        f"The smallest error within a budget of {axis}, each point with the step size and the "
        "sync period that the pilots chose for it.",
        _AXES[axis],
        ERROR,
        series=tuple(series),
        panel=_PARTS[part],
    )


def _series(each: ComparedMethod, curve: Curve) -> list[Series]:
    series = [sampled(each.name, curve.budgets.tolist(), list(curve.errors))]
    known = np.isfinite(curve.exact)
    if known.any():
        x, y = curve.budgets[known], curve.exact[known]
        series.append(Series(f"{each.name}, exact", x, y, style="exact", group=each.name))
    return series
