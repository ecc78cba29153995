"""[problem] and its inner tables as pydantic models: their keys, types and ranges.

A table that comes in several kinds (an environment by its `generator`, a policy by its `kind`) has
one model per kind, so that a key of another kind is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fegsam.experiments.spec.tables import (
    Array,
    BeforeValidator,
    Discount,
    Field,
    Kinds,
    Open,
    Seed,
    Share,
    TableModel,
    Text,
)


def _several(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


class ProblemTable(TableModel):
    """The keys that every kind of [problem] may have."""

    tag = "generator"
    generator: str
    assignment: Array | None = None
    """The kinds of the agents in order; N agents take the first N."""


class SimulatedTable(ProblemTable):
    """The keys of every environment that is simulated."""

    initial_distribution: Array | None = None


class GarnetTable(SimulatedTable):
    states: Annotated[int, Field(ge=1, le=10**7)]
    actions: Annotated[int, Field(ge=1, le=10**4)]
    branching: Annotated[int, Field(ge=1, le=10**4)]
    discount: Open
    seed: Seed
    connected: bool = False


class RandomWalkTable(SimulatedTable):
    states: Annotated[int, Field(ge=3, le=5000)]
    discount: Open


class RiverSwimTable(SimulatedTable):
    states: Annotated[int, Field(ge=2, le=5000)] = 6
    discount: Open = 0.95


class GridWorldTable(SimulatedTable):
    rows: Annotated[int, Field(ge=1, le=2000)]
    columns: Annotated[int, Field(ge=1, le=2000)]
    discount: Open
    slip: Share = 0.1


class TwoStateTable(SimulatedTable):
    to_second: Array | None = None
    rewards: Array | None = None
    discount: Open = 0.5


class BanditTable(SimulatedTable):
    rewards: Array
    discount: Open


class GymnasiumTable(SimulatedTable):
    env_id: Text
    discount: Open
    ends: Literal["restart", "stop"] | None = None
    """Whether values include the episodes that follow, as by default, or stop at the end of one."""
    options: dict[str, Any] = Field(default_factory=dict)


class ArraysTable(SimulatedTable):
    """An MDP, or one per kind, as arrays; ``generator = "file"`` reads them from an .npz file."""

    transitions: Array
    rewards: Array
    discount: Discount
    """A number, or an array with a discount for each transition."""


class NoiseTable(SimulatedTable):
    """Markov chains for Algorithm 1, and the arrays of its linear form."""

    kernels: Array
    matrices: Array | None = None
    offsets: Array | None = None


ENVIRONMENTS: dict[str, type[ProblemTable]] = {
    "garnet": GarnetTable,
    "random_walk": RandomWalkTable,
    "river_swim": RiverSwimTable,
    "grid_world": GridWorldTable,
    "two_state": TwoStateTable,
    "bandit": BanditTable,
    "gymnasium": GymnasiumTable,
    "arrays": ArraysTable,
    "file": ArraysTable,
    "noise": NoiseTable,
}


class PolicyTable(TableModel):
    tag = "kind"
    kind: str


class UniformTable(PolicyTable):
    """Every action has the same probability."""


class TargetTable(PolicyTable):
    """The agents follow the target policy."""


class RandomPoliciesTable(PolicyTable):
    """Policies ``pi^k = (1 - h) base + h random_k``, k < count.

    The base is the uniform policy for kind "random" and the target policy for kind "mixed".
    """

    count: Kinds
    """M; the first policies do not depend on the count."""
    seed: Seed
    heterogeneity: Share = 1.0


class RandomPolicyTable(PolicyTable):
    seed: Seed


class EpsilonGreedyTable(PolicyTable):
    """A uniformly random action with probability epsilon, else the best action.

    The best action is that of `q`, by default Q* of the first environment before perturbation.
    """

    epsilon: Annotated[
        tuple[Share, ...],
        Field(strict=False, min_length=1, max_length=10**4),
        BeforeValidator(_several),
    ]
    """One value per kind."""
    q: Array | None = None


class GreedyTable(PolicyTable):
    epsilon: Share
    q: Array | None = None


class GivenPolicyTable(PolicyTable):
    policies: Array
    """(S, A), or (M, S, A) for behaviour."""


BEHAVIORS: dict[str, type[PolicyTable]] = {
    "uniform": UniformTable,
    "target": TargetTable,
    "random": RandomPoliciesTable,
    "mixed": RandomPoliciesTable,
    "epsilon_greedy": EpsilonGreedyTable,
    "table": GivenPolicyTable,
}
TARGETS: dict[str, type[PolicyTable]] = {
    "uniform": UniformTable,
    "random": RandomPolicyTable,
    "epsilon_greedy": GreedyTable,
    "table": GivenPolicyTable,
}


class FeaturesTable(TableModel):
    tag = "kind"
    kind: str


class RandomFeaturesTable(FeaturesTable):
    """Standard normal numbers, divided by the largest norm of a row."""

    dim: Annotated[int, Field(ge=1, le=10**4)]
    seed: Seed


class OneHotTable(FeaturesTable):
    """One parameter per state."""


class SizedFeaturesTable(FeaturesTable):
    """Features of kind "aggregate" or "polynomial".

    The first kind has `dim` groups of neighbouring states, the second the first `dim` Legendre
    polynomials of the state's number.
    """

    dim: Annotated[int, Field(ge=1, le=10**4)]


class GivenFeaturesTable(FeaturesTable):
    features: Array
    """(S, d)."""


FEATURES: dict[str, type[FeaturesTable]] = {
    "random": RandomFeaturesTable,
    "one_hot": OneHotTable,
    "aggregate": SizedFeaturesTable,
    "polynomial": SizedFeaturesTable,
    "table": GivenFeaturesTable,
}


class EnvironmentsTable(TableModel):
    """One perturbed copy of the environment per kind of agent.

    Kind k has the rewards ``R + rewards * u_k`` with u_k uniform in [-1, 1], and the transitions
    ``(1 - transitions) P + transitions * P_k`` with P_k a random distribution on the states that
    some action leads to. The first copies do not depend on the count.
    """

    count: Kinds
    rewards: Annotated[float, Field(ge=0)] = 0.0
    transitions: Share = 0.0
    seed: Seed
