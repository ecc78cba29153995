"""A run that the `cuda` engine and another one must agree on, and its problem."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

import fegsam as fg
from helpers.method_cases import AGENTS, EVERY_METHOD

STATES, ACTIONS, KINDS = 7, 3, 3
MANY_STATES = 5000
"""A table of which no block can hold a copy."""


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
    method: str = ""
    """a name in `EVERY_METHOD`; empty for plain averaging"""
    growing: bool = False
    """whether rounds grow up to `sync_period`, and step sizes shrink"""
    tail: str = ""
    """what a tail average is over; empty for none"""
    episodes: bool = False
    """whether transitions have discounts of their own"""

    def __str__(self) -> str:
        marks = ["growing" if self.growing else "", self.tail, "episodes" if self.episodes else ""]
        extra = [self.method, *marks]
        named = f"{self.layout} {self.sampling} {' '.join(filter(None, extra))}".rstrip()
        return f"{self.algorithm} n={self.horizon} K={self.sync_period} N={self.num_agents} {named}"

    @property
    def is_plain(self) -> bool:
        return not (self.method or self.growing or self.tail)

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

    @property
    def changes(self) -> dict[str, Any]:
        """The arguments of a run that differ from those of plain averaging."""
        found: dict[str, Any] = {}
        if self.method:
            found["method"] = _for_agents(EVERY_METHOD[self.method], self.num_agents)
        if self.growing:
            found["sync_period"] = fg.schedules.Growing(1, 1.6, self.sync_period)
            found["schedule"] = fg.schedules.Polynomial(0.75)
        if self.tail:
            found["tail"] = fg.Tail(0.6, self.tail)
        return found


def _for_agents(method: fg.Method, num_agents: int) -> fg.Method:
    """The same with a weight for each of so many agents, where it has one for each."""
    if len(getattr(method.average, "weights", None) or ()) != AGENTS:
        return method
    weights = np.arange(1.0, num_agents + 1)
    return dataclasses.replace(method, average=fg.Mean(weights / weights.sum()))


def problem_of(case: Case) -> tuple[Any, Any]:
    rng = np.random.default_rng(4)
    if case.algorithm == "own operator" or case.algorithm.endswith("linear SA"):
        return _noise_problem(case, rng)
    states = MANY_STATES if case.algorithm == "large Q-learning" else STATES
    mdp = fg.examples.garnet(states, ACTIONS, 4, discount=0.8, seed=2)
    if case.episodes:
        # By the state that is entered, and for a small table by the whole transition.
        shape = (states,) if states > STATES else (states, ACTIONS, states)
        discounts = 0.8 * np.random.default_rng(5).choice([0.0, 0.6, 1.0], shape)
        mdp = fg.MDP(mdp.transitions, mdp.rewards, discounts)
    problem = fg.Federation(
        mdp,
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
