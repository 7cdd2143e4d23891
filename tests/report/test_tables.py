"""Tests of tables in every output format: terminal, Markdown, CSV and JSON."""

import csv
import io
import json
import random
import re
from typing import Literal

import pytest

from tessera.report.blocks import Column
from tessera.report.tables import _draw_table, print_rich, write_rows

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


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


WIDE = [Column("case"), Column("pass"), *(Column(name, "number") for name in ("time", "±", "memory")), Column("status")]
WIDE_ROWS = [["ops adaptive_average_pool", "backward", "1.72 µs", "0.1%", "28.5 GB/s", "ok"]]


def render_on_terminal(columns: int, monkeypatch: pytest.MonkeyPatch, rows: list[list[str]] = WIDE_ROWS) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    write_rows(WIDE, rows, "terminal", stream)
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()]


def test_a_wide_terminal_shows_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = render_on_terminal(90, monkeypatch)
    assert lines[1] == "  case                        pass          time      ±      memory   status"
    assert lines[3] == "  ops adaptive_average_pool   backward   1.72 µs   0.1%   28.5 GB/s   ok"
    assert not any("not shown" in line for line in lines)


def test_a_narrow_terminal_drops_the_last_numbers_and_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = render_on_terminal(70, monkeypatch)
    assert lines[1] == "  case                        pass          time      ±   status"
    assert lines[3] == "  ops adaptive_average_pool   backward   1.72 µs   0.1%   ok"
    assert "not shown in 70 columns: memory" in " ".join(lines)


def test_names_and_the_main_figure_are_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = render_on_terminal(30, monkeypatch)
    assert lines[3] == "  ops adaptive_average_pool   backward   1.72 µs   ok"


def test_sentences_are_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = "refused because the convolution needs more memory than this core has"
    lines = render_on_terminal(90, monkeypatch, [[*WIDE_ROWS[0][:-1], sentence]])
    assert all(len(line) <= 90 for line in lines)
    assert "ops adaptive_average_pool   backward   1.72 µs" in lines[3]
    assert sentence.split()[-1] in " ".join(lines)


def test_files_and_pipes_get_the_lines_of_a_wide_terminal() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    pieces = ["a", "bc", "µ", "漢", "x y", "[red]", "1.2"]

    def draw_text() -> str:
        lines = ("".join(rng.choices(pieces, k=rng.randint(1, 5))) for _ in range(rng.randint(1, 2)))
        return "\n".join(lines) if rng.random() < 0.9 else ""

    for _ in range(30):
        kinds: list[Literal["text", "number"]] = ["text", "number"]
        columns = [Column(draw_text(), rng.choice(kinds)) for _ in range(rng.randint(1, 5))]
        rows = [[draw_text() for _ in columns] for _ in range(rng.randint(0, 6))]
        stream, drawn = io.StringIO(), io.StringIO()
        write_rows(columns, rows, "terminal", stream)
        print_rich(_draw_table(columns, rows), drawn)
        assert stream.getvalue() == drawn.getvalue()
