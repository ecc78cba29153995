"""The text of a spec: reads TOML, checks tables against models, and reports errors with lines."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from fegsam.errors import SpecError
from fegsam.experiments.spec.tables import TableModel, ValidationError
from fegsam.experiments.spec.toml_lines import Key, key_lines, line_of
from fegsam.experiments.spec.wording import nearest, show, show_key

Model = TypeVar("Model", bound=TableModel)

_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}
_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "string_too_short": "text that is not empty",
    "string_too_long": "a shorter text",
    "string_pattern_mismatch": "made of letters, digits, '-', '_' and '.' and begin with a letter "
    "or digit",
    "too_short": "a list that is not empty",
    "too_long": "a shorter list",
}


@dataclass(frozen=True, eq=False)
class SpecText:
    """A TOML text, its name for error messages, and the directory of the files that it names."""

    text: str
    name: str
    directory: Path
    trust: bool | None = None
    """which code that it names may run, see `foreign_code`"""

    @cached_property
    def tables(self) -> dict[str, Any]:
        """The text as nested dicts and lists."""
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise self._syntax_error(str(error)) from None
        except (ValueError, RecursionError, OverflowError):
            lines = self.text.split("\n")
            line = next(
                (n for n, line in enumerate(lines) if re.search(r"\d{4000}", line)),
                lines.index(max(lines, key=len)),
            )
            what = "is not valid TOML (a number is too long or a value too deeply nested)"
            raise SpecError(f"{self.name}, line {line + 1}: the text {what}.") from None

    @cached_property
    def _lines(self) -> dict[Key, int]:
        # TOML's own line ends; the parser has already refused a lone carriage return.
        return key_lines(self.text.replace("\r\n", "\n"))

    def error(self, key: Key, what: str) -> SpecError:
        """An error about `key`; `what` continues the sentence: "is 3, but ..."."""
        line = line_of(self._lines, key)
        place = self.name if line is None else f"{self.name}, line {line}"
        return SpecError(
            f"{place}: {show_key(key)} {what}{'' if what.endswith(('.', '?')) else '.'}"
        )

    def has(self, key: Key) -> bool:
        """Whether the text has `key` itself."""
        return key in self._lines

    def choose(
        self, table: Any, models: Mapping[str, type[Model]], key: Key, moved: Mapping[Key, Key]
    ) -> Model:
        """Check a table against the model that its tag names.

        `moved` maps keys whose values come from elsewhere in the text to their keys there.
        """
        tag = next(iter(models.values())).tag
        if not isinstance(table, dict):
            raise self.error(
                _real(key, moved), f"is {show(table)}, but must be a table: write [{show_key(key)}]"
            )
        if tag not in table:
            raise self.error(
                _real((*key, tag), moved), f"is missing: choose one of {', '.join(models)}"
            )
        name = table[tag]
        if not isinstance(name, str) or name not in models:
            raise self.error(
                _real((*key, tag), moved),
                f"is {show(name)}, which is not known{nearest(name, models)}",
            )
        return self.check(table, models[name], key, moved, f"{tag} = {show(name)}")

    def check(
        self,
        table: Any,
        model: type[Model],
        key: Key,
        moved: Mapping[Key, Key] | None = None,
        when: str = "",
    ) -> Model:
        """`table` as a `model`; otherwise an error about the first fault."""
        try:
            return model.model_validate(table, context={"directory": self.directory})
        except ValidationError as failure:
            errors = failure.errors(include_url=False)
        # A misspelt key is also missing under its right name; the unknown name says more.
        first = next((error for error in errors if error["type"] == "extra_forbidden"), errors[0])
        place = (*key, *first["loc"])
        raise self.error(_real(place, moved or {}), _sentence(first, model, key, when)) from None

    def _syntax_error(self, message: str) -> SpecError:
        found = re.fullmatch(
            r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", message, re.DOTALL
        )
        what, line, column = found.groups() if found else (message, None, None)
        what = " ".join((what[:1].lower() + what[1:])[:150].split())
        if line is None:
            return SpecError(
                f"{self.name}, line {self.text.count(chr(10)) + 1}: the text ends too early "
                f"({what})."
            )
        return SpecError(f"{self.name}, line {line}: column {column} is not valid TOML ({what}).")


def _real(key: Key, moved: Mapping[Key, Key]) -> Key:
    return next(
        (moved[key[:end]] + key[end:] for end in range(len(key), 0, -1) if key[:end] in moved), key
    )


def _sentence(error: Mapping[str, Any], model: type[TableModel], key: Key, when: str) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "missing":
        table = (*key, *error["loc"][:-1])
        where = "that table" if isinstance(table[-1], int) else f"[{show_key(table)}]"
        return f"is missing{f' ({when})' if when else ''}: add it to {where}"
    if kind == "extra_forbidden":
        owner = _model_at(model, error["loc"][:-1]) or model
        names = [name for name in owner.model_fields if name != owner.tag]
        where = f" ({when})" if when else ""
        return f"is not a known key here{where}{nearest(error['loc'][-1], names)}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        names = re.findall(r"'([^']*)'", context["expected"])
        return f"is {show(value)}, which is not known{nearest(value, names)}"
    if kind in _BOUNDS:
        name, word = _BOUNDS[kind]
        return f"is {show(value)}, but must be {word} {context[name]:g}: correct it"
    if kind == "float_type" and isinstance(value, int) and not isinstance(value, bool):
        return f"is {show(value)}, which is too large: give a smaller number"
    return f"is {show(value)}, but must be {_TYPES.get(kind, 'of another kind')}: correct it"


def _model_at(model: type[TableModel], way: Iterable[str | int]) -> type[TableModel] | None:
    """The model of an inner table, by its annotation."""
    for name in way:
        field = model.model_fields.get(str(name))
        parts = getattr(field.annotation, "__args__", (field.annotation,)) if field else ()
        inner = next(
            (part for part in parts if isinstance(part, type) and issubclass(part, TableModel)),
            None,
        )
        if inner is None:
            return None
        model = inner
    return model
