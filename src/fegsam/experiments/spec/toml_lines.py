"""The line of each key in a TOML text, so that an error can name it.

`tomllib` returns values without their lines. A text that it accepts is therefore read again, line
by line: a header opens a table, any other line starts with a key, and a value continues for as many
lines as `tomllib` needs to accept it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

Key = tuple[str | int, ...]
"""The path to a value, with numbers for entries of arrays, such as ("figures", 0, "kind")."""


def key_lines(text: str) -> dict[Key, int]:
    """The line, counted from 1, of every table and key of a valid TOML text.

    Entries of a list and keys of an inline table are not listed (see `line_of`).

    >>> key_lines('[study]\\nname = "a"\\n[[figures]]\\nkind = "floor"')
    {('study',): 1, ('study', 'name'): 2, ('figures',): 3, ('figures', 0): 3, ('figures', 0,
    'kind'): 4}
    """
    lines = text.split("\n")
    found: dict[Key, int] = {}
    table: Key = ()
    counts: dict[Key, int] = {}
    number = 0
    while number < len(lines):
        line, first = lines[number].strip(), number
        number += 1
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            table = _header(line, counts)
            _note(found, table, first + 1)
            continue
        key, rest = _split(line)
        complete = _complete(rest)
        while not complete and number < len(lines):
            rest += "\n" + lines[number]
            complete = _may_end(lines[number]) and _complete(rest)
            number += 1
        _note(found, (*table, *key), first + 1)
    return found


def line_of(lines: dict[Key, int], key: Key) -> int | None:
    """The line of a key, or of the innermost key around it that has a line.

    >>> line_of({("grid", "num_agents"): 7}, ("grid", "num_agents", 2))
    7
    """
    return next((lines[key[:end]] for end in range(len(key), 0, -1) if key[:end] in lines), None)


def _note(found: dict[Key, int], key: Key, line: int) -> None:
    """Note the line of a key and of the tables that a dotted key opens."""
    for end in range(1, len(key) + 1):
        found.setdefault(key[:end], line)


def _header(line: str, counts: dict[Key, int]) -> Key:
    """The table that a header opens; `counts` counts the entries of each array of tables."""
    names = _way(tomllib.loads(line))
    key: Key = ()
    for name in names[:-1]:
        key = (*key, name)
        if key in counts:
            key = (*key, counts[key] - 1)
    key = (*key, names[-1])
    if line.startswith("[["):
        counts[key] = counts.get(key, 0) + 1
        key = (*key, counts[key] - 1)
    return key


def _split(line: str) -> tuple[list[str], str]:
    """A line's key and the text after its equals sign; a quoted key may contain such a sign."""
    position = line.index("=")
    while not _accepts(line[:position] + "= 0"):
        position = line.index("=", position + 1)
    return _way(tomllib.loads(line[:position] + "= 0")), line[position + 1 :]


def _way(nested: Any) -> list[str]:
    """The names on the only path into nested tables."""
    names: list[str] = []
    while isinstance(nested, dict) and nested:
        name, nested = next(iter(nested.items()))
        names.append(name)
        if isinstance(nested, Sequence) and nested:
            nested = nested[0]
    return names


def _may_end(line: str) -> bool:
    """Whether a value of several lines may end here; a cheap test before asking `tomllib`."""
    return "#" in line or line.rstrip().endswith(("]", "}", '"""', "'''"))


def _complete(value: str) -> bool:
    return _accepts("value = " + value)


def _accepts(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True
