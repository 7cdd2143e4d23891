"""Fixtures of all tests: a browser that is started once, and pages opened in the browser. SIGINT is enabled."""

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

if (
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN
):  # background jobs of a shell ignore SIGINT, and child processes would inherit this setting
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    """Start headless Chromium once for all tests."""
    from tests.browser import start_chromium

    with start_chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def open_page(browser: WebDriver, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens HTML text as a page; a logged error or a request of the page fails the test."""
    from tests.browser import check_quiet

    def open_(text: str, name: str = "page.html") -> Path:
        path = tmp_path / name
        path.write_text(text)
        browser.get(path.as_uri())
        return path

    with check_quiet(browser):
        yield open_
    browser.execute_script("localStorage.clear()")


@pytest.fixture
def show(open_page: Open) -> Open:
    """Return a function that opens the report of some runs."""
    from tessera.report.page import build_page

    def show(*runs: RunView, sections: Any = None) -> Path:
        return open_page(build_page(runs, sections or {}), "report.html")

    return show
