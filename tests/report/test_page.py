"""The page as text: whole, escaped, and without an address to fetch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from urllib.parse import unquote

import numpy as np
import pytest

from fegsam.errors import ProblemError
from fegsam.experiments.estimates import Estimate
from fegsam.report import FigureData, Section, Series, Verdict, write_report
from fegsam.report.interactive import interactive, plot_json
from helpers.synthetic_sections import error_curves, exact_lines, sections

pytest.importorskip("plotly")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("page") / "new"
    settings = {"seeds": range(3), "step size": 0.02, "<odd>": {"a": [1, 2.5], "b": {"c": 1}}}
    path = write_report(sections(), folder, title="Claims & <checks>", settings=settings)
    assert [file.name for file in folder.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


def own_text(page: str) -> str:
    """The page without Plotly's script."""
    return re.sub(r"<script>\s*/\*\*\s*\* plotly.*?</script>", "", page, flags=re.DOTALL)


def test_nothing_is_fetched(page) -> None:
    own = own_text(page)
    assert len(own) < len(page) / 5
    assert not re.findall(r"https?://|src=|@import|url\(", own)
    assert "default-src 'none'" in own
    assert page.count("plotly.js v") == 1


def test_what_was_checked_is_said_with_its_numbers(page) -> None:
    for section in sections():
        assert f"({section.claim}) {section.title}" in page
        for verdict in section.verdicts:
            assert verdict.threshold in page
            assert str(verdict.estimate).replace("-", "\N{MINUS SIGN}") in page
    assert "Of everything checked: 1 holds, 1 does not hold, 2 cannot be told." in page
    assert f"fegsam {metadata.version('fegsam')}" in page


def test_what_looks_like_markup_is_shown_as_it_is(page) -> None:
    assert "A &lt;b&gt;bold&lt;/b&gt; &amp; odd" in page
    assert "<title>Claims &amp; &lt;checks&gt;</title>" in page
    assert "&lt;odd&gt;" in page
    assert "0, 1, 2" in page


def test_the_data_of_each_figure_can_be_taken_away(page) -> None:
    links = dict(
        re.findall(r'<a download="([^"]+)" href="data:text/csv;charset=utf-8,([^"]+)"', page)
    )
    figures = {f"{figure.key}.csv": figure for section in sections() for figure in section.figures}
    assert links.keys() == figures.keys()
    for name, figure in figures.items():
        assert unquote(links[name]) == figure.csv()


def test_no_name_ends_the_script_that_holds_it() -> None:
    text = plot_json(
        FigureData("k", "t", "c.", "x</script>", "y", series=(Series("<!--</script>", [1], [1]),))
    )
    assert "<" not in text
    assert json.loads(text)["data"][0]["legendgroup"] == "<!--</script>"


def test_a_group_is_one_entry_of_the_legend_and_goes_together() -> None:
    shown = interactive(error_curves(np.random.default_rng(0)))
    named = [trace.name for trace in shown.data if trace.showlegend]
    assert named == ["N = 1", "N = 4", "N = 16", "N = 64", "bound, N = 64"]
    assert sum(trace.legendgroup == "N = 4" for trace in shown.data) == 4, (
        "two edges of the band, the points, the exact curve"
    )


def test_two_sections_of_one_letter_are_refused_and_nothing_is_written(tmp_path) -> None:
    twice = [Section("a", "t", "s."), Section("a", "t", "s.")]
    with pytest.raises(ProblemError, match="letter 'a'"):
        write_report(twice, tmp_path / "new", title="T")
    assert not (tmp_path / "new").exists()


def test_the_same_sections_give_the_same_page(page, tmp_path) -> None:
    once, again = (
        write_report(sections(), tmp_path / name, title="T").read_bytes() for name in ("a", "b")
    )
    assert once == again


def test_plotly_and_matplotlib_load_only_when_something_is_drawn() -> None:
    code = (
        "import sys, fegsam.report; sys.exit(bool({'plotly', 'matplotlib'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_page_on_which_nothing_was_checked_speaks_of_no_claims(tmp_path) -> None:
    section = Section("1", "mine", "The error of the average.", figures=(exact_lines(),))
    page = write_report([section], tmp_path, title="mine").read_text(encoding="utf-8")
    body = own_text(page)[own_text(page).index("<body") :]
    for said in ('id="summary"', 'id="tab-summary"', "cannot be told", "Of everything checked"):
        assert said not in body
    assert 'id="claim-1"' in body


def test_identities_get_a_mark_of_their_own_and_thresholds_say_where_they_come_from(
    tmp_path,
) -> None:
    told = {
        "theorem": "Theorem 1",
        "fails": "A coin with two heads.",
        "source": "The claim itself.",
    }
    verdicts = (
        Verdict(
            "coin",
            "Heads is as likely as tails.",
            "holds",
            Estimate(0.5, 0.4, 0.6),
            "0.3 to 0.7",
            **told,
        ),
        Verdict(
            "coin",
            "One is one.",
            "holds",
            Estimate(1.0, 1.0, 1.0),
            "1 to 1",
            kind="identity",
            **told,
        ),
    )
    page = write_report(
        [Section("a", "Coins", "Coins are fair.", verdicts)], tmp_path, title="t"
    ).read_text(encoding="utf-8")
    assert page.count('class="badge identity"') == 1
    assert "Of everything checked: 1 holds. Not counted: 1 identity, true by algebra." in page
    evidence = page.partition('<section id="evidence"')[2].partition("</section>")[0]
    for said in ("Every verdict", *told.values(), "0.3 to 0.7", "as it must"):
        assert said in evidence


def test_verdicts_that_say_nothing_of_their_thresholds_have_no_table_of_every_verdict(
    tmp_path,
) -> None:
    plain = Section("a", "Coins", "Coins are fair.", (Verdict("coin", "Heads.", "holds"),))
    assert 'id="evidence"' not in write_report([plain], tmp_path, title="t").read_text(
        encoding="utf-8"
    )
