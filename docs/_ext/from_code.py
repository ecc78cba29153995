"""Directives that generate parts of the site from the code.

They show public names, the keys of a study, and the command line's help.
"""

from __future__ import annotations

import abc
import importlib
import inspect
import re
import textwrap
import types
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.util.nodes import nested_parse_with_titles

from fegsam.experiments.spec.keys import keys_of

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
    keys = keys_of(model)
    if not keys:
        return
    columns = 4 if any(key.meaning for key in keys) else 3
    yield f"{indent}.. list-table::\n{indent}   :header-rows: 1\n"
    rows = [tuple(part.replace("`", "``") for part in (f"`{k.name}`", *k[1:])) for k in keys]
    for row in [("key", "value", "default", "meaning"), *rows]:
        yield f"{indent}   * - " + f"\n{indent}     - ".join(row[:columns])
    yield ""


class CommandHelp(_Text):
    """``.. command-help:: fegsam``: the ``--help`` text of every command."""

    def lines(self) -> Iterator[str]:
        from fegsam.cli import help_pages

        for command, page in help_pages().items():
            shown = textwrap.indent(page, "   ")
            yield f".. rubric:: {command}\n\n.. code-block:: text\n\n{shown}\n"


_NAME = re.compile(r"fegsam(\.\w+)+")


def _link_names(app: Any, doctree: nodes.document, page: str) -> None:
    """Link a public name in code type to its entry in the reference.

    The pages themselves have no roles for it, because they are also read where none are known.
    """
    objects = app.env.domains["py"].objects
    for literal in list(doctree.findall(nodes.literal)):
        name = literal.astext()
        linked = isinstance(literal.parent, nodes.reference)
        if linked or not _NAME.fullmatch(name) or name not in objects:
            continue
        entry = objects[name]
        address = app.builder.get_relative_uri(page, entry.docname) + f"#{entry.node_id}"
        link = nodes.reference("", "", internal=True, refuri=address, reftitle=name)
        literal.parent.replace(literal, link)
        link.append(literal)


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
    app.connect("doctree-resolved", _link_names)
    app.add_directive("public-names", PublicNames)
    app.add_directive("spec-table", SpecTable)
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
