"""The notebooks are plain Python without outputs, and what runs them shows what Jupyter shows.

They are run from top to bottom when the site is built, which tests/test_pages.py does.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
SCRIPT = ROOT / "docs" / "_ext" / "run_notebook.py"


def cells(notebook: pathlib.Path) -> list[dict]:
    return json.loads(notebook.read_text(encoding="utf-8"))["cells"]


def shown(folder: pathlib.Path, *sources: str) -> list[dict]:
    """What the cells of a notebook show."""
    book = {
        "cells": [
            {"cell_type": "code", "id": f"cell-{place}", "source": source.splitlines(True)}
            for place, source in enumerate(sources)
        ]
    }
    (folder / "tried.ipynb").write_text(json.dumps(book), encoding="utf-8")
    command = [sys.executable, SCRIPT, folder / "tried.ipynb", folder / "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads((folder / "out" / "tried.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_holds_no_outputs_and_short_cells_with_names(notebook) -> None:
    book = json.loads(notebook.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in book["cells"]]
    assert len(names) == len(set(names))
    for cell in book["cells"]:
        assert all(re.fullmatch(r"[a-z-]+", name) for name in names)
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            source = "".join(cell["source"])
            assert len(source.splitlines()) <= 36, cell["id"]
            assert not re.search(r"^\s*[%!]", source, re.MULTILINE), "magics run in Jupyter alone"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_every_file_that_a_notebook_links_to_is_there(notebook) -> None:
    text = "".join("".join(cell["source"]) for cell in cells(notebook))
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert links
    for link in links:
        assert re.match(r"[a-z]+:", link) or (notebook.parent / link.partition("#")[0]).exists()


def test_a_run_shows_what_is_printed_the_last_value_and_figures(tmp_path) -> None:
    told, value, silent, figure = shown(
        tmp_path,
        "x = 6\nprint('six')",
        "x * 7",
        "x;",
        "import matplotlib.pyplot as plt\n_, axes = plt.subplots()\naxes.set_xlabel('steps')\n"
        "axes.set_ylabel('error')\naxes",
    )
    assert told["outputs"] == [{"kind": "text", "text": "six\n"}]
    assert value["outputs"] == [{"kind": "text", "text": "42\n"}]
    assert silent["outputs"] == []
    *_, picture = figure["outputs"]
    assert picture["text"] == "error against steps"
    assert (tmp_path / "out" / picture["file"]).read_text(encoding="utf-8").count("<svg") == 1


def test_a_cell_that_fails_is_named_with_its_line(tmp_path) -> None:
    with pytest.raises(RuntimeError, match=r"tried-cell-1.*\n\s*assert x == 7\n(?s:.*)Assertion"):
        shown(tmp_path, "x = 6", "y = 1\nassert x == 7")


def test_the_gallery_has_a_card_for_pictures_of_every_notebook() -> None:
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    cards = re.findall(r"^```\{picture-card\} (\S+) (\S+)\n(.+?)^```$", text, re.M | re.S)
    assert {notebook for notebook, _, _ in cards} == {path.stem for path in NOTEBOOKS}
    for notebook, name, caption in cards:
        named = {cell["id"] for cell in cells(ROOT / "examples/notebooks" / f"{notebook}.ipynb")}
        assert name in named
        assert caption.strip().endswith(".")
