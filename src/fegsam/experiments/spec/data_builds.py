"""Builds the federations of a spec whose agents learn from data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import fegsam as fg
from fegsam.data.federation import Source
from fegsam.errors import ProblemError
from fegsam.experiments.spec import data_tables as data
from fegsam.experiments.spec import problem_tables as tables
from fegsam.experiments.spec.array_values import load_array
from fegsam.experiments.spec.policy_builds import build_policies, load_function
from fegsam.problem.feature_maps import FeatureMap


def build_data(
    environment: data.Data,
    behavior: tables.Policies | None,
    target: tables.Policies | None,
    features: tables.Features | None,
    num_agents: int,
    assignment: np.ndarray | None,
) -> fg.DataFederation:
    """The federation of `num_agents` agents on a log."""
    assert isinstance(environment, data.Log)
    sizes = environment.states, environment.actions
    return fg.DataFederation(
        _log(environment, behavior, sizes),
        discount=environment.discount,
        num_agents=num_agents,
        assignment=assignment,
        num_states=sizes[0],
        num_actions=sizes[1],
        target_policy=None if target is None else _policy(target, sizes, "problem.target"),
        features=None if features is None else _map(features),
    )


def _log(spec: data.Log, behavior: tables.Policies | None, sizes: Any) -> Source:
    policy = None if behavior is None else _policy(behavior, sizes, "problem.behavior")
    return fg.LogSource(
        spec.path.source,
        columns=spec.columns,
        by=spec.by,
        passes=spec.passes,
        missing_final=spec.missing_final,
        policy=policy,  # pyright: ignore[reportArgumentType]
    )


def _policy(
    spec: tables.Policies, sizes: tuple[int | None, int | None], key: str
) -> np.ndarray | Callable[[np.ndarray], ArrayLike]:
    """(S, A), or a function of observations."""
    if isinstance(spec, data.FunctionPolicy):
        return load_function(spec.function, "function")
    if isinstance(spec, tables.PolicyTable):
        return load_array(spec.policies)
    states, actions = sizes
    if states is None or actions is None:
        raise ProblemError(
            f"{key} needs the numbers of states and actions: add states and actions to [problem]"
        )

    def unknown() -> np.ndarray:
        raise ProblemError(f"{key} needs q, since data has no best action to know: add q to it")

    return build_policies(spec, (states, actions), unknown, None, 1)[0]


def _map(spec: tables.Features) -> FeatureMap:
    if isinstance(spec, data.FunctionFeatures):
        return fg.features.function(load_function(spec.function, "function"), spec.dim)
    if isinstance(spec, tables.FeatureTable):
        return fg.features.table(load_array(spec.features))
    assert isinstance(spec, data.MapFeatures)
    return spec.map()
