"""The networks' section in a real browser: every plot is drawn, in both themes, and fits a phone."""

from __future__ import annotations

import random

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from tessera.inference.section.section import section
from tests.browser import Open, scheme, screen
from tests.inference.test_section import everything, run
from tests.report.test_browser import drawn

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

MARKS = ".point path, path.point, .trace path, .trace .point"


@pytest.mark.parametrize(("width", "theme"), [(390, "light"), (1280, "dark")])
def test_every_plot_of_the_section_is_drawn_and_fits(browser: WebDriver, show: Open, width: int, theme: str) -> None:
    random.seed(7)
    screen(browser, width, 844, phone=width < 600)
    scheme(browser, theme)
    show(run(everything()), sections={"infer": section})
    plots = browser.find_elements(By.CSS_SELECTOR, "#inference .canvas")
    assert len(plots) == 4
    for plot in plots:
        assert drawn(browser, plot).find_elements(By.CSS_SELECTOR, MARKS), plot.accessible_name
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
