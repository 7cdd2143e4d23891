"""Tests of a plan's page in a real browser: pointing at a worker enlarges its panel and shows its numbers."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from tessera.geometry import Mesh
from tessera.spatial.picture.page import build_plan_page
from tessera.spatial.picture.plan import draw_plan
from tests.browser import Open, set_theme
from tests.spatial.picture.test_plan import make_same_plan

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


def list_shown_cards(browser: WebDriver) -> list[str]:
    cards = browser.find_elements(By.CSS_SELECTOR, "section[data-card]")
    return [card.get_attribute("data-card") or "" for card in cards if card.is_displayed()]


def test_pointing_at_a_worker_shows_it(browser: WebDriver, open_page: Open) -> None:
    plan = make_same_plan(Mesh(3, 3))
    open_page(build_plan_page(plan, 4))
    assert list_shown_cards(browser) == ["0"]
    corner = browser.find_element(By.CSS_SELECTOR, '#plan [data-worker="8"]')
    ActionChains(browser).move_to_element(corner).perform()
    assert list_shown_cards(browser) == ["8"]
    enlarged = browser.find_elements(By.CSS_SELECTOR, "#zoom rect")
    assert len(enlarged) == len(corner.find_elements(By.CSS_SELECTOR, "rect"))
    wide = browser.execute_script("return document.getElementById('zoom').getBoundingClientRect().width")
    assert wide > corner.rect["width"]
    opacity = {
        worker.get_attribute("data-worker"): float(worker.value_of_css_property("opacity"))
        for worker in browser.find_elements(By.CSS_SELECTOR, "#plan [data-worker]")
    }
    browser.execute_script("document.querySelector('#plan [data-worker=\"4\"]').focus()")
    assert list_shown_cards(browser) == ["4"]
    assert opacity["8"] == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_alone_follows_the_theme(browser: WebDriver, open_page: Open, theme: str) -> None:
    open_page(draw_plan(make_same_plan(Mesh(2, 2))), "plan.svg")
    set_theme(browser, theme)
    script = (
        "const style = getComputedStyle(document.documentElement);"
        "const light = c => c.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0);"
        "return [light(style.color), light(style.backgroundColor)]"
    )
    ink, paper = browser.execute_script(script)
    assert (ink < paper) == (theme == "light")
    assert abs(ink - paper) > 400
