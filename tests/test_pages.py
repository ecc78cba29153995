"""Every block of code in the README and in the site's pages runs as it stands, and every file that
they link to is there."""

from __future__ import annotations

import contextlib
import doctest
import html
import io
import json
import operator
import pathlib
import pydoc
import re
import shlex
import shutil
import subprocess
import sys
import types

import pytest

import fegsam
from fegsam.cli import main
from fegsam.experiments.spec.study import load_study

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "docs" / "note" / "index.md",
]
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
ELSEWHERE = ("git clone", "cd ", "python -m venv", ". .venv", "pip install", 'eval "$(fegsam')
"""Commands that only a shell of the reader's own can run."""


def _python(text: str, space: dict, name: str) -> None:
    """A session with prompts is compared with what it prints; a block without is run."""
    if ">>>" not in text:
        exec(compile(text, name, "exec"), space)
        return
    session = doctest.DocTestParser().get_doctest(text, space, name, name, 0)
    told = io.StringIO()
    doctest.DocTestRunner(optionflags=OPTIONS).run(session, out=told.write, clear_globs=False)
    space.update(session.globs)
    assert not told.getvalue(), told.getvalue()


def _console(text: str) -> None:
    """Lines that begin with $ are commands; fegsam's are run, targets of make must exist."""
    for line in re.findall(r"^\$ (.*?)(?:\s+#.*)?$", text, re.MULTILINE):
        words = shlex.split(line)
        if words[0] == "fegsam":
            with contextlib.redirect_stdout(io.StringIO()):
                assert main(words[1:]) == 0, line
        elif words[0] == "make":
            assert re.search(
                rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
            ), line
        else:
            assert line.startswith(ELSEWHERE), line


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_block_of_a_page_runs(page, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    space: dict = {"__name__": "__main__"}
    for number, (language, text) in enumerate(
        FENCE.findall(page.read_text(encoding="utf-8")), start=1
    ):
        name = f"{page.name}, block {number}"
        if language == "python":
            _python(text, space, name)
        elif language == "toml":
            (tmp_path / "study.toml").write_text(text)
            assert load_study(tmp_path / "study.toml").cells()
        elif language == "console":
            _console(text)
        else:
            assert language in ("text", "bibtex") or language.startswith("{"), (
                f"{name}: say what language it is"
            )


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_file_that_a_page_links_to_is_there(page) -> None:
    text = re.sub(FENCE, "", page.read_text(encoding="utf-8"))
    for target in re.findall(r"(?:\]\(|src=\")([^)\s\"]+)[)\"]", text):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target.partition("#")[0]).exists(), target


def test_every_name_that_a_page_mentions_exists() -> None:
    named = {
        name
        for page in PAGES
        for name in re.findall(r"`(fegsam(?:\.\w+)+)`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 30
    for page in PAGES:
        assert "{py:" not in page.read_text(encoding="utf-8"), "noise where no site is built"
    for name in named:
        assert pydoc.locate(name) is not None or operator.attrgetter(name.partition(".")[2])(
            fegsam
        ), name


def test_the_paper_is_walked_whole() -> None:
    page = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    parts = (
        [f"Algorithm {k}" for k in range(1, 6)]
        + [f"Assumption 3.{k}" for k in range(1, 5)]
        + ["Corollary 3.1.1"]
    )
    for part in [*parts, *(f"Theorem {number}" for number in ("3.1", "5.1", "6.1", "6.2", "7.1"))]:
        assert part in page, part


def _check_links(site: pathlib.Path) -> None:
    """Every link inside the site leads to a page and to a place on it that are there."""
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    places = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in pages.items()}
    for page, text in pages.items():
        for link in map(html.unescape, re.findall(r'href="([^"]+)"', text)):
            if re.match(r"[a-z]+:|//", link):
                continue
            name, _, place = link.partition("#")
            target = (page.parent / name.partition("?")[0]).resolve() if name else page
            assert target.exists(), f"{page.name} links to {link}"
            assert not place or place in places.get(target, {place}), f"{page.name} links to {link}"


def _check_notebooks(site: pathlib.Path) -> None:
    """The notebooks ran, and each of their pictures has words and is on the gallery's page."""
    drawn = {
        output["file"]: output["text"]
        for shown in sorted((site / "_notebooks").glob("*.json"))
        for cell in json.loads(shown.read_text(encoding="utf-8"))
        for output in cell.get("outputs", ())
        if output["kind"] == "picture"
    }
    assert len(drawn) >= 8
    gallery = (site / "gallery.html").read_text(encoding="utf-8")
    for file, said in drawn.items():
        assert said, f"{file}: the axes have no labels"
        assert f"_images/{file}" in gallery, file
        assert (site / "_images" / file).stat().st_size > 2000, file


def test_the_site_builds_without_a_warning_and_shows_every_public_name(tmp_path) -> None:
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    source = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("_build"))
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-D",
        "note_computes=0",
        "-b",
        "html",
        source,
        out,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    _check_links(out)
    shown = (out / "api.html").read_text(encoding="utf-8")
    for name in [
        name for name in fegsam.__all__ if not isinstance(getattr(fegsam, name), types.ModuleType)
    ]:
        assert f'id="fegsam.{name}"' in shown, name
    for name in (
        "exact.moments",
        "theory.error_bound",
        "engines.Cpu",
        "examples.garnet",
        "policies.greedy",
    ):
        assert f'id="fegsam.{name}"' in shown, name
    _check_notebooks(out)
    keys = (out / "studies.html").read_text(encoding="utf-8")
    for key in ("branching", "common_paths", "preconditioned", "heterogeneity"):
        assert key in keys


def test_git_has_no_built_site() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no repository")
    listed = subprocess.run(
        ["git", "ls-files", "docs/_build"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    assert listed == ""
