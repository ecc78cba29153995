"""The page in headless Chromium: read from a file without a network, on a desk, on a phone and on
paper."""

from __future__ import annotations

import base64
import shutil
import time

import pytest

from fegsam.report import write_report
from fegsam.report.paper import Erratum, Paper
from helpers.synthetic_sections import sections

webdriver = pytest.importorskip("selenium.webdriver")
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="needs Debian's packages chromium and chromium-driver"
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
PLOT = "plot-a-plateau_by_agents"


class Browser:
    """Chromium on one page; waits for what it is asked for."""

    def __init__(self, driver, address: str) -> None:
        self.driver, self.address, self.screen = driver, address, None

    def open(
        self,
        tab: str = "summary",
        *,
        width: int = 1280,
        height: int = 900,
        phone=False,
        dark=False,
        fresh=False,
    ) -> None:
        """Show a tab on such a screen; the page is loaded anew only for another screen, or if it
        must be `fresh`."""
        if fresh or self.screen != (width, height, phone, dark):
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            self.driver.execute_cdp_cmd(
                "Emulation.setEmulatedMedia", {"media": "", "features": [scheme]}
            )
            self.driver.get("about:blank")  # else a change of anchor loads nothing
            self.driver.get(self.address + ("" if tab == "summary" else f"#{tab}"))
            self.screen = (width, height, phone, dark)
        else:
            self.ask("location.hash = arguments[0]", tab)
        self.until("return !document.getElementById(arguments[0]).hidden", tab)
        plots = "[...document.querySelectorAll('[role=tabpanel]:not([hidden]) .plot')]"
        self.until(f"return {plots}.every(plot => plot.querySelector('.main-svg'))")

    def ask(self, script: str, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, *arguments):
        end = time.monotonic() + 10
        while not (answer := self.ask(script, *arguments)):
            assert time.monotonic() < end, f"waited in vain for: {script}"
            time.sleep(0.05)
        return answer

    def press(self, *keys: str) -> None:
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                press = {
                    "type": kind,
                    "key": key,
                    "code": key,
                    "windowsVirtualKeyCode": {"Tab": 9, "Enter": 13}.get(key, 0),
                }
                self.driver.execute_cdp_cmd(
                    "Input.dispatchKeyEvent", press | ({"text": "\r"} if key == "Enter" else {})
                )

    def point(self, x: float, y: float, *, click: bool = False) -> None:
        for kind in ("mouseMoved", *(("mousePressed", "mouseReleased") if click else ())):
            event = {
                "type": kind,
                "x": x,
                "y": y,
                "button": "left" if kind != "mouseMoved" else "none",
                "clickCount": 1,
            }
            self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)

    def place(self, selector: str) -> tuple[float, float]:
        """The middle of the first such element, scrolled to."""
        self.ask("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        box = self.ask(
            "return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", selector
        )
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def screenshot(self) -> bytes:
        return base64.b64decode(
            self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
        )


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    wrong = Erratum("2", "A sign", "Theorem 3.1.", "-1", "1", "false", "test_sign")
    paper = Paper("On coins", "A. Author", "https://example.org", [wrong])
    path = write_report(
        sections(), folder, title="Claims, checked", settings={"seeds": 20}, paper=paper
    )
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    # Nothing may be asked of a network, and nothing could answer.
    driver.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    yield Browser(driver, path.as_uri())
    log = driver.get_log("browser")
    driver.quit()
    assert log == [], "the console stays empty through all of these tests"


def shown(browser: Browser) -> list[str]:
    return browser.ask(
        "return [...document.querySelectorAll('[role=tabpanel]')].filter(p => "
        "p.clientHeight).map(p => p.id)"
    )


def test_it_opens_on_the_summary_and_asks_for_nothing_else(browser) -> None:
    browser.open()
    assert shown(browser) == ["summary"]
    assert browser.ask("return performance.getEntriesByType('resource').map(e => e.name)") == []
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


# ruff: noqa: E501  the scripts of the page's checks
LABELS = """
const overlaps = [], gap = 0.5;
for (const panel of document.querySelectorAll('[role=tabpanel]:not([hidden]) .panel')) {
  const texts = panel.querySelectorAll('.xtick text, .ytick text, .annotation-text, .axis-label, h4');
  const boxes = [...texts].map(e => [e.textContent, e.getBoundingClientRect()]);
  const frame = panel.getBoundingClientRect();
  boxes.forEach(([one, a], k) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1) overlaps.push([one, 'beyond its panel']);
    for (const [other, b] of boxes.slice(k + 1))
      if (a.left < b.right - gap && b.left < a.right - gap && a.top < b.bottom - gap && b.top < a.bottom - gap)
        overlaps.push([one, other]);
  });
}
return overlaps;
"""
"""Texts of a figure that lie on each other, or reach beyond it."""


@pytest.mark.parametrize(("width", "phone"), [(1400, False), (390, True)])
def test_no_label_of_a_figure_lies_on_another(browser, width, phone) -> None:
    for tab in ("claim-a", "claim-c", "claim-e"):
        browser.open(tab, width=width, phone=phone)
        assert browser.ask(LABELS) == [], tab
    found = browser.ask("return document.querySelectorAll('#claim-e .annotation-text').length")
    assert found == 9, "three names in each of three panels"
    browser.ask("document.querySelector('#claim-e .axis-label').style.marginTop = '-1rem'")
    assert browser.ask(LABELS), "the check sees a label that was moved onto another"
    browser.open("summary", width=width, phone=phone, fresh=True)


ACCESSIBLE = """
const faults = [], shown = e => e.getClientRects().length > 0;
const all = selector => [...document.querySelectorAll(selector)];
const name = e => (e.getAttribute('aria-label') || e.textContent || '').trim() ||
  (e.getAttribute('aria-labelledby') || '').split(' ').some(id => document.getElementById(id)?.textContent.trim());
for (const e of all('a[href], button, summary, [role=tab], [role=tabpanel], [role=img], [role=region], [role=group]'))
  if (!e.closest('.plot *') && !name(e)) faults.push(['no name', e.outerHTML.slice(0, 80)]);
for (const e of all('[id]')) if (all('#' + CSS.escape(e.id)).length > 1) faults.push(['id twice', e.id]);
for (const e of all('[aria-controls], [aria-labelledby]'))
  for (const id of (e.getAttribute('aria-controls') || e.getAttribute('aria-labelledby')).split(' '))
    if (!document.getElementById(id)) faults.push(['refers to nothing', id]);
for (const e of all('span[aria-label]:not([role]), div[aria-label]:not([role]), p[aria-label]'))
  if (!e.closest('.plot')) faults.push(['a name without a role', e.outerHTML.slice(0, 80)]);
let level = 0;
for (const e of all('h1, h2, h3, h4, h5')) {
  if (Number(e.tagName[1]) > level + 1) faults.push(['a heading skips a level', e.textContent]);
  level = Number(e.tagName[1]);
}
if (all('h1').length !== 1 || all('main').length !== 1 || !document.documentElement.lang || !document.title)
  faults.push(['one h1, one main, a language and a title', '']);
for (const e of all('a[href^="#"]')) if (!document.querySelector(e.getAttribute('href'))) faults.push(['a dead link', e.outerHTML]);
const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = c => c.slice(0, 3).map(channel).reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
const rgb = text => text.match(/[0-9.]+/g).map(Number);
const ground = e => {
  for (; e; e = e.parentElement) {
    const back = rgb(getComputedStyle(e).backgroundColor);
    if (back.length < 4 || back[3] > 0) return back;
  }
  return [255, 255, 255];
};
for (const e of all('body *')) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || !shown(e) || e.closest('svg, script, style, .skip')) continue;
  const pair = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((a, b) => b - a);
  const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
  if (ratio < 4.5) faults.push(['contrast ' + ratio.toFixed(2), e.textContent.trim().slice(0, 40)]);
}
return faults;
"""
"""The basic rules of accessibility: names, references, headings, links and contrast."""


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_keeps_the_basic_rules_of_accessibility(browser, dark) -> None:
    for tab in ("summary", "claim-a", "claim-e", "errata", "settings"):
        browser.open(tab, dark=dark)
        browser.ask(
            "document.querySelectorAll('[role=tabpanel]:not([hidden]) .opens details')"
            ".forEach(details => { details.open = true; })"
        )
        assert browser.ask(ACCESSIBLE) == [], tab
    pale = "#5a5a5a" if dark else "#8a8a8a"
    browser.ask(f"document.querySelector('h2').style.color = '{pale}'; location.hash = 'summary'")
    browser.until("return !document.getElementById('summary').hidden")
    kinds = [fault[0].split()[0] for fault in browser.ask(ACCESSIBLE)]
    assert kinds == ["contrast"], "the check sees what is too pale"
    browser.open("summary", dark=dark, fresh=True)


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
