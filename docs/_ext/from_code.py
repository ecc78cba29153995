"""Directives that generate parts of the site from the code.

They show public names, the keys of a study, and the command line's help.
"""

from __future__ import annotations

import abc
import ast
import importlib
import inspect
import itertools
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.util.nodes import nested_parse_with_titles

ALIASES = {
    "fegsam.examples": "fegsam.problem.examples",
    "fegsam.features": "fegsam.problem.features",
    "fegsam.policies": "fegsam.problem.policies",
    "fegsam.schedules": "fegsam.methods.schedules",
}
PROTOCOL = "check, dimension, policies, tables, rule, window, form, norm, user_rule"


class _Text(Directive):
    """A directive whose body is generated as reStructuredText."""

    required_arguments = 1
    final_argument_whitespace = True

    @abc.abstractmethod
    def lines(self) -> Iterator[str]:
        """The body, block by block."""

    def run(self) -> list[nodes.Node]:
        body = StringList(
            [line for block in self.lines() for line in block.split("\n")], source=self.arguments[0]
        )
        holder = nodes.section()
        holder.document = self.state.document
        nested_parse_with_titles(self.state, body, holder)
        return holder.children


class PublicNames(_Text):
    """``.. public-names:: fegsam.exact``: the docstring of each name in ``__all__``."""

    def lines(self) -> Iterator[str]:
        shown = self.arguments[0]
        module = importlib.import_module(ALIASES.get(shown, shown))
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, types.ModuleType) or (
                shown == "fegsam.exact" and hasattr(importlib.import_module("fegsam"), name)
            ):
                continue
            yield f".. auto{'class' if inspect.isclass(value) else 'function'}:: {shown}.{name}"
            if inspect.isclass(value):
                yield f"   :members:\n   :exclude-members: {PROTOCOL}, __init__"
            yield ""


class SpecTable(_Text):
    """``.. spec-table:: module:NAME``: the keys of one pydantic model, or of a dict of models."""

    def lines(self) -> Iterator[str]:
        module, _, name = self.arguments[0].partition(":")
        found = getattr(importlib.import_module(f"fegsam.experiments.spec.{module}"), name)
        models = found if isinstance(found, dict) else {"": found}
        for kind, model in models.items():
            if kind:
                yield f'``{model.tag} = "{kind}"``' if model.tag else f"``{kind}``"
            own = inspect.cleandoc(model.__doc__ or "")
            # The heading above already names a model that serves a single table, and an inherited
            # docstring describes another model.
            own = own if "__doc__" in vars(model) and not own.startswith("[") else ""
            yield (
                textwrap.indent(
                    own.replace("`", "``") if "``" not in own else own, "   " if kind else ""
                )
                + "\n"
            )
            yield from _rows(model, "   " if kind else "")


def _rows(model: Any, indent: str) -> Iterator[str]:
    said = _attribute_docs(model)
    keys = {name: field for name, field in model.model_fields.items() if name != model.tag}
    if not keys:
        return
    columns = 4 if said.keys() & keys.keys() else 3
    yield f"{indent}.. list-table::\n{indent}   :header-rows: 1\n"
    rows = [
        (f"``{name}``", *_describe(field), said.get(name, "").replace("`", "``"))
        for name, field in keys.items()
    ]
    for row in [("key", "value", "default", "meaning"), *rows]:
        yield f"{indent}   * - " + f"\n{indent}     - ".join(row[:columns])
    yield ""


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
    if hasattr(value, "model_fields"):
        return "``{}``"
    if isinstance(value, tuple) and len(value) > 5:
        return f"``{value[0]}`` to ``{value[-1]}``"
    return f"``{str(value).lower() if isinstance(value, bool) else repr(value)}``"


def _name(item: Any) -> str:
    """The name of the function that a validator calls, or an empty string."""
    return getattr(getattr(item, "func", None), "__name__", "")


def _kind(annotation: Any, metadata: Any = ()) -> str:
    checks = [_name(item) for item in metadata]
    for name, said in (
        ("_array", 'an array, or ``"file.npz:name"``'),
        ("_function", '``"file.py:function"``'),
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
        return " or ".join(f'``"{value}"``' for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_kind(part) for part in arguments if part is not type(None))
    if origin is tuple:
        return f"a list of: {_kind(arguments[0])}"
    names = {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "``true`` or ``false``",
        dict: "table",
    }
    # The words that `either` allows in place of a number.
    allowed = [
        inspect.getclosurevars(item.func).nonlocals["words"]
        for item in metadata
        if _name(item) == "check"
    ]
    words = [word for group in allowed for word in group]
    return names.get(origin or annotation, "table") + "".join(f' or ``"{word}"``' for word in words)


def _attribute_docs(model: Any) -> dict[str, str]:
    """The string below each field, in the class and in its base classes."""
    found: dict[str, str] = {}
    for part in reversed([part for part in model.__mro__ if part.__module__.startswith("fegsam")]):
        body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0].body
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


class CommandHelp(_Text):
    """``.. command-help:: fegsam``: the ``--help`` text of every command."""

    def lines(self) -> Iterator[str]:
        from fegsam.cli import help_pages

        for command, page in help_pages().items():
            shown = textwrap.indent(page, "   ")
            yield f".. rubric:: {command}\n\n.. code-block:: text\n\n{shown}\n"


def _plain_aliases(
    app: Any,
    what: str,
    name: str,
    value: Any,
    options: Any,
    signature: str | None,
    returned: str | None,
) -> Any:
    """Show an alias inside a union as it is written in the code."""
    return tuple(
        text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text)
        for text in (signature, returned)
    )


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-signature", _plain_aliases)
    app.add_directive("public-names", PublicNames)
    app.add_directive("spec-table", SpecTable)
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
