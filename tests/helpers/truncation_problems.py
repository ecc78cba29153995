"""Random problems with slow chains, for the tests of what a truncated hierarchy says about
itself."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import fegsam as fg

PATIENCE = (0.004, 0.02, 0.1)
"""Seconds that a further order may take: from none at all to several orders of these small
problems."""


class Slow(NamedTuple):
    problem: Any
    algorithm: Any
    settings: dict[str, Any]
    num_steps: int


def draw(seed: int) -> Slow:
    """Chains that stay where they are with probability 0.8 to 0.99, of 2 to 4 states; the error
    converges at orders 1 and 2."""
    rng = np.random.default_rng([16, seed])
    while True:
        problem, algorithm = _learner(rng, float(rng.choice([0.8, 0.9, 0.95, 0.99])))
        settings = {
            "step_size": float(rng.choice([0.05, 0.1, 0.3])),
            "sync_period": int(rng.choice([1, 1, 3])),
        }
        try:
            for order in (1, 2):
                fg.exact.stationary_error(problem, algorithm, order=order, **settings)
        except fg.ProblemError:
            continue
        return Slow(
            problem, algorithm, settings, settings["sync_period"] * int(rng.choice([20, 200]))
        )


def _learner(rng: np.random.Generator, laziness: float) -> tuple[Any, Any]:
    name, states = rng.choice(["noise", "on", "tabular", "linear"]), int(rng.integers(2, 5))
    agents = int(rng.choice([3, 5, 10, 40]))
    if name == "noise":
        kernel = laziness * np.eye(states) + (1 - laziness) * rng.dirichlet(np.ones(states), states)
        matrices = rng.normal(scale=0.5, size=(1, states, 2, 2)) - 0.8 * np.eye(2)
        return fg.MarkovNoise(kernel, num_agents=agents), fg.LinearSA(
            matrices, rng.normal(size=(1, states, 2))
        )
    table = laziness * np.eye(states)[:, None] + (1 - laziness) * rng.dirichlet(
        np.ones(states), (states, 2)
    )
    behavior = 0.1 + 0.8 * rng.dirichlet(np.ones(2), (int(rng.integers(1, 3)), states))
    tables = {
        "target_policy": rng.dirichlet(np.ones(2), states),
        "features": rng.normal(size=(states, 2)),
    }
    federation = fg.Federation(
        fg.MDP(table, rng.normal(size=(states, 2)), 0.9), behavior, num_agents=agents, **tables
    )
    return federation, {
        "on": fg.OnPolicyTD(),
        "tabular": fg.OffPolicyTabularTD(),
        "linear": fg.OffPolicyLinearTD(),
    }[name]


class Claim(NamedTuple):
    claimed: float
    true: float
    """the difference to the order after the one that was used"""
    where: str

    @property
    def holds(self) -> bool:
        """The claim is at least half of the true difference, or that one is rounding."""
        return self.claimed >= self.true / 2 or self.true <= 1e-11


@cache
def claims(seed: int) -> tuple[list[Claim], int]:
    """What the three exact functions claim about one problem, and how often they claim nothing, and
    say why."""
    slow = draw(seed)
    made, silent = [], 0
    for name in ("stationary_error", "moments", "weighted_error"):
        for patience in PATIENCE:
            try:
                found = _asked(slow, name, patience=patience)
            except fg.ProblemError:
                silent += 1
                continue
            if math.isnan(found.truncation):
                assert "order" in found.note
                silent += 1
                continue
            true = _difference(slow, name, found) if found.order < slow.problem.num_agents else 0.0
            made.append(Claim(found.truncation, true, f"seed {seed}, {name}, order {found.order}"))
    return made, silent


def _difference(slow: Slow, name: str, found: Any) -> float:
    """The largest relative difference to the next order; infinite where that one has no limit."""
    try:
        finer = _values(_asked(slow, name, order=found.order + 1))
    except fg.ProblemError:
        return math.inf
    return float(np.max(np.abs(_values(found) - finer) / finer))


def _asked(slow: Slow, name: str, **options: Any) -> Any:
    T = slow.num_steps
    more = {
        "stationary_error": {},
        "moments": {"times": [T // 4, T // 2, T]},
        "weighted_error": {"num_steps": T, "decay": 0.99},
    }[name]
    return getattr(fg.exact, name)(slow.problem, slow.algorithm, **slow.settings, **more, **options)


def _values(found: Any) -> np.ndarray:
    return found.mse if isinstance(found, fg.exact.Moments) else np.array([float(found)])
