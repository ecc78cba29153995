"""The tables [study], [algorithm], [run], [[figures]] and [grid]'s points as pydantic models."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from fegsam.experiments.spec.method_tables import Schedule, SomeRounds, SomeTail
from fegsam.experiments.spec.tables import (
    Array,
    BeforeValidator,
    Count,
    Field,
    Function,
    Long,
    Open,
    Positive,
    TableModel,
    Text,
    either,
    model_validator,
)
from fegsam.experiments.spec.wording import show

MOST_SEEDS = 1_000_000


def _seeds(value: Any) -> Any:
    """The seeds; a number such as 20 means 0, ..., 19."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MOST_SEEDS:
            raise ValueError(
                f"is {show(value)}, but a number of seeds is from 1 to {MOST_SEEDS}: correct it"
            )
        return tuple(range(value))
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(
            f"is {show(value)}, but must be a number of seeds or a list of them: write 20 or [0, "
            "1, 2]"
        )
    for index, seed in enumerate(value):
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
            raise ValueError(
                f"has {show(seed)} at [{index}], but a seed is a whole number from 0 to 2^64 - 1: "
                "correct it"
            )
    if len(set(value)) < len(value):
        raise ValueError("names a seed twice, but equal seeds give equal runs: name each once")
    return tuple(value)


def _record(value: Any) -> Any:
    """The table of a record; a number means {every = ...}, a list {times = ...}."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"every": value}
    if isinstance(value, list):
        return {"times": value}
    if not isinstance(value, dict):
        wanted = (
            "a number of steps, a list of times or a table: write 100, [0, 100] or {points = 200}"
        )
        raise ValueError(f"is {show(value)}, but must be {wanted}")
    return value


class AlgorithmTable(TableModel):
    """The table [algorithm]."""

    tag = "name"
    on_noise: ClassVar[bool] = False
    """Whether it runs on Markov noise rather than on MDPs."""
    needs: ClassVar[tuple[str, ...]] = ()
    """The tables of [problem] without which it cannot run."""

    name: str


class NStepTable(AlgorithmTable):
    needs = ("target",)
    horizon: Annotated[int, Field(ge=1, le=10**4)] = 1


class OnPolicyNStepTable(NStepTable):
    needs = ("target", "features")


class LinearNStepTable(OnPolicyNStepTable):
    preconditioned: bool = False


class TDCTable(AlgorithmTable):
    needs = ("target", "features")
    ratio: Positive = 1.0


class QLearningTable(AlgorithmTable):
    """No keys of its own."""


class LinearQLearningTable(AlgorithmTable):
    """No keys of its own, and no theorem: it may diverge."""

    needs = ("features",)


class LinearSATable(AlgorithmTable):
    """The matrices and offsets are keys of [problem]."""

    on_noise = True


class OwnRuleTable(AlgorithmTable):
    """Algorithm 1 with your own function ``rule(params, y, kind, out)``."""

    on_noise = True
    rule: Function
    dim: Annotated[int, Field(ge=1, le=10**6)]
    norm: Literal["2", "sup"] = "2"
    assumptions: dict[str, float] | None = None


class OwnAlgorithmTable(AlgorithmTable):
    """An algorithm from outside the package: `name` is an import path or an entry point."""

    options: dict[str, Any]
    """The other keys of the table: fields of the class."""
    stored: bool = Field(default=False, exclude=True)
    """Whether the spec is a copy stored with results."""


ALGORITHMS: dict[str, type[AlgorithmTable]] = {
    "on_policy_td": OnPolicyNStepTable,
    "off_policy_tabular_td": NStepTable,
    "q_learning": QLearningTable,
    "linear_q_learning": LinearQLearningTable,
    "off_policy_linear_td": LinearNStepTable,
    "tdc": TDCTable,
    "linear_sa": LinearSATable,
    "stochastic_approximation": OwnRuleTable,
}


class StudyTable(TableModel):
    """[study]"""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]
    title: Text | None = None
    seeds: Annotated[Any, BeforeValidator(_seeds)] = tuple(range(20))
    engine: Literal["cpu", "reference", "cuda"] = "cpu"


class RecordTable(TableModel):
    """The times to record: every `every` steps, `times`, or `points` points from 0 to T."""

    every: Long | None = None
    times: Annotated[
        tuple[Annotated[int, Field(ge=0, le=10**15)], ...] | None, Field(strict=False, min_length=1)
    ] = None
    points: Annotated[int, Field(ge=2, le=10**6)] | None = None
    spacing: Literal["even", "log"] = "even"

    @model_validator(mode="after")
    def _one(self) -> RecordTable:
        if sum(given is not None for given in (self.every, self.times, self.points)) != 1:
            raise ValueError("must have exactly one of every, times and points: keep one")
        return self


class RunTable(TableModel):
    """[run]: mostly the arguments of `fegsam.run` that are not axes."""

    num_steps: Long
    sync_period: SomeRounds | None = None
    """Instead of an axis of that name; rounds of different lengths, for example."""
    method: Text = "plain"
    """The name of a table [methods.NAME], or of a published method."""
    schedule: Schedule | None = None
    """The shape of the step sizes over time."""
    tail: SomeTail | None = None
    """Keep the mean over this last fraction of the run."""
    record: Annotated[RecordTable | None, BeforeValidator(_record)] = None
    record_params: bool = False
    sampling: Literal["markov", "iid"] = "markov"
    output_decay: Open | None = None
    stop_at_output: bool = False
    initial_params: Array | None = None
    """A single number sets every parameter."""
    fixed_point: Array | None = None
    common_paths: bool = True
    """Whether all cells run under the same seeds, and so share their paths."""


class FigureTable(TableModel):
    """[[figures]]"""

    kind: Literal["error_curves", "speed_up", "tradeoff", "floor"]
    by: Text | None = None
    """The axis that it runs over: any for floor; for error_curves the curves of a panel differ in
    it, with one panel for each value of the others; that of speed_up and tradeoff is fixed."""
    exact: bool = True
    bound: bool = False
    """For error_curves: draw the theorem's bound, or say that it is vacuous."""
    accuracy: Positive | None = None
    """For speed_up: how many times sooner the error falls to this number."""
    title: Text | None = None
    caption: Text | None = None

    @model_validator(mode="after")
    def _read(self) -> FigureTable:
        """Refuse a key that a figure of this kind does not read."""
        own = {"speed_up": "num_agents", "tradeoff": "sync_period"}.get(self.kind)
        if self.by is not None and own not in (None, self.by):
            raise ValueError(
                f"has by = {show(self.by)}, but a figure of kind {self.kind} always runs over "
                f"{own}: remove it, or choose kind floor or error_curves"
            )
        for key, kind in (("accuracy", "speed_up"), ("bound", "error_curves")):
            if getattr(self, key) and self.kind != kind:
                raise ValueError(
                    f"has {key}, which a figure of kind {self.kind} does not read: remove it, or "
                    f"choose kind {kind}"
                )
        return self


class NumAgentsTable(TableModel):
    value: Count


class SyncPeriodTable(TableModel):
    value: SomeRounds


class StepSizeTable(TableModel):
    value: Annotated[Positive, either("corollary")]


POINT: dict[str, type[TableModel]] = {
    "num_agents": NumAgentsTable,
    "sync_period": SyncPeriodTable,
    "step_size": StepSizeTable,
}
"""The axes that every grid has."""
