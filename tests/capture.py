"""The bytes of some hundreds of histories, to show that a change of structure changed no number.

    python tests/capture.py before.json            # at the commit before
    python tests/capture.py --compare before.json  # after it

Every algorithm, engine, way of sampling, look-ahead and sync period; runs that are resumed, that
stop at their output and that diverge; a sweep's cells and a federation in this process. With
NUMBA_ENABLE_CUDASIM=1 the `cuda` engine instead, in all its layouts and at sizes for Numba's
simulator: about two minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

import cases
import fegsam as fg
from fegsam.experiments.spec.study import EXAMPLE, parse_study
from fegsam.experiments.sweep.sweep import run_sweep
from fegsam.federation.protocol.experiment import Experiment
from helpers.bursts import quietly
from helpers.in_memory import InMemory, serve, spread

SIMULATED_GPU = "NUMBA_ENABLE_CUDASIM" in os.environ
WITH_CELLS = ("alg3", "alg4")
"""Algorithms that write one cell a step: an overlay holds those cells."""


def digest(history: Any) -> str:
    """Of the names, types, shapes and bytes of all variables."""
    total = hashlib.sha256()
    for name in sorted(map(str, history.data.variables)):
        values = np.ascontiguousarray(history.data[name].values)
        total.update(f"{name} {values.dtype} {values.shape}".encode())
        total.update(values.tobytes())
    return total.hexdigest()


def engines(name: str) -> dict[str, Any]:
    """The engines that run algorithm `name`."""
    if SIMULATED_GPU:
        overlay = ("overlay",) if name in WITH_CELLS else ()
        layouts = {
            f"cuda, {layout}": fg.engines.Cuda(layout=layout)
            for layout in ("shared", *overlay, "table")
        }
        default = {"cuda": fg.engines.Cuda(), "cuda, float32": fg.engines.Cuda(precision="float32")}
        return default | layouts
    return {
        "reference": "reference",
        "cpu": fg.engines.Cpu(threads=1),
        "cpu, 2 threads": fg.engines.Cpu(threads=2),
    }


def simulated() -> Iterator[tuple[str, Any]]:
    num_agents, num_steps, periods = (3, 10, (3,)) if SIMULATED_GPU else (5, 40, (1, 7, 50))
    for name in cases.ALGORITHMS:
        horizons = (1, 3) if name in cases.WITH_WINDOW else (1,)
        for n, sampling, period in itertools.product(horizons, ("markov", "iid"), periods):
            case = cases.case(name, n=n, num_agents=num_agents, differ="both")
            for engine_name, engine in engines(name).items():
                options = {"sampling": sampling, "engine": engine, "seeds": (0, 2**63)}
                history = case.run(alpha=0.1, K=period, T=num_steps, **options)
                yield f"{engine_name}, {name}, n={n}, {sampling}, K={period}", history


def special_on_gpu() -> Iterator[tuple[str, Any]]:
    """One agent, several agents to a thread, a resumed run, a stopped and a diverged one."""
    for name in ("alg1-linear", "alg2", "alg4"):
        alone, many = (cases.case(name, num_agents=n) for n in (1, 11))
        settings: dict[str, Any] = {"engine": fg.engines.Cuda(), "alpha": 0.1, "K": 3}
        yield f"cuda, {name}, one agent", alone.run(**settings, T=7)
        first = many.run(**settings, T=7)
        yield f"cuda, {name}, 11 agents", first
        yield f"cuda, {name}, resumed", many.run(**settings, T=11, resume_from=first)
        yield f"cuda, {name}, stopped at its output", many.run(**settings, T=7, stop_at_output=True)
        settings |= {"alpha": 1e40, "T": 12}
        yield f"cuda, {name}, large steps", quietly(partial(many.run, **settings))


def special() -> Iterator[tuple[str, Any]]:
    for name in cases.ALGORITHMS:
        case = cases.case(name, num_agents=70, differ="policies")
        first = case.run(alpha=0.05, K=4, T=30, seeds=(1, 2), record=7)
        yield f"{name}, 70 agents", first
        more = {"record": 7, "resume_from": first}
        yield f"{name}, resumed", case.run(alpha=0.05, K=4, T=61, seeds=(1, 2), **more)
        yield (
            f"{name}, stopped at its output",
            case.run(alpha=0.05, K=4, T=30, seeds=(3, 4), stop_at_output=True),
        )
        settings = {"alpha": 1e4, "K": 2, "T": 150, "seeds": (5,), "record": 10}
        yield f"{name}, large steps", quietly(partial(case.run, **settings))
    table = cases.case("alg4", num_agents=9, world=cases.large())
    yield "a large table", table.run(alpha=0.2, K=5, T=60, seeds=(0,), record=20)


def stored(folder: pathlib.Path) -> Iterator[tuple[str, Any]]:
    results = run_sweep(parse_study(EXAMPLE, "example.toml"), folder / "sweep", progress=False)
    for place, cell in enumerate(results.cells):
        yield f"cell {place}", results.history(cell)
    for name in cases.ALGORITHMS:
        case = cases.case(name, n=2, num_agents=4, differ="both")
        settings = {
            "step_size": 0.1,
            "sync_period": 7,
            "num_steps": 45,
            "seed": 5,
            "initial_params": case.start,
        }
        experiment = Experiment(case.problem, case.algorithm, record_params=True, **settings)
        home = folder / name
        nodes = spread(experiment, home, [(0, 3), (1, 2)])
        yield f"deployed {name}", serve(experiment, InMemory(nodes), home)[0].history


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "file", help="where the digests are written, or what they are compared with"
    )
    parser.add_argument("--compare", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        more = special_on_gpu() if SIMULATED_GPU else [*special(), *stored(pathlib.Path(folder))]
        found = {name: digest(history) for name, history in [*simulated(), *more]}
    path = pathlib.Path(arguments.file)
    if not arguments.compare:
        path.write_text(json.dumps(found, indent=1))
        print(f"{len(found)} histories")
        return 0
    before = json.loads(path.read_text())
    differ = [name for name in before | found if before.get(name) != found.get(name)]
    print(f"{len(before)} histories, {len(differ)} differ", *differ, sep="\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
