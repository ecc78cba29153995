"""How many times the exact error the theorem's bound is, before and after its constants were sharpened, on random problems.

    python benchmarks/bound.py [--problems 50] [--quick]

`--problems` of each of four families are drawn: `LinearSA`, on-policy TD, off-policy tabular TD and off-policy linear TD, with
one to 10^6 agents of one kind or two, two or three states and one or two parameters. At K = 1, at the largest step that the plain
theorem admits and T = 10^18, the exact error of the output is that of `exact.weighted_error`. The columns:

    lemma     the plain theorem with the paper's lemma on the average noise, B^2/N + B m_4 rho^r
    sharper   the same with B^2/N + (m_4 rho^r)^2, what `error_bound` gives
    K = 1     `sharper_error_bound`

and, at a tenth of the largest step that the latter admits, its ratio there, and how many times larger that step is.
For the tabular algorithm the bound is on the sup norm and the exact error that in the 2-norm, at most |S| times as large.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np

import fegsam as fg
from fegsam.theory.assumptions import Assumptions, assumptions
from fegsam.theory.bound import bound_from
from fegsam.theory.conditions import largest_alpha
from fegsam.theory.constants import Constants
from fegsam.theory.sharper import largest_sharper_step, sharper_from

FAMILIES = ("linear-sa", "on-policy", "tabular", "linear")
AGENTS = (1, 2, 3, 10, 1000, 10**6)
STEPS = 10**18


def draw(family: str, rng: np.random.Generator) -> tuple[Any, Any, Assumptions]:
    """Draws until the theorem applies."""
    while True:
        kinds, states, dim = (int(rng.integers(*limits)) for limits in ((1, 3), (2, 4), (1, 3)))
        agents = int(rng.choice([n for n in AGENTS if n >= kinds]))
        if family == "linear-sa":
            matrices = rng.uniform(-0.6, 0.6, (kinds, states, dim, dim)) - rng.uniform(0.7, 1.5) * np.eye(dim)
            problem: Any = fg.MarkovNoise(rng.dirichlet(np.ones(states), (kinds, states)), num_agents=agents)
            algorithm: Any = fg.LinearSA(matrices, 10 ** rng.uniform(-1, 1) * rng.normal(size=(kinds, states, dim)))
        else:
            mdp = fg.MDP(rng.dirichlet(np.ones(states), (states, 2)), rng.normal(size=(states, 2)), rng.uniform(0.3, 0.9))
            problem = fg.Federation(
                mdp,
                0.2 + 0.6 * rng.dirichlet(np.ones(2), (kinds, states)),
                num_agents=agents,
                target_policy=0.1 + 0.8 * rng.dirichlet(np.ones(2), states),
                features=rng.normal(size=(states, dim)),
            )
            kind = {"on-policy": fg.OnPolicyTD, "tabular": fg.OffPolicyTabularTD, "linear": fg.OffPolicyLinearTD}[family]
            algorithm = kind(1 if rng.uniform() < 0.75 else 2)
        given = assumptions(problem, algorithm)
        if given.holds:
            return problem, algorithm, given


def papers_last_term(c: Constants) -> float:
    """The fifth term from the paper's lemma."""
    r2, rest = (c.u_cD / c.l_cD) ** 2, c.B * c.m_4
    C_10, C_13 = 8 * math.sqrt(r2 * rest) / (1 - math.sqrt(c.rho)), 8 * c.C_4 * r2 * rest / (1 - c.rho)
    inner = c.C_7 + c.C_11 + (c.C_3 * c.C_9) ** 2 / 2 + c.C_3 * C_10 + 3 * c.A_1 * c.C_3 + C_13
    return 8 * c.u_cm**2 / c.phi_2 * (inner + c.C_8 * r2 * rest * c.alpha**2) * c.alpha**3 * c.tau**2


def ratios(family: str, seed: int) -> list[float]:
    """The three ratios at the plain theorem's step, the last one at the sharper one's, and how much larger that is."""
    problem, algorithm, given = draw(family, np.random.default_rng([seed, FAMILIES.index(family)]))
    to_2_norm = 1.0 if given.weight is None else 1 / float(np.linalg.eigvalsh(given.weight)[0])
    plain = largest_alpha(given, 1) / given.beta
    largest = largest_sharper_step(problem, algorithm)
    found = []
    for step in (plain, largest / 10):
        settings: dict[str, Any] = {"step_size": step, "num_steps": STEPS}
        decay = fg.theory.default_output_decay(problem, algorithm, step, STEPS)
        exact = float(fg.exact.weighted_error(problem, algorithm, sync_period=1, decay=decay, order=1, **settings))
        if step == plain:
            bound = bound_from(given, sync_period=1, **settings)
            before = bound.total - bound.terms["higher_order"] + papers_last_term(bound.constants)
            found += [before / exact * to_2_norm, bound.total / exact * to_2_norm]
        found.append(sharper_from(given, decay=decay, **settings).total / exact * to_2_norm)
    return [*found, largest / plain]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=50, help="of each family")
    parser.add_argument("--quick", action="store_true", help="five of each")
    asked = parser.parse_args()
    count = 5 if asked.quick else asked.problems
    heads = ["lemma", "sharper", "K = 1", "K = 1, larger step", "step gained"]
    print(f"{'bound / exact':<12} {'':<7}" + "".join(f"{head:>20}" for head in heads))
    everything = []
    began = time.process_time()
    for family in FAMILIES:
        table = np.array([ratios(family, seed) for seed in range(count)])
        everything.append(table)
        show(family, table)
    show("all", np.concatenate(everything))
    table = np.concatenate(everything)
    print(f"sharper lemma: at most {(table[:, 0] / table[:, 1]).max():.3g} times smaller")
    print(f"bounds below the exact error: {(table[:, :4] < 1).sum()}")
    print(f"{len(table)} problems, {time.process_time() - began:.0f} s")


def show(name: str, table: np.ndarray) -> None:
    for label, value in (("min", table.min(axis=0)), ("median", np.median(table, axis=0)), ("max", table.max(axis=0))):
        print(f"{name:<12} {label:<7}" + "".join(f"{number:20.3g}" for number in value), flush=True)


if __name__ == "__main__":
    main()
