"""Notebooks as pages with what their cells show, and cards of their pictures for a gallery.

The notebooks are run when the site is built, each in a process of its own. A cell that fails ends
the build.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

SCRIPT = pathlib.Path(__file__).with_name("run_notebook.py")
SHOWN = "_notebooks"
"""The folder of the built site with what the notebooks show."""


def _run_all(app: Any) -> None:
    """Run all notebooks at once; `env.notebooks` has their cells by name."""
    folder = pathlib.Path(app.outdir) / SHOWN
    shutil.rmtree(folder, ignore_errors=True)
    source = pathlib.Path(app.srcdir) / app.config.notebooks
    folder.mkdir(parents=True)
    running = {path.stem: _started(path, folder) for path in sorted(source.glob("*.ipynb"))}
    try:
        for name, process in running.items():
            if process.wait():
                said = (folder / f"{name}.log").read_text(encoding="utf-8")
                raise ExtensionError(f"the notebook {name} does not run:\n{said}")
    finally:
        for process in running.values():
            # A cell that fails may leave processes behind.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    app.env.notebooks = {
        name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in running
    }


def _started(notebook: pathlib.Path, folder: pathlib.Path) -> subprocess.Popen[bytes]:
    """A process that runs a notebook, in a group of its own."""
    with (folder / f"{notebook.stem}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, SCRIPT, notebook, folder],
            env=os.environ | {"MPLBACKEND": "Agg"},
            stderr=log,
            start_new_session=True,
        )


class _Shown(SphinxDirective):
    """A directive that shows a part of a notebook."""

    def cells(self, notebook: str) -> list[dict[str, Any]]:
        known = self.env.notebooks
        if notebook not in known:
            raise self.error(f"There is no notebook {notebook!r}; give one of {', '.join(known)}.")
        return known[notebook]

    def nodes_of(self, output: Mapping[str, str], said: str = "") -> nodes.Node:
        """What a cell shows: a picture, HTML or text."""
        if output["kind"] == "html":
            shown = nodes.raw("", output["text"], format="html")
            return nodes.container("", shown, classes=["cell-output"])
        if output["kind"] == "text":
            return nodes.literal_block(
                output["text"], output["text"].rstrip(), language="text", classes=["cell-output"]
            )
        path = pathlib.Path(self.env.app.outdir) / SHOWN / output["file"]
        place = os.path.relpath(path, self.env.srcdir)
        return nodes.image(uri=place, alt=said or output["text"], classes=["cell-output"])


class Notebook(_Shown):
    """``{notebook} theorist``: the whole notebook, its cells and what they show."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        holder = nodes.section()
        holder.document = self.state.document
        text = "\n\n".join(self._blocks(name, self.cells(name)))
        lines = StringList(text.splitlines(), source=f"{name}.ipynb")
        self.state.nested_parse(lines, 0, holder, match_titles=True)
        return holder.children

    def _blocks(self, name: str, cells: list[dict[str, Any]]) -> Iterator[str]:
        for number, cell in enumerate(cells):
            if cell["kind"] == "markdown":
                # The notebooks link to the sources of these pages.
                yield cell["source"].replace("](../../docs/", "](")
                if number == 0:
                    file = f"{self.config.notebooks}/{name}.ipynb"
                    yield f"The notebook: {{download}}`{name}.ipynb <{file}>`."
            else:
                yield f"({name}-{cell['id']})=\n```python\n{cell['source']}\n```"
                if cell["outputs"]:
                    yield f"```{{cell-output}} {name} {cell['id']}\n```"


class CellOutput(_Shown):
    """``{cell-output} theorist curve``: what a cell shows."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        notebook, identity = self.arguments
        (cell,) = (each for each in self.cells(notebook) if each["id"] == identity)
        return [self.nodes_of(output) for output in cell["outputs"]]


class PictureCard(_Shown):
    """``{picture-card} theorist curve``: a cell's picture, with a link to the cell and a caption.

    The caption is the body of the directive.
    """

    required_arguments = 2
    has_content = True

    def run(self) -> list[nodes.Node]:
        notebook, identity = self.arguments
        found = [
            output
            for cell in self.cells(notebook)
            if cell["id"] == identity and cell["kind"] == "code"
            for output in cell["outputs"]
            if output["kind"] != "text"
        ]
        if not found:
            raise self.error(f"No cell {identity!r} of {notebook!r} shows a picture.")
        caption = nodes.container(classes=["picture-caption"])
        self.state.nested_parse(self.content, self.content_offset, caption)
        address = f"{notebook}.html#{notebook}-{identity}"
        shown = dict(found[-1])
        if shown["kind"] == "html":
            # The picture, without the table beside it.
            drawn = re.search(r"<svg.*?</svg>", shown["text"], re.DOTALL)
            shown["text"] = drawn[0] if drawn else shown["text"]
        picture = self.nodes_of(shown, caption.astext())
        linked: list[nodes.Node] = [nodes.reference("", "", picture, internal=True, refuri=address)]
        if not isinstance(picture, nodes.image):
            # Sphinx has no links around HTML.
            ends = (f'<a href="{address}">', "</a>")
            linked = [nodes.raw("", end, format="html") for end in ends]
            linked.insert(1, picture)
        return [nodes.container("", *linked, caption, classes=["picture-card"])]


def setup(app: Any) -> dict[str, bool]:
    app.add_config_value("notebooks", "notebooks", "env")
    app.connect("builder-inited", _run_all)
    app.add_directive("notebook", Notebook)
    app.add_directive("cell-output", CellOutput)
    app.add_directive("picture-card", PictureCard)
    return {"parallel_read_safe": True}
