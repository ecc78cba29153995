"""[methods.NAME], and the keys of [run] that say how a round goes, as pydantic models.

The keys are those of `fegsam.Method` and its parts, of `fegsam.schedules` and of `fegsam.Tail`, and
each table builds the value of the library that it stands for.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fegsam.errors import ProblemError
from fegsam.experiments.spec.spec_text import SpecText
from fegsam.experiments.spec.tables import (
    BeforeValidator,
    Count,
    Field,
    Long,
    Open,
    Positive,
    TableModel,
    WrapValidator,
    either,
    model_validator,
)
from fegsam.experiments.spec.toml_lines import Key
from fegsam.experiments.spec.wording import nearest, show
from fegsam.methods import schedules
from fegsam.methods.average import Average, ByVisits, Mean
from fegsam.methods.correction import ControlVariates
from fegsam.methods.local_steps import LocalSteps
from fegsam.methods.method import Method
from fegsam.methods.participation import Participation
from fegsam.methods.rounding import Rounding, SomeCells
from fegsam.methods.server import Server
from fegsam.methods.tail import Tail


class BuiltTable(TableModel):
    """A table that stands for a value of the library, which checks what the types cannot."""

    @abc.abstractmethod
    def build(self) -> Any:
        """The value."""

    @model_validator(mode="after")
    def _can_be_built(self) -> BuiltTable:
        try:
            self.build()
        except ProblemError as error:
            said = " ".join(str(error).split()).rstrip(".")
            raise ValueError(f"cannot be used ({said})") from None
        return self


class MeanTable(BuiltTable):
    """A weighted mean."""

    weights: Annotated[
        tuple[Positive, ...] | None, Field(strict=False, min_length=1, max_length=10**6)
    ] = None
    """Positive numbers that sum to one: one for each agent, or one for each kind."""

    def build(self) -> Mean:
        return Mean(self.weights)


class CorrectionTable(BuiltTable):
    """Control variates."""

    of: Literal["agent", "kind"] = "agent"
    source: Literal["last_round", "first_step"] = "last_round"

    def build(self) -> ControlVariates:
        return ControlVariates(self.of, self.source)


class ServerTable(BuiltTable):
    """How the server moves."""

    step: Positive = 1.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    nesterov: bool = False

    def build(self) -> Server:
        return Server(self.step, self.momentum, self.nesterov)


class ParticipationTable(BuiltTable):
    """Which agents take part in a round: a number of them, or each with a probability."""

    agents: Count | None = None
    probability: Open | None = None
    others: Literal["wait", "go_on"] = "wait"
    divide_by: Literal["answered", "all"] = "answered"

    def build(self) -> Participation:
        return Participation(self.agents, self.probability, self.others, self.divide_by)


class RoundingTable(BuiltTable):
    """What agents report: changes rounded at random, or some cells of them."""

    step: Positive | None = None
    dither: bool = False
    cells: Count | None = None
    """Instead of `step`: the number of cells."""

    def build(self) -> Rounding | SomeCells:
        if self.step is not None and self.cells is None:
            return Rounding(self.step, self.dither)
        if self.step is not None or self.cells is None or self.dither:
            raise ProblemError("give either step, perhaps with dither, or cells alone")
        return SomeCells(self.cells)


class LocalStepsTable(BuiltTable):
    """Unequal numbers of local steps."""

    by_kind: Annotated[tuple[Count, ...], Field(strict=False, min_length=1, max_length=10**6)]
    normalised: bool = True

    def build(self) -> LocalSteps:
        return LocalSteps(self.by_kind, self.normalised)


class MethodTable(BuiltTable):
    """[methods.NAME]: the parts of `fegsam.Method`."""

    average: Annotated[MeanTable, either("by_visits", other="a table")] = MeanTable()
    correction: CorrectionTable | None = None
    server: ServerTable = ServerTable()
    participation: ParticipationTable | None = None
    rounding: RoundingTable | None = None
    local_steps: LocalStepsTable | None = None

    def build(self) -> Method:
        average: Average = ByVisits() if isinstance(self.average, str) else self.average.build()
        others = {
            name: None if table is None else table.build()
            for name in ("correction", "participation", "rounding", "local_steps")
            for table in [getattr(self, name)]
        }
        return Method(average, server=self.server.build(), **others)


PUBLISHED: dict[str, dict[str, Any]] = {
    "plain": {},
    "scafflsa": {"correction": {}},
    "fedhsa": {"correction": {"source": "first_step"}},
    "fedavgm": {"server": {"momentum": 0.9}},
    "fednova": {},
    "importance_averaging": {"average": "by_visits"},
}
"""The tables of the methods that need none in the text."""
_NAME = "a name of a method is made of letters, digits, '-' and '_'"


def read_methods(source: SpecText, tables: Any, moved: Mapping[Key, Key]) -> dict[str, Method]:
    """The methods by their names; a table with a published name changes keys of that method."""
    if not isinstance(tables, dict):
        raise source.error(("methods",), f"is {show(tables)}: write [methods.NAME]")
    for name in tables:
        if not name.replace("-", "").replace("_", "").isalnum():
            raise source.error(("methods", name), f"cannot be used, since {_NAME}: rename it")
        if name == "plain":
            raise source.error(
                ("methods", name), "is the name of plain averaging: choose another name"
            )
    needed = () if "fednova" in tables else ("fednova",)
    given = {name: {} for name in PUBLISHED if name not in needed} | tables
    return {
        name: source.check(
            _merged(PUBLISHED.get(name, {}), table), MethodTable, ("methods", name), moved
        ).build()
        for name, table in given.items()
    }


def chosen_method(
    source: SpecText, name: str, methods: Mapping[str, Method], place: Key
) -> Method | None:
    """The method that the key at `place` names; None for plain averaging."""
    if name in methods:
        return None if methods[name].is_plain else methods[name]
    if name == "fednova":
        raise source.error(
            place,
            "is 'fednova', which needs local steps: add [methods.fednova] with local_steps = "
            "{by_kind = [5, 10]}",
        )
    raise source.error(place, f"is {show(name)}, which is not known{nearest(name, methods)}")


def _merged(base: dict[str, Any], given: Any) -> Any:
    """The table `given`, with the keys of `base` that it leaves out."""
    if not isinstance(given, dict):
        return given
    merged = {
        name: _merged(base[name], value) if isinstance(base.get(name), dict) else value
        for name, value in given.items()
    }
    return {**base, **merged}


class PolynomialTable(BuiltTable):
    """``(t + offset)^-power``."""

    power: Positive
    offset: Positive = 1.0

    def build(self) -> schedules.Polynomial:
        return schedules.Polynomial(self.power, self.offset)


class StepsTable(BuiltTable):
    """1 until the first of the times, then the value that belongs to the last time reached."""

    times: Annotated[tuple[Long, ...], Field(strict=False, min_length=1, max_length=10**6)]
    values: Annotated[tuple[Positive, ...], Field(strict=False, min_length=1, max_length=10**6)]

    def build(self) -> schedules.Steps:
        return schedules.Steps(self.times, self.values)


class RescaledTable(BuiltTable):
    """``1 / (1 + (1 - discount) (t + 1))``; it has no keys."""

    def build(self) -> schedules.Rescaled:
        return schedules.Rescaled()


class ScheduleTable(BuiltTable):
    """The shape of the step sizes over time, one of the following; it multiplies `step_size`."""

    polynomial: PolynomialTable | None = None
    """`power` and `offset` (by default 1) of ``(t + offset)^-power``"""
    steps: StepsTable | None = None
    """`times` and `values`: 1 until the first time, then the value of the last time reached"""
    rescaled: RescaledTable | None = None
    """an empty table: ``1 / (1 + (1 - discount) (t + 1))``"""

    def build(self) -> schedules.StepSchedule:
        given = [each for each in (self.polynomial, self.steps, self.rescaled) if each is not None]
        if len(given) != 1:
            raise ProblemError("give one of polynomial, steps and rescaled")
        return given[0].build()


class GrowingTable(BuiltTable):
    """Rounds that grow."""

    first: Count
    factor: Annotated[float, Field(gt=1)]
    most: Long

    def build(self) -> schedules.Growing:
        return schedules.Growing(self.first, self.factor, self.most)


class RoundsTable(BuiltTable):
    """Rounds of different lengths."""

    growing: GrowingTable
    """`first`, `factor` and `most`: the rounds grow by the factor from `first` to `most` steps"""

    def build(self) -> schedules.Growing:
        return self.growing.build()


class TailTable(BuiltTable):
    """The mean over the last part of a run."""

    fraction: Annotated[float, Field(gt=0, le=1)]
    over: Literal["steps", "syncs"] = "steps"

    def build(self) -> Tail:
        return Tail(self.fraction, self.over)


def _tail(value: Any) -> Any:
    """The table of a tail; a number means {fraction = ...}."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"fraction": value} if is_number else value


_WORDS = ("corollary", "advised")
_LONGEST = 10**15


def _rounds(value: Any, table: Any) -> Any:
    """The number of steps of a round, one of the words, a tuple of lengths, or a table."""
    if isinstance(value, dict):
        return table(value)
    if isinstance(value, str):
        if value not in _WORDS:
            raise ValueError(
                f"is {show(value)}, but must be a number or {' or '.join(map(repr, _WORDS))}: give "
                "either"
            )
        return value
    if not isinstance(value, list):
        return _length(value, "")
    if not value:
        raise ValueError("is an empty list: give at least one length of a round")
    return tuple(_length(each, f" at [{place}]") for place, each in enumerate(value))


def _length(value: Any, place: str) -> int:
    verb = "has" if place else "is"
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{verb} {show(value)}{place}, but must be a whole number: correct it")
    if not 1 <= value <= _LONGEST:
        bound = "at least 1" if value < 1 else f"at most {_LONGEST:g}"
        raise ValueError(f"{verb} {show(value)}{place}, but must be {bound}: correct it")
    return value


Schedule = Annotated[ScheduleTable, either("rescaled", other="a table")]
SomeTail = Annotated[TailTable, BeforeValidator(_tail)]
SomeRounds = Annotated[RoundsTable, WrapValidator(_rounds)]


def value_of(value: Any) -> Any:
    """The library's value of a checked key: of a table, or of a word that replaces one.

    >>> value_of(TailTable(fraction=0.5)), value_of((1, 3)), value_of("rescaled")
    (Tail(fraction=0.5, over='steps'), (1, 3), Rescaled())
    """
    if value == "rescaled":
        return schedules.Rescaled()
    return value.build() if isinstance(value, BuiltTable) else value
