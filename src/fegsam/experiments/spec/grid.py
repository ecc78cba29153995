"""[grid]: its axes, and the keys that each axis sets.

Every key of [grid] is an axis: a list of values, or one value. Every grid has `num_agents`,
`step_size`, and `sync_period` unless [run] has it. The axes `method`, `schedule`, `tail`,
`horizon`, `heterogeneity`, `num_steps` and `sampling` set keys of other tables, and any key of
[problem], [algorithm], [run] or [methods] is an axis under its full name, as in
``problem.discount = [0.5, 0.9]``. A value of an axis replaces the value in that table; a
key of [run] that is replaced in every cell is refused. A study with several ``[[grid]]`` tables has
the cells of each in turn.
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
from fegsam.experiments.spec.wording import nearest, show, show_key

MOST_CELLS = 100_000

SHORT: dict[str, Key] = {
    **{name: (name,) for name in POINT},
    "sync_period": ("run", "sync_period"),
    "method": ("run", "method"),
    "schedule": ("run", "schedule"),
    "tail": ("run", "tail"),
    "num_steps": ("run", "num_steps"),
    "sampling": ("run", "sampling"),
    "horizon": ("algorithm", "horizon"),
    "heterogeneity": ("problem", "behavior", "heterogeneity"),
}
WHOLE = (*POINT, "schedule", "tail")
"""The axes of which a table is one value."""
ROOTS = ("problem", "algorithm", "run", "methods")


@dataclass(frozen=True)
class GridAxis:
    """One axis of a grid."""

    name: str
    target: Key
    """the key whose value it sets"""
    values: tuple[Any, ...]
    places: tuple[Key, ...]
    """the key of each value in the text"""


def read_grids(source: SpecText) -> tuple[tuple[GridAxis, ...], ...]:
    """The axes of [grid], or of each [[grid]], in order."""
    given = source.tables["grid"]
    several = isinstance(given, list)
    tables = given if several else [given]
    if not tables or not all(isinstance(table, dict) for table in tables):
        raise source.error(("grid",), f"is {show(given)}, but must be a table: write [grid]")
    keys: list[Key] = [("grid", number) if several else ("grid",) for number in range(len(tables))]
    grids = tuple(_axes(source, table, key) for table, key in zip(tables, keys, strict=True))
    _check_run_used(source, grids)
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
    axes: tuple[GridAxis, ...], indices: tuple[int, ...], root: str
) -> Iterator[tuple[GridAxis, int]]:
    """The axes that set keys of the table `root`, each with the index of its value."""
    return (
        (axis, index) for axis, index in zip(axes, indices, strict=True) if axis.target[0] == root
    )


def overridden(
    source: SpecText, table: Any, changes: list[tuple[GridAxis, int]]
) -> tuple[Any, Mapping[Key, Key]]:
    """A table with the values of some axes, and the keys of those values in the text."""
    if not changes or not isinstance(table, dict):
        return table, {}
    changed = copy.deepcopy(table)
    for axis, index in changes:
        inner = changed
        for end, name in enumerate(axis.target[1:-1], 2):
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise source.error(
                    axis.places[index],
                    f"sets a key of {show_key(axis.target[:end])}, which is {show(inner)} and not "
                    "a table: change one of them",
                )
        inner[axis.target[-1]] = axis.values[index]
    return changed, {axis.target: axis.places[index] for axis, index in changes}


def _axes(source: SpecText, table: dict[str, Any], key: Key) -> tuple[GridAxis, ...]:
    axes = tuple(_axis(source, name, value, place) for name, value, place in _flat(table, key))
    run = source.tables.get("run", {})
    run = run if isinstance(run, dict) else {}
    for name in POINT:
        known = SHORT[name]
        given = known[0] == "run" and known[1] in run
        if not given and not any(axis.target[: len(known)] == known for axis in axes):
            raise source.error((*key, name), "is missing: give a number or a list of numbers")
    targets = [axis.target for axis in axes]
    for axis in axes:
        if targets.count(axis.target) > 1:
            raise source.error(
                axis.places[0], "sets the same key as another axis of this grid: keep one of them"
            )
    _check_methods_used(source, axes, run)
    return axes


def _check_run_used(source: SpecText, grids: tuple[tuple[GridAxis, ...], ...]) -> None:
    """Refuse a key of [run] that some axis of every grid replaces."""
    run = source.tables.get("run", {})
    for name in run if isinstance(run, dict) else ():
        axes = [axis for axes in grids for axis in axes if axis.target == ("run", name)]
        if len(axes) == len(grids):
            raise source.error(
                ("run", name),
                f"is {show(run[name])}, but the axis {axes[0].name} replaces it in every cell: "
                "remove one of them",
            )


def _check_methods_used(source: SpecText, axes: tuple[GridAxis, ...], run: dict[str, Any]) -> None:
    """Check that axes over keys of methods change some cell."""
    chosen = next((axis.values for axis in axes if axis.target == SHORT["method"]), None)
    used = (run.get("method"),) if chosen is None else chosen
    for axis in axes:
        if axis.target[0] == "methods" and axis.target[1] not in used:
            raise source.error(
                axis.places[0],
                f"sets a key of the method {show(axis.target[1])}, which no cell of this grid "
                "uses: name it as method",
            )


def _flat(
    table: dict[str, Any], key: Key, whole: tuple[str, ...] = WHOLE
) -> Iterator[tuple[str, Any, Key]]:
    """Name, value and key of each axis; dotted keys, which TOML nests, are joined again."""
    for name, value in table.items():
        if isinstance(value, dict) and value and name not in whole:
            yield from (
                (f"{name}.{inner}", entry, place)
                for inner, entry, place in _flat(value, (*key, name), ())
            )
        else:
            yield name, value, (*key, name)


def _axis(source: SpecText, name: str, value: Any, place: Key) -> GridAxis:
    first, *rest = name.split(".")
    if first not in SHORT and (first not in ROOTS or not rest):
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
        checked = (
            vars(source.check({"value": entry}, POINT[name], where, {(*where, "value"): where}))
            for entry, where in zip(values, places, strict=True)
        )
        # Lists and tables stay as they are written, as in the other axes.
        values = tuple(
            each["value"] if isinstance(entry, int | float | str) else entry
            for entry, each in zip(values, checked, strict=True)
        )
    seen: set[str] = set()
    for entry, where in zip(values, places, strict=True):
        shown = json.dumps(entry, default=str, sort_keys=True)
        if shown in seen:
            raise source.error(
                where, f"is {show(entry)}, which the list already has: name each value once"
            )
        seen.add(shown)
    return GridAxis(name, (*SHORT.get(first, (first,)), *rest), values, places)
