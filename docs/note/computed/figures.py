"""The figures of the technical note, drawn from computed values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from computed import bounds, small_steps

sys.path.insert(0, str(Path(__file__).parents[2]))

import make_derivations

COLOURS = make_derivations.COLOURS
STYLE = {
    "svg.hashsalt": "fegsam",
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 10,
    "axes.titlesize": 10,
    "legend.fontsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.facecolor": "white",
}


def draw(name: str, path: Path) -> None:
    """Draw the figure of that name into a file."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(layout="constrained")
        FIGURES[name](figure)
        figure.savefig(path, metadata={"Date": None})


def bound_curves(figure: Any) -> None:
    """Figure 1: the bounds and the exact error against the step size."""
    figure.set_size_inches(6.9, 2.5)
    axes = figure.subplots()
    steps = np.geomspace(1e-8, 6, 45)
    found = bounds.curves(steps)
    axes.plot(steps, found["corrected"], color=COLOURS[1], label="corrected bound")
    axes.plot(steps, found["sharper"], color=COLOURS[2], label="sharper bound")
    axes.plot(steps, found["law"], color=COLOURS[0], label="small-step law")
    axes.plot(steps, found["exact"], "o", color=COLOURS[0], markersize=3.5, label="exact error")
    axes.set(xlabel=r"step size $\alpha$", ylabel="long-run squared error")
    _log(axes)
    axes.legend(frameon=False)


def laws(figure: Any) -> None:
    """Figure 2: the small-step laws."""
    figure.set_size_inches(6.9, 4.5)
    (first, second), (third, fourth) = figure.subplots(2, 2)
    steps = np.geomspace(3e-4, 1.0, 9)
    found = small_steps.variance_curves(steps)
    for colour, agents in zip(COLOURS, (2, 20, 200), strict=False):
        _compared(
            first, steps, found[f"law {agents}"], found[f"exact {agents}"], colour, f"N = {agents}"
        )
    first.set(title="(a) variance: Problem C, K = 1", xlabel=r"$\alpha$", ylabel="squared error")
    periods = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    found = small_steps.bias_curves(periods)
    names = {"alike": "Problem A: Markov bias", "different": "Problem D: with drift"}
    for colour, (key, name) in zip(COLOURS, names.items(), strict=False):
        # At K = 1 the bias is of order alpha/N, far below the figure.
        _compared(
            second, periods[1:], found[f"law {key}"][1:], found[f"exact {key}"][1:], colour, name
        )
    second.set(
        title=r"(b) bias: $\alpha$ = 0.01, $N=10^9$",
        xlabel="K",
        ylabel=r"$\|E\bar\theta-\theta^*\|$",
    )
    _drift(third)
    _maxima(fourth)


def _drift(axes: Any) -> None:
    step, periods = 0.01, [3, 6, 11, 21, 51, 101, 201, 501, 1001, 2001]
    lengths = [step * (period - 1) for period in periods]
    exact, law = [], []
    for period in periods:
        exact.append(-small_steps.mean_bias(*small_steps.pair(2), step, period)[0])
        given = {"step_size": step, "sync_period": period}
        law.append(-small_steps.fg.theory.small_step_law(*small_steps.pair(2), **given).drift[0])
    _compared(axes, lengths, law, exact, COLOURS[0], "drift")
    axes.axhline(
        -small_steps.drifts()["drift.limit"],
        color=COLOURS[1],
        linewidth=1,
        label="mean of own points",
    )
    axes.set(
        title="(c) drift: Problem B", xlabel=r"$\alpha(K-1)$", ylabel=r"$\theta^*-E\bar\theta$"
    )
    axes.set_ylim(4e-4, 2)
    axes.legend(frameon=False)


def _maxima(axes: Any) -> None:
    steps = np.geomspace(0.02, 0.15, 12)
    for colour, gap in zip(COLOURS, (small_steps.TIE, small_steps.FAR), strict=False):
        sizes = [np.linalg.norm(small_steps.tied_law(step, gap).curvature_bias) for step in steps]
        axes.plot(steps, sizes, color=colour, label=f"gap {gap:g}")
    values = [small_steps.tied_run(step, small_steps.TIE) for step in small_steps.STEPS_TO_TIE]
    rest = [
        np.linalg.norm(law.bias) - np.linalg.norm(law.curvature_bias)
        for law in (
            small_steps.tied_law(step, small_steps.TIE) for step in small_steps.STEPS_TO_TIE
        )
    ]
    axes.errorbar(
        small_steps.STEPS_TO_TIE,
        [value - other for (value, _), other in zip(values, rest, strict=True)],
        [2 * error for _, error in values],
        fmt="o",
        color=COLOURS[0],
        markersize=4,
        label="runs",
    )
    axes.set(title="(d) bias of the maximum: Problem E", xlabel=r"$\alpha$", ylabel="bias")
    _log(axes)
    _plain_ticks(axes, "x")
    axes.set_ylim(bottom=1e-4)
    axes.legend(frameon=False)


def methods(figure: Any) -> None:
    """Figure 3: four of the panels of docs/derivations.md."""
    figure.set_size_inches(6.9, 4.5)
    made = (
        make_derivations.rates(),
        make_derivations.first_steps(),
        make_derivations.some_agents(),
        make_derivations.visit_biases(),
    )
    for letter, axes, panel in zip("abcd", figure.subplots(2, 2).flat, made, strict=True):
        for curve, colour, mark in zip(panel.curves, COLOURS, make_derivations.MARKS, strict=False):
            if curve.law:
                axes.plot(curve.at, curve.law, color=colour, linewidth=1.2)
            style = "none" if curve.law else ":"
            axes.plot(
                curve.at, curve.exact, mark, color=colour, markersize=4, linestyle=style,
                label=curve.name,
            )  # fmt: skip
        axes.set(title=f"({letter}) {panel.title}", xlabel=panel.x, ylabel=panel.y)
        for side in panel.log:
            getattr(axes, f"set_{side}scale")("log")
            _plain_ticks(axes, side)
        axes.grid(alpha=0.25)
        # In (b) there is room between the curves, and in the others where it is found.
        place = {"loc": "upper left", "bbox_to_anchor": (0.0, 0.93)} if letter == "b" else {}
        axes.legend(frameon=False, fontsize=8, **place)


def _compared(axes: Any, x: Any, law: Any, exact: Any, colour: str, name: str) -> None:
    """A law as a line, and exact values as marks on it."""
    axes.plot(x, law, color=colour, linewidth=1.2)
    axes.plot(x, exact, "o", color=colour, markersize=4, label=name)
    _log(axes)
    axes.legend(frameon=False)


def _plain_ticks(axes: Any, side: str) -> None:
    """Ticks at 1, 2 and 5 times powers of ten, as decimals."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis = getattr(axes, f"{side}axis")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _log(axes: Any) -> None:
    axes.set(xscale="log", yscale="log")
    axes.grid(alpha=0.25)


FIGURES: dict[str, Callable[[Any], None]] = {
    "bounds": bound_curves,
    "laws": laws,
    "methods": methods,
}
