"""Pages in headless Chromium: read from a file without a network, on a desk, a phone and paper."""

from __future__ import annotations

import base64
import pathlib

import pytest

from helpers.browser import (
    BROWSER,
    DRIVER,
    FAULTS,
    Browser,
    accessibility_faults,
    chromium,
)
from helpers.synthetic_pages import comparison_page, paper_page, study_page
from helpers.synthetic_sections import sections

pytest.importorskip("selenium")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="needs Debian's packages chromium and chromium-driver"
)
PAGES = {"paper": paper_page, "study": study_page, "comparison": comparison_page}
PLOT = "plot-a-plateau_by_agents"


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, pathlib.Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {name: write(folder / name) for name, write in PAGES.items()}


@pytest.fixture(scope="module")
def browser(pages, tmp_path_factory):
    with chromium(pages["paper"], tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def shown(browser: Browser) -> list[str]:
    return browser.ask(
        "return [...document.querySelectorAll('[role=tabpanel]')].filter(p => "
        "p.clientHeight).map(p => p.id)"
    )


def test_it_opens_on_the_summary(browser) -> None:
    browser.open()
    assert shown(browser) == ["summary"]
    assert (
        browser.ask("return document.querySelector('#summary .badge').innerText.trim()")
        == "? cannot be told"
    )


@pytest.mark.parametrize(("width", "height", "phone"), [(1280, 900, False), (360, 740, True)])
@pytest.mark.parametrize("dark", [False, True])
def test_every_tab_fits_its_screen_and_is_drawn(
    browser, width, height, phone, dark, tmp_path
) -> None:
    browser.open("claim-a", width=width, height=height, phone=phone, dark=dark)
    beyond = (
        "return [...document.querySelectorAll('main *')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    )
    for tab in ("summary", "claim-c", "claim-e", "errata", "settings", "claim-a"):
        browser.open(tab, width=width, height=height, phone=phone, dark=dark)
        assert browser.ask("return document.documentElement.scrollWidth") <= width, tab
        assert browser.ask(beyond + ".length") == 0, tab
    picture = browser.screenshot()
    (tmp_path / "screen.png").write_bytes(picture)
    pixels = pytest.importorskip("matplotlib.image").imread(tmp_path / "screen.png")
    assert pixels.shape[:2] == (height, width)
    assert (pixels[-1, -1, :3].mean() < 0.5) == dark
    assert pixels.std() > 0.02, "more than an empty page"


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("name", PAGES)
def test_no_text_lies_on_another_and_none_is_cut(browser, pages, name, width) -> None:
    browser.open_all(pages[name], width=width)
    assert browser.ask("return document.querySelectorAll('.xtick text').length") > 10
    assert browser.ask(FAULTS) == []
    assert browser.requests() == {pages[name].as_uri()}, "the page and nothing else"


def test_the_check_of_texts_sees_an_overlap_and_a_cut(browser, pages) -> None:
    browser.open_all(pages["paper"], width=390)
    names = "document.querySelectorAll('#claim-e .annotation-text')"
    assert browser.ask(f"return {names}.length") == 9, "three names in each of three panels"
    planted = {
        "lies on": "document.querySelector('#claim-e .axis-label').style.marginTop = '-1rem'",
        "is cut": "document.querySelector('#claim-a .ytick text').style.translate = '-30px'",
        "is beyond the screen": "document.querySelector('h1').style.translate = '330px'",
    }
    for fault, plant in planted.items():
        browser.ask(plant)
        assert fault in {found[1] for found in browser.ask(FAULTS)}


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_no_fault(browser, pages, name, dark) -> None:
    browser.open_all(pages[name], width=1280, dark=dark)
    assert accessibility_faults(browser) == []


def test_axe_sees_what_is_too_pale_and_links_lead_somewhere(browser, pages) -> None:
    browser.open_all(pages["paper"], width=1280)
    links = browser.ask(
        "return [...document.querySelectorAll('a[href^=\"#\"]')].map(e => e.getAttribute('href'))"
    )
    places = browser.ask("return [...document.querySelectorAll('[id]')].map(e => `#${e.id}`)")
    assert len(links) > 5
    assert set(links) <= set(places)
    browser.ask("document.querySelector('.lead').style.color = '#8a8a8a'")
    assert {rule for rule, _, _ in accessibility_faults(browser)} == {"color-contrast"}


def test_a_verdict_opens_into_its_numbers(browser) -> None:
    browser.open("claim-e")
    box = "document.querySelector('#claim-e .opens details')"
    assert browser.ask(f"return {box}.open") is False
    browser.point(*browser.place("#claim-e .opens summary"), click=True)
    assert browser.until(f"return {box}.open")
    assert "On-policy TD, Garnet" in browser.ask(f"return {box}.innerText")
    assert "1.02" in browser.ask(f"return {box}.innerText")


def test_a_link_to_an_erratum_opens_its_tab(browser) -> None:
    browser.open("claim-e")
    browser.point(*browser.place("#claim-e a[href='#erratum-2']"), click=True)
    browser.until("return !document.getElementById('errata').hidden")
    assert shown(browser) == ["errata"]


def test_hovering_over_a_point_shows_its_value(browser) -> None:
    browser.open("claim-a")
    browser.point(*browser.place(f"#{PLOT} .scatterlayer .points path"))
    text = browser.until(
        f"return document.querySelector('#{PLOT} .hoverlayer .hovertext')?.textContent"
    )
    y = sections()[0].figures[1].series[0].y[0]
    assert "Garnet" in text
    assert f"{y:.4g}" in text
    assert "interval" in text


def test_a_click_on_the_legend_hides_a_series_and_another_brings_it_back(browser) -> None:
    browser.open("claim-a")
    visible = f"return document.querySelectorAll('#{PLOT} .scatterlayer .trace').length"
    entry = "#claim-a figure:last-of-type .legend button"
    before = browser.ask(visible)
    browser.point(*browser.place(entry), click=True)
    browser.until(visible + " < arguments[0]", before)
    assert browser.ask(f"return document.querySelector({entry!r}).ariaPressed") == "false"
    browser.point(*browser.place(entry), click=True)
    browser.until(visible + " == arguments[0]", before)


def test_tabs_change_by_click_by_link_and_by_address(browser) -> None:
    browser.open()
    browser.point(*browser.place("#tab-claim-c"), click=True)
    assert shown(browser) == ["claim-c"]
    assert browser.ask("return location.hash") == "#claim-c"
    browser.point(*browser.place("#tab-summary"), click=True)
    browser.point(*browser.place("#summary a[href='#claim-a']"), click=True)
    browser.until("return !document.getElementById('claim-a').hidden")
    assert shown(browser) == ["claim-a"]


def test_the_keyboard_reaches_everything(browser) -> None:
    browser.open(fresh=True)
    focus = "return document.activeElement.id || document.activeElement.className"
    browser.press("Tab")
    assert browser.ask(focus) == "skip"
    assert browser.ask("return document.activeElement.getBoundingClientRect().left") >= 0, (
        "the skip link shows when focused"
    )
    browser.press("Tab")
    assert browser.ask("return document.activeElement.textContent") == "find the paper"
    browser.press("Tab")
    assert browser.ask(focus) == "tab-summary"
    browser.press("ArrowDown")
    assert browser.ask(focus) == "tab-claim-a"
    assert shown(browser) == ["claim-a"]
    assert browser.ask("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("ArrowUp", "ArrowUp")
    assert browser.ask(focus) == "tab-settings"
    browser.press("Home", "ArrowRight", "Tab")
    assert browser.ask(focus) == "claim-a", "only the chosen tab is a stop on the way to its panel"
    selected = "return [...document.querySelectorAll('[role=tab]')].map(t => t.ariaSelected)"
    assert browser.ask(selected) == ["false", "true"] + 4 * ["false"]


def test_the_numbers_open_as_a_table(browser) -> None:
    browser.open("claim-a")
    browser.point(*browser.place("#claim-a figure:last-of-type summary"), click=True)
    rows = browser.until(
        "return document.querySelectorAll('#claim-a figure:last-of-type .numbers tr').length"
    )
    assert rows == 1 + sum(len(series.x) for series in sections()[0].figures[1].series)
    cells = browser.ask(
        "return [...document.querySelectorAll('#claim-a figure:last-of-type .numbers td')].map(c "
        "=> c.textContent)"
    )
    assert cells[:3] == ["Garnet", "sampled", "1"]
    assert float(cells[3]) == pytest.approx(sections()[0].figures[1].series[0].y[0], rel=1e-5)


def test_paper_shows_every_claim_and_every_plot_in_ink_even_from_a_dark_screen(browser) -> None:
    browser.open(dark=True)
    look = (
        "p => [p.querySelectorAll('.main-svg').length > 0, p.clientWidth, "
        "getComputedStyle(p.querySelector('.xtick text')).fill]"
    )
    note = f"window.seen = [...document.querySelectorAll('.plot')].map({look})"
    browser.ask(f"addEventListener('beforeprint', () => {{ {note} }})")
    pdf = base64.b64decode(
        browser.driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"]
    )
    assert pdf.startswith(b"%PDF-")
    seen = browser.ask("return window.seen")
    assert len(seen) == 6
    assert all(drawn and width <= 680 and ink == "rgb(0, 0, 0)" for drawn, width, ink in seen)
    assert shown(browser) == ["summary"], "and the screen is as it was"
