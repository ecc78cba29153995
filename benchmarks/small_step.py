"""Cost of the small-step law against the number of states and parameters.

    python benchmarks/small_step.py [--repeats 3] [--quick] [--only SECTION]

Times are seconds of processor and wall time, the best of the repeats. `fixed point` is the time of
`fg.fixed_point` on a fresh problem without cached chains, for comparison; `law` is the time of
`small_step_law` on another fresh problem, including the fixed point.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fegsam as fg
from fegsam.theory.small_step.small_step import small_step_law

ACTIONS = 3
BRANCHING = 5
Make = Callable[[], fg.Federation]


def best_of(repeats: int, make: Make, work: Callable[[fg.Federation], Any]) -> tuple[float, float]:
    """Best processor and wall seconds of `work` on a fresh problem; `make` is not timed."""
    cpu, wall = [], []
    for _ in range(repeats):
        problem = make()
        began = time.process_time(), time.perf_counter()
        work(problem)
        cpu.append(time.process_time() - began[0])
        wall.append(time.perf_counter() - began[1])
    return min(cpu), min(wall)


def heading(title: str) -> None:
    print(f"\n{title}\n{'':<28} {'fixed point':>12} {'law: cpu':>9} {'wall':>8} {'mse':>10}")


def report(case: str, make: Make, algorithm: Any, repeats: int, sync_period: int = 10) -> None:
    def law(problem: fg.Federation) -> Any:
        return small_step_law(problem, algorithm, step_size=1e-3, sync_period=sync_period)

    point, _ = best_of(repeats, make, lambda problem: fg.fixed_point(problem, algorithm))
    cpu, wall = best_of(repeats, make, law)
    print(f"{case:<28} {point:12.2f} {cpu:9.2f} {wall:8.2f} {law(make()).mse:10.3g}", flush=True)


def garnet(states: int, dimension: int | None, kinds: int = 1) -> Make:
    mdp = fg.examples.garnet(states, ACTIONS, BRANCHING, discount=0.9, seed=0)
    policies = fg.policies.random(states, ACTIONS, count=kinds, seed=1)
    features = (
        None if dimension is None else np.random.default_rng(2).normal(size=(states, dimension))
    )
    target = fg.policies.uniform(states, ACTIONS)
    return lambda: fg.Federation(
        mdp, policies, num_agents=100, target_policy=target, features=features
    )


def random_walk(states: int, dimension: int) -> Make:
    mdp = fg.examples.random_walk(states, discount=0.9)
    actions = mdp.num_actions
    places = np.linspace(0, 1, states)[:, None] ** np.arange(dimension)
    target = fg.policies.uniform(states, actions)
    return lambda: fg.Federation(mdp, num_agents=100, target_policy=target, features=places)


def section_features(repeats: int, quick: bool) -> None:
    heading("Garnet, 3 actions, branching 5, d = 10 features, one step")
    for states in (100, 1000, 5000) if quick else (100, 1000, 5000, 20_000, 100_000):
        report(f"|S|={states}, on-policy", garnet(states, 10), fg.OnPolicyTD(), repeats)
        report(
            f"|S|={states}, off-policy x 4",
            garnet(states, 10, kinds=4),
            fg.OffPolicyLinearTD(preconditioned=True),
            repeats,
        )


def section_horizon(repeats: int, quick: bool) -> None:
    heading("The same, with n-step look-ahead: windows instead of states")
    for states, horizon in (
        ((1000, 2), (50, 3)) if quick else ((1000, 2), (5000, 2), (50, 3), (200, 3))
    ):
        report(f"|S|={states}, n={horizon}", garnet(states, 10), fg.OnPolicyTD(horizon), repeats)


def section_tabular(repeats: int, quick: bool) -> None:
    heading("Garnet, tabular: d = |S| parameters, two kinds")
    for states in (100, 300) if quick else (100, 300, 1000, 2000):
        report(
            f"|S|={states}",
            garnet(states, None, kinds=2),
            fg.OffPolicyTabularTD(),
            1 if states > 500 else repeats,
        )


def section_slow(repeats: int, quick: bool) -> None:
    heading("Random walk on a line, which mixes in about |S|^2 steps; d = 3")
    for states in (1000,) if quick else (1000, 4000):
        for period in (1, 1000, 10**6):
            report(
                f"|S|={states}, K={period}",
                random_walk(states, 3),
                fg.OnPolicyTD(),
                repeats,
                period,
            )


SECTIONS: dict[str, Callable[[int, bool], None]] = {
    "features": section_features,
    "horizon": section_horizon,
    "tabular": section_tabular,
    "slow": section_slow,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", choices=SECTIONS, help="one section instead of all")
    arguments = parser.parse_args()
    fg.fixed_point(garnet(10, None)(), fg.OffPolicyTabularTD())  # compiles
    for name, section in SECTIONS.items():
        if arguments.only in (None, name):
            section(arguments.repeats, arguments.quick)


if __name__ == "__main__":
    main()
