"""[problem] and the tables inside it, as pydantic models: which keys each has, of which type, in
which range.

A table that comes in several kinds (an environment by its `generator`, a policy by its `kind`) has
one model for each, so that a key that belongs to another kind is refused.
"""

from __future__ import annotations

from typing import Annotated, Any

from fegsam.experiments.spec.tables import (
    Array,
    BeforeValidator,
    Field,
    Kinds,
    Open,
    Seed,
    Share,
    Table,
    Text,
)


def _several(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


class Environment(Table):
    """What every kind of [problem] may have beside its own keys."""

    tag = "generator"
    generator: str
    initial_distribution: Array | None = None
    assignment: Array | None = None
    """Kinds of the agents, in order; N agents take the first N."""


class Garnet(Environment):
    states: Annotated[int, Field(ge=1, le=10**7)]
    actions: Annotated[int, Field(ge=1, le=10**4)]
    branching: Annotated[int, Field(ge=1, le=10**4)]
    discount: Open
    seed: Seed
    connected: bool = False


class RandomWalk(Environment):
    states: Annotated[int, Field(ge=3, le=5000)]
    discount: Open


class RiverSwim(Environment):
    states: Annotated[int, Field(ge=2, le=5000)] = 6
    discount: Open = 0.95


class GridWorld(Environment):
    rows: Annotated[int, Field(ge=1, le=2000)]
    columns: Annotated[int, Field(ge=1, le=2000)]
    discount: Open
    slip: Share = 0.1


class TwoState(Environment):
    to_second: Array | None = None
    rewards: Array | None = None
    discount: Open = 0.5


class Bandit(Environment):
    rewards: Array
    discount: Open


class Gymnasium(Environment):
    env_id: Text
    discount: Open
    options: dict[str, Any] = Field(default_factory=dict)


class Arrays(Environment):
    """An MDP, or one per kind, as arrays; ``generator = "file"`` takes them from an .npz file by
    their names."""

    transitions: Array
    rewards: Array
    discount: Open


class Noise(Environment):
    """Markov chains for Algorithm 1, and the arrays of its linear form."""

    kernels: Array
    matrices: Array | None = None
    offsets: Array | None = None


ENVIRONMENTS: dict[str, type[Environment]] = {
    "garnet": Garnet,
    "random_walk": RandomWalk,
    "river_swim": RiverSwim,
    "grid_world": GridWorld,
    "two_state": TwoState,
    "bandit": Bandit,
    "gymnasium": Gymnasium,
    "arrays": Arrays,
    "file": Arrays,
    "noise": Noise,
}


class Policies(Table):
    tag = "kind"
    kind: str


class Uniform(Policies):
    """Every action alike."""


class Target(Policies):
    """The agents follow the target policy."""


class RandomPolicies(Policies):
    """``pi^k = (1 - h) base + h random_k``, k < count: the base uniform for kind "random", the
    target for "mixed"."""

    count: Kinds
    """M. The first policies are the same whatever the count."""
    seed: Seed
    heterogeneity: Share = 1.0


class RandomPolicy(Policies):
    seed: Seed


class EpsilonGreedy(Policies):
    """With probability epsilon any action, else the best one by Q* of the (first, unperturbed)
    environment, or by `q`."""

    epsilon: Annotated[
        tuple[Share, ...],
        Field(strict=False, min_length=1, max_length=10**4),
        BeforeValidator(_several),
    ]
    """Of each kind."""
    q: Array | None = None


class Greedy(Policies):
    epsilon: Share
    q: Array | None = None


class PolicyTable(Policies):
    policies: Array
    """(S, A), or (M, S, A) for behaviour"""


BEHAVIORS: dict[str, type[Policies]] = {
    "uniform": Uniform,
    "target": Target,
    "random": RandomPolicies,
    "mixed": RandomPolicies,
    "epsilon_greedy": EpsilonGreedy,
    "table": PolicyTable,
}
TARGETS: dict[str, type[Policies]] = {
    "uniform": Uniform,
    "random": RandomPolicy,
    "epsilon_greedy": Greedy,
    "table": PolicyTable,
}


class Features(Table):
    tag = "kind"
    kind: str


class RandomFeatures(Features):
    """Normal numbers, divided by the norm of the longest row."""

    dim: Annotated[int, Field(ge=1, le=10**4)]
    seed: Seed


class OneHot(Features):
    """One parameter per state."""


class SizedFeatures(Features):
    """ "aggregate": so many groups of neighbouring states; "polynomial": so many Legendre
    polynomials of the state's number."""

    dim: Annotated[int, Field(ge=1, le=10**4)]


class FeatureTable(Features):
    features: Array
    """(S, d)"""


FEATURES: dict[str, type[Features]] = {
    "random": RandomFeatures,
    "one_hot": OneHot,
    "aggregate": SizedFeatures,
    "polynomial": SizedFeatures,
    "table": FeatureTable,
}


class Environments(Table):
    """One perturbed copy of the environment per kind of agent.

    Kind k pays ``R + rewards * u_k``, u_k uniform in [-1, 1], and moves by ``(1 - transitions) P +
    transitions * P_k``, P_k a random law on the states that some action leads to. The first copies
    are the same whatever the count.
    """

    count: Kinds
    rewards: Annotated[float, Field(ge=0)] = 0.0
    transitions: Share = 0.0
    seed: Seed
