"""Run a notebook from top to bottom in this process, and write down what its cells show.

A cell shows what Jupyter shows: what it prints, the value of its last expression unless the line
ends with a semicolon, and the figures that it draws. Cells are plain Python, without magics, so
neither a kernel nor its ports are needed.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import os
import pathlib
import re
import sys
import tempfile
import traceback
from typing import Any


def run(notebook: pathlib.Path, folder: pathlib.Path) -> list[dict[str, Any]]:
    """What each cell is and shows; its pictures are written to `folder`."""
    space: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        entry: dict[str, Any] = {"id": cell["id"], "kind": cell["cell_type"], "source": source}
        if cell["cell_type"] == "code":
            name = f"{notebook.stem}-{cell['id']}"
            entry["outputs"] = _outputs(source, space, name, folder)
        shown.append(entry)
    return shown


def _outputs(
    source: str, space: dict[str, Any], name: str, folder: pathlib.Path
) -> list[dict[str, str]]:
    file = f"<{name}>"
    # Tracebacks show the lines of the cell.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    body = ast.parse(source, file).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    told, value = io.StringIO(), None
    with contextlib.redirect_stdout(told):
        exec(compile(ast.Module(body, []), file, "exec"), space)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), file, "eval"), space)
    if source.rstrip().endswith(";"):
        value = None
    outputs = [{"kind": "text", "text": told.getvalue()}] if told.getvalue() else []
    drawn = _figures(value)
    if value is not None and value not in drawn:
        outputs.append(_display(value, folder / f"{name}.svg"))
    for number, figure in enumerate(drawn):
        path = folder / f"{name}{f'-{number + 1}' if number else ''}.svg"
        figure.savefig(path)
        outputs.append({"kind": "picture", "file": path.name, "text": _labels(figure)})
    return outputs


def _figures(value: Any) -> list[Any]:
    """The figures that pyplot has open, which are closed, and `value` if it is a figure."""
    drawn = []
    if "matplotlib.pyplot" in sys.modules:
        import matplotlib.pyplot as plt

        drawn = [plt.figure(number) for number in plt.get_fignums()]
        plt.close("all")
    if hasattr(value, "savefig") and value not in drawn:
        drawn.append(value)
    return drawn


def _labels(figure: Any) -> str:
    """What a figure shows, from the labels of its axes."""
    said = []
    for axes in figure.axes:
        x, y, title = axes.get_xlabel(), axes.get_ylabel(), axes.get_title()
        said.append(f"{y} against {x}" if x and y else title or x or y)
    return "; ".join(" ".join(text.split()) for text in dict.fromkeys(said) if text)


def _display(value: Any, path: pathlib.Path) -> dict[str, str]:
    if not hasattr(value, "_repr_html_"):
        return {"kind": "text", "text": f"{value!r}\n"}
    page = value._repr_html_()
    title = re.match(r"<svg [^>]*><title>(.*?)</title>", page)
    if title is None:
        return {"kind": "html", "text": page}
    path.write_text(page, encoding="utf-8")
    return {"kind": "picture", "file": path.name, "text": title[1]}


if __name__ == "__main__":
    notebook, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    # As in Jupyter, a cell imports what is in its folder.
    sys.path[0] = ""
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        try:
            shown = run(notebook, folder)
        except Exception:
            # Python's own report of an exception that ends a program does not know cells' lines.
            traceback.print_exc()
            sys.exit(1)
        os.chdir(folder)
    (folder / f"{notebook.stem}.json").write_text(json.dumps(shown), encoding="utf-8")
