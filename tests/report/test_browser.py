"""The report in a real browser: what a reader sees and can do."""

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
from tests.browser import Open, scheme, screen
from tests.report.synthetic import NASTY, broken, many, plausible, record, run

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


def rows(figure: WebElement) -> list[list[str]]:
    """The texts of the rows that are shown."""
    script = (
        "return [...arguments[0].querySelectorAll('tbody tr:not([hidden])')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )
    found: list[list[str]] = figure.parent.execute_script(script, figure)
    return found


def figure_of(browser: WebDriver, caption: str) -> WebElement:
    return browser.find_element(By.XPATH, f"//figure[@class='table'][figcaption[contains(., '{caption}')]]")


def canvases(browser: WebDriver) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, ".canvas")


def drawn(browser: WebDriver, canvas: WebElement) -> WebElement:
    """A plot once it is drawn; it is drawn when it comes into view."""
    browser.execute_script("arguments[0].scrollIntoView({behavior: 'instant'})", canvas)
    WebDriverWait(browser, 20).until(lambda _: canvas.find_elements(By.CSS_SELECTOR, "svg.main-svg"))
    return canvas


def numbers() -> tuple[list[float], Callable[[Any], Section]]:
    """A table whose texts sort otherwise than their values."""
    values = [random.uniform(0, 1) * 10.0**n for n in range(-6, 6)]
    random.shuffle(values)
    shown: list[list[Cell | str]] = [[f"row {n}", Cell(f"{v:.9g}", v)] for n, v in enumerate(values)]
    shown.append(["row none", Cell("")])
    return values, lambda runs: Section("Numbers", "", [Table(["Name", Column("Value", "number")], shown, "Numbers")])


def test_every_plot_is_drawn_when_it_comes_into_view(browser: WebDriver, show: Open) -> None:
    show(plausible("before", launches=5), plausible("after", 1.3, launches=5))
    plots = canvases(browser)
    assert len(plots) >= 4
    assert not plots[-1].find_elements(By.CSS_SELECTOR, "svg.main-svg")
    for plot in plots:
        marks = drawn(browser, plot).find_elements(By.CSS_SELECTOR, ".point path, path.point, .trace path")
        assert marks, plot.accessible_name


def test_a_number_column_sorts_by_value_both_ways(browser: WebDriver, show: Open) -> None:
    values, section = numbers()
    show(run("r", [record()]), sections={"ops": section})
    figure = figure_of(browser, "Numbers")
    heading = figure.find_elements(By.CSS_SELECTOR, "thead th")[1]
    button = heading.find_element(By.TAG_NAME, "button")
    expected = [f"{value:.9g}" for value in sorted(values)]
    button.click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert [row[1] for row in rows(figure)] == [*expected, ""]
    button.send_keys(Keys.ENTER)
    assert heading.get_attribute("aria-sort") == "descending"
    assert [row[1] for row in rows(figure)] == [*reversed(expected), ""]
    other = figure.find_elements(By.CSS_SELECTOR, "thead th")[0]
    other.find_element(By.TAG_NAME, "button").click()
    assert heading.get_attribute("aria-sort") == "none"
    assert [row[0] for row in rows(figure)] == [f"row {n}" for n in range(len(values))] + ["row none"]


def test_words_and_buttons_filter_together(browser: WebDriver, show: Open) -> None:
    view = plausible()
    show(view)
    figure = browser.find_element(By.CSS_SELECTOR, "#ops figure.table")
    everything = rows(figure)
    box = figure.find_element(By.CSS_SELECTOR, "input")
    box.send_keys("CONV2D 64")
    matching = [row for row in everything if "conv2d" in row[0] and "64" in "".join(row)]
    assert 0 < len(matching) < len(everything)
    assert rows(figure) == matching
    figure.find_element(By.CSS_SELECTOR, "[data-value='failed']").click()
    assert [row[0] for row in rows(figure)] == ["conv2d"]
    assert figure.find_element(By.TAG_NAME, "output").text == f"1 of {len(everything)} rows"
    figure.find_element(By.CSS_SELECTOR, "[data-value='failed']").click()
    assert rows(figure) == matching
    box.send_keys(Keys.CONTROL, "a", Keys.BACKSPACE)
    assert rows(figure) == everything


def test_long_tables_open_step_by_step(browser: WebDriver, show: Open) -> None:
    show(many(300, features=["ops"]))
    figure = browser.find_element(By.CSS_SELECTOR, "#ops figure.table")
    assert len(rows(figure)) == 50
    more = figure.find_element(By.CSS_SELECTOR, ".more")
    browser.execute_script("arguments[0].click()", more)
    assert len(rows(figure)) == 250
    browser.execute_script("arguments[0].click()", more)
    assert len(rows(figure)) == 300
    assert not more.is_displayed()


def test_the_theme_follows_the_system_and_the_button_and_is_remembered(browser: WebDriver, show: Open) -> None:
    def background() -> tuple[int, ...]:
        text = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
        return tuple(int(part) for part in text[text.index("(") + 1 : -1].split(",")[:3])

    def tick_colour() -> str:
        tick = canvases(browser)[0].find_element(By.CSS_SELECTOR, ".xtick text")
        return tick.value_of_css_property("fill")

    show(plausible())
    drawn(browser, canvases(browser)[0])
    assert min(background()) > 200
    light = tick_colour()
    scheme(browser, "dark")
    WebDriverWait(browser, 10).until(lambda _: max(background()) < 60)
    WebDriverWait(browser, 10).until(lambda _: tick_colour() != light)
    toggle = browser.find_element(By.CSS_SELECTOR, "button.theme")
    assert toggle.get_attribute("aria-pressed") == "true"
    toggle.click()
    assert min(background()) > 200
    assert tick_colour() == light
    browser.refresh()
    assert min(background()) > 200


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_the_page_never_scrolls_sideways(browser: WebDriver, show: Open, width: int) -> None:
    long = [
        record("a_name_without_any_place_to_break_" * 3, size="x" * 200),
        broken("failed", reason="y" * 400),
    ]
    screen(browser, width, 844, phone=width < 600)
    show(plausible("before", launches=3), run("z" * 100, [*plausible("after", 1.2, launches=3).records, *long]))
    for canvas in canvases(browser):
        drawn(browser, canvas)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return Math.round(visualViewport.width)") == width
    scrolled = browser.execute_script(
        "const wide = [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth);"
        "return wide.map(e => { e.scrollLeft = 9; return e.scrollLeft })"
    )
    assert scrolled
    assert 0 not in scrolled


def test_stored_strings_are_shown_and_never_run(browser: WebDriver, show: Open) -> None:
    nasty = [record(NASTY, feature=NASTY, size=NASTY, predicted=1e-3, n=n, **{NASTY: str(n)}) for n in range(8)] + [
        broken("failed", NASTY, feature=NASTY, reason=NASTY)
    ]
    views = [RunView(name=name, created=NASTY, command=NASTY, records=nasty) for name in (NASTY, f"{NASTY} again")]
    show(*views)
    for canvas in canvases(browser):
        drawn(browser, canvas)
    assert NASTY in rows(figure_of(browser, "Cases without a figure"))[0][-1]
    # The only scripts are those the page was written with, Plotly once more as it runs.
    kinds = browser.execute_script("return [...document.scripts].map(script => script.type)")
    assert [kind for kind in kinds if kind != "application/json"] == ["", "", "text/plain", ""]
    labels = browser.find_elements(By.CSS_SELECTOR, ".annotation text")
    assert any("<script>alert(1)</script>" in label.text for label in labels)


def test_two_thousand_records_load_within_three_seconds_and_ten_megabytes(browser: WebDriver, show: Open) -> None:
    path = show(many(2000))
    assert path.stat().st_size < 10e6
    script = "return performance.getEntriesByType('navigation')[0].loadEventEnd"
    assert 0 < browser.execute_script(script) < 3000
    assert len(rows(browser.find_element(By.CSS_SELECTOR, "#ops figure.table"))) == 50


def test_the_page_can_be_walked_without_a_mouse(browser: WebDriver, show: Open) -> None:
    show(plausible())
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
def test_text_stands_out_from_its_background(browser: WebDriver, show: Open, theme: str) -> None:
    scheme(browser, theme)
    show(plausible())
    pairs = [(ink, ground) for ink in ("ink", "muted", "accent", "good", "warn", "bad") for ground in ("page", "card")]
    for ink, ground in pairs:
        colours = [rgb(browser, f"var(--{name})") for name in (ink, ground)]
        assert contrast(*colours) >= 4.5, (ink, ground)


def rgb(browser: WebDriver, colour: str) -> list[float]:
    script = (
        "const e = document.createElement('canvas').getContext('2d'), p = document.createElement('i');"
        "document.body.append(p); p.style.color = arguments[0]; e.fillStyle = getComputedStyle(p).color;"
        "p.remove();"
        "e.fillRect(0, 0, 1, 1); return [...e.getImageData(0, 0, 1, 1).data].slice(0, 3)"
    )
    found: list[float] = browser.execute_script(script, colour)
    return found


def contrast(a: list[float], b: list[float]) -> float:
    """The ratio of luminances as the Web Content Accessibility Guidelines define it."""

    def luminance(colour: list[float]) -> float:
        parts = [c / 255 for c in colour]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def test_paper_is_light_shows_every_plot_and_leaves_the_controls_out(browser: WebDriver, show: Open) -> None:
    scheme(browser, "dark")
    show(plausible())
    printed = browser.execute_cdp_cmd("Page.printToPDF", {})
    assert printed["data"]
    plots = canvases(browser)
    assert all(plot.find_elements(By.CSS_SELECTOR, "svg.main-svg") for plot in plots)
    scheme(browser, "dark", media="print")
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert not browser.find_element(By.CSS_SELECTOR, ".bar").is_displayed()
    assert rgb(browser, "var(--ink)") < [60, 60, 60]
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert rgb(browser, "var(--ink)") > [200, 200, 200]
