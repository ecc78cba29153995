"""Random problems on which the theorem on FeGSAM applies.

They have two or three states and one or two parameters (Algorithm 3: one for each state).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import fegsam as fg
from fegsam.theory.assumptions.assumptions import Assumptions, assumptions

AGENTS = (1, 2, 3, 10, 1000, 10**6)
FAMILIES = ("linear-sa", "on-policy", "tabular", "linear")


class Instance(NamedTuple):
    """A problem on which the theorem applies, and what it starts from."""

    problem: Any
    algorithm: Any
    given: Assumptions


def draw(family: str, rng: np.random.Generator, num_agents: int | None = None) -> Instance:
    """Draws until the theorem applies; the agents are of one kind or two."""
    while True:
        kinds = int(rng.integers(1, 3))
        agents = num_agents or int(rng.choice([n for n in AGENTS if n >= kinds]))
        problem, algorithm = (draw_noise if family == "linear-sa" else draw_federation)(
            family, rng, kinds, agents
        )
        given = assumptions(problem, algorithm)
        if given.holds:
            return Instance(problem, algorithm, given)


def draw_noise(_: str, rng: np.random.Generator, kinds: int, agents: int) -> tuple[Any, Any]:
    states, dim = rng.integers(2, 4), rng.integers(1, 3)
    kernels = rng.dirichlet(np.ones(states), (kinds, states))
    matrices = rng.uniform(-0.6, 0.6, (kinds, states, dim, dim)) - rng.uniform(0.7, 1.5) * np.eye(
        dim
    )
    return (
        fg.MarkovNoise(kernels, num_agents=agents),
        fg.LinearSA(matrices, 10 ** rng.uniform(-1, 1) * rng.normal(size=(kinds, states, dim))),
    )


def draw_federation(
    family: str, rng: np.random.Generator, kinds: int, agents: int
) -> tuple[Any, Any]:
    states, dim, n = (
        int(rng.integers(2, 4)),
        int(rng.integers(1, 3)),
        1 if rng.uniform() < 0.75 else 2,
    )
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
    algorithms = {
        "on-policy": fg.OnPolicyTD(n),
        "tabular": fg.OffPolicyTabularTD(n),
        "linear": fg.OffPolicyLinearTD(n),
    }
    return problem, algorithms[family]
