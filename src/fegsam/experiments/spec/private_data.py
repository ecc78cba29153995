"""[problem] with ``generator = "private"``: what agents agree on whose data stays with each."""

from __future__ import annotations

from typing import Annotated

import numpy as np

import fegsam as fg
from fegsam.data.charter import Charter
from fegsam.errors import ProblemError
from fegsam.experiments.spec import problem_tables as tables
from fegsam.experiments.spec.array_values import load_array
from fegsam.experiments.spec.tables import Field, Open, model_validator
from fegsam.problem.feature_maps import FeatureMap


class Private(tables.Environment):
    """The spaces and the discount; each node has data of its own."""

    states: Annotated[int, Field(ge=1, le=10**9)] | None = None
    actions: Annotated[int, Field(ge=1, le=10**6)] | None = None
    discount: Open


class PlainFeatures(tables.Features, extra="allow"):
    """Features whose keys are those of `fegsam.features.from_dict`."""

    @model_validator(mode="after")
    def _is_a_map(self) -> PlainFeatures:
        try:
            self.map()
        except ProblemError as error:
            raise ValueError(f"cannot be used ({str(error).rstrip('.')})") from None
        return self

    def map(self) -> FeatureMap:
        """The map that the table describes."""
        return fg.features.from_dict(self.model_dump())


TARGETS: dict[str, type[tables.Policies]] = {
    "uniform": tables.Uniform,
    "random": tables.RandomPolicy,
    "table": tables.PolicyTable,
}
FEATURES: dict[str, type[tables.Features]] = {
    **dict.fromkeys(("fourier", "tiles", "radial", "columns", "one_hot"), PlainFeatures),
    "table": tables.FeatureTable,
}


def build_charter(
    environment: Private,
    target: tables.Policies | None,
    features: tables.Features | None,
    num_agents: int,
) -> Charter:
    """The charter of `num_agents` agents.

    >>> spaces = Private(generator="private", states=5, actions=2, discount=0.9)
    >>> build_charter(spaces, tables.Uniform(kind="uniform"), None, 3)
    Charter(agents=3, states=5, actions=2, discount=0.9)
    """
    made = None
    if isinstance(features, PlainFeatures):
        made = features.map()
    elif isinstance(features, tables.FeatureTable):
        made = fg.features.table(load_array(features.features))
    return Charter(
        num_agents=num_agents,
        discount=environment.discount,
        num_states=environment.states,
        num_actions=environment.actions,
        target_policy=None if target is None else _target(target, environment),
        features=made,
    )


def _target(spec: tables.Policies, spaces: Private) -> np.ndarray:
    """(S, A)"""
    if isinstance(spec, tables.PolicyTable):
        return load_array(spec.policies)
    if spaces.states is None or spaces.actions is None:
        raise ProblemError(
            "problem.target needs the numbers of states and actions: add states and actions to "
            "[problem]"
        )
    if isinstance(spec, tables.RandomPolicy):
        return fg.policies.random(spaces.states, spaces.actions, 1, spec.seed)[0]
    return fg.policies.uniform(spaces.states, spaces.actions)
