"""Tables to HTML: plain rows that are complete without a script, and the controls that make them live."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from tessera.report.blocks import Cell, Column, Table

# Rows shown at first: the rest are in the page and appear on demand, so that long tables open at once.
FIRST_ROWS = 50
# Tables shorter than this are read at a glance and get no filters.
LEAST_FILTERED = 6
# Up to this many values a quick filter is a row of buttons, above it a list to choose from.
MOST_BUTTONS = 6


def render_table(table: Table, name: str) -> str:
    """A figure with the caption, the filters and the rows; `name` is its id in the page."""
    columns = [Column(c) if isinstance(c, str) else c for c in table.columns]
    rows = [[Cell(c) if isinstance(c, str) else c for c in row] for row in table.rows]
    head = "".join(map(_heading, columns))
    body = "\n".join(_row(columns, row, number >= FIRST_ROWS) for number, row in enumerate(rows))
    label = f'aria-labelledby="{name}-caption"'
    more = "" if len(rows) > FIRST_ROWS else " hidden"
    return (
        f'<figure class="table" id="{name}">'
        f'<figcaption id="{name}-caption">{escape(table.caption)}</figcaption>{_tools(columns, rows)}'
        f'<div class="scroll" tabindex="0" role="region" {label}>'
        f"<table {label}><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
        f'<button type="button" class="more"{more}>Show more rows</button></figure>'
    )


def _heading(column: Column) -> str:
    hint = f' title="{escape(column.hint)}"' if column.hint else ""
    return (
        f'<th scope="col" class="{column.kind}" aria-sort="none"{hint}>'
        f'<button type="button">{escape(column.title)}</button></th>'
    )


def _row(columns: Sequence[Column], row: Sequence[Cell], hidden: bool) -> str:
    pairs = zip(columns, row, strict=True)
    cells = "".join(_cell(column, cell, heads=number == 0) for number, (column, cell) in enumerate(pairs))
    return f"<tr{' hidden' if hidden else ''}>{cells}</tr>"


def _cell(column: Column, cell: Cell, *, heads: bool) -> str:
    text = escape(cell.text)
    if heads:
        # The names of cases are long and have no spaces: they may break between their parameters.
        text = text.replace("[", "<wbr>[").replace(",", ",<wbr>")
    if cell.tone and text:
        text = f'<span class="badge {cell.tone}">{text}</span>'
    marks = "" if column.kind == "text" else f' class="{column.kind}"'
    if cell.value is not None and math.isfinite(cell.value):
        marks += f' data-v="{cell.value!r}"'
    if cell.hint:
        marks += f' title="{escape(cell.hint)}"'
    return f'<th scope="row"{marks}>{text}</th>' if heads else f"<td{marks}>{text}</td>"


def _tools(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> str:
    if len(rows) < LEAST_FILTERED:
        return ""
    quick = "".join(_quick_filters(columns, rows))
    return (
        '<div class="tools"><input type="search" placeholder="Filter rows" aria-label="Filter rows by words">'
        f'{quick}<output aria-live="polite">{len(rows):,} rows</output></div>'
    )


def _quick_filters(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    for index, column in enumerate(columns):
        found = Counter(row[index].text for row in rows if row[index].text)
        if column.quick and len(found) > 1:
            yield (_buttons(column, index, found) if len(found) <= MOST_BUTTONS else _list(column, index, found))


def _buttons(column: Column, index: int, found: Counter[str]) -> str:
    buttons = "".join(
        f'<button type="button" aria-pressed="false" data-value="{escape(text)}">'
        f"{escape(text)} <small>{number:,}</small></button>"
        for text, number in found.most_common()
    )
    label = escape(column.title)
    return f'<div class="chips" role="group" aria-label="{label}" data-column="{index}">{buttons}</div>'


def _list(column: Column, index: int, found: Counter[str]) -> str:
    options = "".join(
        f'<option value="{escape(text)}">{escape(text)} ({found[text]:,})</option>' for text in sorted(found)
    )
    label = escape(column.title)
    return (
        f'<select aria-label="{label}" data-column="{index}"><option value="">{label}: all</option>{options}</select>'
    )
