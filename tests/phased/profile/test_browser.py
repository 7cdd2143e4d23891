"""The page of a profile in a real browser: drawn, in both themes, without a complaint or a request."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from tessera.phased.profile.page import profile_page
from tests.browser import Open, scheme, screen
from tests.phased.profile.passes import drawn, overlapped, sequential

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


@pytest.mark.parametrize(("wide", "theme"), [(1280, "light"), (1280, "dark"), (400, "light")])
def test_the_page_shows_lanes_and_fits_the_screen(browser: WebDriver, page_of: Open, wide: int, theme: str) -> None:
    loads, computes = drawn(6)
    screen(browser, wide, 900)
    scheme(browser, theme)
    passes = {"phased": overlapped(loads, computes, devices=2), "sequential": sequential(loads, computes)}
    page_of(profile_page(passes))
    assert len(browser.find_elements(By.CSS_SELECTOR, "svg")) == 2
    for kind in ("load", "compute", "idle"):
        assert all(box.rect["height"] > 5 for box in browser.find_elements(By.CSS_SELECTOR, f"svg rect.{kind}"))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= wide
    style = browser.execute_script(
        "const s = getComputedStyle(document.body); const light = c => c.match(/\\d+/g).slice(0, 3)"
        ".reduce((a, b) => a + +b, 0); return [light(s.color), light(s.backgroundColor)]"
    )
    assert (style[0] < style[1]) == (theme == "light")
