"""Does the `cuda` engine do what `cpu` does?  python benchmarks/cuda_agreement.py [--small]

All algorithms, look-aheads, sync periods and layouts: the agents' paths must be the same,
parameters within 1e-10 in float64, and a second run the same bits. `--small` is for Numba's CUDA
simulator (NUMBA_ENABLE_CUDASIM=1).
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

import fegsam as fg

TOLERANCE = 1e-10
_STATES, _ACTIONS, _KINDS = 7, 3, 3
_MANY_STATES = 5000
"""So many that no block has a copy of the average."""


class Case(NamedTuple):
    algorithm: str
    horizon: int
    sync_period: int
    num_agents: int
    layout: str
    sampling: str = "markov"
    rounds: int = 2

    @property
    def diverges(self) -> bool:
        return self.algorithm == "diverging linear SA"

    @property
    def num_steps(self) -> int:
        """Some rounds and half of one, with an end that is no synchronisation; or until no number
        is finite."""
        if self.diverges:
            return 140
        return self.rounds * self.sync_period + self.sync_period // 2 + (self.sync_period > 1)


def _contraction(params: Any, y: Any, kind: Any, out: Any) -> None:
    for j in range(params.shape[0]):
        out[j] = 0.5 * params[(j + 1) % params.shape[0]] / (1.0 + kind) - params[j] + y


def _problem(case: Case) -> tuple[Any, Any]:
    rng = np.random.default_rng(4)
    if case.algorithm in ("linear SA", "large linear SA", "diverging linear SA", "own operator"):
        kernels = rng.dirichlet(np.ones(5), size=(_KINDS, 5))
        noise = fg.MarkovNoise(kernels, num_agents=case.num_agents)
        if case.algorithm == "own operator":
            return noise, fg.StochasticApproximation(_contraction, dim=3)
        matrices = 0.3 * rng.normal(size=(_KINDS, 5, 4, 4)) - 1.5 * np.eye(4)
        if case.diverges:
            matrices[-1] += 5000.0 * np.eye(4)
        # Large offsets: the first differences do not fit the sums, so that rounds are run again
        # with more room.
        size = 1e6 if case.algorithm == "large linear SA" else 1.0
        return noise, fg.LinearSA(matrices, size * rng.normal(size=(_KINDS, 5, 4)))
    states = _MANY_STATES if case.algorithm == "large Q-learning" else _STATES
    mdp = fg.examples.garnet(states, _ACTIONS, 4, discount=0.8, seed=2)
    fed = fg.Federation(
        mdp,
        fg.policies.random(states, _ACTIONS, count=_KINDS, seed=3),
        num_agents=case.num_agents,
        target_policy=fg.policies.uniform(states, _ACTIONS),
        features=rng.normal(size=(states, 3)),
    )
    algorithms = {
        "on-policy TD": fg.OnPolicyTD(case.horizon),
        "off-policy tabular TD": fg.OffPolicyTabularTD(case.horizon),
        "Q-learning": fg.QLearning(),
        "large Q-learning": fg.QLearning(),
        "off-policy linear TD": fg.OffPolicyLinearTD(case.horizon),
        "preconditioned TD": fg.OffPolicyLinearTD(case.horizon, preconditioned=True),
    }
    return fed, algorithms[case.algorithm]


ALGORITHMS = (
    "linear "
    "SA", "large linear "
                 "SA", "own "
                                    "operator", "on-policy "
                                                    "TD", "off-policy tabular "
                                                                    "TD", "Q-learning",
    "off-policy linear TD", "preconditioned TD",
)  # fmt: skip


def _layouts(algorithm: str) -> tuple[str, ...]:
    return (
        ("shared", "overlay", "table")
        if algorithm in ("off-policy tabular TD", "Q-learning")
        else ("shared", "table")
    )


def _horizons(algorithm: str) -> tuple[int, ...]:
    return (
        (1,)
        if algorithm in ("linear SA", "large linear SA", "own operator", "Q-learning")
        else (1, 2, 5)
    )


def _rounds(period: int) -> int:
    """So many that everything that is used by turns is used again."""
    return 9 if period <= 10 else 2


def cases() -> Iterator[Case]:
    for algorithm in ALGORITHMS:
        horizons, layouts = _horizons(algorithm), _layouts(algorithm)
        for horizon, period, layout in itertools.product(horizons, (1, 3, 10, 100), layouts):
            yield Case(algorithm, horizon, period, 40, layout, rounds=_rounds(period))
        for layout in layouts:
            # More agents than a block holds, and one that never averages.
            yield Case(algorithm, horizons[-1], 3, 1000, layout, rounds=_rounds(3))
            if layout != "overlay":
                yield Case(algorithm, horizons[-1], 3, 1, layout)
        yield Case(algorithm, horizons[-1], 3, 40, layouts[0], "iid")
        # So many that no block has a producer.
        yield Case(algorithm, horizons[-1], 3, 20_000, layouts[0])
    for agents, layout in itertools.product((1, 40, 1000, 20_000), ("shared", "table")):
        yield Case("diverging linear SA", 1, 3, agents, layout)
    for agents, layout in itertools.product((40, 1000, 20_000), ("overlay", "table")):
        yield Case("large Q-learning", 1, 3, agents, layout, rounds=_rounds(3))


def few_cases() -> Iterator[Case]:
    """Every algorithm in every layout; a block that is not full, seeds side by side, agents in
    turns, and one alone."""
    for algorithm in ALGORITHMS:
        for layout in _layouts(algorithm):
            yield Case(algorithm, _horizons(algorithm)[:2][-1], 3, 5, layout)
    yield Case("diverging linear SA", 1, 3, 5, "shared")
    yield Case("large Q-learning", 1, 3, 5, "overlay")
    yield Case("Q-learning", 1, 2, 11, "overlay")
    yield Case("Q-learning", 1, 2, 11, "shared")
    yield Case("on-policy TD", 2, 2, 11, "shared")
    yield Case("linear SA", 1, 3, 1, "table")
    yield Case("off-policy tabular TD", 2, 3, 1, "shared")
    yield Case("off-policy linear TD", 2, 3, 3, "shared", "iid")


def check(case: Case, small: bool = False) -> tuple[Case, float, float, bool, bool]:
    """The largest difference of an average in float64 and in float32, whether paths agree, and
    whether bits repeat."""
    problem, algorithm = _problem(case)
    settings: dict[str, Any] = {
        "step_size": 0.1,
        "sync_period": case.sync_period,
        "num_steps": case.num_steps,
        "record": 7 * case.sync_period if case.diverges else 1,
        "seeds": (0,) if small and case.sampling == "markov" else (0, 5),
        "record_params": True,
        "sampling": case.sampling,
        "fixed_point": np.zeros(algorithm.dimension(problem)),
        "output_decay": 0.9,
    }
    there = fg.run(problem, algorithm, engine="cpu", **settings)
    here, again = (
        fg.run(problem, algorithm, engine=fg.engines.Cuda(layout=case.layout), **settings)
        for _ in range(2)
    )
    names = (
        "average_params",
        "final_params",
        "output_params",
        "squared_error",
        "sync_error",
        "diverged_at",
    )
    assert there.checkpoint is not None
    assert here.checkpoint is not None
    same_path = case.sampling == "iid" or bool(
        (there.checkpoint.states == here.checkpoint.states).all()
    )
    single = not small and not case.diverges
    return (
        case,
        max(_difference(here.data[name].values, there.data[name].values) for name in names),
        _single(case, problem, algorithm, settings, there.data.average_params.values)
        if single
        else float("nan"),
        same_path,
        all(
            np.array_equal(here.data[name].values, again.data[name].values, equal_nan=True)
            for name in names
        ),
    )


def _single(
    case: Case, problem: Any, algorithm: Any, settings: dict[str, Any], averages: np.ndarray
) -> float:
    found = fg.run(problem, algorithm, engine=fg.engines.Cuda("float32", case.layout), **settings)
    return _difference(found.data.average_params.values, averages)


def _difference(one: np.ndarray, other: np.ndarray) -> float:
    """Relative to the largest entry; numbers that are not finite must be so in both."""
    finite = np.isfinite(other)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return float("inf")
    return float(
        np.abs(one[finite] - other[finite]).max(initial=0.0)
        / np.abs(other[finite]).max(initial=1.0)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a slice, for Numba's CUDA simulator")
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help="processes, since most of the time goes into compiling",
    )
    asked = parser.parse_args()
    todo = list(few_cases() if asked.small else cases())
    found: list[Any] = []
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as pool:
        small = itertools.repeat(asked.small)
        for result in (
            pool.map(check, todo, small) if asked.workers > 1 else map(check, todo, small)
        ):
            case, double, single, path, bits = result
            good = double <= TOLERANCE and path and bits
            found.append((good, double, single))
            print(
                f"{'ok ' if good else 'BAD'} {case.algorithm:22} n={case.horizon} "
                f"K={case.sync_period:<3} "
                f"N={case.num_agents:<5} {case.layout:7} {case.sampling:6} float64 {double:.1e}  "
                f"float32 {single:.1e}  "
                f"paths {'same' if path else 'DIFFER'}  twice {'same' if bits else 'DIFFER'}",
                flush=True,
            )
    bad = sum(not good for good, _, _ in found)
    print(
        f"{len(found) - bad} of {len(found)} agree; largest difference "
        f"{max(double for _, double, _ in found):.1e} in float64, "
        f"{max((single for _, _, single in found if single == single), default=float('nan')):.1e} "
        "in float32"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
