"""The page of a plan in a real browser: pointing at a worker enlarges it and shows its numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from tessera.geometry import Mesh
from tessera.spatial.picture.page import plan_page
from tessera.spatial.picture.plan import plan_svg
from tests.report.conftest import browser, requests, scheme, screen
from tests.spatial.picture.test_plan import same

__all__ = ["browser"]
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


def opened(browser: WebDriver, text: str, path: Path) -> None:
    path.write_text(text)
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    screen(browser, 1280, 900)
    scheme(browser, "light")
    browser.get(path.as_uri())


def shown(browser: WebDriver) -> list[str]:
    cards = browser.find_elements(By.CSS_SELECTOR, "section[data-card]")
    return [card.get_attribute("data-card") or "" for card in cards if card.is_displayed()]


def test_pointing_at_a_worker_shows_it(browser: WebDriver, tmp_path: Path) -> None:
    plan = same(Mesh(3, 3))
    opened(browser, plan_page(plan, 4), tmp_path / "plan.html")
    assert shown(browser) == ["0"]
    corner = browser.find_element(By.CSS_SELECTOR, '#plan [data-worker="8"]')
    ActionChains(browser).move_to_element(corner).perform()
    assert shown(browser) == ["8"]
    enlarged = browser.find_elements(By.CSS_SELECTOR, "#zoom rect")
    assert len(enlarged) == len(corner.find_elements(By.CSS_SELECTOR, "rect"))
    wide = browser.execute_script("return document.getElementById('zoom').getBoundingClientRect().width")
    assert wide > corner.rect["width"]
    opacity = {
        worker.get_attribute("data-worker"): float(worker.value_of_css_property("opacity"))
        for worker in browser.find_elements(By.CSS_SELECTOR, "#plan [data-worker]")
    }
    browser.execute_script("document.querySelector('#plan [data-worker=\"4\"]').focus()")
    assert shown(browser) == ["4"]
    assert opacity["8"] == 1
    assert browser.get_log("browser") == []
    assert [url for url in requests(browser) if not url.startswith(("file:", "data:", "about:"))] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_alone_follows_the_theme(browser: WebDriver, tmp_path: Path, theme: str) -> None:
    opened(browser, plan_svg(same(Mesh(2, 2))), tmp_path / "plan.svg")
    scheme(browser, theme)
    script = (
        "const style = getComputedStyle(document.documentElement);"
        "const light = c => c.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0);"
        "return [light(style.color), light(style.backgroundColor)]"
    )
    ink, paper = browser.execute_script(script)
    assert (ink < paper) == (theme == "light")
    assert abs(ink - paper) > 400
