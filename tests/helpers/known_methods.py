"""Two problems on which the expectations of methods are known: every path of the golden problem at
once, and two agents on a line with additive noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

import fegsam as fg
import pseudocode_methods as oracle
from helpers import golden
from helpers.increments import Field

T = 4
EQUAL = np.full(2, 0.5)

# Over every joint path of the golden problem with agents B1 and B2, Algorithm 5 with n = 1, step
# size 1/2, sync period 2 and zero start: E avg_4 and E avg_4^2.
GOLDEN = {
    "plain": (golden.ALG5_N1_MEAN[-1], golden.ALG5_N1_SQUARE[-1]),
    "variates of the last round": (0.456107289268, 0.293495558420),
    "variates of the first step": (0.465337945505, 0.302567366425),
    "server step 1/2": (0.253920918731, 0.090797906893),
    "momentum 1/2": (0.620182061306, 0.536852222757),
    "step sizes 1/(2+t)": (0.368827398086, 0.190376312993),
    "periods 1, 3": (0.456711901352, 0.294938201421),
}


def golden_arguments(name: str) -> dict[str, Any]:
    """The arguments of `fegsam.run` that ask for a row of GOLDEN."""
    plain: dict[str, Any] = {"step_size": 0.5, "sync_period": 2}
    method = {
        "variates of the last round": fg.methods.scafflsa(),
        "variates of the first step": fg.methods.fedhsa(),
        "server step 1/2": fg.Method(server=fg.Server(step=0.5)),
        "momentum 1/2": fg.methods.fedavgm(0.5),
    }
    if name in method:
        return plain | {"method": method[name]}
    if name == "step sizes 1/(2+t)":
        return plain | {"step_size": 1.0, "schedule": fg.schedules.Polynomial(1, offset=2)}
    return plain | ({"sync_period": (1, 3)} if name == "periods 1, 3" else {})


def golden_rules(name: str, d: int) -> oracle.Rules:
    """The oracle's rules for a row of GOLDEN, in the form of the paper that proposes the method."""
    made = oracle.Rules(oracle.mean(EQUAL), EQUAL)
    if name == "variates of the last round":
        made.variates = oracle.Scafflsa(EQUAL, d)
    if name == "variates of the first step":
        made.variates = oracle.Fedhsa(EQUAL)
    if name == "server step 1/2":
        made.server = (0.5, 0.0, False)
    if name == "momentum 1/2":
        made.server = (1.0, 0.5, False)
    return made


def golden_time(name: str) -> dict[str, list[Any]]:
    """Its rounds and its step sizes."""
    return {
        "periods": [1, 3] if name == "periods 1, 3" else [2],
        "alphas": [1 / (2 + t) for t in range(T)] if "1/(2+t)" in name else [0.5] * T,
    }


def golden_trace(name: str, field: Field, d: int, rules: oracle.Rules | None = None):
    """The oracle's run of a row of GOLDEN from zero on any field of d cells."""
    return oracle.federate(field, np.zeros(d), rules or golden_rules(name, d), **golden_time(name))


def every_path() -> tuple[Field, np.ndarray]:
    """The golden problem on all joint paths at once, and their probabilities.

    The problem has one parameter, and the methods here treat cells alike; so cell j of this field
    is the parameter on the j-th joint path.
    """
    paths = [list(_paths(policy)) for policy in (golden.B1, golden.B2)]
    one, other = (np.array([p for *_, p in of_agent]) for of_agent in paths)
    probabilities = np.outer(one, other).ravel()
    phi, tables = golden.FEATURES[:, 0], []
    for i, of_agent in enumerate(paths):
        S = np.array([states for states, *_ in of_agent])
        A = np.array([actions for _, actions, _ in of_agent])
        here, there, behavior = S[:, :-1], S[:, 1:], (golden.B1, golden.B2)[i]
        ratio = golden.TARGET[here, A] / behavior[here, A]
        slope = ratio * phi[here] * (golden.DISCOUNT * phi[there] - phi[here])
        offset = ratio * phi[here] * golden.REWARDS[here, A]
        spread = [np.repeat, lambda rows, count, axis: np.tile(rows, (count, 1))][i]
        tables.append([spread(rows, len(paths[1 - i]), axis=0) for rows in (slope, offset)])

    def F(i: int, k: int, theta: np.ndarray) -> np.ndarray:
        slope, offset = tables[i]
        return slope[:, k] * theta + offset[:, k]

    return Field(F), probabilities


def _paths(policy: np.ndarray):
    """Every path of T transitions from state 0: its states, its actions, its probability."""
    for draws in product(range(2), repeat=2 * T):
        actions, states = draws[::2], (0, *draws[1::2])
        steps = zip(states[:-1], actions, states[1:], strict=True)
        yield states, actions, prod(policy[s, a] * golden.TRANSITIONS[s, a, u] for s, a, u in steps)


# --- Two agents on a line -------------------------------------------------------------------------

SLOPES, POINTS, NOISE, ROOT = (1.0, 0.25), (1.0, 0.0), (1.0, 0.5), 0.8
"""F_i = slope_i (point_i - theta) +- noise_i by a fair coin; the means sum to zero at ROOT"""


def line(coins: Sequence[Callable[[int], float]]) -> Field:
    """Agent i's noise at its k-th step is noise_i times coins[i](k)."""

    def F(i: int, k: int, theta: np.ndarray) -> np.ndarray:
        return SLOPES[i] * (POINTS[i] - theta) + NOISE[i] * coins[i](k)

    return Field(F)


def line_means(rules: oracle.Rules, alpha: float, K: int, rounds: int = 80) -> np.ndarray:
    """(rounds + 1,): the mean at every synchronisation, which is the run without noise."""
    calm = line([lambda k: 0.0] * 2)
    trace = oracle.federate(calm, np.zeros(1), rules, periods=[K], alphas=[alpha] * (K * rounds))
    return trace.average[::K, 0]


def line_rate(means: np.ndarray) -> float:
    """The slower of the two factors by which a round shrinks the distance from the limit."""
    e = np.diff(means[:5])
    factors = np.linalg.solve([[e[1], e[0]], [e[2], e[1]]], [e[2], e[3]])
    return float(np.abs(np.roots([1.0, *-factors])).max())


def line_variance(
    make_rules: Callable[[], oracle.Rules], alpha: float, K: int, rounds: int = 60
) -> float:
    """The stationary variance: the squared responses at all later synchronisations to one coin,
    summed over the coins of a round."""
    alphas = [alpha] * (K * rounds)

    def path(size: float, agent: int, step: int) -> np.ndarray:
        """The synchronised averages where one coin has the given size and no other is thrown."""
        coins = [lambda k, i=i: size * (i == agent and k == step) for i in range(2)]
        return oracle.federate(
            line(coins), np.zeros(1), make_rules(), periods=[K], alphas=alphas
        ).average[::K, 0]

    calm = path(0.0, 0, 0)
    responses = [path(1.0, agent, step) - calm for agent in range(2) for step in range(K)]
    return float(np.square(responses).sum())


def line_problem() -> tuple[Any, Any]:
    """The same as a problem and an algorithm of the library: the noise's state is the coin."""
    fair = np.full((2, 2, 2), 0.5)
    noise = fg.MarkovNoise(fair, num_agents=2, assignment=[0, 1])
    matrices = [[[[-slope]]] * 2 for slope in SLOPES]
    offsets = [
        [[slope * point + sign * size] for sign in (1, -1)]
        for slope, point, size in zip(SLOPES, POINTS, NOISE, strict=True)
    ]
    return noise, fg.LinearSA(np.array(matrices), np.array(offsets))
