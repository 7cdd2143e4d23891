"""Output of tables for the terminal and as Markdown, CSV and JSON; `report.render` writes the HTML of the page.

All tables are made of the `Column`s and `Cell`s of `report.blocks`. A cell may also be text, a plain number or None.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from tessera.errors import TesseraError
from tessera.files import replace_text
from tessera.report.blocks import Cell, Column, Heading, Row, Table

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text

OutputFormat = Literal["terminal", "markdown", "csv", "json"]

# Output format of a file, by suffix.
FORMAT_BY_SUFFIX: dict[str, OutputFormat] = {".json": "json", ".csv": "csv", ".md": "markdown"}

_UNLIMITED_WIDTH = 10_000
_MIN_PROSE_WIDTH = 24  # characters; narrower prose is unreadable
_MAX_NAME_LENGTH = 48  # characters; longer texts with spaces are sentences

# Cell texts that are coloured in the terminal.
_TEXT_STYLES = {
    "ok": "green",
    "faster": "green",
    "better": "green",
    "slower": "bold red",
    "worse": "bold red",
    "failed": "bold red",
    "newly failed": "bold red",
    "timed out": "bold red",
    "unresolved": "yellow",
    "refused": "yellow",
    "newly refused": "yellow",
}


def write_table(table: Table, output_format: OutputFormat, stream: TextIO) -> None:
    """Write a table in an output format. The caption is shown in the terminal and in Markdown."""
    write_rows(table.columns, table.rows, output_format, stream, table.caption)


def write_rows(
    columns: Sequence[Heading], rows: Iterable[Row], output_format: OutputFormat, stream: TextIO, title: str = ""
) -> None:
    """Write columns and rows in an output format. The title is shown in the terminal and in Markdown."""
    heads = [Column(column) if isinstance(column, str) else column for column in columns]
    plain = ([cell.text if isinstance(cell, Cell) else cell for cell in row] for row in rows)
    if output_format == "terminal":
        if title:  # printed separately, because rich would wrap a table title to the width of the table
            print_rich(_style_title(title), stream)
        _print_table(heads, list(plain), stream)
    elif output_format == "markdown":
        stream.write(format_markdown(heads, plain, title))
    elif output_format == "csv":
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(column.title for column in heads)
        writer.writerows([_make_encodable(cell) for cell in row] for row in plain)
    else:
        names = [column.title for column in heads]
        json.dump([dict(zip(names, row, strict=True)) for row in plain], stream, indent=1, allow_nan=False)
        stream.write("\n")


def write_blocks(blocks: Iterable[Table | Iterable[str]], output_format: OutputFormat, stream: TextIO) -> None:
    """Write tables and lines of text for the terminal or as Markdown, where a blank line separates them."""
    for number, block in enumerate(blocks):
        if number and output_format == "markdown":
            stream.write("\n")
        if isinstance(block, Table):
            write_table(block, output_format, stream)
        else:
            stream.writelines(f"{line}\n" for line in block)


def print_result(
    output_format: OutputFormat,
    output: str | None,
    *,
    data: Any,
    rows: Table,
    blocks: Iterable[Table | Iterable[str]],
) -> None:
    """Print a result to `output`: `data` as JSON, `rows` as CSV, or `blocks` (see `write_blocks`)."""
    with open_output(output) as stream:
        if output_format == "json":
            write_json(data, stream)
        elif output_format == "csv":
            write_table(rows, output_format, stream)
        else:
            write_blocks(blocks, output_format, stream)


def print_table(table: Table, output_format: OutputFormat, output: str | None) -> None:
    """Print a table to `output`; in JSON and CSV, without its caption."""
    with open_output(output) as stream:
        write_table(table, output_format, stream)


def write_json(value: Any, stream: TextIO) -> None:
    """Write plain values as indented JSON, with a newline at the end."""
    json.dump(value, stream, indent=1)
    stream.write("\n")


def _style_title(title: str) -> Text:
    from rich.text import Text

    return Text(_make_printable(title), style="bold")


def _print_table(columns: Sequence[Column], rows: Sequence[Row], stream: TextIO) -> None:
    """Print a table; on a narrow terminal without its last number columns, which are then named below it.

    Names and numbers are never wrapped or cut; prose is wrapped. The first number column, the main figure, is kept.
    """
    texts = [[_make_printable(_to_text(cell)) for cell in row] for row in rows]
    if not stream.isatty():
        stream.writelines(f"{line}\n" for line in _format_plain_table(columns, texts))
        return
    columns = [_mark_prose(column, [row[index] for row in texts]) for index, column in enumerate(columns)]
    shown = list(range(len(columns)))
    width = _get_terminal_width(stream)
    widths = [_measure_column(column, [row[index] for row in texts]) for index, column in enumerate(columns)]
    numbers = [index for index in shown if columns[index].kind == "number"]
    while _add_borders(widths[index] for index in shown) > width and len(numbers) > 1:
        shown.remove(numbers.pop())
    drawn = _draw_table([columns[i] for i in shown], [[row[i] for i in shown] for row in texts])
    print_rich(drawn, stream, min_width=_add_borders(widths[index] for index in shown))
    if len(shown) < len(columns):
        hidden = ", ".join(
            column.title.replace("\n", " ") for index, column in enumerate(columns) if index not in shown
        )
        print_rich(f"  not shown in {width} columns: {hidden} (use a wider terminal, or -o FILE)", stream)


def _format_plain_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table for a file or a pipe: the same as on a wide terminal, without wrapping and colours.

    rich takes a second for a thousand rows.
    """
    from rich.cells import cell_len

    titles = [column.title.split("\n") for column in columns]
    height = max(map(len, titles))
    titles = [[""] * (height - len(lines)) + lines for lines in titles]
    cells = [titles, *([text.split("\n") for text in row] for row in rows)]
    widths = [max(map(cell_len, chain.from_iterable(column))) for column in zip(*cells, strict=True)]

    def pad(text: str, index: int) -> str:
        space = " " * (widths[index] - cell_len(text))
        return space + text if columns[index].kind == "number" else text + space

    drawn = [
        "  " + "   ".join(pad(text, index) for index, text in enumerate(line))
        for row in cells
        for line in zip_longest(*row, fillvalue="")
    ]
    rule = " " + "─" * (sum(width + 3 for width in widths) - 1)
    return ["", *(line.rstrip() for line in (*drawn[:height], rule, *drawn[height:])), ""]


def _get_terminal_width(stream: TextIO) -> int:
    from rich.console import Console

    return Console(file=stream).width


def _measure_column(column: Column, texts: Sequence[str]) -> int:
    """Return the width below which a column is unreadable: that of its longest line, or less for wrapped text."""
    from rich.cells import cell_len

    longest = max(cell_len(line) for text in (column.title, *texts) for line in text.splitlines() or [""])
    return min(longest, _MIN_PROSE_WIDTH) if column.kind == "prose" else longest


def _mark_prose(column: Column, texts: Sequence[str]) -> Column:
    """Return a column as prose if its texts are sentences rather than names."""
    sentences = column.kind == "text" and any(len(text) > _MAX_NAME_LENGTH and " " in text for text in texts)
    return replace(column, kind="prose") if sentences else column


def _add_borders(widths: Iterable[int]) -> int:
    """Return the width of a table of these columns, with the spaces between and around them."""
    return sum(width + 3 for width in widths) + 1


def _draw_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=box.SIMPLE_HEAD)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.kind == "number" else "left"
        drawn.add_column(column.title, justify=justify, no_wrap=column.kind != "prose", overflow="fold")
    for row in rows:
        # Text, not str: rich would read the brackets of a case as markup.
        drawn.add_row(*(Text(text, style=_TEXT_STYLES.get(text, "")) for text in row))
    return drawn


def print_rich(drawn: RichTable | Text | str, stream: TextIO, *, min_width: int = 0) -> None:
    """Print a line or a table of the library rich; output to a file or a pipe has unwrapped lines without colours.

    The terminal wraps the lines of a table that needs more than its width (`min_width`).
    """
    from rich.console import Console

    if stream.isatty():
        width = max(_get_terminal_width(stream), min_width)
        Console(file=stream, highlight=False, width=width).print(drawn, markup=False)
        return
    text = io.StringIO()
    Console(file=text, width=_UNLIMITED_WIDTH, highlight=False).print(drawn, markup=False)
    stream.writelines(line.rstrip() + "\n" for line in text.getvalue().splitlines())


def write_lines(lines: Iterable[str], output_format: OutputFormat, stream: TextIO) -> None:
    """Write lines of text, as a list in Markdown."""
    for line in lines:
        if output_format == "markdown":
            stream.write(f"- {line}\n")
        else:
            print_rich(line, stream)


def format_markdown(columns: Sequence[Column], rows: Iterable[Row], title: str = "") -> str:
    """Return a table in GitHub-flavoured Markdown.

    >>> print(format_markdown([Column("case"), Column("time", "number")], [["a|b", "1 s"]]), end="")
    | case | time |
    | --- | ---: |
    | a\\|b | 1 s |
    """
    lines = [f"### {title}", ""] if title else []
    lines.append(_join_cells(column.title for column in columns))
    lines.append(_join_cells("---:" if column.kind == "number" else "---" for column in columns))
    lines.extend(_join_cells(_escape_markdown(_to_text(cell)) for cell in row) for row in rows)
    return "\n".join(lines) + "\n"


def _join_cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _to_text(cell: Any) -> str:
    return "" if cell is None else str(cell)


def _escape_markdown(text: str) -> str:
    """Escape text for a Markdown table, so that it cannot break the table or be read as HTML."""
    plain = _make_printable(" ".join(text.split()))
    return plain.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _make_printable(text: str) -> str:
    """Replace control characters, so that stored text cannot send commands to the terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _make_encodable(cell: Any) -> Any:
    """Return a cell that can be encoded in UTF-8: lone surrogates are escaped."""
    return cell.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(cell, str) else cell


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """Open the output: the file `path`, replaced only when the block succeeds, or standard output if None."""
    if path is None or path == "-":
        yield sys.stdout
        return
    text = io.StringIO()
    yield text
    try:
        replace_text(Path(path), text.getvalue())
    except OSError as error:
        raise TesseraError(f"cannot write the output: {error.strerror}", got=path) from None
