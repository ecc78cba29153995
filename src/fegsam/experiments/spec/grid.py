"""[grid]: its axes, and the keys that each axis sets.

Every key of [grid] is an axis: a list of values, or one value. Every grid has `num_agents`,
`sync_period` and `step_size`. The axes `horizon`, `heterogeneity`, `num_steps` and `sampling` set
keys of other tables, and any key of [problem], [algorithm] or [run] is an axis under its full name,
as in ``problem.discount = [0.5, 0.9]``. A value of an axis replaces the value in that table. A
study with several ``[[grid]]`` tables has the cells of each in turn.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fegsam.experiments.spec.spec_text import SpecText
from fegsam.experiments.spec.study_tables import POINT
from fegsam.experiments.spec.toml_lines import Key
from fegsam.experiments.spec.wording import nearest, show

MOST_CELLS = 100_000

SHORT: dict[str, Key] = {
    **{name: (name,) for name in POINT},
    "num_steps": ("run", "num_steps"),
    "sampling": ("run", "sampling"),
    "horizon": ("algorithm", "horizon"),
    "heterogeneity": ("problem", "behavior", "heterogeneity"),
}
ROOTS = ("problem", "algorithm", "run")


@dataclass(frozen=True)
class Axis:
    """One axis of a grid."""

    name: str
    target: Key
    """the key whose value it sets"""
    values: tuple[Any, ...]
    places: tuple[Key, ...]
    """the key of each value in the text"""


def read_grids(source: SpecText) -> tuple[tuple[Axis, ...], ...]:
    """The axes of [grid], or of each [[grid]], in order."""
    given = source.tables["grid"]
    several = isinstance(given, list)
    tables = given if several else [given]
    if not tables or not all(isinstance(table, dict) for table in tables):
        raise source.error(("grid",), f"is {show(given)}, but must be a table: write [grid]")
    keys: list[Key] = [("grid", number) if several else ("grid",) for number in range(len(tables))]
    grids = tuple(_axes(source, table, key) for table, key in zip(tables, keys, strict=True))
    cells = sum(math.prod(len(axis.values) for axis in axes) for axes in grids)
    if cells > MOST_CELLS:
        raise source.error(
            ("grid",),
            f"has {show(cells)} cells, but a study has at most {MOST_CELLS}: shorten its lists",
        )
    return grids


def flat_grids(given: Any) -> Any:
    """[grid], or each [[grid]], with each axis under its full key.

    TOML text has the values of a table before its inner tables. Writing nested axes would therefore
    change their order, and with it the order of the cells.

    >>> flat_grids({"problem": {"seed": [1, 2]}, "sampling": "iid"})
    {'problem.seed': [1, 2], 'sampling': 'iid'}
    """
    if isinstance(given, list):
        return [flat_grids(table) for table in given]
    return {name: value for name, value, _ in _flat(given, ())}


def moves(
    axes: tuple[Axis, ...], indices: tuple[int, ...], root: str
) -> Iterator[tuple[Axis, int]]:
    """The axes that set keys of the table `root`, each with the index of its value."""
    return (
        (axis, index) for axis, index in zip(axes, indices, strict=True) if axis.target[0] == root
    )


def overridden(table: Any, changes: list[tuple[Axis, int]]) -> tuple[Any, Mapping[Key, Key]]:
    """A table with the values of some axes, and the keys of those values in the text."""
    if not changes or not isinstance(table, dict):
        return table, {}
    changed = copy.deepcopy(table)
    for axis, index in changes:
        inner = changed
        for name in axis.target[1:-1]:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                return table, {}
        inner[axis.target[-1]] = axis.values[index]
    return changed, {axis.target: axis.places[index] for axis, index in changes}


def _axes(source: SpecText, table: dict[str, Any], key: Key) -> tuple[Axis, ...]:
    axes = tuple(_axis(source, name, value, place) for name, value, place in _flat(table, key))
    for name in POINT:
        if not any(axis.name == name for axis in axes):
            raise source.error((*key, name), "is missing: give a number or a list of numbers")
    targets = [axis.target for axis in axes]
    for axis in axes:
        if targets.count(axis.target) > 1:
            raise source.error(
                axis.places[0], "sets the same key as another axis of this grid: keep one of them"
            )
    return axes


def _flat(table: dict[str, Any], key: Key) -> Iterator[tuple[str, Any, Key]]:
    """Name, value and key of each axis; dotted keys, which TOML nests, are joined again."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from (
                (f"{name}.{inner}", entry, place)
                for inner, entry, place in _flat(value, (*key, name))
            )
        else:
            yield name, value, (*key, name)


def _axis(source: SpecText, name: str, value: Any, place: Key) -> Axis:
    way = tuple(name.split("."))
    if name not in SHORT and (way[0] not in ROOTS or len(way) < 2):
        raise source.error(place, f"is not a known axis{nearest(name, SHORT)}")
    if isinstance(value, list):
        if not value:
            raise source.error(place, "is an empty list: give at least one value")
        values, places = tuple(value), tuple((*place, index) for index in range(len(value)))
        if len(value) > MOST_CELLS:
            raise source.error(
                place,
                f"has {len(value)} values, but a study has at most {MOST_CELLS} cells: shorten it",
            )
    else:
        values, places = (value,), (place,)
    if name in POINT:
        values = tuple(
            vars(source.check({"value": entry}, POINT[name], where, {(*where, "value"): where}))[
                "value"
            ]
            for entry, where in zip(values, places, strict=True)
        )
    seen: set[str] = set()
    for entry, where in zip(values, places, strict=True):
        shown = json.dumps(entry, default=str, sort_keys=True)
        if shown in seen:
            raise source.error(
                where, f"is {show(entry)}, which the list already has: name each value once"
            )
        seen.add(shown)
    return Axis(name, SHORT.get(name, way), values, places)
