"""The operators' section and the history page in a real browser."""

from __future__ import annotations

import random

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from tessera.operators.section.section import section
from tessera.report.history_page import history_page
from tessera.report.runs import RunView
from tessera.results.history import history
from tessera.results.reading import read
from tests.browser import Open, scheme, screen
from tests.operators.invented import full, nights, operator_records, run
from tests.report.test_browser import canvases, drawn, figure_of, rows

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

MARKS = ".point path, path.point, .trace path, .trace .point"


@pytest.fixture(autouse=True)
def same_noise() -> None:
    """What is found in noise depends on it: each test gets the same."""
    random.seed(11)


def several_backends() -> RunView:
    own = full(count=40)
    return run("several", [*own.records, *operator_records(["add", "matmul"], backends=("jax", "numpy"))])


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_plot_of_the_section_is_drawn_and_fits(browser: WebDriver, show: Open, width: int, theme: str) -> None:
    screen(browser, width, 844, phone=width < 600)
    scheme(browser, theme)
    show(several_backends(), sections={"ops": section})
    plots = browser.find_elements(By.CSS_SELECTOR, "#operators .canvas")
    assert len(plots) >= 5
    for plot in plots:
        assert drawn(browser, plot).find_elements(By.CSS_SELECTOR, MARKS), plot.accessible_name
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_the_whole_catalogue_opens_at_once(browser: WebDriver, show: Open) -> None:
    show(full(), sections={"ops": section})
    assert 0 < browser.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd") < 3000
    assert len(rows(figure_of(browser, "Every record"))) == 50


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_of_a_history_marks_its_changes(browser: WebDriver, page_of: Open, width: int) -> None:
    runs = nights(30, ["add", "matmul"], slower="matmul", since=20)
    found = history(
        [read(r, "time", run=view.name, started=view.created) for view in runs for r in view.records], "time"
    )
    screen(browser, width, 844, phone=width < 600)
    page_of(history_page(found, "add matmul"))
    plots = canvases(browser)
    assert len(plots) == len(found.series)
    notes = [
        note.text for plot in plots for note in drawn(browser, plot).find_elements(By.CSS_SELECTOR, ".annotation text")
    ]
    assert len(notes) == 4
    assert all(20 < float(note.strip("+%")) < 30 for note in notes)
    assert {row[3] for row in rows(figure_of(browser, "Changes"))} == {"night-20"}
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
