"""Tests of the report in a real browser: plots, sorting, filters, themes, layout, security and accessibility."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tessera.report.blocks import Cell, Column, Section, Table
from tessera.report.runs import RunView
from tests.browser import Open, set_screen, set_theme
from tests.report.synthetic import (
    HOSTILE_TEXT,
    make_broken_record,
    make_long_run,
    make_plausible_run,
    make_record,
    make_run_view,
)

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


def read_rows(figure: WebElement) -> list[list[str]]:
    """Return the cell texts of the visible rows of a table."""
    script = (
        "return [...arguments[0].querySelectorAll('tbody tr:not([hidden])')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )
    texts: list[list[str]] = figure.parent.execute_script(script, figure)
    return texts


def find_figure(browser: WebDriver, caption: str) -> WebElement:
    return browser.find_element(By.XPATH, f"//figure[@class='table'][figcaption[contains(., '{caption}')]]")


def find_canvases(browser: WebDriver) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, ".canvas")


def wait_until_drawn(browser: WebDriver, canvas: WebElement) -> WebElement:
    """Scroll to a plot, wait until it is drawn, and return it."""
    browser.execute_script("arguments[0].scrollIntoView({behavior: 'instant'})", canvas)
    WebDriverWait(browser, 20).until(lambda _: canvas.find_elements(By.CSS_SELECTOR, "svg.main-svg"))
    return canvas


def make_number_table() -> tuple[list[float], Callable[[Any], Section]]:
    """Return numbers, and the builder of a section with a table of them, whose texts sort differently."""
    values = [random.uniform(0, 1) * 10.0**n for n in range(-6, 6)]
    random.shuffle(values)
    table_rows: list[list[Cell | str]] = [[f"row {n}", Cell(f"{v:.9g}", v)] for n, v in enumerate(values)]
    table_rows.append(["row none", Cell("")])
    return values, lambda runs: Section(
        "Numbers", "", [Table(["Name", Column("Value", "number")], table_rows, "Numbers")]
    )


def test_every_plot_is_drawn_when_it_comes_into_view(browser: WebDriver, show: Open) -> None:
    show(make_plausible_run("before", launches=5), make_plausible_run("after", 1.3, launches=5))
    plots = find_canvases(browser)
    assert len(plots) >= 4
    assert not plots[-1].find_elements(By.CSS_SELECTOR, "svg.main-svg")
    for plot in plots:
        marks = wait_until_drawn(browser, plot).find_elements(By.CSS_SELECTOR, ".point path, path.point, .trace path")
        assert marks, plot.accessible_name


def test_a_number_column_sorts_by_value_both_ways(browser: WebDriver, show: Open) -> None:
    values, section = make_number_table()
    show(make_run_view("r", [make_record()]), sections={"ops": section})
    figure = find_figure(browser, "Numbers")
    heading = figure.find_elements(By.CSS_SELECTOR, "thead th")[1]
    button = heading.find_element(By.TAG_NAME, "button")
    expected = [f"{value:.9g}" for value in sorted(values)]
    button.click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert [row[1] for row in read_rows(figure)] == [*expected, ""]
    button.send_keys(Keys.ENTER)
    assert heading.get_attribute("aria-sort") == "descending"
    assert [row[1] for row in read_rows(figure)] == [*reversed(expected), ""]
    name_heading = figure.find_elements(By.CSS_SELECTOR, "thead th")[0]
    name_heading.find_element(By.TAG_NAME, "button").click()
    assert heading.get_attribute("aria-sort") == "none"
    assert [row[0] for row in read_rows(figure)] == [f"row {n}" for n in range(len(values))] + ["row none"]


def test_the_search_box_and_the_buttons_filter_together(browser: WebDriver, show: Open) -> None:
    view = make_plausible_run()
    show(view)
    figure = browser.find_element(By.CSS_SELECTOR, "#ops figure.table")
    everything = read_rows(figure)
    box = figure.find_element(By.CSS_SELECTOR, "input")
    box.send_keys("CONV2D 64")
    matching = [row for row in everything if "conv2d" in row[0] and "64" in "".join(row)]
    assert 0 < len(matching) < len(everything)
    assert read_rows(figure) == matching
    figure.find_element(By.CSS_SELECTOR, "[data-value='failed']").click()
    assert [row[0] for row in read_rows(figure)] == ["conv2d"]
    assert figure.find_element(By.TAG_NAME, "output").text == f"1 of {len(everything)} rows"
    figure.find_element(By.CSS_SELECTOR, "[data-value='failed']").click()
    assert read_rows(figure) == matching
    box.send_keys(Keys.CONTROL, "a", Keys.BACKSPACE)
    assert read_rows(figure) == everything


def test_long_tables_show_more_rows_on_request(browser: WebDriver, show: Open) -> None:
    show(make_long_run(300, features=["ops"]))
    figure = browser.find_element(By.CSS_SELECTOR, "#ops figure.table")
    assert len(read_rows(figure)) == 50
    more = figure.find_element(By.CSS_SELECTOR, ".more")
    browser.execute_script("arguments[0].click()", more)
    assert len(read_rows(figure)) == 250
    browser.execute_script("arguments[0].click()", more)
    assert len(read_rows(figure)) == 300
    assert not more.is_displayed()


def test_the_theme_follows_the_system_and_the_button_and_is_remembered(browser: WebDriver, show: Open) -> None:
    def read_background() -> tuple[int, ...]:
        text = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
        return tuple(int(part) for part in text[text.index("(") + 1 : -1].split(",")[:3])

    def read_tick_colour() -> str:
        tick = find_canvases(browser)[0].find_element(By.CSS_SELECTOR, ".xtick text")
        return tick.value_of_css_property("fill")

    show(make_plausible_run())
    wait_until_drawn(browser, find_canvases(browser)[0])
    assert min(read_background()) > 200
    light = read_tick_colour()
    set_theme(browser, "dark")
    WebDriverWait(browser, 10).until(lambda _: max(read_background()) < 60)
    WebDriverWait(browser, 10).until(lambda _: read_tick_colour() != light)
    toggle = browser.find_element(By.CSS_SELECTOR, "button.theme")
    assert toggle.get_attribute("aria-pressed") == "true"
    toggle.click()
    assert min(read_background()) > 200
    assert read_tick_colour() == light
    browser.refresh()
    assert min(read_background()) > 200


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_the_page_never_scrolls_sideways(browser: WebDriver, show: Open, width: int) -> None:
    long = [
        make_record("a_name_without_any_place_to_break_" * 3, size="x" * 200),
        make_broken_record("failed", reason="y" * 400),
    ]
    set_screen(browser, width, 844, phone=width < 600)
    show(
        make_plausible_run("before", launches=3),
        make_run_view("z" * 100, [*make_plausible_run("after", 1.2, launches=3).records, *long]),
    )
    for canvas in find_canvases(browser):
        wait_until_drawn(browser, canvas)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return Math.round(visualViewport.width)") == width
    scrolled = browser.execute_script(
        "const wide = [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth);"
        "return wide.map(e => { e.scrollLeft = 9; return e.scrollLeft })"
    )
    assert scrolled
    assert 0 not in scrolled


def test_stored_strings_are_shown_and_never_run(browser: WebDriver, show: Open) -> None:
    nasty = [
        make_record(
            HOSTILE_TEXT, feature=HOSTILE_TEXT, size=HOSTILE_TEXT, predicted=1e-3, n=n, **{HOSTILE_TEXT: str(n)}
        )
        for n in range(8)
    ] + [make_broken_record("failed", HOSTILE_TEXT, feature=HOSTILE_TEXT, reason=HOSTILE_TEXT)]
    views = [
        RunView(name=name, created=HOSTILE_TEXT, command=HOSTILE_TEXT, records=nasty)
        for name in (HOSTILE_TEXT, f"{HOSTILE_TEXT} again")
    ]
    show(*views)
    for canvas in find_canvases(browser):
        wait_until_drawn(browser, canvas)
    assert HOSTILE_TEXT in read_rows(find_figure(browser, "Cases without a result"))[0][-1]
    # The only scripts belong to the page; Plotly is stored as text/plain and inserted again as a script when it runs.
    kinds = browser.execute_script("return [...document.scripts].map(script => script.type)")
    assert [kind for kind in kinds if kind != "application/json"] == ["", "", "text/plain", ""]
    labels = browser.find_elements(By.CSS_SELECTOR, ".annotation text")
    assert any("<script>alert(1)</script>" in label.text for label in labels)


def test_two_thousand_records_load_within_three_seconds_and_ten_megabytes(browser: WebDriver, show: Open) -> None:
    path = show(make_long_run(2000))
    assert path.stat().st_size < 10e6
    script = "return performance.getEntriesByType('navigation')[0].loadEventEnd"
    assert 0 < browser.execute_script(script) < 3000
    assert len(read_rows(browser.find_element(By.CSS_SELECTOR, "#ops figure.table"))) == 50


def test_the_page_can_be_used_without_a_mouse(browser: WebDriver, show: Open) -> None:
    show(make_plausible_run())
    for tag in ("header", "nav", "main", "footer", "h1"):
        assert len(browser.find_elements(By.TAG_NAME, tag)) == 1
    body = browser.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    skip = browser.switch_to.active_element
    assert "Skip" in skip.text
    body.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.tag_name == "a"
    unnamed = browser.execute_script(
        "const named = e => e.textContent.trim() || e.getAttribute('aria-label')"
        " || document.getElementById(e.getAttribute('aria-labelledby'))?.textContent;"
        "const all = document.querySelectorAll('button, input, select, table, [role=img], [role=region]');"
        "return [...all].filter(e => !named(e)).map(e => e.outerHTML)"
    )
    assert unnamed == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_enough_contrast(browser: WebDriver, show: Open, theme: str) -> None:
    set_theme(browser, theme)
    show(make_plausible_run())
    pairs = [(ink, ground) for ink in ("ink", "muted", "accent", "good", "warn", "bad") for ground in ("page", "card")]
    for ink, ground in pairs:
        colours = [compute_rgb(browser, f"var(--{name})") for name in (ink, ground)]
        assert compute_contrast(*colours) >= 4.5, (ink, ground)


def compute_rgb(browser: WebDriver, colour: str) -> list[float]:
    script = (
        "const e = document.createElement('canvas').getContext('2d'), p = document.createElement('i');"
        "document.body.append(p); p.style.color = arguments[0]; e.fillStyle = getComputedStyle(p).color;"
        "p.remove();"
        "e.fillRect(0, 0, 1, 1); return [...e.getImageData(0, 0, 1, 1).data].slice(0, 3)"
    )
    parts: list[float] = browser.execute_script(script, colour)
    return parts


def compute_contrast(a: list[float], b: list[float]) -> float:
    """Return the contrast ratio as defined by the Web Content Accessibility Guidelines."""

    def compute_luminance(colour: list[float]) -> float:
        parts = [c / 255 for c in colour]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((compute_luminance(a), compute_luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def test_print_is_light_with_all_plots_and_without_controls(browser: WebDriver, show: Open) -> None:
    set_theme(browser, "dark")
    show(make_plausible_run())
    printed = browser.execute_cdp_cmd("Page.printToPDF", {})
    assert printed["data"]
    plots = find_canvases(browser)
    assert all(plot.find_elements(By.CSS_SELECTOR, "svg.main-svg") for plot in plots)
    set_theme(browser, "dark", media="print")
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert not browser.find_element(By.CSS_SELECTOR, ".bar").is_displayed()
    assert compute_rgb(browser, "var(--ink)") < [60, 60, 60]
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert compute_rgb(browser, "var(--ink)") > [200, 200, 200]
