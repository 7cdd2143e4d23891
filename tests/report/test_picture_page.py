"""The frame around pictures: in the reader's theme, all text escaped, unable to run or fetch anything else."""

from __future__ import annotations

import base64
import hashlib
from html.parser import HTMLParser

from tessera.report.picture_page import picture_page, picture_table
from tests.report.synthetic import NASTY


class Elements(HTMLParser):
    """The elements of a page, with their attributes and what stands in them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def policy(self) -> str:
        return next(a["content"] or "" for _, a in self.found if a.get("http-equiv") == "Content-Security-Policy")


def test_a_page_without_a_script_may_run_none() -> None:
    page = Elements(picture_page("<h1>x</h1>", title=NASTY, style="h1 { color: red; }"))
    assert not any(tag == "script" for tag, _ in page.found)
    assert "script-src" not in page.policy()
    assert "default-src 'none'" in page.policy()
    assert NASTY in page.texts, "the title is text"


def test_the_policy_names_the_only_script_there_is() -> None:
    script = "document.title = '$policy';\n"
    page = Elements(picture_page("", title="x", script=script))
    assert sum(tag == "script" for tag, _ in page.found) == 1
    assert script in page.texts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert page.policy().endswith(f"script-src 'sha256-{digest}'")


def test_a_table_escapes_its_cells_and_marks_its_numbers() -> None:
    found = Elements(picture_table(["name", "bytes"], [[NASTY, "12"], ["b", "7"]], numbers=(1,)))
    assert NASTY in found.texts
    cells = [(tag, attributes.get("class")) for tag, attributes in found.found if tag in ("th", "td")]
    assert cells == [("th", None), ("th", "number"), *[("td", None), ("td", "number")] * 2]
