"""What an algorithm needs to run on recorded data, where there is no MDP to read tables from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.data.federation import DataFederation
from fegsam.errors import ProblemError
from fegsam.problem.feature_maps import FeatureMap


@dataclass(frozen=True)
class OnData:
    """How an algorithm's rule runs on recorded data."""

    dimension: int
    tables: Callable[[np.ndarray, np.ndarray], Any]
    """the constants that the rule reads, given the feature rows and actions of the data at hand"""
    features: FeatureMap | None = None
    """what makes these rows; None: the rule reads state numbers"""
    dense: bool = False
    """whether the rule needs full rows, also of sparse features"""
    control: bool = False
    """whether the parameters are action values"""
    weighted: bool = False
    """whether the rule reads importance ratios"""
    corrected: bool = False
    """whether it converges where cut episodes make TD diverge"""


@runtime_checkable
class RunsOnData(Algorithm, Protocol):
    """An algorithm that runs on recorded data, too."""

    def on_data(self, data: DataFederation) -> OnData: ...


def needs_of(algorithm: Algorithm, data: DataFederation) -> OnData:
    """How `algorithm` runs on `data`; a `ProblemError` if it does not."""
    if not isinstance(algorithm, RunsOnData):
        raise ProblemError(
            f"{type(algorithm).__name__} does not run on recorded data; use QLearning, OnPolicyTD, "
            "OffPolicyTabularTD, OffPolicyLinearTD or TDC."
        )
    return algorithm.on_data(data)


def state_count(algorithm: Algorithm, data: DataFederation) -> int:
    """S, which a table needs."""
    if data.num_states is None:
        raise ProblemError(
            f"{type(algorithm).__name__} learns a table and the number of states is not known; "
            "pass num_states= to DataFederation, or use features and a linear algorithm."
        )
    return data.num_states


def action_count(algorithm: Algorithm, data: DataFederation) -> int:
    """A, which a table of action values needs."""
    if data.num_actions is None:
        raise ProblemError(
            f"{type(algorithm).__name__} learns action values and the number of actions is not "
            "known; pass num_actions= to DataFederation."
        )
    return data.num_actions


def feature_map(algorithm: Algorithm, data: DataFederation) -> FeatureMap:
    """The features, which a linear rule needs."""
    if data.features is None:
        raise ProblemError(
            f"{type(algorithm).__name__} is linear and the data has no features; pass features= to "
            "DataFederation, for example fegsam.features.tiles(...)."
        )
    return data.features
