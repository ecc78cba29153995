"""Cost of the exact moments against the size of the problem, the horizon and the truncation order.

    python benchmarks/exact.py [--repeats 3] [--quick] [--only SECTION]

Times are processor time, the best of the repeats. `set-up` is a call of `exact.moments` for the
first synchronisation alone, on a fresh problem without cached chains: fixed point, windows, the K
steps of a round, one round. `per round` is the time of each further round, including its error,
mean and sync error. A million agents cost as much as two. The sections `reach` and `limits` time
whole calls as a user makes them, each in a separate process to measure its peak memory; `reach`
shows wall time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np

import fegsam as fg
from fegsam.bench.fresh_process import peak_bytes
from fegsam.exact.windows import chain_windows

NUM_AGENTS = 10**6
STEP_SIZE = 0.01


class Case(NamedTuple):
    """A dense Garnet, where every state can follow every other, and the settings of the call."""

    states: int = 20
    dimension: int | None = 5
    """None: Algorithm 3, a parameter for each state."""
    sync_period: int = 10
    kinds: int = 1
    horizon: int = 1
    order: int | None = 1
    """None: as high as needed."""
    actions: int = 3

    def problem(self) -> fg.Federation:
        mdp = fg.examples.garnet(self.states, self.actions, self.states, discount=0.9, seed=0)
        policies = (
            fg.policies.random(self.states, self.actions, count=self.kinds, seed=1)
            + fg.policies.uniform(self.states, self.actions)
        ) / 2
        features = None
        if self.dimension is not None:  # orthogonal columns; rows of length 1 on average
            columns = np.linalg.qr(
                np.random.default_rng(2).normal(size=(self.states, self.dimension))
            )[0]
            features = columns * np.sqrt(self.states / self.dimension)
        target = fg.policies.uniform(self.states, self.actions)
        return fg.Federation(
            mdp, policies, num_agents=NUM_AGENTS, target_policy=target, features=features
        )

    @property
    def algorithm(self) -> Any:
        if self.dimension is None:
            return fg.OffPolicyTabularTD(self.horizon)
        return fg.OffPolicyLinearTD(self.horizon)

    def moments(self, problem: fg.Federation, times: Any) -> fg.exact.Moments:
        settings = {"step_size": STEP_SIZE, "sync_period": self.sync_period, "order": self.order}
        return fg.exact.moments(problem, self.algorithm, times=times, **settings)


def seconds(case: Case, times: Any, repeats: int) -> float:
    """The best of the repeats, each on a fresh problem, whose construction is not timed."""
    taken = []
    for _ in range(repeats):
        problem = case.problem()
        began = time.process_time()
        case.moments(problem, times)
        taken.append(time.process_time() - began)
    return min(taken)


def heading(title: str) -> None:
    print(
        f"\n{title}\n{'':<24} {'modes':>8} {'windows':>9} {'set-up, s':>10} {'per round, ms':>14}"
    )


def report(name: str, case: Case, repeats: int) -> None:
    first = seconds(case, [case.sync_period], repeats)
    rounds = 400 if first < 0.2 else 100
    all_rounds = seconds(case, case.sync_period * np.arange(1, rounds + 1), repeats)
    windows = chain_windows(case.problem(), case.algorithm)[0]
    each = 1e3 * (all_rounds - first) / (rounds - 1)
    print(
        f"{name:<24} {len(windows.initial):8d} {len(windows.source):9d} {first:10.3f} {each:14.2f}",
        flush=True,
    )


def section_states(repeats: int, quick: bool) -> None:
    heading("States: d = 5, n = 1, K = 10, one kind, order 1")
    for states in (5, 20, 50) if quick else (5, 20, 50, 100, 200):
        report(f"|S|={states}", Case(states=states), repeats)
    heading("States, tabular: d = |S|")
    for states in (5, 10) if quick else (5, 10, 20):
        report(f"|S|={states}", Case(states=states, dimension=None), repeats)


def section_parameters(repeats: int, quick: bool) -> None:
    heading("Parameters: |S| = 20, n = 1, K = 10, one kind, order 1")
    for dimension in (1, 5, 10) if quick else (1, 2, 5, 10, 20):
        report(f"d={dimension}", Case(dimension=dimension), repeats)


def section_period(repeats: int, quick: bool) -> None:
    heading("Sync period: |S| = 20, d = 5, n = 1, one kind, order 1")
    for period in (1, 10, 100) if quick else (1, 10, 100, 1000):
        report(f"K={period}", Case(sync_period=period), repeats)


def section_kinds(repeats: int, quick: bool) -> None:
    heading("Kinds: |S| = 20, d = 5, n = 1, K = 10, order 1")
    for kinds in (1, 2, 5) if quick else (1, 2, 5, 10):
        report(f"M={kinds}", Case(kinds=kinds), repeats)


def section_horizon(repeats: int, quick: bool) -> None:
    heading("Horizon: |S| = 6, 2 actions, d = 3, K = 10, one kind, order 1")
    for horizon in (1, 2) if quick else (1, 2, 3):
        report(f"n={horizon}", Case(states=6, dimension=3, horizon=horizon, actions=2), repeats)


def section_order(repeats: int, quick: bool) -> None:
    for kinds in (1,) if quick else (1, 3):
        heading(f"Order: |S| = 6, d = 3, n = 1, K = 10, {kinds} kind{'s' if kinds > 1 else ''}")
        for order in (1, 2, 3):
            report(f"R={order}", Case(states=6, dimension=3, kinds=kinds, order=order), repeats)


class Reach(NamedTuple):
    seconds: float
    peak_bytes: int
    order: int
    truncation: float
    mse: float


def reach(case: Case, times: np.ndarray) -> Reach:
    """One call; it runs in a separate process."""
    problem = case.problem()
    began = time.perf_counter()
    found = case.moments(problem, times)
    return Reach(
        time.perf_counter() - began,
        peak_bytes(),
        found.order,
        found.truncation,
        float(found.mse[-1]),
    )


def section_reach(_: int, quick: bool) -> None:
    print("\nReach: K = 10, 10^6 agents, 200 times up to T = 10^4, order chosen by the library")
    print(
        f"{'':<24} {'seconds':>8} {'peak MB':>8} {'order':>6} {'truncation':>11} {'mse at T':>10}"
    )
    cases = {
        "|S|=100, d=10, n=1": Case(states=100, dimension=10, order=None),
        "|S|=6, d=3, n=3": Case(states=6, dimension=3, horizon=3, order=None, actions=2),
    }
    if quick:
        cases = {
            "|S|=30, d=5, n=1": Case(states=30, order=None),
            "|S|=6, d=3, n=2": Case(states=6, dimension=3, horizon=2, order=None, actions=2),
        }
    times = np.linspace(50, 10_000, 200).astype(int)
    spawn = multiprocessing.get_context("spawn")
    for name, case in cases.items():
        with ProcessPoolExecutor(1, mp_context=spawn) as process:
            found = process.submit(reach, case, times).result()
        print(
            f"{name:<24} {found.seconds:8.1f} {found.peak_bytes / 1e6:8.0f} {found.order:6d} "
            f"{found.truncation:11.1e}"
            f" {found.mse:10.3g}",
            flush=True,
        )


def random_features(states: int, dimension: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(states, dimension)) / np.sqrt(dimension)


def garnet_of_kinds(
    states: int, actions: int, branching: int, dimension: int, kinds: int, num_agents: int
) -> fg.Federation:
    mdp = fg.examples.garnet(states, actions, branching, discount=0.9, seed=0, connected=True)
    uniform = fg.policies.uniform(states, actions)
    policies = (fg.policies.random(states, actions, count=kinds, seed=1) + uniform) / 2
    features = random_features(states, dimension)
    return fg.Federation(
        mdp, policies, num_agents=num_agents, target_policy=uniform, features=features
    )


def thousand_kinds() -> float:
    problem = garnet_of_kinds(20, 3, 20, 2, kinds=1000, num_agents=2000)
    settings = {"step_size": 0.05, "sync_period": 10, "times": np.arange(0, 1001, 10)}
    return fg.exact.moments(problem, fg.OffPolicyLinearTD(), **settings).mse[-1]


def thousand_kinds_limit() -> float:
    problem = garnet_of_kinds(20, 3, 20, 2, kinds=1000, num_agents=2000)
    return fg.exact.stationary_error(
        problem, fg.OffPolicyLinearTD(), step_size=0.05, sync_period=10
    )


def nine_states() -> float:
    problem = garnet_of_kinds(9, 2, 9, 3, kinds=1, num_agents=10)
    return fg.exact.stationary_error(
        problem, fg.OffPolicyLinearTD(2), step_size=0.05, sync_period=5
    )


def thousand_states() -> float:
    problem = garnet_of_kinds(1000, 2, 5, 10, kinds=1, num_agents=10)
    return fg.exact.stationary_error(problem, fg.OnPolicyTD(), step_size=0.05, sync_period=5)


def long_period() -> float:
    problem = garnet_of_kinds(10, 2, 3, 3, kinds=2, num_agents=10)
    settings = {"step_size": 0.01, "sync_period": 10**4, "num_steps": 10**5, "decay": 1 - 1e-4}
    return fg.exact.weighted_error(problem, fg.OffPolicyLinearTD(), **settings)


def independent_windows() -> float:
    problem = garnet_of_kinds(30, 2, 3, 3, kinds=10, num_agents=20)
    settings = {"step_size": 0.01, "sync_period": 10, "times": [40_000], "sampling": "iid"}
    return fg.exact.moments(problem, fg.OffPolicyLinearTD(), **settings).mse[-1]


LIMITS: dict[str, Callable[[], float]] = {
    "1000 kinds, moments": thousand_kinds,
    "1000 kinds, limit": thousand_kinds_limit,
    "9 states, n=2, limit": nine_states,
    "|S|=1000, d=10, limit": thousand_states,
    "K=10^4, T=10^5, weighted": long_period,
    "i.i.d., 10 kinds, T=4e4": independent_windows,
}


def timed(name: str) -> tuple[float, float, int]:
    """The answer, its processor time and the peak memory; it runs in a separate process."""
    began = time.process_time()
    found = float(LIMITS[name]())
    return found, time.process_time() - began, peak_bytes()


def section_limits(_: int, quick: bool) -> None:
    print("\nLimits: whole calls as a user makes them, processor time of one thread")
    print(f"{'':<26} {'seconds':>8} {'peak MB':>8} {'answer':>12}")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # inherited by the new processes
    spawn = multiprocessing.get_context("spawn")
    for name in list(LIMITS)[2 if quick else 0 :]:
        with ProcessPoolExecutor(1, mp_context=spawn) as process:
            found, seconds, peak = process.submit(timed, name).result()
        print(f"{name:<26} {seconds:8.2f} {peak / 1e6:8.0f} {found:12.6g}", flush=True)


SECTIONS: dict[str, Callable[[int, bool], None]] = {
    "states": section_states,
    "parameters": section_parameters,
    "period": section_period,
    "kinds": section_kinds,
    "horizon": section_horizon,
    "order": section_order,
    "reach": section_reach,
    "limits": section_limits,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, help="timings of each case (default 3; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", choices=SECTIONS, help="one section instead of all")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    warm_up = Case(states=3, dimension=1)
    warm_up.moments(warm_up.problem(), [1])  # compiles
    for name, section in SECTIONS.items():
        if arguments.only in (None, name):
            section(arguments.repeats or (1 if arguments.quick else 3), arguments.quick)


if __name__ == "__main__":
    main()
