"""Linear speed-up on one page: N agents reach N times less error than one, at the same step size and number of steps each.

Federated Q-learning on a Garnet; prints a table with confidence intervals and writes the figure.
"""

from __future__ import annotations

import argparse
import pathlib
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import fegsam as fg

AGENTS = (1, 2, 4, 8, 16, 32, 64)
SEEDS = range(32)
STEP_SIZE, SYNC_PERIOD, NUM_STEPS = 0.02, 10, 60_000
# Okabe and Ito's palette: told apart by the colour-blind too.
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7")


def study() -> dict[int, fg.History]:
    """One run of all seeds for each number of agents, on shared paths."""
    mdp = fg.examples.garnet(states=10, actions=2, branching=10, discount=0.7, seed=3)
    policy = fg.policies.uniform(10, 2)
    histories = {}
    for agents in AGENTS:
        federation = fg.Federation(mdp, policy, num_agents=agents)
        begun = time.perf_counter()
        histories[agents] = fg.run(
            federation, fg.QLearning(), step_size=STEP_SIZE, sync_period=SYNC_PERIOD, num_steps=NUM_STEPS, seeds=SEEDS
        )
        print(f"  {agents:3d} agents, {agents * NUM_STEPS * len(SEEDS):.1e} steps: {time.perf_counter() - begun:.1f} s")
    return histories


def plateau(history: fg.History) -> np.ndarray:
    """(seeds,): each seed's mean error over the last half of the run, where the start is forgotten."""
    late = history.data.squared_error_2.sel(time=slice(NUM_STEPS // 2, None))
    return late.mean("time").values


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean and the half-width of its 95 % confidence interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return float(values.mean()), float(half)


def print_table(histories: dict[int, fg.History]) -> float:
    """The error that remains against N; returns the slope of its logarithm."""
    one = plateau(histories[1]).mean()
    print("\n  agents   E||Q - Q*||^2 that remains    one agent's error over it")
    for agents, history in histories.items():
        mean, half = interval(plateau(history))
        print(f"  {agents:6d}   {mean:.3e} +- {half:.1e}          {one / mean:6.2f}")
    slope = np.polyfit(np.log(list(histories)), [np.log(plateau(h).mean()) for h in histories.values()], 1)[0]
    print(f"\n  slope of log error against log N: {slope:.3f} (linear speed-up is -1)")
    return slope


def draw(histories: dict[int, fg.History], slope: float, path: pathlib.Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for (agents, history), colour in zip(histories.items(), COLOURS, strict=True):
        error = history.data.squared_error_2
        mean = error.mean("seed")
        half = stats.t.ppf(0.975, len(SEEDS) - 1) * error.std("seed", ddof=1) / np.sqrt(len(SEEDS))
        left.plot(error.time, mean, color=colour, label=f"N = {agents}")
        left.fill_between(error.time, mean - half, mean + half, color=colour, alpha=0.25, linewidth=0)
    left.set(yscale="log", xlabel="steps of each agent", ylabel=r"$E\,\|\bar Q_t - Q^*\|_2^2$", title="Error over time")
    left.legend(ncol=2, fontsize="small")
    means, halves = np.array([interval(plateau(h)) for h in histories.values()]).T
    right.errorbar(AGENTS, means, halves, fmt="o", color="#0072B2", capsize=3, label="measured, 95 % interval")
    right.plot(AGENTS, means[0] / np.array(AGENTS), "--", color="#D55E00", label="one agent's error / N")
    right.set(
        xscale="log",
        yscale="log",
        xlabel="number of agents N",
        ylabel=r"remaining $E\,\|\bar Q - Q^*\|_2^2$",
        title=f"Linear speed-up (slope {slope:.2f})",
    )
    right.set_xticks(AGENTS, [str(n) for n in AGENTS])
    right.minorticks_off()
    right.legend()
    figure.suptitle(f"Federated Q-learning, step size {STEP_SIZE}, average every {SYNC_PERIOD} steps, {len(SEEDS)} seeds")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("demo-output"), help="folder for the figure")
    folder = parser.parse_args().output
    print(f"Federated Q-learning, {NUM_STEPS} steps each, {len(SEEDS)} seeds (the first run compiles, once):")
    histories = study()
    slope = print_table(histories)
    figure = folder / "speed_up.png"
    draw(histories, slope, figure)
    print(f"  figure: {figure}")


if __name__ == "__main__":
    main()
