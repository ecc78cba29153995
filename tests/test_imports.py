"""Tests use what `fegsam` and `helpers` offer: no private names, and one way to find a helper."""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

TESTS = pathlib.Path(__file__).parent
FILES = sorted(path for path in TESTS.rglob("*.py") if path != pathlib.Path(__file__))
LOCAL = {path.stem for path in FILES} | {path.name for path in TESTS.iterdir() if path.is_dir()}
ROOT = {path.stem for path in TESTS.iterdir() if path.suffix == ".py" or path.is_dir()}
"""What an import finds from `tests/`, the one folder of tests that is on the path."""

PUBLIC = {"_replace", "_asdict", "_fields", "_repr_html_", "_exit"}
"""Names with an underscore that their libraries document."""
PRIVATE_IN_TEXT = re.compile(r"\bfegsam[\w.]*\._[a-z]|\bfegsam[\w.]* import [^\n]*\b_[a-z]", re.I)
"""In a string: the target of a patch, or the code of another process."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def private_uses(tree: ast.AST) -> Iterator[str]:
    """Private names of others; a test may have its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [part for alias in node.names for part in alias.name.split(".")]
        elif isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            names = [] if own else [node.attr]
        elif isinstance(node, ast.Call) and called(node) in ("getattr", "setattr", "delattr"):
            names = [
                argument.value
                for argument in node.args[1:2]
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            ]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = []
            yield from PRIVATE_IN_TEXT.findall(node.value)
        else:
            continue
        yield from filter(private, names)


def called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_a_file_of_tests_uses_no_private_name_and_finds_helpers_from_the_folder_of_tests(
    path,
) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert list(private_uses(tree)) == []
    for module in imported(tree):
        first, *rest = module.split(".")
        if first in LOCAL:
            assert first in ROOT, f"{module}: import it from tests/"
            assert not (rest or [first])[-1].startswith("test_"), f"{module}: move it to helpers"


@pytest.mark.parametrize(
    "code",
    [
        "from fegsam.run import _truth",
        "from fegsam._secret import truth",
        "server._state",
        "run.layout._sizes.rows",
        "monkeypatch.setattr(storage, '_PATIENCE', 1)",
        "monkeypatch.setattr('fegsam.engines.cpu.layout._ROW_BYTES', 1)",
        "code = 'import sys; from fegsam.run import run, _truth'",
    ],
)
def test_a_private_name_is_noticed(code) -> None:
    assert list(private_uses(ast.parse(code)))


def test_names_of_ones_own_and_documented_ones_are_not_private() -> None:
    code = "self._ours = point._replace(x=1); os._exit(0); fegsam.__version__; _local = 1"
    assert list(private_uses(ast.parse(code))) == []
