"""Tests of rendering report blocks to HTML: escaping, tables, filters, plots, pictures and nested sections."""

import json
import math
import random
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.report.blocks import Card, Cards, Cell, Column, Facts, Picture, Plot, Section, Table, Text
from tessera.report.render import INITIAL_ROWS, Renderer, dump_embedded_json
from tests.report.synthetic import HOSTILE_TEXT


class Reader(HTMLParser):
    """A parser that collects the elements, attributes and text of a page as a browser would."""

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


def render_blocks(*blocks: object) -> str:
    return Renderer().render_section(Section("Title", "", blocks), "title")  # type: ignore[arg-type]


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_embedded_json_reads_back_and_cannot_end_its_element(data: object) -> None:
    text = dump_embedded_json(data)
    assert json.loads(text) == data
    assert not set(text) & set("<>&\u2028\u2029")


@given(st.text(max_size=40))
def test_any_string_is_shown_as_text(text: str) -> None:
    expected = Reader(render_blocks(Cards([Card("a", "b")]), Facts([("a", "b")]), Table(["a"], [["b"]])))
    actual = Reader(
        Renderer().render_section(
            Section(text, "", [Cards([Card(text, text)]), Facts([(text, text)]), Table([text], [[text]], text)]),
            "title",
        )
    )
    assert [tag for tag in actual.tags if tag != "wbr"] == expected.tags
    assert actual.text.count(text) >= 6


def test_text_keeps_paragraphs_and_code_but_no_markup() -> None:
    markup = render_blocks(Text(f"one `two` {HOSTILE_TEXT.replace('`', '')}\n\nthree", "warn"))
    assert Reader(markup).tags == ["section", "h2", "div", "p", "code", "p"]


def test_a_number_keeps_its_raw_value_whatever_its_text() -> None:
    value = random.uniform(1e-9, 1e9)
    markup = render_blocks(Table([Column("x", "number")], [[Cell("about right", value)], [Cell("none", math.nan)]]))
    values = [text for name, text in Reader(markup).attributes if name == "data-v"]
    assert [float(str(text)) for text in values] == [value]


def test_rows_beyond_the_first_are_hidden() -> None:
    extra = random.randint(1, 40)
    markup = render_blocks(Table(["x"], [[str(n)] for n in range(INITIAL_ROWS + extra)]))
    assert markup.count("<tr hidden>") == extra


def test_quick_filters_are_buttons_for_few_values_and_a_list_for_many() -> None:
    columns = [Column("few", quick=True), Column("many", quick=True), Column("one", quick=True)]
    tags = Reader(render_blocks(Table(columns, [[str(n % 3), str(n), "same"] for n in range(20)]))).tags
    assert tags.count("select") == 1
    assert tags.count("option") == 21
    assert tags.count("button") == len(columns) + 3 + 1


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(AssertionError, match="2 headings"):
        Table(["a", "b"], [["1"]])


def test_only_hover_templates_of_a_figure_keep_markup() -> None:
    figure = {
        "data": [{"x": [HOSTILE_TEXT, math.inf], "hovertemplate": "<b>%{x}</b>"}],
        "layout": {"height": 300, "title": {"text": HOSTILE_TEXT}},
    }
    markup = render_blocks(Plot(figure, HOSTILE_TEXT))
    match = re.search('<script type="application/json">(.*?)</script>', markup)
    assert match
    data = json.loads(match[1])
    assert data["data"][0]["hovertemplate"] == "<b>%{x}</b>"
    assert data["data"][0]["x"][1] is None
    assert "<" not in data["data"][0]["x"][0]
    assert "<" not in data["layout"]["title"]["text"]
    assert "height:300px" in markup


@pytest.mark.parametrize(
    "inside", ["<script>alert(1)</script>", "<rect onclick='alert(1)'/>", "<foreignObject/>", "<style/>"]
)
def test_a_picture_with_active_content_is_refused(inside: str) -> None:
    with pytest.raises(AssertionError, match="must not hold"):
        Picture(f"<svg xmlns='http://www.w3.org/2000/svg'>{inside}</svg>", "a picture")


def test_a_picture_is_inlined() -> None:
    markup = render_blocks(Picture("<svg viewBox='0 0 1 1'><rect fill='currentColor'/></svg>", "a tile", "One tile"))
    assert Reader(markup).tags == ["section", "h2", "figure", "div", "svg", "rect", "figcaption"]
    assert 'aria-label="a tile"' in markup


def test_nested_sections_have_smaller_headings_and_unique_ids() -> None:
    markup = render_blocks(Section("Part"), Section("Part", "", [Section("Deeper")]))
    reader = Reader(markup)
    assert [tag for tag in reader.tags if tag.startswith("h")] == ["h2", "h3", "h3", "h4"]
    names = [text for name, text in reader.attributes if name == "id"]
    assert len(set(names)) == len(names)
