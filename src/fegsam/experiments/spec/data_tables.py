"""[problem] and its inner tables where agents learn from data: logs and live environments."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fegsam.errors import ProblemError
from fegsam.experiments.spec import problem_tables as tables
from fegsam.experiments.spec.tables import (
    BeforeValidator,
    Count,
    Field,
    Function,
    Logged,
    Open,
    Positive,
    Seed,
    TableModel,
    Text,
    model_validator,
)
from fegsam.problem import features


def _columns(value: Any) -> Any:
    """A name, or a list of names, for each role of a column."""
    if not isinstance(value, dict) or not all(
        isinstance(name, str)
        or (isinstance(name, list) and name and all(isinstance(each, str) for each in name))
        for name in value.values()
    ):
        raise ValueError("must name columns of the log: write columns = {action = 'act'}")
    return value


class DataTable(tables.ProblemTable):
    """The keys that every kind of data has."""

    discount: Open
    """Of what follows a transition that does not end its episode."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """The share of episodes that measure what is learned instead of teaching it."""


class LogTable(DataTable):
    """A log, or the parts of one: agent i reads the part with the i-th value of `by`."""

    path: Logged
    """A .parquet or .csv file, a folder of them, or a list of the files of one log."""
    by: Text | None = None
    """A column; the rows with each of its values feed an agent of their own."""
    columns: Annotated[dict[str, Any], BeforeValidator(_columns)] = Field(default_factory=dict)
    """The file's name of a column, where it is another one: ``{action = "act"}``."""
    states: Annotated[int, Field(ge=1, le=10**9)] | None = None
    actions: Annotated[int, Field(ge=1, le=10**6)] | None = None
    passes: Count = 1
    """The number of times that the log is read."""
    missing_final: Literal["error", "drop"] = "error"
    """What to do with a truncated episode that lacks its last observation."""


class LiveTable(DataTable):
    """A Gymnasium environment that runs while its agents learn; any number of agents use it."""

    env_id: Text
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of ``gymnasium.make``."""
    ends: Literal["stop", "restart"] = "stop"
    """What follows an episode that terminated: nothing, or the next episode."""


DATA: dict[str, type[tables.ProblemTable]] = {"log": LogTable, "live": LiveTable}
"""The generators of data."""


class EvaluationTable(TableModel):
    """[problem.evaluation]: episodes of the greedy policy in the live environment."""

    episodes: Annotated[int, Field(ge=2, le=10**6)] = 200
    seed: Seed = 0
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0
    """What a reward one step later is worth."""
    longest: Count = 10_000
    """An episode that has not ended is cut after this number of steps."""


class FunctionPolicyTable(tables.PolicyTable):
    """Probabilities (L, A) by a function of observations (L, k)."""

    function: Function


LOG_BEHAVIORS: dict[str, type[tables.PolicyTable]] = {
    "uniform": tables.UniformTable,
    "table": tables.GivenPolicyTable,
}
"""The policy that chose the actions of a log without `behavior_probability`."""
LIVE_BEHAVIORS: dict[str, type[tables.PolicyTable]] = {
    "uniform": tables.UniformTable,
    "random": tables.RandomPoliciesTable,
    "epsilon_greedy": tables.EpsilonGreedyTable,
    "table": tables.GivenPolicyTable,
    "function": FunctionPolicyTable,
}
"""The policies by which agents act in a live environment, one per kind of agent."""
DATA_TARGETS: dict[str, type[tables.PolicyTable]] = {
    **tables.TARGETS,
    "function": FunctionPolicyTable,
}

Numbers = float | list[float]
Whole = Annotated[int, Field(ge=1, le=2**31)]


class MapFeaturesTable(tables.FeaturesTable):
    """Features whose keys are those of `fegsam.features.from_dict`."""

    @model_validator(mode="after")
    def _is_a_map(self) -> MapFeaturesTable:
        try:
            self.map()
        except ProblemError as error:
            raise ValueError(f"cannot be used ({str(error).rstrip('.')})") from None
        return self

    def map(self) -> features.FeatureMap:
        """The map that the table describes."""
        return features.from_dict(self.model_dump())


class FourierTable(MapFeaturesTable):
    """Cosines of whole frequencies on a box."""

    low: Numbers
    high: Numbers
    order: Annotated[int, Field(ge=0, le=10**6)]


class TilesTable(MapFeaturesTable):
    """Tile coding: `tilings` shifted grids over a box."""

    low: Numbers
    high: Numbers
    tiles: Whole | list[Whole]
    tilings: Whole


class RadialTable(MapFeaturesTable):
    """Gaussian bumps around centers."""

    centers: list[float] | list[list[float]]
    width: Positive


class ColumnsTable(MapFeaturesTable):
    """The numbers of an observation themselves."""

    width: Whole = 1


class OneHotStatesTable(MapFeaturesTable):
    """One parameter per state."""

    states: Whole


class FunctionFeaturesTable(tables.FeaturesTable):
    """Features (L, dim) by a function of observations (L, k)."""

    function: Function
    dim: Whole


DATA_FEATURES: dict[str, type[tables.FeaturesTable]] = {
    "fourier": FourierTable,
    "tiles": TilesTable,
    "radial": RadialTable,
    "columns": ColumnsTable,
    "one_hot": OneHotStatesTable,
    "table": tables.GivenFeaturesTable,
    "function": FunctionFeaturesTable,
}
