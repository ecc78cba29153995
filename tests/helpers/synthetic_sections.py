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
        Series(
            "proportional to 1/N, as the theorem says",
            AGENTS,
            0.02 / np.array(AGENTS),
            style="reference",
        ),
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


def small_multiples(rng: np.random.Generator) -> list[FigureData]:
    """One figure per algorithm: short ranges, long names and curves that end close together."""
    figures = []
    for number, name in enumerate(("On-policy TD", "Q-learning", "Off-policy linear TD")):
        x = np.array([0.00039, 0.00625, 0.025])
        y = 0.4 * x * 10.0**-number
        samples = y * rng.gamma(6.0, 1 / 6, size=(SEEDS, 3))
        band = curve_estimate(samples)
        figures.append(
            FigureData(
                f"remains-{number}",
                "The error that remains",
                "It is proportional to α/N." + (" Without noise." if number == 1 else ""),
                "step size α / agents N",
                "long-run squared error E‖θ − θ*‖²",
                series=(
                    Series("Garnet", x, band.value, band.low, band.high),
                    Series("Garnet, exact", x, y, style="exact", group="Garnet"),
                    Series("Garnet, floor", x, 0.9 * y, style="reference", group="Garnet"),
                    Series("proportional to α/N", x, 1.01 * y, style="reference"),
                ),
                panel=name,
            )
        )
    return figures


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
    told = {"threshold": "within 10 % of 1", "kind": "exact", "target": 1.0}
    remains = Section(
        "e",
        "Decay",
        "The error that remains is proportional to α/N.",
        tuple(
            Verdict(
                f"{name}, Garnet",
                "It is proportional to α/N (exponent 1).",
                "holds",
                Estimate(1.02, 1.02, 1.02),
                column=name,
                **told,
            )
            for name in ("On-policy TD", "Q-learning", "Off-policy linear TD")
        ),
        small_multiples(rng),
        finding="The error that remains is proportional to α/N (exponent within 2 %).",
        theorem="Theorem 3.1",
        errata=("2",),
        code="src/fegsam/reproduction/bias_variance.py",
        command="fegsam reproduce --only e -o claim-e",
        deeper="fegsam reproduce --only e -o claim-e --more-seeds 4",
    )
    return [speed, drift, remains]
