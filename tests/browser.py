"""A headless Chromium for tests of pages, with logs of its console and its requests."""

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
def start_chromium(profile: Path) -> Iterator[WebDriver]:
    """Start Chromium for the duration of the block; skip the test if it is not installed."""
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
def check_quiet(browser: WebDriver) -> Iterator[None]:
    """Set a light theme and 1280x900 pixels; check at the end that pages logged no error and requested nothing."""
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)
    set_screen(browser, 1280, 900)
    set_theme(browser, "light")
    yield
    assert browser.get_log("browser") == []
    assert [url for url in list_requests(browser) if not url.startswith(("file:", "data:", "blob:", "about:"))] == []


def list_requests(browser: WebDriver) -> list[str]:
    """Return the URLs that the page requested."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def set_screen(browser: WebDriver, width: int, height: int, *, phone: bool = False) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def set_theme(browser: WebDriver, name: str, media: str = "") -> None:
    """Select the light or dark theme, and disable smooth scrolling, because clicks do not wait until scrolling ends."""
    settings = {"prefers-color-scheme": name, "prefers-reduced-motion": "reduce"}
    features = [{"name": key, "value": value} for key, value in settings.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
