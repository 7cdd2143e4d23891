"""Tests of the HTML page around a picture: text is escaped, and other scripts and requests are forbidden."""

from __future__ import annotations

import base64
import hashlib
from html.parser import HTMLParser

from tessera.report.picture_page import build_picture_page, build_picture_table
from tests.report.synthetic import HOSTILE_TEXT


class Elements(HTMLParser):
    """A parser that collects the elements of a page, with their attributes and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def get_policy(self) -> str:
        return next(a["content"] or "" for _, a in self.elements if a.get("http-equiv") == "Content-Security-Policy")


def test_a_page_without_a_script_allows_none() -> None:
    page = Elements(build_picture_page("<h1>x</h1>", title=HOSTILE_TEXT, style="h1 { color: red; }"))
    assert not any(tag == "script" for tag, _ in page.elements)
    assert "script-src" not in page.get_policy()
    assert "default-src 'none'" in page.get_policy()
    assert HOSTILE_TEXT in page.texts, "the title is text"


def test_the_policy_allows_only_the_script_of_the_page() -> None:
    script = "document.title = '$policy';\n"
    page = Elements(build_picture_page("", title="x", script=script))
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert script in page.texts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert page.get_policy().endswith(f"script-src 'sha256-{digest}'")


def test_a_table_escapes_its_cells_and_marks_its_numbers() -> None:
    table = Elements(build_picture_table(["name", "bytes"], [[HOSTILE_TEXT, "12"], ["b", "7"]], numbers=(1,)))
    assert HOSTILE_TEXT in table.texts
    cells = [(tag, attributes.get("class")) for tag, attributes in table.elements if tag in ("th", "td")]
    assert cells == [("th", None), ("th", "number"), *[("td", None), ("td", "number")] * 2]
