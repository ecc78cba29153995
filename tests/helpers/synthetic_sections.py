"""Sections made by hand, with every kind of figure and verdict: what the report is developed and
tested against."""

from __future__ import annotations

import numpy as np

from fegsam.experiments.estimates import Estimate, curve_estimate, ratio_estimate, slope_estimate
from fegsam.report import FigureData, Section, Series, Verdict, judge

AGENTS = (1, 2, 4, 8, 16, 32, 64)
SEEDS = 20


def error_curves(rng: np.random.Generator, key: str = "error_over_time") -> FigureData:
    """Squared error over time for several numbers of agents, sampled and exact, with a bound."""
    times = np.linspace(0, 20_000, 201)
    series = []
    for agents in (1, 4, 16, 64):
        exact = np.exp(-times / 1500) + 0.02 / agents
        band = curve_estimate(exact * rng.gamma(6.0, 1 / 6, size=(SEEDS, len(times))))
        group = f"N = {agents}"
        series.append(
            Series(f"{group}, sampled", times, band.value, band.low, band.high, group=group)
        )
        series.append(Series(f"{group}, exact", times, exact, style="exact", group=group))
    series.append(Series("bound, N = 64", times, 3 * np.exp(-times / 2500) + 0.1, style="bound"))
    caption = "More agents reach a lower error; the sampled means follow the exact curves."
    return FigureData(
        key,
        "Error over time",
        caption,
        "steps of each agent",
        "mean squared error  E‖θ̄ - θ*‖²",
        "linear",
        "log",
        tuple(series),
    )


def plateaus(rng: np.random.Generator) -> tuple[FigureData, Estimate, Estimate]:
    """The error that remains against the number of agents, its slope, and the speed-up of 64
    agents."""
    samples = 0.02 / np.array(AGENTS) * rng.gamma(6.0, 1 / 6, size=(SEEDS, len(AGENTS)))
    other = 0.05 / np.array(AGENTS) ** 0.97 * rng.gamma(6.0, 1 / 6, size=(SEEDS, len(AGENTS)))
    bands = [curve_estimate(table) for table in (samples, other)]
    series = (
        Series("Garnet", AGENTS, bands[0].value, bands[0].low, bands[0].high),
        Series("FrozenLake", AGENTS, bands[1].value, bands[1].low, bands[1].high),
        Series("slope -1", AGENTS, 0.02 / np.array(AGENTS), style="reference"),
    )
    caption = "Twice the agents leave half the error."
    figure = FigureData(
        "plateau_by_agents",
        "Linear speed-up",
        caption,
        "number of agents N",
        "error that remains",
        series=series,
    )
    return (
        figure,
        slope_estimate(AGENTS, samples),
        ratio_estimate(samples[:, 0], samples[:, -1], paired=True),
    )


def exact_lines() -> FigureData:
    """Curves without samples: told apart by their dashes."""
    periods = np.arange(1, 101)
    series = [
        Series(f"ε = {e}", periods, 0.001 + e**2 * (periods - 1) ** 2 / 1e4, style="exact")
        for e in (0.1, 0.3, 1.0)
    ]
    return FigureData(
        "floor_by_period", "Heterogeneity "
                           "floor", "The floor grows with the square of K - "
                                                  "1.", "sync period K (steps)",
        "squared error in the long run", "linear", "linear", tuple(series),
    )  # fmt: skip


def sections(seed: int = 0) -> list[Section]:
    rng = np.random.default_rng(seed)
    plateau, slope, ratio = plateaus(rng)
    wide = Estimate(0.91, 0.55, 1.4)
    speed = Section(
        "a",
        "Linear speed-up",
        "With N agents the error that remains is N times smaller than with one.",
        (
            Verdict(
                "Q-learning, Garnet",
                "The error falls as 1/N.",
                judge(slope, -1.2, -0.8),
                slope,
                "slope from -1.2 to -0.8",
            ),
            Verdict(
                "Q-learning, FrozenLake",
                "64 agents are 64 times as accurate as one.",
                judge(ratio, 48, 80),
                ratio,
                "48 to 80",
                "20 seeds; step size 0.02 for every N.",
            ),
        ),
        (error_curves(rng), plateau),
        ("Step sizes are matched: every N runs at the same one.",),
    )
    odd = 'A <b>bold</b> & odd "detail" </script>.'
    drift = Section(
        "c",
        "Heterogeneity",
        "Agents that differ leave an error that grows with the time between two averagings.",
        (
            Verdict(
                "Off-policy linear TD",
                "The floor grows as (K - 1)².",
                judge(wide, 1.8, 2.2),
                wide,
                "exponent 1.8 to 2.2",
            ),
            Verdict(
                "Only rewards differ",
                "No drift appears.",
                judge(wide, high=1.0),
                wide,
                "at most 1",
                odd,
            ),
        ),
        (exact_lines(),),
    )
    return [speed, drift]
