"""Headless Chromium on the pages of reports, and what must be true of every page in it."""

from __future__ import annotations

import base64
import json
import pathlib
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
_FLAGS = (
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
_OFFLINE = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
_PATIENCE = 120
"""Seconds until a wait is given up: the machine may be busy."""
_DRAWN = "p => p.querySelector('.main-svg')"

# ruff: noqa: E501  the scripts of the page's checks
FAULTS = """
const boxes = [], faults = [], slack = 1.5, edge = document.documentElement.clientWidth + 1;
for (const e of document.querySelectorAll('main text')) boxes.push([e.textContent, e.getBoundingClientRect(), e]);
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode());) {
  const e = node.parentElement;
  if (!node.textContent.trim() || !e.checkVisibility() || e.closest('svg, nav, .hidden, .skip, .numbers, pre, script, style, noscript')) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  for (const box of range.getClientRects()) if (box.width > 1) boxes.push([node.textContent.trim(), box, e]);
}
for (const [text, box, e] of boxes) {
  if (!text || !box.width || box.right < -1000) continue;  // hidden on purpose
  if (box.left < -1 || box.right > edge) faults.push([text, 'is beyond the screen']);
  for (let out = e.closest('.main-svg') || e; out && out !== document.body; out = out.parentElement) {
    const frame = out.getBoundingClientRect(), style = getComputedStyle(out);
    if (!/hidden|clip/.test(style.overflowX)) continue;
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
      faults.push([text, 'is cut']);
  }
}
boxes.sort((one, other) => one[1].top - other[1].top);
boxes.forEach(([one, a, e], k) => {
  for (let j = k + 1; j < boxes.length && boxes[j][1].top < a.bottom - slack; j++) {
    const [other, b, f] = boxes[j];
    if (one && other && e !== f && a.left < b.right - slack && b.left < a.right - slack && b.bottom > a.top + slack)
      faults.push([one, 'lies on', other]);
  }
});
return faults;
"""
"""Texts that lie on each other, are cut by their frame, or reach beyond the screen."""


class Browser:
    """Chromium on one page at a time; waits for what it is asked for."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver, self.address, self.screen = driver, address, None

    def open(
        self,
        tab: str = "summary",
        *,
        width: int = 1280,
        height: int = 900,
        phone: bool = False,
        dark: bool = False,
        fresh: bool = False,
    ) -> None:
        """Show a tab on such a screen.

        The page is loaded anew only for another screen, or if it must be `fresh`.
        """
        screen = (self.address, width, height, phone, dark)
        if fresh or self.screen != screen:
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            self.driver.execute_cdp_cmd(
                "Emulation.setEmulatedMedia", {"media": "", "features": [scheme]}
            )
            self.driver.get("about:blank")  # else a change of anchor loads nothing
            self.driver.get(self.address + ("" if tab == "summary" else f"#{tab}"))
            self.screen = screen
        else:
            self.ask("location.hash = arguments[0]", tab)
        self.until("return !document.getElementById(arguments[0]).hidden", tab)
        plots = "[...document.querySelectorAll('[role=tabpanel]:not([hidden]) .plot')]"
        self.until(f"return {plots}.every({_DRAWN})")

    def open_all(self, page: pathlib.Path, *, width: int, dark: bool = False) -> None:
        """Show every tab of a page at once, with all that can be opened."""
        own, self.address = self.address, page.as_uri()
        self.open(_tabs(page)[0], width=width, phone=width < 600, dark=dark, fresh=True)
        self.ask(
            "document.querySelectorAll('[role=tabpanel]').forEach(e => { e.hidden = false; });"
            "document.querySelectorAll('.opens details').forEach(e => { e.open = true; });"
            "[...document.querySelectorAll('details[data-numbers]')].at(-1).open = true;"
            "dispatchEvent(new Event('resize'));"
        )
        self.until(f"return [...document.querySelectorAll('.plot')].every({_DRAWN})")
        self.address, self.screen = own, None

    def ask(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, *arguments: Any) -> Any:
        end = time.monotonic() + _PATIENCE
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

    def requests(self) -> set[str]:
        """The addresses that were asked for since the last call, without their anchors."""
        log = self.driver.get_log("performance")
        events = [json.loads(entry["message"])["message"] for entry in log]
        asked = {
            event["params"]["request"]["url"].partition("#")[0]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        }
        return {url for url in asked if not url.startswith(("data:", "blob:", "about:", "chrome:"))}


def _tabs(page: pathlib.Path) -> list[str]:
    """The names of the tabs of a page."""
    return re.findall(r'<section id="([^"]+)" role="tabpanel"', page.read_text(encoding="utf-8"))


@contextmanager
def chromium(page: pathlib.Path, profile: pathlib.Path) -> Iterator[Browser]:
    """Chromium without a network, whose console must stay empty."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(_PATIENCE)
    # Nothing may be asked of a network, and nothing could answer.
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", _OFFLINE)
    try:
        yield Browser(driver, page.as_uri())
        assert driver.get_log("browser") == [], "the console stays empty through all of the tests"
    finally:
        driver.quit()


def accessibility_faults(browser: Browser) -> list[tuple[str, str, str]]:
    """What axe-core finds wrong on the page: the rule, the element, and how to mend it.

    The insides of plots are left out: they are pictures with names, of thousands of elements.
    """
    from selenium_axe_python import Axe

    axe = Axe(browser.driver)
    axe.inject()
    return [
        (rule["id"], node["html"][:200], node["failureSummary"])
        for rule in axe.run("{exclude: [['.main-svg']]}")["violations"]
        for node in rule["nodes"]
    ]
