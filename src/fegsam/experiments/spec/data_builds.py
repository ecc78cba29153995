"""Builds the federations of a spec whose agents learn from data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import fegsam as fg
from fegsam.data.environments import make, spaces_of
from fegsam.data.evaluation import Evaluation
from fegsam.data.federation import Source
from fegsam.errors import ProblemError
from fegsam.experiments.spec import data_tables as data
from fegsam.experiments.spec import problem_tables as tables
from fegsam.experiments.spec.array_values import load_array
from fegsam.experiments.spec.policy_builds import build_policies, load_function
from fegsam.problem.feature_maps import FeatureMap

Sizes = tuple[int | None, int | None]
"""S and A; None where it is not known, or where observations are no state numbers."""


def build_data(
    environment: data.DataTable,
    behavior: tables.PolicyTable | None,
    target: tables.PolicyTable | None,
    features: tables.FeaturesTable | None,
    evaluation: data.EvaluationTable | None,
    num_agents: int,
    assignment: np.ndarray | None,
) -> fg.DataFederation:
    """The federation of `num_agents` agents on a log or in a live environment."""
    if isinstance(environment, data.LiveTable):
        sizes, sources = _live(environment, behavior, num_agents)
    else:
        assert isinstance(environment, data.LogTable)
        sizes = environment.states, environment.actions
        sources = _log(environment, behavior, sizes)
    return fg.DataFederation(
        sources,
        discount=environment.discount,
        num_agents=num_agents,
        assignment=assignment,
        num_states=sizes[0],
        num_actions=sizes[1],
        target_policy=None if target is None else _target(target, sizes),
        features=None if features is None else build_features(features),
        held_out=environment.held_out,
        evaluation=None if evaluation is None else Evaluation(**evaluation.model_dump()),
    )


def _log(spec: data.LogTable, behavior: tables.PolicyTable | None, sizes: Sizes) -> Source:
    policy = None if behavior is None else _tables(behavior, sizes, "problem.behavior", 1)[0]
    return fg.LogSource(
        spec.path.source,
        columns=spec.columns,
        by=spec.by,
        passes=spec.passes,
        missing_final=spec.missing_final,
        policy=policy,
    )


def _live(
    spec: data.LiveTable, behavior: tables.PolicyTable | None, num_agents: int
) -> tuple[Sizes, Sequence[Source]]:
    """S and A, and a source for each kind of agents, which differ in their policies."""
    if behavior is None:
        raise ProblemError("problem.behavior is missing: say how the agents act")
    spaces = spaces_of(spec.env_id, make(spec.env_id, spec.options), None)
    # One row of a table serves all observations that are not state numbers.
    rows = 1 if spaces.num_states is None else spaces.num_states
    policies: list[Any]
    if isinstance(behavior, data.FunctionPolicyTable):
        policies = [load_function(behavior.function, "function")]
    else:
        shape = rows, spaces.num_actions
        policies = list(_tables(behavior, shape, "problem.behavior", num_agents))
    sources = [
        fg.LiveSource(spec.env_id, policy, options=spec.options, ends=spec.ends)
        for policy in policies
    ]
    return (spaces.num_states, spaces.num_actions), sources


def _target(
    spec: tables.PolicyTable, sizes: Sizes
) -> np.ndarray | Callable[[np.ndarray], ArrayLike]:
    """(S, A), or a function of observations."""
    if isinstance(spec, data.FunctionPolicyTable):
        return load_function(spec.function, "function")
    return _tables(spec, sizes, "problem.target", 1)[0]


def _tables(spec: tables.PolicyTable, sizes: Sizes, key: str, num_agents: int) -> np.ndarray:
    """(M, S, A)"""
    states, actions = sizes
    if isinstance(spec, tables.GivenPolicyTable):
        states, actions = 1, 1
    if states is None or actions is None:
        raise ProblemError(
            f"{key} needs the numbers of states and actions: add states and actions to [problem]"
        )

    def unknown() -> np.ndarray:
        raise ProblemError(f"{key} needs q, since data has no best action to know: add q to it")

    return build_policies(spec, (states, actions), unknown, None, num_agents)


def action_count(environment: data.DataTable) -> int | None:
    """A, as far as it is known; a live environment is made for this."""
    if isinstance(environment, data.LiveTable):
        made = make(environment.env_id, environment.options)
        return spaces_of(environment.env_id, made, None).num_actions
    return environment.actions if isinstance(environment, data.LogTable) else None


def build_features(spec: tables.FeaturesTable) -> FeatureMap:
    """The features of observations that a spec describes."""
    if isinstance(spec, data.FunctionFeaturesTable):
        return fg.features.function(load_function(spec.function, "function"), spec.dim)
    if isinstance(spec, tables.GivenFeaturesTable):
        return fg.features.table(load_array(spec.features))
    assert isinstance(spec, data.MapFeaturesTable)
    return spec.map()
