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


class PrivateTable(tables.ProblemTable):
    """The spaces and the discount; each node has data of its own."""

    states: Annotated[int, Field(ge=1, le=10**9)] | None = None
    actions: Annotated[int, Field(ge=1, le=10**6)] | None = None
    discount: Open


class PlainFeaturesTable(tables.FeaturesTable, extra="allow"):
    """Features whose keys are those of `fegsam.features.from_dict`."""

    @model_validator(mode="after")
    def _is_a_map(self) -> PlainFeaturesTable:
        try:
            self.map()
        except ProblemError as error:
            raise ValueError(f"cannot be used ({str(error).rstrip('.')})") from None
        return self

    def map(self) -> FeatureMap:
        """The map that the table describes."""
        return fg.features.from_dict(self.model_dump())


TARGETS: dict[str, type[tables.PolicyTable]] = {
    "uniform": tables.UniformTable,
    "random": tables.RandomPolicyTable,
    "table": tables.GivenPolicyTable,
}
FEATURES: dict[str, type[tables.FeaturesTable]] = {
    **dict.fromkeys(("fourier", "tiles", "radial", "columns", "one_hot"), PlainFeaturesTable),
    "table": tables.GivenFeaturesTable,
}


def build_charter(
    environment: PrivateTable,
    target: tables.PolicyTable | None,
    features: tables.FeaturesTable | None,
    num_agents: int,
) -> Charter:
    """The charter of `num_agents` agents.

    >>> spaces = PrivateTable(generator="private", states=5, actions=2, discount=0.9)
    >>> build_charter(spaces, tables.UniformTable(kind="uniform"), None, 3)
    Charter(agents=3, states=5, actions=2, discount=0.9)
    """
    made = None
    if isinstance(features, PlainFeaturesTable):
        made = features.map()
    elif isinstance(features, tables.GivenFeaturesTable):
        made = fg.features.table(load_array(features.features))
    return Charter(
        num_agents=num_agents,
        discount=environment.discount,
        num_states=environment.states,
        num_actions=environment.actions,
        target_policy=None if target is None else _target(target, environment),
        features=made,
    )


def _target(spec: tables.PolicyTable, spaces: PrivateTable) -> np.ndarray:
    """(S, A)"""
    if isinstance(spec, tables.GivenPolicyTable):
        return load_array(spec.policies)
    if spaces.states is None or spaces.actions is None:
        raise ProblemError(
            "problem.target needs the numbers of states and actions: add states and actions to "
            "[problem]"
        )
    if isinstance(spec, tables.RandomPolicyTable):
        return fg.policies.random(spaces.states, spaces.actions, 1, spec.seed)[0]
    return fg.policies.uniform(spaces.states, spaces.actions)
