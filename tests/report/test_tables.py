"""Tests of tables in every output format: terminal, Markdown, CSV and JSON."""

import csv
import io
import json

import pytest

from tessera.report.blocks import Column
from tessera.report.tables import write_rows

COLUMNS = (Column("case"), Column("time", "number"))
ROWS = [["ops/add[size=1]", "1.5 ms"], ["a|b\n<script>", 12], ["\x1b[31mred", None]]


def render_text(form: str, title: str = "") -> str:
    stream = io.StringIO()
    write_rows(COLUMNS, ROWS, form, stream, title)  # type: ignore[arg-type]
    return stream.getvalue()


def test_terminal() -> None:
    assert render_text("terminal", "times") == (
        "times\n"
        "\n"
        "  case                time\n"
        " ──────────────────────────\n"
        "  ops/add[size=1]   1.5 ms\n"
        "  a|b                   12\n"
        "  <script>\n"
        "  \ufffd[31mred\n"
        "\n"
    )


def test_a_title_may_be_longer_than_its_table_and_is_not_markup() -> None:
    title = "layers [bold] of a network that is wider than the few columns below it"
    assert render_text("terminal", title).splitlines()[0] == title


def test_markdown() -> None:
    assert render_text("markdown", "times") == (
        "### times\n\n"
        "| case | time |\n"
        "| --- | ---: |\n"
        "| ops/add[size=1] | 1.5 ms |\n"
        "| a\\|b &lt;script> | 12 |\n"
        "| \ufffd[31mred |  |\n"
    )


def test_csv_and_json_keep_the_cells() -> None:
    rows = list(csv.reader(io.StringIO(render_text("csv"))))
    assert rows == [["case", "time"], *([case, "" if time is None else str(time)] for case, time in ROWS)]
    assert json.loads(render_text("json")) == [{"case": case, "time": time} for case, time in ROWS]


def test_undecodable_text_can_be_written() -> None:
    stream = io.StringIO()
    write_rows([Column("x")], [["\udcff"]], "csv", stream)
    assert stream.getvalue().encode() == b"x\n\\udcff\n"


@pytest.mark.parametrize("form", ["terminal", "markdown", "csv", "json"])
def test_no_rows(form: str) -> None:
    stream = io.StringIO()
    write_rows(COLUMNS, [], form, stream)  # type: ignore[arg-type]
    assert stream.getvalue().endswith("\n")
