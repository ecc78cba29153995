"""Draw the figure of docs/derivations.md: laws of methods, and exact values over grids.

    python docs/make_derivations.py

Marks are exact values and lines are laws; no number in the figure is typed by hand.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

import fegsam as fg
from fegsam.comparison.first_step import variance
from fegsam.comparison.importance import two_states
from fegsam.comparison.longer_rounds import law
from fegsam.comparison.many_agents import limit_point, paths, windows
from fegsam.comparison.scalars import pulled

PATH = pathlib.Path(__file__).with_name("derivations.svg")
BY_KIND = fg.Method(correction=fg.ControlVariates("kind"))
COLOURS, MARKS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7"), "osD^"


@dataclass(frozen=True)
class Curve:
    """Exact values at some places, and the law's values there, if one is claimed."""

    name: str
    at: list[float]
    exact: list[float]
    law: list[float] | None = None

    @property
    def deviation(self) -> float:
        """The largest relative difference between the two."""
        return 0.0 if self.law is None else float(np.abs(np.divide(self.exact, self.law) - 1).max())


@dataclass(frozen=True)
class Panel:
    """One part of the figure."""

    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    log: str = "xy"


def rates() -> Panel:
    """The rate at which variates of the last round forget the start, against the length of rounds.

    The slopes lie 1e-4 to both sides of their mean: with equal ones the slower mode would not show
    in the mean. The rates then differ from the law by the square of that, and rounding is magnified
    by no more than 1e8 where the two modes have the same rate.
    """
    lengths, curves = [0.2, 0.4, 0.7, 1.0, 1.4, 2.0, 4.0, 10.0], []
    for step_size in (0.1, 0.01):
        periods = [round(length / step_size) for length in lengths]
        curves.append(
            Curve(
                f"α = {step_size:g}",
                lengths,
                [_rate(1.0, step_size, period) for period in periods],
                [law(step_size, period) for period in periods],
            )
        )
    return Panel(
        "Variates of the last round: one slope", "α K", "rate per round", tuple(curves), "x"
    )


def spectra() -> Panel:
    """The same for parameters whose slopes are 1 and 1/q: the slower of two rates."""
    step_size, lengths, curves = 0.1, [1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0, 32.0], []
    for q in (4, 16, 64):
        periods = [round(length / step_size) for length in lengths]
        curves.append(
            Curve(
                f"slopes 1 and 1/{q}",
                lengths,
                [max(_rate(1.0, step_size, k), _rate(1 / q, step_size, k)) for k in periods],
                [max(law(step_size, k), law(step_size / q, k)) for k in periods],
            )
        )
    return Panel(
        "Variates of the last round: two slopes", "α K", "rate per round", tuple(curves), "x"
    )


def _rate(slope: float, step_size: float, period: int) -> float:
    """The larger root of the recurrence that the mean error follows from round to round."""
    slopes = slope * (1 + 1e-4), slope * (1 - 1e-4)
    problem, algorithm = pulled(slopes, (1.0, -1.0), (0.0, 0.0), 2)
    found = fg.exact.moments(
        problem,
        algorithm,
        step_size=step_size,
        sync_period=period,
        times=period * np.arange(4),
        method=BY_KIND,
        initial_params=[3.0],
        order=1,
    )
    errors = found.mean[:, 0] - fg.fixed_point(problem, algorithm)[0]
    factors = np.linalg.solve([errors[:2], errors[1:3]], errors[2:])
    return float(np.abs(np.roots([1.0, -factors[1], -factors[0]])).max())


def first_steps() -> Panel:
    """The variance of variates of the first step at a fixed length α K."""
    step_sizes, curves = [0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001], []
    for total in (1.0, 4.0):
        found = [variance(fg.methods.fedhsa(), size, total, 200) for size in step_sizes]
        expected = [first_step_law(size, total) for size in step_sizes]
        curves.append(Curve(f"first step, α K = {total:g}", step_sizes, found, expected))
    plain = [variance(fg.Method(), size, 4.0, 200) for size in step_sizes]
    curves.append(Curve("plain averaging, α K = 4", step_sizes, plain))
    return Panel("Variates of the first step", "step size α", "variance", tuple(curves))


def first_step_law(step_size: float, total: float) -> float:
    """For two agents of slopes 1 and 1/4 with noise of size 1 and 1/2."""
    slopes, noise, period = np.array([1.0, 0.25]), np.array([1.0, 0.5]), round(total / step_size)
    stays = 1 - step_size * slopes
    gains = (1 - stays**period) / slopes
    first = gains.mean() - gains + step_size * stays ** (period - 1)
    later = step_size**2 * (1 - stays ** (2 * (period - 1))) / (1 - stays**2)
    kept = 1 - gains.mean() * slopes.mean()
    return float((first**2 + later) @ noise**2 / 4 / (1 - kept**2))


def some_agents() -> Panel:
    """The variance where m of eight agents take part, as a multiple of (α/2) s²."""
    step_size, agents, present = 1e-4, 8, [1, 2, 3, 4, 6, 8]
    task = pulled((1.0, 1.0), (1.0, -1.0), (1.0, 1.0), agents)
    variates = fg.ControlVariates("agent")
    curves = [
        Curve(
            f"{name}, K = {period}",
            present,
            [_present_variance(task, step_size, period, m, correction) for m in present],
            [2 / m - 1 / agents if correction else plain_law(period, agents, m) for m in present],
        )
        for name, correction, period in (
            ("plain", None, 1),
            ("plain", None, 20),
            ("variates by agent", variates, 20),
        )
    ]
    return Panel("Participation", "m of N = 8", "variance / (α s²/2)", tuple(curves), "y")


def plain_law(period: int, agents: int, present: int) -> float:
    return 1 / present + (agents - present) / (present * (agents - 1)) * period


def _present_variance(
    task: tuple,
    step_size: float,
    period: int,
    present: int,
    correction: fg.ControlVariates | None,
) -> float:
    some = fg.Participation(agents=present, others="go_on")
    method = fg.Method(correction=correction, participation=some)
    found = fg.exact.stationary_error(*task, step_size=step_size, sync_period=period, method=method)
    return float(found) / (step_size / 2)


def visit_biases() -> Panel:
    """How far infinitely many agents settle from Q*, by enumeration of all paths of a round."""
    mdp, policy = two_states()
    star = fg.fixed_point(fg.Federation(mdp, policy, num_agents=2), fg.QLearning())
    found, step_sizes, curves = paths(windows(mdp, policy), 4, "markov"), [0.4, 0.2, 0.1, 0.05], []
    for name, by_visits in (("by visits", True), ("plain averaging", False)):
        apart = [
            float(np.linalg.norm(limit_point(mdp, found, size, star, by_visits=by_visits) - star))
            for size in step_sizes
        ]
        curves.append(Curve(name, step_sizes, apart))
    return Panel("By visits: bias, Markov draws", "step size α", "distance from Q*", tuple(curves))


def visit_gains() -> Panel:
    """How many times fewer rounds an average by visits needs than a plain one of equal variance.

    One agent of N visits a cell n times a round, and sees independent targets.
    """
    visits, curves = 50, []
    lengths = [0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0]
    for agents in (5, 20, 100):
        gains = [_visit_gain(length / visits, visits, agents) for length in lengths]
        curves.append(Curve(f"N = {agents}", lengths, gains))
    return Panel(
        "By visits: gain in rounds", "α n of plain averaging", "times fewer", tuple(curves)
    )


def _visit_gain(step_size: float, visits: int, agents: int) -> float:
    kept, variance = one_visitor(step_size, visits, 1 / agents)

    def weight(size: float) -> float:
        return 1 / (1 + (agents - 1) * (1 - size) ** visits)

    equal = brentq(
        lambda size: one_visitor(size, visits, weight(size))[1] - variance, 1e-9, step_size
    )
    return float(np.log(one_visitor(equal, visits, weight(equal))[0]) / np.log(kept))


def one_visitor(step_size: float, visits: int, weight: float) -> tuple[float, float]:
    """What a round keeps of the old value, and the long-run variance for targets of variance 1."""
    left = (1 - step_size) ** visits
    kept = 1 - weight * (1 - left)
    noise = weight**2 * step_size * (1 - left**2) / (2 - step_size)
    return kept, noise / (1 - kept**2)


def tails() -> Panel:
    """What the tail average over synchronisations loses against the one over all steps."""
    step_size, lengths = 0.01, [0.2, 0.5, 1.0, 2.0, 4.0, 8.0]
    task = pulled((1.0, 1.0), (0.0, 0.0), (1.0, 1.0), 2)
    found = []
    for length in lengths:
        period = round(length / step_size)
        given = {"step_size": step_size, "sync_period": period, "num_steps": 4000 * period}
        steps, syncs = (
            fg.exact.tail_error(*task, tail=fg.Tail(0.5, over), **given).mse
            for over in ("steps", "syncs")
        )
        found.append(float(syncs / steps))
    expected = [length / 2 / np.tanh(length / 2) for length in lengths]
    curve = Curve("over syncs / over steps", lengths, found, expected)
    return Panel("Tail averages", "α K", "ratio of variances", (curve,))


PANELS = (rates, spectra, first_steps, some_agents, visit_biases, visit_gains, tails)


def draw(panels: list[Panel]) -> None:
    """Write the figure."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "fegsam", "svg.fonttype": "none", "font.size": 9}
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    figure, grid = plt.subplots(4, 2, figsize=(8.6, 12.4), layout="constrained")
    for axes, panel in zip(grid.flat, panels, strict=False):
        for curve, colour, mark in zip(panel.curves, COLOURS, MARKS, strict=False):
            style = "none" if curve.law else ":"
            if curve.law:
                axes.plot(curve.at, curve.law, color=colour, linewidth=1.2)
            axes.plot(
                curve.at, curve.exact, mark, color=colour, markersize=5, linestyle=style,
                label=curve.name,
            )  # fmt: skip
        axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
        for letter in panel.log:
            getattr(axes, f"set_{letter}scale")("log")
            side = getattr(axes, f"{letter}axis")
            side.set_major_locator(LogLocator(subs=(1, 2, 5)))
            side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            side.set_minor_locator(NullLocator())
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    key = grid.flat[len(panels)]
    key.axis("off")
    key.text(
        0.0, 0.6,
        "Marks: exact values, without sampling.\nSolid lines: the laws in the text.\n"
        "Dotted lines join marks for which no law is claimed.",
    )  # fmt: skip
    figure.savefig(PATH, metadata={"Date": None})


if __name__ == "__main__":
    made = [make() for make in PANELS]
    draw(made)
    print(PATH)
    for panel in made:
        for curve in panel.curves:
            if curve.law:
                print(f"{panel.title}, {curve.name}: within {curve.deviation:.2g} of the law")
