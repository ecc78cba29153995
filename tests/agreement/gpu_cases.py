"""Where the `cuda` engine must agree with `cpu`, and what "agree" means.

`cases()` is the whole matrix, for a machine with a GPU; `quick_cases()` is a selection that Numba's
CUDA simulator runs in two minutes. `test_gpu.py` checks them with pytest; a machine without pytest
does the same with

    PYTHONPATH=src python tests/agreement/gpu_cases.py --workers 14

which exits with 1 if a case disagrees.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import cuda

import fegsam as fg

FLOAT64_TOLERANCE = 1e-10
FLOAT32_TOLERANCE = 1e-5
"""Both relative to the largest entry, or to 1 where all are smaller."""

COMPARED = (
    "average_params",
    "final_params",
    "output_params",
    "squared_error",
    "sync_error",
    "diverged_at",
)
STATES, ACTIONS, KINDS = 7, 3, 3
MANY_STATES = 5000
"""A table of which no block can hold a copy."""

LOOK_AHEAD = ("on-policy TD", "off-policy tabular TD", "off-policy linear TD", "preconditioned TD")
OVERLAID = ("off-policy tabular TD", "Q-learning")
ALGORITHMS = ("linear SA", "large linear SA", "own operator", "Q-learning", "TDC", *LOOK_AHEAD)


class Case(NamedTuple):
    algorithm: str
    horizon: int
    sync_period: int
    num_agents: int
    layout: str
    sampling: str = "markov"
    rounds: int = 2
    seeds: tuple[int, ...] = (0, 5)
    float32: bool = True
    """whether a float32 run is compared too"""

    def __str__(self) -> str:
        return (
            f"{self.algorithm} n={self.horizon} K={self.sync_period} N={self.num_agents} "
            f"{self.layout} {self.sampling}"
        )

    @property
    def diverges(self) -> bool:
        return self.algorithm == "diverging linear SA"

    @property
    def num_steps(self) -> int:
        """`rounds` rounds and about half of one, so that the run does not end at a synchronisation;
        a case that diverges runs until it has."""
        if self.diverges:
            return 140
        return self.rounds * self.sync_period + self.sync_period // 2 + (self.sync_period > 1)


class Agreement(NamedTuple):
    """What `check` found."""

    case: Case
    float64: float
    """the largest difference from `cpu`"""
    float32: float
    """likewise, of the averages; 0 where the case has no float32 run"""
    same_paths: bool
    same_bits: bool
    """in a second run"""

    @property
    def disagreements(self) -> list[str]:
        """Empty where the engines agree."""
        found = {
            f"float64 differs by {self.float64:.1e}": not self.float64 <= FLOAT64_TOLERANCE,
            f"float32 differs by {self.float32:.1e}": not self.float32 <= FLOAT32_TOLERANCE,
            "the agents' paths differ": not self.same_paths,
            "a second run has other bits": not self.same_bits,
        }
        return [what for what, wrong in found.items() if wrong]


def cases() -> Iterator[Case]:
    """All algorithms, look-aheads, sync periods and layouts."""
    for algorithm in ALGORITHMS:
        horizons, layouts = _horizons(algorithm), _layouts(algorithm)
        for horizon, period, layout in itertools.product(horizons, (1, 3, 10, 100), layouts):
            yield Case(algorithm, horizon, period, 40, layout, rounds=_rounds(period))
        for layout in layouts:
            # More agents than a block holds, and one agent, which never averages.
            yield Case(algorithm, horizons[-1], 3, 1000, layout, rounds=_rounds(3))
            if layout != "overlay":
                yield Case(algorithm, horizons[-1], 3, 1, layout)
        yield Case(algorithm, horizons[-1], 3, 40, layouts[0], "iid")
        # Too many agents for producers.
        yield Case(algorithm, horizons[-1], 3, 20_000, layouts[0])
    for agents, layout in itertools.product((1, 40, 1000, 20_000), ("shared", "table")):
        yield Case("diverging linear SA", 1, 3, agents, layout, float32=False)
    for agents, layout in itertools.product((40, 1000, 20_000), ("overlay", "table")):
        yield Case("large Q-learning", 1, 3, agents, layout, rounds=_rounds(3))


def quick_cases() -> Iterator[Case]:
    """Every algorithm in every layout; a block that is not full, several seeds in a block, several
    agents to a thread, and one agent alone."""
    quick = {"seeds": (0,), "float32": False}
    for algorithm in ALGORITHMS:
        for layout in _layouts(algorithm):
            yield Case(algorithm, min(2, _horizons(algorithm)[-1]), 3, 5, layout, **quick)
    yield Case("diverging linear SA", 1, 3, 5, "shared", **quick)
    yield Case("large Q-learning", 1, 3, 5, "overlay", **quick)
    # One float32 run for each shape of update: cell, row and dense.
    yield Case("Q-learning", 1, 2, 11, "overlay", seeds=(0,))
    yield Case("on-policy TD", 2, 2, 11, "shared", seeds=(0,))
    yield Case("linear SA", 1, 3, 1, "table", seeds=(0,))
    yield Case("Q-learning", 1, 2, 11, "shared", **quick)
    yield Case("off-policy tabular TD", 2, 3, 1, "shared", **quick)
    yield Case("off-policy linear TD", 2, 3, 3, "shared", "iid", float32=False)


def runnable_cases() -> list[Case]:
    """What this process can check: all cases on a GPU, the quick ones in the simulator, else
    none."""
    if simulated():
        return list(quick_cases())
    return list(cases()) if cuda.is_available() else []


def simulated() -> bool:
    """Whether CUDA is Numba's simulator (NUMBA_ENABLE_CUDASIM=1)."""
    return bool(numba.config.ENABLE_CUDASIM)


def _horizons(algorithm: str) -> tuple[int, ...]:
    return (1, 2, 5) if algorithm in LOOK_AHEAD else (1,)


def _layouts(algorithm: str) -> tuple[str, ...]:
    return ("shared", "overlay", "table") if algorithm in OVERLAID else ("shared", "table")


def _rounds(period: int) -> int:
    """Enough to reuse every buffer that rounds take in turn."""
    return 9 if period <= 10 else 2


def check(case: Case) -> Agreement:
    """Run `case` with `cpu` and with `cuda`, and compare."""
    problem, algorithm = _problem(case)

    def run(engine: Any) -> fg.History:
        return fg.run(
            problem,
            algorithm,
            engine=engine,
            step_size=0.1,
            sync_period=case.sync_period,
            num_steps=case.num_steps,
            record=7 * case.sync_period if case.diverges else 1,
            seeds=case.seeds,
            record_params=True,
            sampling=case.sampling,
            fixed_point=np.zeros(algorithm.dimension(problem)),
            output_decay=0.9,
        )

    with warnings.catch_warnings():
        if case.diverges:
            warnings.simplefilter("ignore", fg.DivergenceWarning)
        # `reference` has nothing to compile, but does not stop a seed that diverges.
        expected = run("reference" if simulated() and not case.diverges else "cpu")
        found, again = (run(fg.engines.Cuda(layout=case.layout)) for _ in range(2))
        single = run(fg.engines.Cuda("float32", case.layout)) if case.float32 else expected
    return Agreement(
        case,
        float64=max(_difference(found, expected, name) for name in COMPARED),
        float32=_difference(single, expected, "average_params"),
        same_paths=case.sampling == "iid" or _same_paths(found, expected),
        same_bits=all(
            np.array_equal(found.data[name], again.data[name], equal_nan=True) for name in COMPARED
        ),
    )


def _difference(one: fg.History, other: fg.History, name: str) -> float:
    """Infinite unless the same entries are finite in both."""
    values, expected = one.data[name].values, other.data[name].values
    finite = np.isfinite(expected)
    if not np.array_equal(values[~finite], expected[~finite], equal_nan=True):
        return float("inf")
    largest = np.abs(expected[finite]).max(initial=1.0)
    return float(np.abs(values[finite] - expected[finite]).max(initial=0.0) / largest)


def _same_paths(one: fg.History, other: fg.History) -> bool:
    """Whether all agents are in the same states at the last synchronisation."""
    assert one.checkpoint is not None
    assert other.checkpoint is not None
    return np.array_equal(one.checkpoint.states, other.checkpoint.states)


def _problem(case: Case) -> tuple[Any, Any]:
    rng = np.random.default_rng(4)
    if case.algorithm == "own operator" or case.algorithm.endswith("linear SA"):
        return _noise_problem(case, rng)
    states = MANY_STATES if case.algorithm == "large Q-learning" else STATES
    problem = fg.Federation(
        fg.examples.garnet(states, ACTIONS, 4, discount=0.8, seed=2),
        fg.policies.random(states, ACTIONS, count=KINDS, seed=3),
        num_agents=case.num_agents,
        target_policy=fg.policies.uniform(states, ACTIONS),
        features=rng.normal(size=(states, 3)),
    )
    algorithms = {
        "on-policy TD": fg.OnPolicyTD(case.horizon),
        "off-policy tabular TD": fg.OffPolicyTabularTD(case.horizon),
        "Q-learning": fg.QLearning(),
        "large Q-learning": fg.QLearning(),
        "off-policy linear TD": fg.OffPolicyLinearTD(case.horizon),
        "TDC": fg.TDC(0.5),
        "preconditioned TD": fg.OffPolicyLinearTD(case.horizon, preconditioned=True),
    }
    return problem, algorithms[case.algorithm]


def _noise_problem(case: Case, rng: np.random.Generator) -> tuple[Any, Any]:
    noise = fg.MarkovNoise(rng.dirichlet(np.ones(5), size=(KINDS, 5)), num_agents=case.num_agents)
    if case.algorithm == "own operator":
        return noise, fg.StochasticApproximation(_contraction, dim=3)
    matrices = 0.3 * rng.normal(size=(KINDS, 5, 4, 4)) - 1.5 * np.eye(4)
    if case.diverges:
        matrices[-1] += 5000.0 * np.eye(4)
    # With large offsets the first differences overflow the integer sums, and rounds are repeated
    # with a larger unit.
    size = 1e6 if case.algorithm == "large linear SA" else 1.0
    return noise, fg.LinearSA(matrices, size * rng.normal(size=(KINDS, 5, 4)))


def _contraction(params: Any, y: Any, kind: Any, out: Any) -> None:
    for j in range(params.shape[0]):
        out[j] = 0.5 * params[(j + 1) % params.shape[0]] / (1.0 + kind) - params[j] + y


def _checked(todo: list[Case], workers: int) -> Iterable[Agreement]:
    """Most of the time goes into compiling, so that processes help."""
    if workers == 1:
        yield from map(check, todo)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(check, todo)


def main() -> int:
    parser = argparse.ArgumentParser(description="Check that the cuda engine agrees with cpu.")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    workers, todo, found = parser.parse_args().workers, runnable_cases(), []
    if not todo:
        sys.exit("There is no GPU here; set NUMBA_ENABLE_CUDASIM=1 for Numba's simulator.")
    for agreement in _checked(todo, workers):
        found.append(agreement)
        said = "; ".join(agreement.disagreements) or "agrees"
        print(
            f"{agreement.case}: {said} (float64 {agreement.float64:.1e}, "
            f"float32 {agreement.float32:.1e})",
            flush=True,
        )
    good = sum(not agreement.disagreements for agreement in found)
    print(
        f"{good} of {len(todo)} agree; largest difference "
        f"{max(agreement.float64 for agreement in found):.1e} in float64, "
        f"{max(agreement.float32 for agreement in found):.1e} in float32"
    )
    return 0 if good == len(todo) else 1


if __name__ == "__main__":
    sys.exit(main())
