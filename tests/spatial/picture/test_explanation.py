"""Tests of the picture of an explanation: one line per module, its colour, and the bar of the bytes it receives."""

from __future__ import annotations

import re
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from tessera.spatial.picture.explanation import build_explanation_page, draw_explanation, list_modules
from tests.browser import Open, set_theme


def make_row(module: str, way: str = "split", received: int = 0, operator: str = "conv<2>") -> dict[str, Any]:
    return {
        "module": module,
        "operator": operator,
        "shape": "1x8x8",
        "computed": way,
        "calls": 1,
        "received_bytes": received,
        "why": "",
    }


ROWS = [
    make_row("stem", received=1024),
    make_row("stem", "whole", 2048),
    make_row("body", "moved", 512),
    make_row("stem"),
    make_row(""),
]


def test_consecutive_operators_of_a_module_are_one_line() -> None:
    modules = list_modules(ROWS)
    assert [(m.name, m.way, m.received_bytes) for m in modules] == [
        ("stem", "whole", 3072),
        ("body", "moved", 512),
        ("stem", "split", 0),
        ("(network)", "split", 0),
    ]


def test_bars_are_proportional_to_the_received_bytes() -> None:
    drawn = draw_explanation(ROWS, label="a network")
    bars = [float(width) for width in re.findall(r'width="([\d.]+)" height="10.0"', drawn)]
    assert len(bars) == 2, "a module that receives nothing has no bar"
    assert bars[0] == pytest.approx(6 * bars[1], rel=0.01)
    for words in (
        "on tiles: 2",
        "split moved to another dim: 1",
        "whole on every rank: 1",
        "3.00 KiB",
        "conv&lt;2&gt;",
    ):
        assert words in drawn


def test_many_modules_are_summed_in_one_line() -> None:
    drawn = draw_explanation([make_row(f"layer{n}", received=1) for n in range(405)], label="deep")
    assert "and 5 more modules, which receive 5 B" in drawn


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_shows_the_picture_and_all_operators(browser: WebDriver, open_page: Open, theme: str) -> None:
    open_page(build_explanation_page(ROWS, title="net <on> 2 ranks", summary="all on tiles"))
    set_theme(browser, theme)
    assert browser.find_element(By.TAG_NAME, "h1").text == "net <on> 2 ranks"
    assert len(browser.find_elements(By.CSS_SELECTOR, "tbody tr")) == len(ROWS)
    fills = {rect.value_of_css_property("fill") for rect in browser.find_elements(By.CSS_SELECTOR, "figure rect")}
    assert len(fills) == 3, "one colour per way"
