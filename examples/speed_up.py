"""Linear speed-up: at the same step size and number of steps, N agents leave 1/N of the error.

The script runs federated Q-learning on a Garnet, prints a table with confidence intervals, and
writes a figure.
"""

from __future__ import annotations

import argparse
import pathlib
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import fegsam as fg
from fegsam.experiments.estimates import mean_estimate, plateau, slope_estimate
from fegsam.experiments.plateaus import find_plateau

AGENTS = (1, 2, 4, 8, 16, 32, 64)
SEEDS = range(32)
STEP_SIZE, SYNC_PERIOD, NUM_STEPS = 0.02, 10, 60_000
# Okabe and Ito's palette, which colour-blind readers can distinguish.
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7")


def study() -> dict[int, fg.History]:
    """Run all seeds for each number of agents, on shared paths."""
    mdp = fg.examples.garnet(states=10, actions=2, branching=10, discount=0.7, seed=3)
    policy = fg.policies.uniform(10, 2)
    histories = {}
    for agents in AGENTS:
        federation = fg.Federation(mdp, policy, num_agents=agents)
        begun = time.perf_counter()
        histories[agents] = fg.run(
            federation,
            fg.QLearning(),
            step_size=STEP_SIZE,
            sync_period=SYNC_PERIOD,
            num_steps=NUM_STEPS,
            seeds=SEEDS,
        )
        print(
            f"  {agents:3d} agents, {agents * NUM_STEPS * len(SEEDS):.1e} steps: "
            f"{time.perf_counter() - begun:.1f} s"
        )
    return histories


def print_table(histories: dict[int, fg.History]) -> float:
    """Print the remaining error against N, and return the slope of its logarithm."""
    one = plateau(histories[1]).mean()
    print("\n  agents   remaining E||Q - Q*||^2        one agent's error / this error")
    for agents, history in histories.items():
        found = mean_estimate(plateau(history), positive=True)
        print(
            f"  {agents:6d}   {found.value:.2e} [{found.low:.2e}, {found.high:.2e}]   "
            f"{one / found.value:6.2f}"
        )
    short = [
        f"{agents}"
        for agents, history in histories.items()
        if find_plateau(history).reached is False
    ]
    if short:
        print(
            f"\n  No plateau was reached by T = {NUM_STEPS} with N = {', '.join(short)}; "
            "run for longer."
        )
    slope = slope_estimate(
        list(histories),
        np.stack([plateau(history) for history in histories.values()], axis=1),
        method="t",
    )
    print(f"\n  slope of log error against log N: {slope} (linear speed-up is -1)")
    return slope.value


def draw(histories: dict[int, fg.History], slope: float, path: pathlib.Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for (agents, history), colour in zip(histories.items(), COLOURS, strict=True):
        left.set_prop_cycle(color=[colour])
        history.plot(left, error="squared_error_2", label=f"N = {agents}")
    left.set(ylabel=r"$E\,\|\bar Q_t - Q^*\|_2^2$", title="Error over time")
    left.legend(ncol=2, fontsize="small")
    found = [mean_estimate(plateau(history), positive=True) for history in histories.values()]
    means = np.array([each.value for each in found])
    bars = [[each.value - each.low for each in found], [each.high - each.value for each in found]]
    right.errorbar(
        AGENTS, means, bars, fmt="o", color="#0072B2", capsize=3, label="measured, 95 % interval"
    )
    right.plot(
        AGENTS, means[0] / np.array(AGENTS), "--", color="#D55E00", label="one agent's error / N"
    )
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
    figure.suptitle(
        f"Federated Q-learning, step size {STEP_SIZE}, average every {SYNC_PERIOD} steps, "
        f"{len(SEEDS)} seeds"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path("demo-output"),
        help="folder for the figure",
    )
    folder = parser.parse_args().output
    print(
        f"Federated Q-learning, {NUM_STEPS} steps per agent, {len(SEEDS)} seeds (the first run "
        "includes compilation):"
    )
    histories = study()
    slope = print_table(histories)
    figure = folder / "speed_up.png"
    draw(histories, slope, figure)
    print(f"  figure: {figure}")


if __name__ == "__main__":
    main()
