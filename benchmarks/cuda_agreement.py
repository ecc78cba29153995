"""Does the `cuda` engine do what `cpu` does?  python benchmarks/cuda_agreement.py [--small]

All algorithms, look-aheads, sync periods and layouts: the agents' paths must be the same, parameters within 1e-10 in float64,
and a second run the same bits. `--small` is for Numba's CUDA simulator (NUMBA_ENABLE_CUDASIM=1).
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


class Case(NamedTuple):
    algorithm: str
    horizon: int
    sync_period: int
    num_agents: int
    layout: str
    sampling: str = "markov"

    @property
    def num_steps(self) -> int:
        """Two rounds and some more, with an end that is no synchronisation."""
        return 2 * self.sync_period + self.sync_period // 2 + (self.sync_period > 1)


def _contraction(params: Any, y: Any, kind: Any, out: Any) -> None:
    for j in range(params.shape[0]):
        out[j] = 0.5 * params[(j + 1) % params.shape[0]] / (1.0 + kind) - params[j] + y


def _problem(case: Case) -> tuple[Any, Any]:
    rng = np.random.default_rng(4)
    if case.algorithm in ("linear SA", "own operator"):
        kernels = rng.dirichlet(np.ones(5), size=(_KINDS, 5))
        noise = fg.MarkovNoise(kernels, num_agents=case.num_agents)
        if case.algorithm == "own operator":
            return noise, fg.StochasticApproximation(_contraction, dim=3)
        matrices = 0.3 * rng.normal(size=(_KINDS, 5, 4, 4)) - 1.5 * np.eye(4)
        return noise, fg.LinearSA(matrices, rng.normal(size=(_KINDS, 5, 4)))
    mdp = fg.examples.garnet(_STATES, _ACTIONS, 4, discount=0.8, seed=2)
    fed = fg.Federation(
        mdp,
        fg.policies.random(_STATES, _ACTIONS, count=_KINDS, seed=3),
        num_agents=case.num_agents,
        target_policy=fg.policies.uniform(_STATES, _ACTIONS),
        features=rng.normal(size=(_STATES, 3)),
    )
    algorithms = {
        "on-policy TD": fg.OnPolicyTD(case.horizon),
        "off-policy tabular TD": fg.OffPolicyTabularTD(case.horizon),
        "Q-learning": fg.QLearning(),
        "off-policy linear TD": fg.OffPolicyLinearTD(case.horizon),
        "preconditioned TD": fg.OffPolicyLinearTD(case.horizon, preconditioned=True),
    }
    return fed, algorithms[case.algorithm]


def cases(small: bool) -> Iterator[Case]:
    horizons, periods, agents = ((1, 2), (1, 3), 5) if small else ((1, 2, 5), (1, 3, 10, 100), 40)
    tabular = ("shared", "overlay", "table")
    for algorithm in (
        "linear SA", "own operator", "on-policy TD", "off-policy tabular TD", "Q-learning", "off-policy linear TD",
        "preconditioned TD",
    ):  # fmt: skip
        single = algorithm in ("linear SA", "own operator", "Q-learning")
        layouts = tabular if algorithm in ("off-policy tabular TD", "Q-learning") else ("shared", "table")
        for horizon, period, layout in itertools.product((1,) if single else horizons, periods, layouts):
            yield Case(algorithm, horizon, period, agents, layout)
        for layout in layouts:
            # More agents than a block holds, and one that never averages.
            yield Case(algorithm, horizons[-1] if not single else 1, periods[1], 11 if small else 1000, layout)
            if layout != "overlay":
                yield Case(algorithm, horizons[-1] if not single else 1, periods[1], 1, layout)
        yield Case(algorithm, horizons[-1] if not single else 1, periods[1], agents, layouts[0], "iid")


def check(case: Case) -> tuple[Case, float, float, bool, bool]:
    """The largest difference of an average in float64 and in float32, whether paths agree, and whether bits repeat."""
    problem, algorithm = _problem(case)
    settings: dict[str, Any] = {
        "step_size": 0.1, "sync_period": case.sync_period, "num_steps": case.num_steps, "seeds": (0, 5, 9), "record": 1,
        "record_params": True, "sampling": case.sampling, "fixed_point": np.zeros(algorithm.dimension(problem)),
        "output_decay": 0.9,
    }  # fmt: skip
    there = fg.run(problem, algorithm, engine="cpu", **settings)
    here, again = (fg.run(problem, algorithm, engine=fg.engines.Cuda(layout=case.layout), **settings) for _ in range(2))
    single = fg.run(problem, algorithm, engine=fg.engines.Cuda("float32", case.layout), **settings)
    names = ("average_params", "final_params", "output_params", "squared_error", "sync_error")
    assert there.checkpoint is not None
    assert here.checkpoint is not None
    same_path = case.sampling == "iid" or bool((there.checkpoint.states == here.checkpoint.states).all())
    return (
        case,
        max(_difference(here.data[name].values, there.data[name].values) for name in names),
        _difference(single.data.average_params.values, there.data.average_params.values),
        same_path,
        all(np.array_equal(here.data[name].values, again.data[name].values) for name in names),
    )


def _difference(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max() / max(1.0, np.abs(other).max()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a slice, for Numba's CUDA simulator")
    parser.add_argument("--workers", type=int, default=1, help="processes, since most of the time goes into compiling")
    asked = parser.parse_args()
    todo = list(cases(asked.small))
    found: list[Any] = []
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as pool:
        for result in pool.map(check, todo) if asked.workers > 1 else map(check, todo):
            case, double, single, path, bits = result
            good = double <= TOLERANCE and path and bits
            found.append((good, double, single))
            print(
                f"{'ok ' if good else 'BAD'} {case.algorithm:22} n={case.horizon} K={case.sync_period:<3} "
                f"N={case.num_agents:<4} {case.layout:7} {case.sampling:6} float64 {double:.1e}  float32 {single:.1e}  "
                f"paths {'same' if path else 'DIFFER'}  twice {'same' if bits else 'DIFFER'}",
                flush=True,
            )
    bad = sum(not good for good, _, _ in found)
    print(
        f"{len(found) - bad} of {len(found)} agree; largest difference {max(double for _, double, _ in found):.1e} in float64, "
        f"{max(single for _, _, single in found):.1e} in float32"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
