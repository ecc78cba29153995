"""The technical note: no number on its page is typed, and those it shows are right."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from helpers import golden

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "note"
PAGE = (FOLDER / "index.md").read_text(encoding="utf-8")
ROLE = re.compile(r"\{num\}`([\w.]+)(?: ([^`]+))?`")
PLACE = r"(?:Theorems?|Corollary|Section|Assumption) \d(?:\.\d)*(?:(?:,| and) \d(?:\.\d)+)*"
"""Numbers of the paper's theorems, such as 'Theorems 5.1, 6.1 and 7.1'."""


@pytest.fixture(scope="module")
def folder() -> None:
    sys.path.insert(0, str(FOLDER))


def module(name: str) -> ModuleType:
    import importlib

    return importlib.import_module(f"computed.{name}")


def text() -> str:
    """The page's prose, without computed numbers, code, links' targets and references."""
    body = PAGE.partition("---\n\n")[2]
    body = re.sub(r"## References.*?(?=## Appendix A)", "", body, flags=re.DOTALL)
    body = re.sub(r"^```.*?^```$", "", body, flags=re.DOTALL | re.MULTILINE)
    body = re.sub(r"^:(?:name|widths|header-rows|class).*$", "", body, flags=re.MULTILINE)
    for pattern in (ROLE.pattern, r"\]\([^)]*\)", r"`[^`]*`", PLACE):
        body = re.sub(pattern, "", body)
    return body


def test_no_number_on_the_page_is_typed() -> None:
    """No decimal, in prose or formulas, and no integer above 20 outside formulas and errata."""
    prose = re.sub(r"\(?[Ee]rrat(?:um|a) \d+\w?", "", text())
    assert not re.findall(r"\d+\.\d+|\d+e-?\d+", prose)
    prose = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", "", prose, flags=re.DOTALL)
    prose = re.sub(r"^\* - \d+\w?$", "", prose, flags=re.MULTILINE)
    assert not [number for number in re.findall(r"\d+", prose) if int(number) > 20]
    assert len(ROLE.findall(PAGE)) > 150


def test_numbers_are_shown_with_the_digits_that_they_deserve(folder) -> None:
    import doctest

    import evidence

    assert doctest.testmod(evidence).failed == 0


def test_the_errors_of_the_paper_are_as_the_page_says(folder) -> None:
    found = module("paper_errors").window() | module("paper_errors").drift()
    assert (found["window.printed"], found["window.right"]) == (-41, 42)
    assert found["drift.right_near"] == pytest.approx(0.06934766923300872)
    found = module("paper_errors").limit_points()
    assert found["points.right"] == pytest.approx(520 / 659, rel=1e-12)
    assert found["points.printed"] == pytest.approx(1192 / 1511, rel=1e-12)
    assert found["points.mean_to_right"] < found["points.mean_to_printed"] / 100
    found = module("paper_errors").tabular()
    assert found["tabular.norm"] == found["tabular.gamma_c_right"] == 13 / 16
    assert (found["tabular.gamma_c_printed"], found["tabular.A_printed"]) == (23 / 32, 2.5)


def test_the_recursion_agrees_with_sums_over_all_paths(folder) -> None:
    found = module("hierarchy").enumeration() | module("hierarchy").additive()
    star = 520 / 659
    expected = golden.ALG5_N1_SQUARE[-1] - 2 * star * golden.ALG5_N1_MEAN[-1] + star**2
    assert found["paths.error"] == pytest.approx(expected, abs=1e-11)
    assert found["paths.difference"] < 1e-14
    assert found["additive.error"] == pytest.approx(0.1110047846889952, rel=1e-12)
    assert found["additive.difference"] < 1e-13


def test_methods_change_what_the_page_says(folder) -> None:
    buys = module("buys")
    found = buys.two_agents() | buys.rounds() | buys.unstable()
    assert found["pair.plain"] == pytest.approx(-0.055625645407, rel=1e-10)
    assert found["pair.plain_variance"] == pytest.approx(2.426526253350e-2, rel=1e-10)
    assert found["pair.last"] == found["pair.first"] == 0
    assert found["rounds.best"] == pytest.approx(0.366032341273, rel=1e-10)
    assert found["unstable.push"] == pytest.approx(0.2)


@pytest.mark.slow
def test_the_command_prints_every_number_of_the_page(folder) -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / "evidence.py"], capture_output=True, text=True, check=True
    )
    printed = {line.split()[0]: float(line.split()[1]) for line in done.stdout.splitlines()}
    assert {name for name, _ in ROLE.findall(PAGE)} <= set(printed)
    assert printed["bounds.corrected_least"] > 100
    assert 1 < printed["bounds.sharper_least"] < 1.5
    assert printed["order.large3"] < printed["order.large2"] < printed["order.large1"] < 0.01
    assert printed["variance.second_8_100"] == pytest.approx(
        printed["variance.first_8_100"] / 10, rel=0.2
    )
    assert printed["drift.ratio_long"] > 4
    assert printed["draws.c_many"] == pytest.approx(printed["draws.c_variates_markov"], rel=0.01)
    assert abs(printed["maximum.run"] - printed["maximum.law"]) < (
        4 * printed["maximum.error"] + 0.1 * printed["maximum.curvature"]
    )


@pytest.mark.slow
def test_the_site_and_the_pdf_show_the_numbers_that_the_command_prints(folder, tmp_path) -> None:
    import evidence

    pytest.importorskip("furo")
    source, out = tmp_path / "docs", tmp_path / "out"
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("_build"))
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", source, out]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (out / "note" / "index.html").read_text(encoding="utf-8")
    seen = Counter(map(html.unescape, re.findall(r'<span class="computed">([^<]*)</span>', page)))
    values = evidence.values()
    assert seen == Counter(evidence.shown(values[name], form) for name, form in ROLE.findall(PAGE))
    assert page.count("<figure") == 3
    if shutil.which("chromium"):
        printed = (out / "note" / "fegsam-note.pdf").read_bytes()
        assert 8 <= len(re.findall(rb"/Type /Page\b", printed)) <= 14
