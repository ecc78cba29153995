"""The bytes of some hundreds of histories, to show that a change of structure changed no number.

    python tests/capture.py before.json            # at the commit before
    python tests/capture.py --compare before.json  # after it

Every algorithm, engine, way of sampling, look-ahead and sync period; runs that are resumed, that
stop at their output and that diverge; a sweep's cells and a federation in this process. With
NUMBA_ENABLE_CUDASIM=1 the cases of the `cuda` engine instead.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import cases
import fegsam as fg
from fegsam.experiments.spec.study import EXAMPLE, parse_study
from fegsam.experiments.sweep.sweep import run_sweep
from fegsam.federation.protocol.experiment import Experiment
from helpers.in_memory import InMemory, serve, spread


def digest(history: Any) -> str:
    """Of the names, types, shapes and bytes of all variables."""
    total = hashlib.sha256()
    for name in sorted(map(str, history.data.variables)):
        values = np.ascontiguousarray(history.data[name].values)
        total.update(f"{name} {values.dtype} {values.shape}".encode())
        total.update(values.tobytes())
    return total.hexdigest()


def engines() -> dict[str, Any]:
    if "NUMBA_ENABLE_CUDASIM" in os.environ:
        return {"cuda": fg.engines.Cuda(), "cuda, float32": fg.engines.Cuda(precision="float32")}
    return {
        "reference": "reference",
        "cpu": fg.engines.Cpu(threads=1),
        "cpu, 2 threads": fg.engines.Cpu(threads=2),
    }


def simulated() -> Iterator[tuple[str, Any]]:
    short = "NUMBA_ENABLE_CUDASIM" in os.environ
    for engine_name, engine in engines().items():
        for name in cases.ALGORITHMS:
            for n in (1, 3) if name in cases.WITH_WINDOW else (1,):
                for sampling in ("markov", "iid"):
                    for period in (3,) if short else (1, 7, 50):
                        case = cases.case(name, n=n, num_agents=3 if short else 5, differ="both")
                        options = {"sampling": sampling, "engine": engine, "seeds": (0, 2**63)}
                        history = case.run(alpha=0.1, K=period, T=10 if short else 40, **options)
                        yield f"{engine_name}, {name}, n={n}, {sampling}, K={period}", history


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fg.DivergenceWarning)
            yield f"{name}, large steps", case.run(alpha=1e4, K=2, T=150, seeds=(5,), record=10)
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
        found = {name: digest(history) for name, history in simulated()}
        if "NUMBA_ENABLE_CUDASIM" not in os.environ:
            found |= {
                name: digest(history)
                for name, history in [*special(), *stored(pathlib.Path(folder))]
            }
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
