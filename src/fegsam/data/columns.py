"""The columns of a log: which file column has which role, and their values as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fegsam.data.files import arrow
from fegsam.data.scan import EMPTY, Logged
from fegsam.errors import ProblemError, shown

NEEDED = ("episode", "observation", "action", "reward", "terminated")
OPTIONAL = ("step", "truncated", "behavior_probability", "target_probability", "next_observation")
FRACTION = EMPTY + 1
"""An action that is not a whole number."""

Names = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True)
class Layout:
    """Where a file keeps each role, and of what kind its observations are."""

    names: Mapping[str, tuple[str, ...]]
    """the file's columns by role; several only for observations"""
    width: int | None
    """k where an observation has k numbers; None where it is a state number"""
    by: str | None
    """the file's column whose values tell agents apart"""
    is_empty: bool
    """whether no row says of what kind the observations are"""
    kinds: Mapping[str, str]
    """what the columns that name episodes and agents hold, as far as their types say it"""

    @property
    def file_columns(self) -> list[str]:
        """The columns that are read, each once."""
        every = [name for names in self.names.values() for name in names]
        return list(dict.fromkeys([*every, *([self.by] if self.by else [])]))

    def csv_types(self) -> dict[str, Any]:
        """The types that a CSV file is read with, so that an empty first block fixes none."""
        pa = arrow()
        number, whole, flag = pa.float64(), pa.int64(), pa.bool_()
        by_role = {
            "reward": number,
            "behavior_probability": number,
            "target_probability": number,
            "action": number,
            "step": whole,
            "terminated": flag,
            "truncated": flag,
        }
        return {self.names[role][0]: kind for role, kind in by_role.items() if role in self.names}


def check_names(columns: Names) -> dict[str, tuple[str, ...]]:
    """The given `columns` with every value as a tuple, or an error."""
    if not isinstance(columns, Mapping):
        raise ProblemError(
            f"columns is {shown(columns)}: give a mapping such as {{'action': 'act'}}"
        )
    found = {}
    for role, name in columns.items():
        if role not in NEEDED + OPTIONAL:
            raise ProblemError(
                f"columns names {shown(role)}, but the roles are {', '.join(NEEDED + OPTIONAL)}: "
                "use one of these"
            )
        names = (name,) if isinstance(name, str) else tuple(name)
        if not names or (len(names) > 1 and not role.endswith("observation")):
            raise ProblemError(f"columns[{role!r}] is {shown(name)}: give one column's name")
        found[role] = names
    return found


def layout_of(
    file: Path, schema: Any, given: Mapping[str, tuple[str, ...]], by: str | None
) -> Layout:
    """The layout of a file, or an error if a column is missing or has an unusable type."""
    names = {role: given.get(role, (role,)) for role in NEEDED + OPTIONAL}
    for role in OPTIONAL:
        if role not in given and role not in schema.names:
            del names[role]
    for role, columns in names.items():
        for name in columns:
            _require_column(file, schema, name, role)
            _require_type(file, schema.field(name).type, name, role)
    if by is not None:
        _require_agents(file, schema, by)
    for role in ("observation", "next_observation"):
        _require_one_number_each(file, schema, names.get(role, ()), role)
    width = _width(schema, names["observation"])
    if "next_observation" in names and _width(schema, names["next_observation"]) != width:
        raise ProblemError(
            f"{file}: next_observation has another form than observation: store both alike"
        )
    identities = [*names["episode"], *([] if by is None else [by])]
    types = {name: schema.field(name).type for name in identities}
    kinds = {name: _kind(each) for name, each in types.items() if not arrow().types.is_null(each)}
    is_empty = arrow().types.is_null(schema.field(names["observation"][0]).type)
    return Layout(names, width, by, is_empty, kinds)


def _require_column(file: Path, schema: Any, name: str, role: str) -> None:
    found = schema.names.count(name)
    if not found:
        cure = "name it in columns (--column)" if name == role else "correct columns (--column)"
        raise ProblemError(
            f"{file}: there is no column {name!r}, only {', '.join(schema.names)}: {cure}"
        )
    if found > 1:
        raise ProblemError(f"{file}: {found} columns are named {name!r}: rename all but one")


def _require_one_number_each(file: Path, schema: Any, names: Sequence[str], role: str) -> None:
    """Raise where an observation is spread over columns of which one has lists."""
    for name in names if len(names) > 1 else ():
        if _is_list(schema.field(name).type):
            raise ProblemError(
                f"{file}: {role} is spread over {len(names)} columns, but {name!r} has lists: name "
                "it alone, or columns of numbers"
            )


def _require_agents(file: Path, schema: Any, by: str) -> None:
    if by not in schema.names:
        raise ProblemError(f"{file}: there is no column {by!r} to split by: correct by={by!r}")
    _require_column(file, schema, by, by)
    kind = schema.field(by).type
    if arrow().types.is_nested(kind):
        raise ProblemError(
            f"{file}: {by!r} is a {kind} column, whose values cannot tell agents apart: store "
            "numbers or text"
        )


def _kind(kind: Any) -> str:
    """What a column of a type holds, such that values of one kind can be told apart."""
    types = arrow().types
    if types.is_dictionary(kind):
        return _kind(kind.value_type)
    if _is_text(kind):
        return "text"
    return "numbers" if types.is_integer(kind) or types.is_floating(kind) else str(kind)


def without_codes(column: Any) -> Any:
    """A column with its own values, also where a file stores a code for each of them."""
    if not arrow().types.is_dictionary(column.type):
        return column
    return column.cast(column.type.value_type)


def _require_type(file: Path, kind: Any, name: str, role: str) -> None:
    types = arrow().types
    number = types.is_integer(kind) or types.is_floating(kind)
    if role == "episode":
        good, cure = types.is_integer(kind) or _is_text(kind), "store whole numbers or text"
    elif role.endswith("observation"):
        inner = kind.value_type if _is_list(kind) else kind
        good = types.is_integer(inner) or types.is_floating(inner)
        cure = "store numbers, or lists of numbers of one length"
    elif role in ("terminated", "truncated"):
        good = types.is_boolean(kind) or types.is_integer(kind)
        cure = "store true and false"
    elif role == "step":
        good, cure = types.is_integer(kind), "store whole numbers"
    else:
        good, cure = number, "store numbers"
    if not good and not types.is_null(kind):
        raise ProblemError(f"{file}: {name!r} is a {kind} column: {cure}")


def _is_text(kind: Any) -> bool:
    types = arrow().types
    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return types.is_string(kind) or types.is_large_string(kind)


def _is_list(kind: Any) -> bool:
    types = arrow().types
    return types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind)


def _width(schema: Any, names: Sequence[str]) -> int | None:
    """k; None for state numbers, 0 for lists whose first row must say."""
    if len(names) > 1:
        return len(names)
    kind = schema.field(names[0]).type
    if arrow().types.is_fixed_size_list(kind):
        return kind.list_size
    return 0 if _is_list(kind) else None if arrow().types.is_integer(kind) else 1


class Decoder:
    """Turns batches of one log into `Logged` arrays; it numbers episodes that are named by text."""

    def __init__(self, layout: Layout, before: Decoder | None = None) -> None:
        self.layout = layout
        self.width = layout.width if before is None else before.width
        self._numbers: dict[Any, int] = {} if before is None else before._numbers

    def decode(self, table: Any) -> Logged:
        """The columns of a pyarrow.RecordBatch as arrays."""
        names = self.layout.names
        count = table.num_rows

        def get(role: str) -> Any:
            return table.column(names[role][0]) if role in names else None

        state, vector = self._observations(table, "observation", count)
        next_state, next_vector = self._observations(table, "next_observation", count)
        truncated = get("truncated")
        return Logged(
            self._episodes(get("episode")),
            _whole(get("step")),
            state,
            vector,
            next_state,
            next_vector,
            _actions(get("action")),
            _numbers(get("reward")),
            _flags(get("terminated")),
            np.zeros(count, np.uint8) if truncated is None else _flags(truncated),
            _numbers(get("behavior_probability")),
            _numbers(get("target_probability")),
        )

    def _episodes(self, column: Any) -> np.ndarray:
        if not _is_text(column.type):
            return _whole(column)
        pa = arrow()
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        known = [
            EMPTY if name is None else self._numbers.setdefault(name, len(self._numbers))
            for name in coded.dictionary.to_pylist()
        ]
        places = _whole(coded.indices)
        table = np.array([*known, EMPTY], dtype=np.int64)
        return table[np.where(places == EMPTY, len(known), places)]

    def _observations(self, table: Any, role: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Their state numbers and their vectors, of which one has length 0."""
        no_state, no_vector = np.zeros(0, np.int64), np.zeros((0, self.width or 0))
        names = self.layout.names.get(role)
        if names is None:
            return no_state, no_vector
        columns = [table.column(name) for name in names]
        if self.width is None:
            return _whole(columns[0]), no_vector
        if _is_list(columns[0].type):
            return no_state, self._vectors(columns[0], count)
        return no_state, np.stack([_numbers(column) for column in columns], axis=1)

    def _vectors(self, column: Any, count: int) -> np.ndarray:
        """(L, k); rows that are empty or of another length are NaN."""
        import pyarrow.compute as pc

        if arrow().types.is_fixed_size_list(column.type) and not column.null_count:
            return _numbers(column.flatten()).reshape(count, self.width or 0)
        lengths = _whole(pc.list_value_length(column))  # pyright: ignore[reportAttributeAccessIssue]
        if not self.width:
            self.width = int(lengths[lengths > 0][0]) if (lengths > 0).any() else 0
        full = np.full((count, self.width), np.nan)
        values = _numbers(column.filter(arrow().array(lengths == self.width)).flatten())
        full[lengths == self.width] = values.reshape(-1, self.width)
        return full


def _whole(column: Any) -> np.ndarray:
    """int64, `EMPTY` where there is no value; of length 0 where there is no column."""
    if column is None:
        return np.zeros(0, np.int64)
    filled = column.cast("int64")
    return (filled.fill_null(EMPTY) if filled.null_count else filled).to_numpy()


def _numbers(column: Any) -> np.ndarray:
    """float64, NaN where there is no value; of length 0 where there is no column."""
    if column is None:
        return np.zeros(0)
    filled = column.cast("float64")
    return (filled.fill_null(np.nan) if filled.null_count else filled).to_numpy()


def _flags(column: Any) -> np.ndarray:
    """uint8: 0, 1, or 2 where there is no value."""
    filled = column.cast("bool").cast("uint8")
    return (filled.fill_null(2) if filled.null_count else filled).to_numpy()


def _actions(column: Any) -> np.ndarray:
    """int64: also of a column of floats, which is what a table with empty cells often has."""
    if not arrow().types.is_floating(column.type):
        return _whole(column)
    numbers = _numbers(column)
    whole = np.abs(numbers) < 2.0**62
    with np.errstate(invalid="ignore"):
        actions = np.where(whole & (numbers == np.floor(numbers)), numbers, 0.0).astype(np.int64)
        actions[whole & (numbers != np.floor(numbers)) | (np.abs(numbers) >= 2.0**62)] = FRACTION
    actions[np.isnan(numbers)] = EMPTY
    return actions
