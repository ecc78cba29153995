"""Where the `cuda` engine must agree with the others, and what "agree" means.

`cases()` is the whole matrix, for a machine with a GPU; `quick_cases()` is a selection that Numba's
CUDA simulator runs in two minutes. `test_gpu.py` checks them with pytest; a machine without pytest
does the same with

    PYTHONPATH=src:tests python tests/agreement/gpu_cases.py --workers 14

which exits with 1 if a case disagrees. Plain averaging is compared with `cpu`, whose loops for a
method take long to compile, and methods with `reference`.
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
from helpers.gpu_case import Case, problem_of
from helpers.method_cases import EVERY_METHOD

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
    "tail_params",
)
LOOK_AHEAD = ("on-policy TD", "off-policy tabular TD", "off-policy linear TD", "preconditioned TD")
OVERLAID = ("off-policy tabular TD", "Q-learning")
ON_OTHER_FORMS = (
    "weights of agents",
    "last round by kind",
    "nesterov",
    "m of N wait",
    "often nobody, divided by all",
    "dithered rounding",
    "some cells",
    "rounded local steps of some",
    "last round of some by kind",
    "first step of some",
)
WITH_WINDOWS = (
    "last round of some agents",
    "by visits of some, divided by all",
    "rounded local steps of some",
    "first step of some",
)
"""Methods that between them do everything."""
ALGORITHMS = ("linear SA", "large linear SA", "own operator", "Q-learning", "TDC", *LOOK_AHEAD)


class Agreement(NamedTuple):
    """What `check` found."""

    case: Case
    float64: float
    """the largest difference from the other engine, also where `cuda` takes over from it"""
    float32: float
    """likewise, of the averages; 0 where the case has no float32 run"""
    same_paths: bool
    same_bits: bool
    """in a second run; with a method, in one that was broken"""

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
    for algorithm in (*LOOK_AHEAD, "Q-learning", "large Q-learning", "TDC"):
        layout = _layouts(algorithm)[1]
        yield Case(algorithm, _horizons(algorithm)[-1], 3, 40, layout, episodes=True)


def method_cases() -> Iterator[Case]:
    """Every method in every layout of a table, and what differs for other forms of update."""
    for method in EVERY_METHOD:
        # A rounded change may differ by a whole step in float32.
        single = not any(word in method for word in ("round", "cells")) or "last" in method
        for layout in ("shared", "overlay", "table"):
            both = single and layout == "shared"
            yield Case("Q-learning", 1, 4, 40, layout, rounds=3, float32=both, method=method)
    some = {"rounds": 3, "seeds": (0,), "float32": False}
    for algorithm, layout in itertools.product(
        ("off-policy linear TD", "own operator"), ("shared", "table")
    ):
        for method in ON_OTHER_FORMS:
            horizon = _horizons(algorithm)[0] + (algorithm in LOOK_AHEAD)
            yield Case(algorithm, horizon, 4, 40, layout, **some, method=method)
    for method in WITH_WINDOWS:
        yield Case("off-policy tabular TD", 5, 10, 40, "overlay", **some, method=method)
        yield Case("off-policy tabular TD", 2, 10, 40, "shared", "iid", **some, method=method)
    # Rounds of all lengths cannot have a fixed number of local steps.
    growing = ("", *(method for method in WITH_WINDOWS if "local steps" not in method))
    for method, over in itertools.product(growing, ("steps", "syncs")):
        yield Case(
            "Q-learning", 1, 10, 40, "shared", **some, method=method, growing=True, tail=over
        )
    for method in WITH_WINDOWS:
        # More agents than a block holds, than the GPU runs at once, and one.
        yield Case("Q-learning", 1, 4, 1000, "shared", **some, method=method)
        yield Case("large Q-learning", 1, 4, 1000, "overlay", **some, method=method)
    yield Case("Q-learning", 1, 2, 20_000, "shared", **some, method="last round of some agents")
    yield Case("Q-learning", 1, 4, 1, "shared", **some, method="last round with nesterov")
    yield Case("diverging linear SA", 1, 3, 40, "shared", float32=False, method="momentum")


def small_method_cases() -> Iterator[Case]:
    """Every method as in `method_cases`, at sizes for the simulator."""
    for case in method_cases():
        if case.num_agents <= 40 and case.horizon < 5:
            yield case._replace(num_agents=min(case.num_agents, 5), seeds=(0,), float32=False)


def quick_cases() -> Iterator[Case]:
    """Every algorithm, one for each form of update in every layout; a block that is not full,
    several seeds in a block, several agents to a thread, and one agent alone."""
    quick = {"seeds": (0,), "float32": False}
    for algorithm in ALGORITHMS:
        layouts = _layouts(algorithm)
        whole = algorithm in ("Q-learning", "off-policy linear TD", "own operator")
        for layout in layouts if whole else layouts[:1]:
            yield Case(algorithm, min(2, _horizons(algorithm)[-1]), 3, 5, layout, **quick)
    yield Case("large Q-learning", 1, 3, 5, "overlay", **quick)
    # One float32 run for each shape of update: cell, row and dense.
    yield Case("Q-learning", 1, 2, 11, "overlay", seeds=(0,))
    yield Case("on-policy TD", 2, 2, 11, "shared", seeds=(0,))
    yield Case("linear SA", 1, 3, 1, "table", seeds=(0,))
    yield Case("Q-learning", 1, 2, 11, "shared", **quick)
    yield Case("off-policy tabular TD", 2, 3, 1, "shared", **quick)
    yield Case("off-policy linear TD", 2, 3, 3, "shared", "iid", float32=False)
    for algorithm in (*LOOK_AHEAD[:3], "Q-learning", "large Q-learning", "TDC"):
        layout = "overlay" if algorithm == "large Q-learning" else "shared"
        horizon = min(2, _horizons(algorithm)[-1])
        yield Case(algorithm, horizon, 3, 5, layout, **quick, episodes=True)
    yield from _quick_methods()


def _quick_methods() -> Iterator[Case]:
    """Every choice of a method in some layout and form of update."""
    for algorithm, horizon, layout, method, changes in (
        ("Q-learning", 1, "shared", "last round of some agents", {"growing": True}),
        ("Q-learning", 1, "overlay", "last round with nesterov", {"tail": "steps"}),
        ("Q-learning", 1, "table", "by visits of some, divided by all", {}),
        ("Q-learning", 1, "shared", "first step by agent", {"sampling": "iid"}),
        ("Q-learning", 1, "overlay", "dithered rounding", {"tail": "syncs"}),
        ("off-policy tabular TD", 2, "shared", "rounded local steps of some", {}),
        ("off-policy linear TD", 2, "shared", "last round of some by kind", {"tail": "steps"}),
        ("off-policy linear TD", 2, "table", "some cells", {}),
        ("own operator", 1, "table", "first step of some", {}),
        ("own operator", 1, "shared", "weights of agents", {}),
    ):
        case = Case(algorithm, horizon, 4, 5, layout, seeds=(0,), float32=False, method=method)
        yield case._replace(**changes)


def runnable_cases() -> list[Case]:
    """What this process can check: all cases on a GPU, the quick ones in the simulator, else
    none."""
    if simulated():
        return list(quick_cases())
    return [*cases(), *method_cases()] if cuda.is_available() else []


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
    """Run `case` with `cuda` and with another engine, and compare."""
    # `reference` has nothing to compile, but does not stop a plain run that diverges.
    compiles = case.is_plain and (case.diverges or not simulated())
    other = "cpu" if compiles else "reference"
    with warnings.catch_warnings():
        if case.diverges:
            warnings.simplefilter("ignore", fg.DivergenceWarning)
        expected = _run(case, other)
        found = _run(case, fg.engines.Cuda(layout=case.layout))
        if case.is_plain:
            again, taken_over = _run(case, fg.engines.Cuda(layout=case.layout)), found
        else:
            again, taken_over = _resumed(case, "cuda"), _resumed(case, other)
        single = _run(case, fg.engines.Cuda("float32", case.layout)) if case.float32 else expected
    names = [name for name in COMPARED if name in expected.data]
    return Agreement(
        case,
        float64=max(
            _difference(run, expected, name) for run in (found, taken_over) for name in names
        ),
        float32=_difference(single, expected, "average_params"),
        same_paths=case.sampling == "iid" or _same_paths(found, expected),
        same_bits=all(
            np.array_equal(found.data[name], again.data[name], equal_nan=True) for name in names
        ),
    )


def _run(case: Case, engine: Any, **options: Any) -> fg.History:
    problem, algorithm = problem_of(case)
    settings = {
        "step_size": 0.1,
        "sync_period": case.sync_period,
        "num_steps": case.num_steps,
        "record": 7 * case.sync_period if case.diverges else 1,
        "seeds": case.seeds,
        "record_params": True,
        "sampling": case.sampling,
        "fixed_point": np.zeros(algorithm.dimension(problem)),
        "output_decay": 0.9,
    }
    return fg.run(problem, algorithm, engine=engine, **(settings | case.changes | options))


def _resumed(case: Case, begins: str) -> fg.History:
    """The run of `cuda` from a break inside a round on, up to which another engine has come."""
    engine = fg.engines.Cuda(layout=case.layout)
    first = engine if begins == "cuda" else begins
    broken = _run(case, first, num_steps=case.num_steps // 2 + 1)
    return _run(case, engine, resume_from=broken)


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


def _checked(todo: list[Case], workers: int) -> Iterable[Agreement]:
    """Most of the time goes into compiling, so that processes help."""
    if workers == 1:
        yield from map(check, todo)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(check, todo)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Check that the cuda engine agrees with the others."
    )
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--only", choices=("plain", "methods"), help="some of the cases")
    asked, todo, found = parser.parse_args(), runnable_cases(), []
    if asked.only:
        todo = [case for case in todo if case.is_plain == (asked.only == "plain")]
    if not todo:
        sys.exit("There is no GPU here; set NUMBA_ENABLE_CUDASIM=1 for Numba's simulator.")
    for agreement in _checked(todo, asked.workers):
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
