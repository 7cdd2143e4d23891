"""Tests of the inference section in a real browser: every plot is drawn in both themes and fits a phone screen."""

from __future__ import annotations

import random

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from tessera.inference.section.section import build_section
from tests.browser import Open, set_screen, set_theme
from tests.inference.test_section import make_all_records, make_run_view
from tests.report.test_browser import wait_until_drawn

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

MARKS = ".point path, path.point, .trace path, .trace .point"


@pytest.mark.parametrize(("width", "theme"), [(390, "light"), (1280, "dark")])
def test_every_plot_of_the_section_is_drawn_and_fits_the_screen(
    browser: WebDriver, show: Open, width: int, theme: str
) -> None:
    random.seed(7)
    set_screen(browser, width, 844, phone=width < 600)
    set_theme(browser, theme)
    show(make_run_view(make_all_records()), sections={"infer": build_section})
    plots = browser.find_elements(By.CSS_SELECTOR, "#inference .canvas")
    assert len(plots) == 4
    for plot in plots:
        assert wait_until_drawn(browser, plot).find_elements(By.CSS_SELECTOR, MARKS), plot.accessible_name
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
