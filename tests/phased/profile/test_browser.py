"""The page of a profile in a real browser: drawn, in both themes, without a complaint or a request."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from tessera.phased.profile.page import profile_page
from tests.phased.profile.passes import drawn, overlapped, sequential
from tests.report.conftest import browser, requests, scheme, screen

__all__ = ["browser"]
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


@pytest.mark.parametrize(("wide", "theme"), [(1280, "light"), (1280, "dark"), (400, "light")])
def test_the_page_shows_lanes_and_fits_the_screen(browser: WebDriver, tmp_path: Path, wide: int, theme: str) -> None:
    loads, computes = drawn(6)
    page = tmp_path / "timeline.html"
    page.write_text(
        profile_page({"phased": overlapped(loads, computes, devices=2), "sequential": sequential(loads, computes)})
    )
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    screen(browser, wide, 900)
    scheme(browser, theme)
    browser.get(page.as_uri())
    assert len(browser.find_elements(By.CSS_SELECTOR, "svg")) == 2
    for kind in ("load", "compute", "idle"):
        assert all(box.rect["height"] > 5 for box in browser.find_elements(By.CSS_SELECTOR, f"svg rect.{kind}"))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= wide
    style = browser.execute_script(
        "const s = getComputedStyle(document.body); const light = c => c.match(/\\d+/g).slice(0, 3)"
        ".reduce((a, b) => a + +b, 0); return [light(s.color), light(s.backgroundColor)]"
    )
    assert (style[0] < style[1]) == (theme == "light")
    assert browser.get_log("browser") == []
    assert [url for url in requests(browser) if not url.startswith(("file:", "data:", "about:"))] == []
