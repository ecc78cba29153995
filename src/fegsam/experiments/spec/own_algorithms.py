"""[algorithm] with an algorithm from outside the package.

Its name is an import path ``package.module:Class`` or an entry point of the group
``fegsam.algorithms``. The other keys of the table are the fields of the class, which must be a
dataclass. If the class may be imported, they are checked against its annotations; if not, they are
kept unchecked. A cell has the same key either way.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, get_origin, get_type_hints

import numpy as np

from fegsam.algorithms.installed import load_provided, provided
from fegsam.algorithms.rule import Algorithm
from fegsam.errors import ProblemError
from fegsam.experiments.spec.array_values import CELLS
from fegsam.experiments.spec.foreign_code import algorithm_code
from fegsam.experiments.spec.spec_text import SpecText
from fegsam.experiments.spec.study_tables import ALGORITHMS, AlgorithmTable, OwnAlgorithmTable
from fegsam.experiments.spec.tables import Numbers, TableModel, create_model
from fegsam.experiments.spec.toml_lines import Key


def read_algorithm(source: SpecText, table: Any, moved: Mapping[Key, Key]) -> AlgorithmTable:
    """[algorithm] from its raw table; `moved` locates the values that a grid put there."""
    name = table.get("name") if isinstance(table, dict) else None
    if not isinstance(name, str) or name in ALGORITHMS:
        return source.choose(table, ALGORITHMS, ("algorithm",), moved)
    is_path, others = ":" in name, provided()
    if not is_path and name not in others:
        known = {**ALGORITHMS, **dict.fromkeys(others, OwnAlgorithmTable)}
        return source.choose(table, known, ("algorithm",), moved)
    stored = is_path and (source.directory / CELLS).is_dir()
    options = {key: value for key, value in table.items() if key != "name"}
    spec = OwnAlgorithmTable(name=name, options=options, stored=stored)
    if all(code.may_run(source.trust) for code in algorithm_code(spec)):
        try:
            model = _fields_model(name)
        except ProblemError as error:
            where = moved.get(("algorithm", "name"), ("algorithm", "name"))
            raise source.error(where, str(error)) from None
        source.check(options, model, ("algorithm",), moved, f"name = {name!r}")
    return spec


def build_own(spec: OwnAlgorithmTable) -> Algorithm:
    """The algorithm that a table describes, of which the class may be imported."""
    try:
        kind, model = _class(spec.name), _fields_model(spec.name)
    except ProblemError as error:
        raise ProblemError(f"algorithm.name {error}") from None
    try:
        values = model.model_validate(spec.options)
        return kind(**{name: getattr(values, name) for name in spec.options})
    except ProblemError:
        raise
    except Exception as error:
        raise ProblemError(f"{spec.name} cannot be made of these keys ({_reason(error)})") from None


def _class(name: str) -> type[Any]:
    """A dataclass, by an import path or as an entry point; an error goes on from the key `name`."""
    try:
        kind = _imported(name) if ":" in name else load_provided(name)
    except Exception as error:
        raise ProblemError(
            f"is {name!r}, which cannot be imported ({_reason(error)}): install it, or name the "
            "folder of its module in PYTHONPATH"
        ) from None
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        raise ProblemError(f"is {name!r}, which is not a dataclass: make it one")
    return kind


def _imported(name: str) -> Any:
    path, _, last = name.partition(":")
    if not all(part.isidentifier() for part in (*path.split("."), last)):
        raise ValueError("an import path is written 'package.module:Class'")
    return getattr(importlib.import_module(path), last)


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(".")


def _fields_model(name: str) -> type[TableModel]:
    """The fields of the class as a table."""
    kind = _class(name)
    try:
        hints = get_type_hints(kind)
    except (NameError, TypeError):
        hints = {}
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        hint = hints.get(field.name, Any)
        is_array = np.ndarray in (hint, get_origin(hint))
        is_needed = field.default is field.default_factory is dataclasses.MISSING
        if field.init:
            fields[field.name] = (Numbers if is_array else hint, ... if is_needed else None)
    return create_model(f"{kind.__name__}Fields", __base__=TableModel, **fields)
