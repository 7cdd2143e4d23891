"""Tests of the report section of operators and of the history page in a real browser."""

from __future__ import annotations

import random

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from tessera.operators.section.section import build_section
from tessera.report.history_page import build_history_page
from tessera.report.runs import RunView
from tessera.results.history import build_history
from tessera.results.observation import read_metric
from tests.browser import Open, set_screen, set_theme
from tests.operators.synthetic import make_full_run, make_nights, make_operator_records, make_run_view
from tests.report.test_browser import find_canvases, find_figure, read_rows, wait_until_drawn

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

MARK_SELECTOR = ".point path, path.point, .trace path, .trace .point"


@pytest.fixture(autouse=True)
def fix_seed() -> None:
    """Seed the random numbers of every test, because the noise decides which changes are detected."""
    random.seed(11)


def make_run_with_backends() -> RunView:
    own = make_full_run(count=40)
    return make_run_view(
        "several", [*own.records, *make_operator_records(["add", "matmul"], backends=("jax", "numpy"))]
    )


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_plot_of_the_section_is_drawn_and_fits(browser: WebDriver, show: Open, width: int, theme: str) -> None:
    set_screen(browser, width, 844, phone=width < 600)
    set_theme(browser, theme)
    show(make_run_with_backends(), sections={"ops": build_section})
    plots = browser.find_elements(By.CSS_SELECTOR, "#operators .canvas")
    assert len(plots) >= 5
    for plot in plots:
        assert wait_until_drawn(browser, plot).find_elements(By.CSS_SELECTOR, MARK_SELECTOR), plot.accessible_name
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_the_whole_catalogue_loads_within_three_seconds(browser: WebDriver, show: Open) -> None:
    show(make_full_run(), sections={"ops": build_section})
    assert 0 < browser.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd") < 3000
    assert len(read_rows(find_figure(browser, "Every record"))) == 50


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_of_a_history_marks_its_changes(browser: WebDriver, open_page: Open, width: int) -> None:
    runs = make_nights(30, ["add", "matmul"], slower="matmul", since=20)
    history = build_history(
        [read_metric(r, "time", run=view.name, started=view.created) for view in runs for r in view.records], "time"
    )
    set_screen(browser, width, 844, phone=width < 600)
    open_page(build_history_page(history, "add matmul"))
    plots = find_canvases(browser)
    assert len(plots) == len(history.series)
    notes = [
        note.text
        for plot in plots
        for note in wait_until_drawn(browser, plot).find_elements(By.CSS_SELECTOR, ".annotation text")
    ]
    assert len(notes) == 4
    assert all(20 < float(note.strip("+%")) < 30 for note in notes)
    assert {row[3] for row in read_rows(find_figure(browser, "Changes"))} == {"night-20"}
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
