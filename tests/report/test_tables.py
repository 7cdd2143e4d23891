import csv
import io
import json

import pytest

from tessera.report.tables import Column, render

COLUMNS = (Column("case"), Column("time", "right"))
ROWS = [["ops/add[size=1]", "1.5 ms"], ["a|b\n<script>", 12], ["\x1b[31mred", None]]


def rendered(form: str, title: str = "") -> str:
    stream = io.StringIO()
    render(COLUMNS, ROWS, form, stream, title)  # type: ignore[arg-type]
    return stream.getvalue()


def test_terminal() -> None:
    assert rendered("terminal", "times") == (
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


def test_a_title_is_longer_than_its_table_and_no_markup() -> None:
    title = "layers [bold] of a network that is wider than the few columns below it"
    assert rendered("terminal", title).splitlines()[0] == title


def test_markdown() -> None:
    assert rendered("markdown", "times") == (
        "### times\n\n"
        "| case | time |\n"
        "| --- | ---: |\n"
        "| ops/add[size=1] | 1.5 ms |\n"
        "| a\\|b &lt;script> | 12 |\n"
        "| \ufffd[31mred |  |\n"
    )


def test_csv_and_json_keep_the_cells() -> None:
    rows = list(csv.reader(io.StringIO(rendered("csv"))))
    assert rows == [["case", "time"], *([case, "" if time is None else str(time)] for case, time in ROWS)]
    assert json.loads(rendered("json")) == [{"case": case, "time": time} for case, time in ROWS]


def test_text_that_was_never_text_can_be_written() -> None:
    stream = io.StringIO()
    render([Column("x")], [["\udcff"]], "csv", stream)
    assert stream.getvalue().encode() == b"x\n\\udcff\n"


@pytest.mark.parametrize("form", ["terminal", "markdown", "csv", "json"])
def test_no_rows(form: str) -> None:
    stream = io.StringIO()
    render(COLUMNS, [], form, stream)  # type: ignore[arg-type]
    assert stream.getvalue().endswith("\n")
