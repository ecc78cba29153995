"""Every algorithm on a small problem with all that can differ between agents, each next to its
oracle."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import fegsam as fg
import pseudocode
from helpers import increments

KINDS, ACTIONS, FEATURES, DISCOUNT = 3, 3, 5, 0.8
NOISE_STATES, NOISE_DIM = 4, 3
TDC_RATIO = 1.75
ALGORITHMS = (
    "alg1-linear",
    "alg1-general",
    "alg2",
    "alg3",
    "alg4",
    "alg5",
    "alg5-preconditioned",
    "tdc",
)
WITH_WINDOW = ("alg2", "alg3", "alg5", "alg5-preconditioned")


@dataclass(frozen=True)
class Case:
    problem: Any
    algorithm: Any
    window: int
    """n; 0 for Algorithm 1, which sees one state"""
    start: np.ndarray
    oracle: Callable[..., pseudocode.Trace]
    """Called with the agents' states and actions and alpha, K, T, start, kinds."""
    field: Callable[..., increments.Field] | None = None
    """Called with the agents' states and actions and kinds: the increments, for methods"""

    def paths(
        self, seed: int, T: int, sampling: str = "markov"
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """What each agent sees, replayed."""
        options = {} if sampling == "markov" else {"sampling": sampling}
        drawn = [
            fg.sample_path(self.problem, self.algorithm, seed=seed, agent=i, num_steps=T, **options)
            for i in range(self.problem.num_agents)
        ]
        return [path.states for path in drawn], [path.actions for path in drawn]

    def trace(
        self, seed: int, *, alpha: float, K: int, T: int, sampling: str = "markov"
    ) -> pseudocode.Trace:
        """The oracle's run on the paths of `seed`."""
        kinds = self.problem.assignment
        return self.oracle(
            *self.paths(seed, T, sampling), alpha=alpha, K=K, T=T, start=self.start, kinds=kinds
        )

    def run(
        self, *, alpha: float, K: Any, T: int, seeds: Sequence[int] = (0,), **options: Any
    ) -> Any:
        """The library's run, by default with every time recorded."""
        settings = {"record": 1, "record_params": True, "initial_params": self.start} | options
        return fg.run(
            self.problem,
            self.algorithm,
            step_size=alpha,
            sync_period=K,
            num_steps=T,
            seeds=seeds,
            **settings,
        )


def assignment(num_agents: int) -> np.ndarray:
    """Kinds in no regular order and in unequal numbers."""
    i = np.arange(num_agents)
    return (i * i + i // 2) % KINDS


def rows(rng: np.random.Generator, *shape: int, zeros: float = 0.0) -> np.ndarray:
    """Random laws along the last axis; a share `zeros` of the outcomes, never the first two, is
    impossible."""
    weights = 0.2 + rng.random(shape)
    impossible = rng.random(shape) < zeros
    impossible[..., :2] = False
    weights[impossible] = 0.0
    return weights / weights.sum(axis=-1, keepdims=True)


_rng = np.random.default_rng(20240607)
KERNELS = rows(_rng, KINDS, NOISE_STATES, NOISE_STATES, zeros=0.3)
KERNELS = 0.9 * KERNELS + 0.1 * np.roll(
    np.eye(NOISE_STATES), 1, axis=1
)  # each state can go to the next
MATRICES = _rng.uniform(-0.5, 0.5, (KINDS, NOISE_STATES, NOISE_DIM, NOISE_DIM)) - 1.5 * np.eye(
    NOISE_DIM
)
OFFSETS = _rng.uniform(-1, 1, (KINDS, NOISE_STATES, NOISE_DIM))


class World:
    """The arrays of a problem: one environment and one behaviour policy per kind; some steps and
    starts impossible. With `episodes` every transition has its own discount, often 0."""

    def __init__(self, states: int, zeros: float, episodes: bool = False) -> None:
        rng = np.random.default_rng(states)
        self.states = states
        self.transitions = rows(rng, KINDS, states, ACTIONS, states, zeros=zeros)
        self.rewards = rng.uniform(-1, 1, (KINDS, states, ACTIONS))
        self.behavior = rows(rng, KINDS, states, ACTIONS)
        self.target = rows(rng, states, ACTIONS)
        self.features = rng.uniform(-1, 1, (states, FEATURES))
        self.first = rows(rng, states, zeros=0.5)
        shape = self.transitions.shape
        self.gamma = DISCOUNT * rng.choice([0.0, 0.7, 1.0], shape) if episodes else DISCOUNT

    def discount(self, kind: int) -> Any:
        """The discount of a kind's MDP, or those of its transitions."""
        return self.gamma if isinstance(self.gamma, float) else self.gamma[kind]

    def federation(self, num_agents: int, differ: str) -> Any:
        """Agents that differ in their "policies", in their "mdps", or in "both"."""
        kinds = range(1 if differ == "policies" else KINDS)
        mdps = [fg.MDP(self.transitions[k], self.rewards[k], self.discount(k)) for k in kinds]
        return fg.Federation(
            mdps if len(mdps) > 1 else mdps[0],
            behavior_policies=self.behavior[0] if differ == "mdps" else self.behavior,
            num_agents=num_agents,
            assignment=assignment(num_agents),
            target_policy=self.target,
            features=self.features,
            initial_distribution=self.first,
        )


SMALL = World(states=6, zeros=0.4)
EPISODES = World(states=6, zeros=0.4, episodes=True)


@functools.cache
def large(states: int = 300) -> World:
    """A table so large that a round touches few of its cells."""
    return World(states, zeros=1 - 4 / states)


def tanh_rule(params, y, kind, out):
    """A nonlinear contraction: G(x, y)_j = tanh(x_{j+1} + y/5) / 2 and b(y)_j = 0.3 (kind + 1) (y -
    1)."""
    for j in range(3):
        out[j] = (
            0.5 * math.tanh(params[(j + 1) % 3] + 0.2 * y) - params[j] + 0.3 * (kind + 1) * (y - 1)
        )


def tanh_oracle(states: Sequence[np.ndarray], _: Any, **settings: Any) -> pseudocode.Trace:
    G = [lambda theta, y: 0.5 * np.tanh(np.roll(theta, -1) + 0.2 * y)] * KINDS
    b = [lambda y, k=k: np.full(NOISE_DIM, 0.3 * (k + 1) * (y - 1)) for k in range(KINDS)]
    return pseudocode.algorithm_1(one_state_a_step(states), G, b, **settings)


def linear_oracle(states: Sequence[np.ndarray], _: Any, **settings: Any) -> pseudocode.Trace:
    return pseudocode.algorithm_1_linear(one_state_a_step(states), MATRICES, OFFSETS, **settings)


def one_state_a_step(states: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Algorithm 1 sees one state a step, so that i.i.d. windows are a column."""
    return [np.ravel(path) for path in states]


def case(
    name: str, n: int = 1, num_agents: int = 5, differ: str = "policies", world: World = SMALL
) -> Case:
    if name.startswith("alg1"):
        return noise_case(name, num_agents)
    problem = world.federation(num_agents, differ)
    mdp_of = [k if differ != "policies" else 0 for k in range(KINDS)]
    policy_of = [k if differ != "mdps" else 0 for k in range(KINDS)]
    gamma = world.gamma if isinstance(world.gamma, float) else world.gamma[mdp_of]
    tables: dict[str, Any] = {"rewards": world.rewards[mdp_of], "gamma": gamma}
    off_policy = tables | {"target": world.target, "behavior": world.behavior[policy_of], "n": n}
    if name == "alg2":
        tables |= {"features": world.features, "n": n}
        return Case(
            problem,
            fg.OnPolicyTD(n),
            n,
            starts(FEATURES),
            bind(pseudocode.algorithm_2, tables),
            bind(increments.n_step_td, tables),
        )
    if name == "alg3":
        return Case(
            problem,
            fg.OffPolicyTabularTD(n),
            n,
            starts(world.states),
            bind(pseudocode.algorithm_3, off_policy),
            bind(increments.n_step_td, off_policy),
        )
    if name == "alg4":
        return Case(
            problem,
            fg.QLearning(),
            1,
            starts(world.states * ACTIONS),
            bind(pseudocode.algorithm_4, tables),
            bind(increments.q_learning, tables),
        )
    off_policy["features"] = world.features
    if name == "tdc":
        del off_policy["n"]
        return Case(
            problem,
            fg.TDC(TDC_RATIO),
            1,
            starts(2 * FEATURES),
            bind(pseudocode.tdc, off_policy | {"ratio": TDC_RATIO}),
            bind(increments.tdc, off_policy | {"ratio": TDC_RATIO}),
        )
    preconditioned = name == "alg5-preconditioned"
    if preconditioned:
        laws = zip(world.transitions[mdp_of], world.behavior[policy_of], strict=True)
        off_policy["preconditioners"] = [
            pseudocode.preconditioner(P, b, world.features) for P, b in laws
        ]
    algorithm = fg.OffPolicyLinearTD(n, preconditioned=preconditioned)
    return Case(
        problem,
        algorithm,
        n,
        starts(FEATURES),
        bind(pseudocode.algorithm_5, off_policy),
        bind(increments.n_step_td, off_policy),
    )


def noise_case(name: str, num_agents: int) -> Case:
    noise = fg.MarkovNoise(KERNELS, num_agents=num_agents, assignment=assignment(num_agents))
    if name == "alg1-linear":
        algorithm = fg.LinearSA(MATRICES, OFFSETS)
        field = bind(increments.linear, {"matrices": MATRICES, "offsets": OFFSETS})
        return Case(noise, algorithm, 0, starts(NOISE_DIM), linear_oracle, field)
    algorithm = fg.StochasticApproximation(tanh_rule, NOISE_DIM, assumptions={"gamma_c": 0.5})
    return Case(noise, algorithm, 0, starts(NOISE_DIM), tanh_oracle, increments.tanh)


def starts(dim: int) -> np.ndarray:
    return np.linspace(-1, 1, dim)


def bind(oracle: Callable[..., Any], tables: dict[str, Any]) -> Callable[..., Any]:
    return lambda states, actions, **settings: oracle(states, actions, **tables, **settings)
