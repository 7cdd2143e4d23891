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
        print_rich(_draw_table(heads, plain), stream)
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


def _draw_table(columns: Sequence[Column], rows: Iterable[Row]) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=box.SIMPLE_HEAD)
    for column in columns:
        number = column.kind == "number"
        drawn.add_column(column.title, justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in rows:
        # Text, not str: rich would read the brackets of a case as markup.
        texts = [_make_printable(_to_text(cell)) for cell in row]
        drawn.add_row(*(Text(text, style=_TEXT_STYLES.get(text, "")) for text in texts))
    return drawn


def print_rich(drawn: RichTable | Text | str, stream: TextIO) -> None:
    """Print a line or a table of the library rich; output to a file or a pipe has unwrapped lines without colours."""
    from rich.console import Console

    if stream.isatty():
        Console(file=stream, highlight=False).print(drawn, markup=False)
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
