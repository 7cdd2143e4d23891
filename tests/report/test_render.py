import json
import math
import random
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.report.blocks import Card, Cards, Cell, Column, Facts, Picture, Plot, Section, Table, Text
from tessera.report.render import Renderer, embedded_json
from tessera.report.render_table import FIRST_ROWS
from tests.report.synthetic import NASTY


class Reader(HTMLParser):
    """What a browser would read: the elements and the text between them."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def rendered(*blocks: object) -> str:
    return Renderer().section(Section("Title", "", blocks), "title")  # type: ignore[arg-type]


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_embedded_json_reads_back_and_cannot_end_its_element(data: object) -> None:
    text = embedded_json(data)
    assert json.loads(text) == data
    assert not set(text) & set("<>&\u2028\u2029")


@given(st.text(max_size=40))
def test_any_string_is_shown_and_none_becomes_markup(text: str) -> None:
    wanted = Reader(rendered(Cards([Card("a", "b")]), Facts([("a", "b")]), Table(["a"], [["b"]])))
    got = Reader(
        Renderer().section(
            Section(text, "", [Cards([Card(text, text)]), Facts([(text, text)]), Table([text], [[text]], text)]),
            "title",
        )
    )
    assert [tag for tag in got.tags if tag != "wbr"] == wanted.tags
    assert got.text.count(text) >= 6


def test_text_keeps_paragraphs_and_code_but_no_markup() -> None:
    markup = rendered(Text(f"one `two` {NASTY.replace('`', '')}\n\nthree", "warn"))
    assert Reader(markup).tags == ["section", "h2", "div", "p", "code", "p"]


def test_a_number_keeps_its_raw_value_whatever_its_text() -> None:
    value = random.uniform(1e-9, 1e9)
    markup = rendered(Table([Column("x", "number")], [[Cell("about right", value)], [Cell("none", math.nan)]]))
    values = [text for name, text in Reader(markup).attributes if name == "data-v"]
    assert [float(str(text)) for text in values] == [value]


def test_rows_beyond_the_first_wait_hidden() -> None:
    extra = random.randint(1, 40)
    markup = rendered(Table(["x"], [[str(n)] for n in range(FIRST_ROWS + extra)]))
    assert markup.count("<tr hidden>") == extra


def test_quick_filters_are_buttons_for_few_values_and_a_list_for_many() -> None:
    columns = [Column("few", quick=True), Column("many", quick=True), Column("one", quick=True)]
    tags = Reader(rendered(Table(columns, [[str(n % 3), str(n), "same"] for n in range(20)]))).tags
    assert tags.count("select") == 1
    assert tags.count("option") == 21
    assert tags.count("button") == len(columns) + 3 + 1


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(AssertionError, match="2 headings"):
        Table(["a", "b"], [["1"]])


def test_a_figure_holds_no_markup_but_the_authors_templates() -> None:
    figure = {
        "data": [{"x": [NASTY, math.inf], "hovertemplate": "<b>%{x}</b>"}],
        "layout": {"height": 300, "title": {"text": NASTY}},
    }
    markup = rendered(Plot(figure, NASTY))
    found = re.search('<script type="application/json">(.*?)</script>', markup)
    assert found
    data = json.loads(found[1])
    assert data["data"][0]["hovertemplate"] == "<b>%{x}</b>"
    assert data["data"][0]["x"][1] is None
    assert "<" not in data["data"][0]["x"][0]
    assert "<" not in data["layout"]["title"]["text"]
    assert "height:300px" in markup


@pytest.mark.parametrize(
    "inside", ["<script>alert(1)</script>", "<rect onclick='alert(1)'/>", "<foreignObject/>", "<style/>"]
)
def test_a_picture_that_could_act_is_refused(inside: str) -> None:
    with pytest.raises(AssertionError, match="must not hold"):
        Picture(f"<svg xmlns='http://www.w3.org/2000/svg'>{inside}</svg>", "a picture")


def test_a_picture_is_drawn_in_place() -> None:
    markup = rendered(Picture("<svg viewBox='0 0 1 1'><rect fill='currentColor'/></svg>", "a tile", "One tile"))
    assert Reader(markup).tags == ["section", "h2", "figure", "div", "svg", "rect", "figcaption"]
    assert 'aria-label="a tile"' in markup


def test_sections_inside_sections_have_smaller_headings_and_names_of_their_own() -> None:
    markup = rendered(Section("Part"), Section("Part", "", [Section("Deeper")]))
    reader = Reader(markup)
    assert [tag for tag in reader.tags if tag.startswith("h")] == ["h2", "h3", "h3", "h4"]
    names = [text for name, text in reader.attributes if name == "id"]
    assert len(set(names)) == len(names)
