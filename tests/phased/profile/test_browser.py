"""Tests of the profile page in a browser: drawn in both themes, without script errors or network requests."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from tessera.phased.profile.page import build_profile_page
from tests.browser import Open, set_screen, set_theme
from tests.phased.profile.synthetic_passes import build_overlapped, build_sequential, draw_times

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


@pytest.mark.parametrize(("wide", "theme"), [(1280, "light"), (1280, "dark"), (400, "light")])
def test_the_page_shows_lanes_and_fits_the_screen(browser: WebDriver, open_page: Open, wide: int, theme: str) -> None:
    loads, computes = draw_times(6)
    set_screen(browser, wide, 900)
    set_theme(browser, theme)
    passes = {"phased": build_overlapped(loads, computes, devices=2), "sequential": build_sequential(loads, computes)}
    open_page(build_profile_page(passes))
    assert len(browser.find_elements(By.CSS_SELECTOR, "svg")) == 2
    for kind in ("load", "compute", "idle"):
        assert all(box.rect["height"] > 5 for box in browser.find_elements(By.CSS_SELECTOR, f"svg rect.{kind}"))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= wide
    style = browser.execute_script(
        "const s = getComputedStyle(document.body); const light = c => c.match(/\\d+/g).slice(0, 3)"
        ".reduce((a, b) => a + +b, 0); return [light(s.color), light(s.backgroundColor)]"
    )
    assert (style[0] < style[1]) == (theme == "light")
