"""One table, four forms: for the terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

Form = Literal["terminal", "markdown", "csv", "json"]
Row = Sequence[Any]

# The form that a file's name asks for.
SUFFIXES: dict[str, Form] = {".json": "json", ".csv": "csv", ".md": "markdown"}

_UNLIMITED = 10_000

# Words that stand out in the terminal wherever they are a whole cell.
_STYLES = {
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


@dataclass(frozen=True, slots=True)
class Column:
    """A column's name, and the side its cells are aligned to. Names are the keys of the JSON form."""

    name: str
    align: Literal["left", "right"] = "left"


def render(columns: Sequence[Column], rows: Iterable[Row], form: Form, stream: TextIO, title: str = "") -> None:
    """Write a table in one of its forms; cells are text or plain numbers, and None is an empty cell.

    The title is shown where there is a place for it: in the terminal and in Markdown.
    """
    if form == "terminal":
        if title:  # not the table's own: that would be wrapped to its width
            show(_heading(title), stream)
        show(_table(columns, rows), stream)
    elif form == "markdown":
        stream.write(markdown(columns, rows, title))
    elif form == "csv":
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(column.name for column in columns)
        writer.writerows([_encodable(cell) for cell in row] for row in rows)
    else:
        names = [column.name for column in columns]
        json.dump([dict(zip(names, row, strict=True)) for row in rows], stream, indent=1, allow_nan=False)
        stream.write("\n")


def _heading(title: str) -> Text:
    from rich.text import Text

    return Text(_printable(title), style="bold")


def _table(columns: Sequence[Column], rows: Iterable[Row]) -> Table:
    """The table as rich draws it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        drawn.add_column(column.name, justify=column.align, overflow="fold", no_wrap=column.align == "right")
    for row in rows:
        # Text, not str: rich would take the brackets of a case for its own markup.
        texts = [_printable(_text(cell)) for cell in row]
        drawn.add_row(*(Text(text, style=_STYLES.get(text, "")) for text in texts))
    return drawn


def show(drawn: Table | Text | str, stream: TextIO) -> None:
    """Print a table or a line; a file or a pipe gets lines as long as they need to be, without colours."""
    from rich.console import Console

    if stream.isatty():
        Console(file=stream, highlight=False).print(drawn, markup=False)
        return
    text = io.StringIO()
    Console(file=text, width=_UNLIMITED, highlight=False).print(drawn, markup=False)
    stream.writelines(line.rstrip() + "\n" for line in text.getvalue().splitlines())


def markdown(columns: Sequence[Column], rows: Iterable[Row], title: str = "") -> str:
    """The table as GitHub reads it.

    >>> print(markdown([Column("case"), Column("time", "right")], [["a|b", "1 s"]]), end="")
    | case | time |
    | --- | ---: |
    | a\\|b | 1 s |
    """
    lines = [f"### {title}", ""] if title else []
    lines.append(_line(column.name for column in columns))
    lines.append(_line("---:" if column.align == "right" else "---" for column in columns))
    lines.extend(_line(_escaped(_text(cell)) for cell in row) for row in rows)
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(cell: Any) -> str:
    return "" if cell is None else str(cell)


def _escaped(text: str) -> str:
    """Stored text must neither break the table nor become HTML."""
    plain = _printable(" ".join(text.split()))
    return plain.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _printable(text: str) -> str:
    """Stored text must not steer the terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _encodable(cell: Any) -> Any:
    """A cell that a UTF-8 file can hold: lone surrogates are spelled out."""
    return cell.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(cell, str) else cell
