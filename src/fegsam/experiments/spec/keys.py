"""The keys of a study, from the tables that check them: for ``fegsam run --keys`` and the docs."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fegsam.errors import ProblemError, shown
from fegsam.experiments.spec import data_tables, method_tables, problem_tables, study_tables

_ON_DATA = {
    kind: model
    for kind, model in data_tables.DATA_FEATURES.items()
    if kind not in problem_tables.FEATURES
}
TABLES: dict[str, Any] = {
    "study": study_tables.StudyTable,
    "problem": problem_tables.ENVIRONMENTS | data_tables.DATA,
    "problem.behavior": data_tables.LIVE_BEHAVIORS | problem_tables.BEHAVIORS,
    "problem.target": data_tables.DATA_TARGETS,
    "problem.features": problem_tables.FEATURES | _ON_DATA,
    "problem.environments": problem_tables.EnvironmentsTable,
    "problem.evaluation": data_tables.EvaluationTable,
    "algorithm": study_tables.ALGORITHMS,
    "methods.NAME": method_tables.MethodTable,
    "methods.NAME.average": method_tables.MeanTable,
    "methods.NAME.correction": method_tables.CorrectionTable,
    "methods.NAME.server": method_tables.ServerTable,
    "methods.NAME.participation": method_tables.ParticipationTable,
    "methods.NAME.rounding": method_tables.RoundingTable,
    "methods.NAME.local_steps": method_tables.LocalStepsTable,
    "run": study_tables.RunTable,
    "run.record": study_tables.RecordTable,
    "run.schedule": method_tables.ScheduleTable,
    "run.tail": method_tables.TailTable,
    "grid": study_tables.POINT,
    "figures": study_tables.FigureTable,
}
"""The model of each table of a study, or a dict of them by the word that chooses one."""
_WIDTH, _INDENT = 79, 24


class KeyOf(NamedTuple):
    """One key of a table; code stands in backticks."""

    name: str
    value: str
    default: str
    meaning: str


def keys_text(table: str | None = None) -> str:
    """The keys of one table of a study, or of all, as text of 80 columns.

    >>> print(keys_text("problem.evaluation")[:90])
    [problem.evaluation]
      episodes              whole number, at least 2 and at most 1e+06, ...
    """
    names = [
        name for name in TABLES if table is None or name == table or name.startswith(f"{table}.")
    ]
    if not names:
        raise ProblemError(f"There is no table {shown(table)}; give one of {', '.join(TABLES)}.")
    return "\n\n".join("\n".join(_table_lines(name)) for name in names)


def _table_lines(name: str) -> Iterator[str]:
    yield f"[[{name}]]" if name == "figures" else f"[{name}]"
    found = TABLES[name]
    models: Mapping[str, Any] = found if isinstance(found, dict) else {"": found}
    for kind, model in models.items():
        keys = keys_of(model)
        if kind and model.tag:
            yield ""
            yield f'{model.tag} = "{kind}"'
        elif kind:  # The model of a single key, whose name is the kind.
            keys = [key._replace(name=kind) for key in keys]
        for key in keys:
            yield from _key_lines(key)


def _key_lines(key: KeyOf) -> Iterator[str]:
    default = key.default if key.default == "required" else f"default {key.default}"
    about = f"{key.value}, {default}" + (f": {key.meaning}" if key.meaning else "")
    lines = textwrap.wrap(about.replace("`", "").replace(" (see below)", ""), _WIDTH - _INDENT)
    yield f"  {key.name}".ljust(_INDENT - 1) + f" {lines[0]}"
    yield from (" " * _INDENT + line for line in lines[1:])


def keys_of(model: Any) -> list[KeyOf]:
    """The keys of a model, without the one that chooses it."""
    said = _attribute_docs(model)
    return [
        KeyOf(name, *_describe(field), said.get(name, ""))
        for name, field in model.model_fields.items()
        if name != model.tag
    ]


def _describe(field: Any) -> tuple[str, str]:
    limits = {}
    for item in field.metadata:
        limits |= {
            name: getattr(item, name)
            for name in ("ge", "gt", "le", "lt")
            if getattr(item, name, None) is not None
        }
    words = " and ".join(f"{_WORDS[name]} {value:g}" for name, value in limits.items())
    kind = _kind(field.annotation, field.metadata)
    default = "required" if field.is_required() else _default(field.default)
    return f"{kind}{', ' + words if words else ''}", default


_WORDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def _default(value: Any) -> str:
    if value is None or str(value).startswith("Pydantic"):
        return "none"
    if hasattr(type(value), "model_fields"):
        return "`{}`"
    if isinstance(value, tuple) and len(value) > 5:
        return f"`{value[0]}` to `{value[-1]}`"
    return f"`{str(value).lower() if isinstance(value, bool) else repr(value)}`"


def _name(item: Any) -> str:
    """The name of the function that a validator calls, or an empty string."""
    return getattr(getattr(item, "func", None), "__name__", "")


def _kind(annotation: Any, metadata: Any = ()) -> str:
    checks = [_name(item) for item in metadata]
    for name, said in (
        ("_array", 'an array, or `"file.npz:name"`'),
        ("_function", '`"file.py:function"`'),
        ("_log", "a path, or a list of them"),
    ):
        if name in checks:
            return said
    if "_seeds" in checks:
        return "a number of seeds, or a list of them"
    if "_record" in checks:
        return "a number of steps, a list of times, or the table below"
    if "_rounds" in checks:
        return "a whole number, a list of them, a table, or a word (see below)"
    if "_tail" in checks:
        return "a number, or the table below"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _kind(arguments[0], arguments[1:])
    if origin is typing.Literal:
        return " or ".join(f'`"{value}"`' for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_kind(part) for part in arguments if part is not type(None))
    if origin in (tuple, list):
        return f"a list of: {_kind(arguments[0])}"
    names = {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "`true` or `false`",
        dict: "table",
    }
    # The words that `either` allows in place of a number.
    allowed = [
        inspect.getclosurevars(item.func).nonlocals["words"]
        for item in metadata
        if _name(item) == "check"
    ]
    words = [word for group in allowed for word in group]
    return names.get(origin or annotation, "table") + "".join(f' or `"{word}"`' for word in words)


def _attribute_docs(model: Any) -> dict[str, str]:
    """The string below each field, in the class and in its base classes."""
    found: dict[str, str] = {}
    for part in reversed([part for part in model.__mro__ if part.__module__.startswith("fegsam")]):
        source: Any = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
        body = source.body
        for one, other in itertools.pairwise(body):
            text = (
                isinstance(other, ast.Expr)
                and isinstance(other.value, ast.Constant)
                and other.value.value
            )
            if (
                isinstance(one, ast.AnnAssign)
                and isinstance(one.target, ast.Name)
                and isinstance(text, str)
            ):
                found[one.target.id] = " ".join(text.split())
    return found
