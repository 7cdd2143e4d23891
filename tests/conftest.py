"""A real browser for every test that looks at a page, started once; and interrupts that arrive."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

    from tessera.report.runs import RunView
    from tests.browser import Open

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a shell; what tests start inherits it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    """Headless Chromium."""
    from tests.browser import chromium

    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def page_of(browser: WebDriver, tmp_path: Path) -> Iterator[Open]:
    """Opens the page that a text is; whatever a test does, it may not complain or ask for anything."""
    from tests.browser import watched

    def open_(text: str, name: str = "page.html") -> Path:
        path = tmp_path / name
        path.write_text(text)
        browser.get(path.as_uri())
        return path

    with watched(browser):
        yield open_
    browser.execute_script("localStorage.clear()")


@pytest.fixture
def show(page_of: Open) -> Open:
    """Opens the report of some runs."""
    from tessera.report.page import page

    def show(*runs: RunView, sections: Any = None) -> Path:
        return page_of(page(runs, sections or {}), "report.html")

    return show
