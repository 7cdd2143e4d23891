"""A real browser to look at pages with: headless Chromium that logs its console and its requests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver

Open = Callable[..., Path]

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


@contextmanager
def chromium(profile: Path) -> Iterator[WebDriver]:
    """The browser, until the block ends; where there is none the test is skipped."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (program and driver):
        pytest.skip("no Chromium here: run tests/install-browser.sh")
    options = Options()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = Chrome(options=options, service=Service(driver))
    try:
        yield started
    finally:
        started.quit()


@contextmanager
def watched(browser: WebDriver) -> Iterator[None]:
    """Whatever a test does within, on a light screen of usual size: pages may not complain or ask for anything."""
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    screen(browser, 1280, 900)
    scheme(browser, "light")
    yield
    assert browser.get_log("browser") == []
    assert [url for url in requests(browser) if not url.startswith(("file:", "data:", "blob:", "about:"))] == []


def requests(browser: WebDriver) -> list[str]:
    """The addresses that the page asked for."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def screen(browser: WebDriver, width: int, height: int, *, phone: bool = False) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def scheme(browser: WebDriver, name: str, media: str = "") -> None:
    """The reader's settings: light or dark, and no smooth scrolling, which a click cannot wait for."""
    settings = {"prefers-color-scheme": name, "prefers-reduced-motion": "reduce"}
    features = [{"name": key, "value": value} for key, value in settings.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
