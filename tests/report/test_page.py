"""The page as text: whole, escaped, and without an address to fetch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from urllib.parse import unquote

import numpy as np
import pytest

from fegsam.errors import ProblemError
from fegsam.experiments.estimates import Estimate
from fegsam.report import FigureData, Section, Series, Verdict, write_report
from fegsam.report.axes import ticks
from fegsam.report.interactive import interactive, plot_json
from fegsam.report.legend import entries, style_entries
from fegsam.report.panels import figure_sets
from fegsam.report.paper import Erratum, Paper, Statement
from fegsam.report.verdict import value_text
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


LAW = Statement("Theorem 3.1", "3.3", "Main <result>", "Errors fall.", "Section 3.3")


def named_page() -> str:
    """The page of a paper with one statement and one erratum."""
    wrong = Erratum("2", "A <sign>", "Theorem 3.1.", "-1", "1", "false", "test_sign")
    paper = Paper("On coins", "A. Author", "https://example.org/?a=1&b=2", [wrong], [LAW])
    with tempfile.TemporaryDirectory() as folder:
        path = write_report(sections(), folder, title="Every claim, checked", paper=paper)
        return own_text(path.read_text(encoding="utf-8"))


def test_the_first_screen_names_the_paper_its_findings_and_what_is_wrong() -> None:
    page = named_page()
    summary = page.partition('<section id="summary"')[2].partition("</section>")[0]
    assert "<cite>On coins</cite>" in page
    assert "A. Author" in page
    assert "1 errata</a>, 1 of them false statements" in summary
    assert summary.count('<svg class="thumbnail"') == 3
    assert "proportional to α/N (exponent within 2\N{NO-BREAK SPACE}%)" in summary
    assert "Theorem 3.1" in summary
    assert "holds within 2\N{NO-BREAK SPACE}%" in summary
    claim = page.partition('<section id="claim-e"')[2].partition("</section>")[0]
    assert claim.index("<figure") < claim.index("<table"), "the figure comes first"
    assert '<a href="#erratum-2">2. A &lt;sign&gt;</a>' in claim
    assert 'id="erratum-2"' in page
    for said in ("fegsam reproduce --only e -o claim-e", "reproduction/bias_variance.py"):
        assert said in claim


def test_without_a_paper_the_list_of_what_does_not_hold_has_the_claims(tmp_path) -> None:
    verdict = Verdict("ratio", "Less.", "does not hold")
    claim = Section("a", "Every coin is better", "", (verdict,), finding="Only one coin is better.")
    path = write_report([claim], tmp_path, title="Coins, compared")
    page = own_text(path.read_text(encoding="utf-8"))
    wrong = page.partition("<strong>Does not hold</strong>")[2].partition("</div>")[0]
    assert "Every coin is better" in wrong
    assert "Only one" not in wrong
    assert "Only one coin is better." in page


def test_every_verdict_leads_to_its_place_in_the_paper() -> None:
    page = named_page()
    claim = page.partition('<section id="claim-e"')[2].partition("</section>")[0]
    link = '<a href="#statement-theorem-3-1">Theorem 3.1</a>'
    assert f"In the paper: {link} (Section 3.3, Main &lt;result&gt;)" in claim
    place = page.partition('<section id="statements"')[2].partition("</section>")[0]
    assert 'id="statement-theorem-3-1"' in place
    assert '<a href="#claim-e">' in place
    assert '<a href="#erratum-2">' in place
    wrong = page.partition('<section id="errata"')[2].partition("</section>")[0]
    assert link in wrong


def test_no_link_of_a_page_is_dead() -> None:
    page = named_page()
    places = set(re.findall(r'\bid="([^"]+)"', page))
    leads = re.findall(r'href="#([^"]+)"', page)
    assert len(leads) > 10
    assert set(leads) <= places


def test_figures_of_one_title_are_panels_with_the_same_axes() -> None:
    figures = list(sections()[2].figures)
    [shown] = figure_sets(figures)
    assert [panel.figure.panel for panel in shown.panels] == [each.panel for each in figures]
    assert len({panel.axes for panel in shown.panels}) == 1
    assert shown.caption == "It is proportional to α/N."
    assert [panel.caption for panel in shown.panels] == ["", "Without noise.", ""]
    assert len(figure_sets(sections()[0].figures)) == 2


def test_a_legend_shows_the_dashes_that_are_drawn_and_the_lines_that_are_exact() -> None:
    curves = sections()[0].figures[0]
    shown = {entry.label: entry.swatch for entry in entries(curves)}
    assert "stroke-dasharray" in shown["bound, N = 64"]
    assert "var(--paper)" in shown["N = 4"], "a hollow marker on the exact line"
    drawn = [entry.key for entry in style_entries(curves)]
    assert drawn == ["sampled", "exact", "bound"]


@pytest.mark.parametrize(
    ("scale", "low", "high", "labels"),
    [
        ("log", 2.0, 10.5, ["2", "5", "10"]),
        ("log", 1e-7, 0.02, ["10⁻⁷", "10⁻⁶", "10⁻⁵", "10⁻⁴", "10⁻³", "0.01"]),
        ("log", 1e-20, 10.0, ["10⁻²⁰", "10⁻¹⁶", "10⁻¹²", "10⁻⁸", "10⁻⁴", "1"]),
        ("log", 0.99, 1.012, ["0.99", "0.995", "1", "1.005", "1.01"]),
        ("linear", -0.02, 1.05, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        ("linear", 0, 120000, ["0", "20000", "40000", "60000", "80000", "100000", "120000"]),
    ],
)
def test_ticks_are_few_and_round(scale, low, high, labels) -> None:
    values, texts = ticks(scale, low, high)
    assert texts == labels
    assert all(low <= value * (1 + 1e-9) and value <= high * (1 + 1e-9) for value in values)


def test_nothing_is_fetched(page) -> None:
    own = own_text(page)
    assert len(own) < len(page) / 5
    assert not re.findall(r"https?://|src=|@import|url\(", own)
    assert '<a href="https://example.org/?a=1&amp;b=2"' in named_page(), "a link is not fetched"
    assert "default-src 'none'" in own
    assert page.count("plotly.js v") == 1


def test_what_was_checked_is_said_with_its_numbers(page) -> None:
    for section in sections():
        assert f"({section.claim}) {section.title}" in page
        for verdict in section.verdicts:
            said = verdict.threshold.replace("-", "\N{MINUS SIGN}")
            assert said.replace(" %", "\N{NO-BREAK SPACE}%") in page
            assert value_text(verdict).replace("-", "\N{MINUS SIGN}") in page
    assert "Of everything checked: 4 hold, 1 does not hold, 2 cannot be told." in page
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
    for said in ("How each check can fail", *told.values(), "0.3 to 0.7", "as it must"):
        assert said in evidence


def test_verdicts_that_say_nothing_of_their_thresholds_have_no_table_of_every_verdict(
    tmp_path,
) -> None:
    plain = Section("a", "Coins", "Coins are fair.", (Verdict("coin", "Heads.", "holds"),))
    assert 'id="evidence"' not in write_report([plain], tmp_path, title="t").read_text(
        encoding="utf-8"
    )
