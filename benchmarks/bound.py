"""Ratio of the theorem's bound to the exact error on random problems, before and after sharpening.

    python benchmarks/bound.py [--problems 50] [--quick]

The script draws `--problems` problems of each of four families: `LinearSA`, on-policy TD,
off-policy tabular TD and off-policy linear TD, with one to 10^6 agents of one or two kinds, two or
three states and one or two parameters. T is 10^18, and `exact.weighted_error` gives the exact error
of the output. The first five columns are ratios at the largest step size that the plain theorem
admits:

    lemma          K = 1: the plain theorem with the paper's lemma on the average noise,
                   B^2/N + B m_4 rho^r
    sharper lemma  K = 1: the same with B^2/N + (m_4 rho^r)^2, as in `error_bound`
    theorem        K = 1: `sharper_error_bound`
    plain, K=20    K = 20: `error_bound`
    theorem, K=20  K = 20: `sharper_error_bound`

`step gained` is the factor by which the sharper theorem admits a larger step size at K = 1, and
`larger step` is the ratio of `sharper_error_bound` at a tenth of its largest step size. For the
tabular algorithm the bound is on the squared sup norm and the exact error is in the squared 2-norm,
which is at most |S| times as large.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np

import fegsam as fg
from fegsam.theory.assumptions.assumptions import Assumptions, assumptions
from fegsam.theory.bound.bound import bound_from
from fegsam.theory.bound.conditions import largest_alpha
from fegsam.theory.bound.constants import Constants
from fegsam.theory.bound.sharper import largest_sharper_step, sharper_from

FAMILIES = ("linear-sa", "on-policy", "tabular", "linear")
AGENTS = (1, 2, 3, 10, 1000, 10**6)
STEPS = 10**18


def draw(family: str, rng: np.random.Generator) -> tuple[Any, Any, Assumptions]:
    """Draw problems until the theorem applies to one."""
    while True:
        kinds, states, dim = (int(rng.integers(*limits)) for limits in ((1, 3), (2, 4), (1, 3)))
        agents = int(rng.choice([n for n in AGENTS if n >= kinds]))
        if family == "linear-sa":
            matrices = rng.uniform(-0.6, 0.6, (kinds, states, dim, dim)) - rng.uniform(
                0.7, 1.5
            ) * np.eye(dim)
            problem: Any = fg.MarkovNoise(
                rng.dirichlet(np.ones(states), (kinds, states)), num_agents=agents
            )
            algorithm: Any = fg.LinearSA(
                matrices, 10 ** rng.uniform(-1, 1) * rng.normal(size=(kinds, states, dim))
            )
        else:
            mdp = fg.MDP(
                rng.dirichlet(np.ones(states), (states, 2)),
                rng.normal(size=(states, 2)),
                rng.uniform(0.3, 0.9),
            )
            problem = fg.Federation(
                mdp,
                0.2 + 0.6 * rng.dirichlet(np.ones(2), (kinds, states)),
                num_agents=agents,
                target_policy=0.1 + 0.8 * rng.dirichlet(np.ones(2), states),
                features=rng.normal(size=(states, dim)),
            )
            kind = {
                "on-policy": fg.OnPolicyTD,
                "tabular": fg.OffPolicyTabularTD,
                "linear": fg.OffPolicyLinearTD,
            }[family]
            algorithm = kind(1 if rng.uniform() < 0.75 else 2)
        given = assumptions(problem, algorithm)
        if given.holds:
            return problem, algorithm, given


def papers_last_term(c: Constants) -> float:
    """The fifth term with the paper's lemma."""
    r2, rest = (c.u_cD / c.l_cD) ** 2, c.B * c.m_4
    C_10, C_13 = (
        8 * math.sqrt(r2 * rest) / (1 - math.sqrt(c.rho)),
        8 * c.C_4 * r2 * rest / (1 - c.rho),
    )
    inner = c.C_7 + c.C_11 + (c.C_3 * c.C_9) ** 2 / 2 + c.C_3 * C_10 + 3 * c.A_1 * c.C_3 + C_13
    return (
        8 * c.u_cm**2 / c.phi_2 * (inner + c.C_8 * r2 * rest * c.alpha**2) * c.alpha**3 * c.tau**2
    )


def ratios(family: str, seed: int) -> list[float]:
    """One row of the table: bound / exact for each column, and the gain in step size."""
    problem, algorithm, given = draw(family, np.random.default_rng([seed, FAMILIES.index(family)]))
    to_2_norm = 1.0 if given.weight is None else 1 / float(np.linalg.eigvalsh(given.weight)[0])
    plain = largest_alpha(given, 1) / given.beta
    local = largest_alpha(given, 20 if given.num_agents > 1 else 1) / given.beta
    largest = largest_sharper_step(problem, algorithm)
    found = []
    for step, period in ((plain, 1), (local, 20), (largest / 10, 1)):
        settings: dict[str, Any] = {"step_size": step, "sync_period": period, "num_steps": STEPS}
        decay = fg.theory.default_output_decay(problem, algorithm, step, STEPS)
        exact = (
            float(fg.exact.weighted_error(problem, algorithm, decay=decay, order=1, **settings))
            / to_2_norm
        )
        bound = bound_from(given, **settings)
        if len(found) == 0:
            found.append(
                (bound.total - bound.terms["higher_order"] + papers_last_term(bound.constants))
                / exact
            )
        if len(found) < 5:
            found.append(bound.total / exact)
        found.append(sharper_from(given, decay=decay, **settings).total / exact)
    return [*found, largest / plain]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=50, help="of each family")
    parser.add_argument("--quick", action="store_true", help="five of each")
    asked = parser.parse_args()
    count = 5 if asked.quick else asked.problems
    heads = [
        "lemma",
        "sharper lemma",
        "theorem",
        "plain, K=20",
        "theorem, K=20",
        "larger step",
        "step gained",
    ]
    print(f"{'bound / exact':<20}" + "".join(f"{head:>15}" for head in heads))
    everything = []
    began = time.process_time()
    for family in FAMILIES:
        table = np.array([ratios(family, seed) for seed in range(count)])
        everything.append(table)
        show(family, table)
    show("all", np.concatenate(everything))
    table = np.concatenate(everything)
    print(f"sharper lemma: at most {(table[:, 0] / table[:, 1]).max():.3g} times smaller")
    print(f"bounds below the exact error: {(table[:, :6] < 1).sum()}")
    print(f"{len(table)} problems, {time.process_time() - began:.0f} s")


def show(name: str, table: np.ndarray) -> None:
    for label, value in (
        ("min", table.min(axis=0)),
        ("median", np.median(table, axis=0)),
        ("max", table.max(axis=0)),
    ):
        print(f"{name:<12} {label:<7}" + "".join(f"{number:15.3g}" for number in value), flush=True)


if __name__ == "__main__":
    main()
