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
    Table,
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


class Data(tables.Environment):
    """The keys that every kind of data has."""

    discount: Open
    """Of what follows a transition that does not end its episode."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """The share of episodes that measure what is learned instead of teaching it."""


class Log(Data):
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


class Live(Data):
    """A Gymnasium environment that runs while its agents learn; any number of agents use it."""

    env_id: Text
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of ``gymnasium.make``."""
    ends: Literal["stop", "restart"] = "stop"
    """What follows an episode that terminated: nothing, or the next episode."""


DATA: dict[str, type[tables.Environment]] = {"log": Log, "live": Live}
"""The generators of data."""


class EvaluationTable(Table):
    """[problem.evaluation]: episodes of the greedy policy in the live environment."""

    episodes: Annotated[int, Field(ge=2, le=10**6)] = 200
    seed: Seed = 0
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0
    """What a reward one step later is worth."""
    longest: Count = 10_000
    """An episode that has not ended is cut after this number of steps."""


class FunctionPolicy(tables.Policies):
    """Probabilities (L, A) by a function of observations (L, k)."""

    function: Function


LOG_BEHAVIORS: dict[str, type[tables.Policies]] = {
    "uniform": tables.Uniform,
    "table": tables.PolicyTable,
}
"""The policy that chose the actions of a log without `behavior_probability`."""
LIVE_BEHAVIORS: dict[str, type[tables.Policies]] = {
    "uniform": tables.Uniform,
    "random": tables.RandomPolicies,
    "epsilon_greedy": tables.EpsilonGreedy,
    "table": tables.PolicyTable,
    "function": FunctionPolicy,
}
"""The policies by which agents act in a live environment, one per kind of agent."""
DATA_TARGETS: dict[str, type[tables.Policies]] = {
    **tables.TARGETS,
    "function": FunctionPolicy,
}

Numbers = float | list[float]
Whole = Annotated[int, Field(ge=1, le=2**31)]


class MapFeatures(tables.Features):
    """Features whose keys are those of `fegsam.features.from_dict`."""

    @model_validator(mode="after")
    def _is_a_map(self) -> MapFeatures:
        try:
            self.map()
        except ProblemError as error:
            raise ValueError(f"cannot be used ({str(error).rstrip('.')})") from None
        return self

    def map(self) -> features.FeatureMap:
        """The map that the table describes."""
        return features.from_dict(self.model_dump())


class Fourier(MapFeatures):
    """Cosines of whole frequencies on a box."""

    low: Numbers
    high: Numbers
    order: Annotated[int, Field(ge=0, le=10**6)]


class Tiles(MapFeatures):
    """Tile coding: `tilings` shifted grids over a box."""

    low: Numbers
    high: Numbers
    tiles: Whole | list[Whole]
    tilings: Whole


class Radial(MapFeatures):
    """Gaussian bumps around centers."""

    centers: list[float] | list[list[float]]
    width: Positive


class Columns(MapFeatures):
    """The numbers of an observation themselves."""

    width: Whole = 1


class OneHotStates(MapFeatures):
    """One parameter per state."""

    states: Whole


class FunctionFeatures(tables.Features):
    """Features (L, dim) by a function of observations (L, k)."""

    function: Function
    dim: Whole


DATA_FEATURES: dict[str, type[tables.Features]] = {
    "fourier": Fourier,
    "tiles": Tiles,
    "radial": Radial,
    "columns": Columns,
    "one_hot": OneHotStates,
    "table": tables.FeatureTable,
    "function": FunctionFeatures,
}
